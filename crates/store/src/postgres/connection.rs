//! One connection: its settings, its prepared statements, and pipelines of statements over it.

use std::{
    collections::HashMap,
    future::Future,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use futures_util::{TryStreamExt, future::join_all};
use tokio::task::AbortHandle;
use tokio_postgres::{Client, Row, Statement, types::ToSql};

use super::{
    cache::{Version, Xid},
    fault::Fault,
    server::Identity,
};

pub(super) type Param<'a> = Box<dyn ToSql + Sync + Send + 'a>;

/// Parameters in the order of `$n`.
macro_rules! params {
    ($($value:expr),* $(,)?) => {
        vec![$(Box::new($value) as $crate::postgres::connection::Param<'_>),*]
    };
}
pub(super) use params;

/// Read committed, because rows that are read after a lock must be current. No statement of the ledger runs long. Plans
/// are made once and always use indexes: a table may be empty when a statement is planned, and huge when it runs.
pub const SETTINGS: &str = "SET default_transaction_isolation = 'read committed'; \
     SET statement_timeout = '25s'; \
     SET idle_in_transaction_session_timeout = '30s'; \
     SET jit = off; SET plan_cache_mode = force_generic_plan; \
     SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off";

/// The result of one statement.
pub(super) struct Given {
    pub rows: Vec<Row>,
    pub affected: u64,
}

pub(super) struct PgConnection {
    pub client: Client,
    /// The number that this process gave the server.
    pub server: u32,
    pub identity: Option<Identity>,
    prepared: Mutex<HashMap<&'static str, Statement>>,
    /// The task that moves the connection's bytes.
    driver: AbortHandle,
    answer_within: Duration,
}

impl Drop for PgConnection {
    /// Without this, the driver would wait for outstanding responses.
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl PgConnection {
    pub fn new(client: Client, driver: AbortHandle, answer_within: Duration) -> Self {
        Self { client, server: 0, identity: None, prepared: Mutex::default(), driver, answer_within }
    }

    /// A transaction of this connection's server.
    pub fn version(&self, xid: Xid) -> Version {
        Version { server: self.server, xid }
    }

    /// Waits for a response, up to the connection's time limit.
    pub async fn within<T, E: Into<Fault>>(
        &self,
        exchange: impl Future<Output = Result<T, E>>,
    ) -> Result<T, Fault> {
        match tokio::time::timeout(self.answer_within, exchange).await {
            Ok(answer) => answer.map_err(Into::into),
            Err(_) => Err(self.cut()),
        }
    }

    /// Ends a connection whose server no longer responds: others that wait on it get the error, and it is not used
    /// again.
    pub fn cut(&self) -> Fault {
        self.driver.abort();
        Fault::Lost(format!("the server has not answered for {} ms", self.answer_within.as_millis()))
    }

    /// Prepares the statements that this connection has not prepared yet.
    async fn prepare(&self, steps: &[(&'static str, Vec<Param<'_>>)]) -> Result<Vec<Statement>, Fault> {
        let mut statements = Vec::with_capacity(steps.len());
        for (sql, _) in steps {
            let known = self.known(sql);
            let statement = match known {
                Some(statement) => statement,
                None => {
                    let statement = self.client.prepare(sql).await?;
                    self.prepared
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .insert(sql, statement.clone());
                    statement
                }
            };
            statements.push(statement);
        }
        Ok(statements)
    }

    fn known(&self, sql: &str) -> Option<Statement> {
        self.prepared.lock().unwrap_or_else(PoisonError::into_inner).get(sql).cloned()
    }

    /// A single statement.
    pub async fn query(&self, sql: &'static str, params: Vec<Param<'_>>) -> Result<Vec<Row>, Fault> {
        let mut pipeline = Pipeline::default();
        let at = pipeline.add(sql, params);
        Ok(pipeline.run(self).await?.take(at))
    }
}

/// Statements that are sent together in one round trip, and executed in order.
#[derive(Default)]
pub(super) struct Pipeline<'a> {
    steps: Vec<(&'static str, Vec<Param<'a>>)>,
}

/// The results of a pipeline, by the number that `add` returned.
pub(super) struct Results(Vec<Given>);

impl Results {
    pub fn take(&mut self, at: usize) -> Vec<Row> {
        std::mem::take(&mut self.0[at].rows)
    }

    pub fn maybe(&mut self, at: Option<usize>) -> Vec<Row> {
        at.map(|at| self.take(at)).unwrap_or_default()
    }

    pub fn affected(&self, at: usize) -> u64 {
        self.0[at].affected
    }
}

impl<'a> Pipeline<'a> {
    pub fn add(&mut self, sql: &'static str, params: Vec<Param<'a>>) -> usize {
        self.steps.push((sql, params));
        self.steps.len() - 1
    }

    /// Adds a statement only if it has something to do.
    pub fn add_if(
        &mut self,
        wanted: bool,
        sql: &'static str,
        params: impl FnOnce() -> Vec<Param<'a>>,
    ) -> Option<usize> {
        wanted.then(|| self.add(sql, params()))
    }

    /// The first fault is the cause of all later ones.
    pub async fn run(self, session: &PgConnection) -> Result<Results, Fault> {
        session.within(self.exchange(session)).await
    }

    async fn exchange(self, session: &PgConnection) -> Result<Results, Fault> {
        let statements = session.prepare(&self.steps).await?;
        let sent = self.steps.into_iter().zip(&statements).map(|((_, params), statement)| {
            // `join_all` polls them in order, and the first poll sends.
            Box::pin(one(&session.client, statement, params))
        });
        let sent: Vec<_> = sent.collect();
        let mut results = Vec::with_capacity(sent.len());
        for given in join_all(sent).await {
            results.push(given?);
        }
        Ok(Results(results))
    }
}

async fn one(
    client: &Client,
    statement: &Statement,
    params: Vec<Param<'_>>,
) -> Result<Given, tokio_postgres::Error> {
    let stream = client.query_raw(statement, params).await?;
    let mut stream = std::pin::pin!(stream);
    let mut rows = Vec::new();
    while let Some(row) = stream.try_next().await? {
        rows.push(row);
    }
    Ok(Given { rows, affected: stream.rows_affected().unwrap_or(0) })
}

#[cfg(test)]
mod tests {
    use crate::{Options, postgres::connect::Connector};

    /// Rows that are read after a lock must be current: under one old snapshot, locks would protect nothing.
    #[tokio::test]
    async fn every_statement_sees_what_is_committed_whatever_the_database_prefers() {
        let made = tokio::task::spawn_blocking(|| tenure_testkit::shared().create_database()).await;
        let url = format!("{}?options=-c%20default_transaction_isolation%3Dserializable", made.unwrap());
        let session = Connector::new(&url, &Options::default()).unwrap().session().await.unwrap();
        let row = session.client.query_one("SHOW transaction_isolation", &[]).await.unwrap();
        assert_eq!(row.get::<_, &str>(0), "read committed");
    }
}
