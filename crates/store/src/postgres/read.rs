//! Reads, on their own connections, so that no read waits for a writer.

use std::{pin::pin, sync::Arc};

use futures_util::TryStreamExt;
use tenure_core::{
    Millis,
    action::{Names, Tenants},
    limits,
};
use tokio::sync::Mutex;
use tokio_postgres::{Client, Row, types::ToSql};

use super::{
    Shared,
    connection::{Param, PgConnection, params},
    fault::Fault,
    row::get,
    seats::Seats,
    time::Time,
};
use crate::{Error, fair};

const NOW: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint";

/// A shared connection for the daemon's own reads, reopened when it was lost, and the connections for tenants' reads.
pub(super) struct Reader {
    pub shared: Arc<Shared>,
    session: Mutex<Option<Arc<PgConnection>>>,
    seats: Arc<Seats>,
}

impl Reader {
    pub fn new(shared: Arc<Shared>, seats: Arc<Seats>) -> Self {
        Self { shared, session: Mutex::new(None), seats }
    }

    pub async fn session(&self) -> Result<Arc<PgConnection>, Error> {
        let mut session = self.session.lock().await;
        if let Some(session) = session.as_ref().filter(|session| self.shared.connector.is_usable(session)) {
            return Ok(session.clone());
        }
        let new = Arc::new(self.shared.connector.session().await?);
        *session = Some(new.clone());
        Ok(new)
    }

    /// A separate connection, for long reads and transactions.
    pub async fn own_session(&self) -> Result<PgConnection, Error> {
        self.shared.connector.session().await
    }

    pub async fn query(&self, sql: &'static str, params: Vec<Param<'_>>) -> Result<Vec<Row>, Error> {
        if let Some(tenant) = fair::beneficiary() {
            let seat = self.seats.take(tenant).await?;
            let answer = seat.query(sql, params).await;
            return seat.answered(answer);
        }
        self.query_own(sql, params).await
    }

    /// The same without a turn, for reads that the daemon itself needs for a request.
    pub async fn query_own(&self, sql: &'static str, params: Vec<Param<'_>>) -> Result<Vec<Row>, Error> {
        let session = self.session().await?;
        session.query(sql, params).await.map_err(|fault| fault.error())
    }

    /// A statement that writes and commits by itself. If the response is lost, the outcome is unknown.
    pub async fn write(&self, sql: &'static str, params: Vec<Param<'_>>) -> Result<Vec<Row>, Error> {
        let session = self.session().await?;
        session.query(sql, params).await.map_err(|fault| fault.at_commit().error())
    }

    /// A page of a list, up to the byte limit, by a statement that is not prepared.
    pub async fn page(&self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, Error> {
        if let Some(tenant) = fair::beneficiary() {
            let seat = self.seats.take(tenant).await?;
            let answer = seat.within(until_heavy(&seat.client, sql, params)).await;
            return seat.answered(answer);
        }
        let session = self.session().await?;
        session.within(until_heavy(&session.client, sql, params)).await.map_err(|fault| fault.error())
    }

    pub async fn now(&self, time: &Time) -> Result<Millis, Error> {
        let asked = async {
            let session = self.session().await?;
            loop {
                time.beat(&session).await?;
                let from = time.begin();
                let rows = session.query(NOW, params![]).await?;
                let row = rows.first().ok_or_else(|| Fault::Lost("the server told no time".to_owned()))?;
                match time.at(get(row, 0)?, from) {
                    Err(Fault::Again(_)) => {}
                    now => return now,
                }
            }
        };
        asked.await.map_err(|fault: Fault| fault.error())
    }
}

/// Rows up to the byte limit. Later rows are dropped as they arrive.
async fn until_heavy(
    client: &Client,
    sql: &str,
    params: &[Param<'_>],
) -> Result<Vec<Row>, tokio_postgres::Error> {
    let params = params.iter().map(|param| &**param as &(dyn ToSql + Sync));
    let mut sent = pin!(client.query_raw(sql, params).await?);
    let (mut rows, mut bytes) = (Vec::new(), 0);
    while let Some(row) = sent.try_next().await? {
        bytes += row.raw_size_bytes();
        rows.push(row);
        if bytes >= limits::PAGE_BYTES {
            break;
        }
    }
    Ok(rows)
}

/// The first rows of several sorted parts.
pub(super) fn first<T: Ord>(mut rows: Vec<T>, limit: usize) -> Vec<T> {
    rows.sort_unstable();
    rows.truncate(limit);
    rows
}

/// None: all tenants.
pub(super) fn listed(tenants: &Tenants) -> Option<&[String]> {
    match tenants {
        Tenants::All => None,
        Tenants::Only(list) => Some(list),
    }
}

/// A list's conditions and their parameters.
#[derive(Default)]
pub(super) struct List<'a> {
    pub wanted: Vec<String>,
    pub params: Vec<Param<'a>>,
}

impl<'a> List<'a> {
    pub fn param(&mut self, value: impl ToSql + Sync + Send + 'a) -> String {
        self.params.push(Box::new(value));
        format!("${}", self.params.len())
    }

    pub fn want(&mut self, left: &str, value: impl ToSql + Sync + Send + 'a) {
        let param = self.param(value);
        self.wanted.push(format!("{left} {param}"));
    }

    pub fn names(&mut self, column: &str, names: Option<&'a Names>) {
        // A single name can use an index; several names are only a condition.
        if let Some(Names::Only(list)) = names
            && let [only] = list.as_slice()
        {
            self.want(&format!("{column} ="), only.as_str());
        } else if let Some(Names::Only(list)) = names {
            let param = self.param(list.as_slice());
            self.wanted.push(format!("{column} = ANY({param})"));
        }
    }
}
