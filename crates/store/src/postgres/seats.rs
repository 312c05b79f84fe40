//! The connections for reads on behalf of tenants, which take turns. Each is used for one read at a time, so a slow
//! read delays no other tenant, and the server stops it at its time limit.

use std::{
    ops::Deref,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::runtime::Handle;

use super::{connect::Connector, connection::PgConnection, fault::Fault};
use crate::{
    Error,
    error::READ_WITHIN,
    fair::{Fair, Turn},
};

/// The number of connections for tenants' reads, and how many of them one tenant may use. With fewer, one tenant could
/// use all of them.
const TENANTS: usize = 3;
const SHARE: usize = 2;

/// The code in the message of a statement that exceeded its time limit.
const STOPPED: &str = "(57014)";

pub(super) struct Seats {
    connector: Arc<Connector>,
    turns: Arc<Fair>,
    idle: Mutex<Vec<PgConnection>>,
}

impl Seats {
    pub fn new(connector: Arc<Connector>) -> Arc<Self> {
        Arc::new(Self { connector, turns: Fair::new(TENANTS, SHARE), idle: Mutex::default() })
    }

    /// A connection for one read, in the tenant's turn.
    pub async fn take(self: &Arc<Self>, tenant: Arc<str>) -> Result<Seat, Error> {
        let turn = tokio::time::timeout(READ_WITHIN, self.turns.turn(tenant)).await;
        let turn = turn.map_err(|_| Error::ReadTimeout)?;
        let session = match self.take_idle() {
            Some(session) => session,
            None => {
                let session = self.connector.session().await?;
                let limit = format!("SET statement_timeout = {}", READ_WITHIN.as_millis());
                session.within(session.client.batch_execute(&limit)).await.map_err(|fault| fault.error())?;
                session
            }
        };
        Ok(Seat { held: Some((session, turn)), of: self.clone(), done: false })
    }

    fn idle(&self) -> MutexGuard<'_, Vec<PgConnection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An idle connection to the current server. Connections to another server are closed.
    fn take_idle(&self) -> Option<PgConnection> {
        let mut idle = self.idle();
        idle.retain(|session| self.connector.is_usable(session));
        idle.pop()
    }

    fn put_back(&self, session: PgConnection) {
        if self.connector.is_usable(&session) {
            self.idle().push(session);
        }
    }
}

pub(super) struct Seat {
    held: Option<(PgConnection, Turn)>,
    of: Arc<Seats>,
    done: bool,
}

impl Seat {
    /// The response was read completely, so the connection is clean.
    pub fn answered<T>(mut self, answer: Result<T, Fault>) -> Result<T, Error> {
        self.done = true;
        answer.map_err(|fault| match fault {
            Fault::Lost(text) if text.contains(STOPPED) => Error::ReadTimeout,
            other => other.error(),
        })
    }
}

impl Deref for Seat {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.held.as_ref().expect("it is taken only when the seat is dropped").0
    }
}

impl Drop for Seat {
    /// A read whose caller has left continues on the server. It keeps its turn until it has ended there; otherwise
    /// callers that leave could use any number of connections.
    fn drop(&mut self) {
        let Some((session, turn)) = self.held.take() else { return };
        let of = self.of.clone();
        if self.done {
            of.put_back(session);
            // The next reader finds the connection that was just returned.
            drop(turn);
        } else if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move {
                // The server responds to this after the running statement.
                if session.within(session.client.simple_query("")).await.is_ok() {
                    of.put_back(session);
                }
                drop(turn);
            });
        }
    }
}
