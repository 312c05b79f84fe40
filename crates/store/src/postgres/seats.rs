//! The connections that reads on behalf of tenants take in turns, each for one read at a time: a slow one delays nobody
//! else who has a turn, and the server stops it at its deadline.

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

/// Connections for tenants' reads, and how many of them one tenant may have; with fewer, one tenant would have all.
const TENANTS: usize = 3;
const SHARE: usize = 2;

/// How the server's refusal of a statement that took too long is described.
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

    /// An idle connection to the server that answers now; those to another one are closed.
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
    /// The read has been answered, so that nothing of it is left on the connection.
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
    /// A read whose asker has left goes on at the server: it keeps its turn until it has ended there, or else askers
    /// that leave would have as many connections as they like.
    fn drop(&mut self) {
        let Some((session, turn)) = self.held.take() else { return };
        let of = self.of.clone();
        if self.done {
            of.put_back(session);
            // The next reader finds the connection that was just put back.
            drop(turn);
        } else if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move {
                // Answered in its turn: after what is still running.
                if session.within(session.client.simple_query("")).await.is_ok() {
                    of.put_back(session);
                }
                drop(turn);
            });
        }
    }
}
