//! Which PostgreSQL server answers, and what follows when it is another one than before.
//!
//! A promoted replica may lack the last transactions of the server that it replaces. Nothing that this process
//! remembers of rows is valid there, positions of the feed start a new epoch, and fences start above every fence that
//! may have been granted and lost.

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicI64, AtomicU64, Ordering::Relaxed},
    },
    time::Instant,
};

use tenure_core::Millis;
use tokio::sync::watch;
use tokio_postgres::{Client, Error as PgError, error::SqlState};

use super::{fault::describe, migrate::LOCK};
use crate::Error;

/// Every role may call these, unless somebody forbade it. The timeline is in the first eight digits of a WAL file's name; the checkpoint's own
/// timeline is still the old one for a while after a promotion.
const ASK: &str = "SELECT system_identifier::text, pg_walfile_name(pg_current_wal_insert_lsn()) \
     FROM pg_control_system()";

const FACTS: &str = "SELECT m.value::int, coalesce((SELECT e.txn FROM event e WHERE e.epoch = m.value::int \
     ORDER BY e.txn DESC LIMIT 1) > pg_snapshot_xmax(pg_current_snapshot())::text::bigint, false), \
     (SELECT value FROM meta WHERE key = 'server'), \
     coalesce((SELECT value::bigint FROM meta WHERE key = 'fence_floor'), 0) \
     FROM meta m WHERE m.key = 'epoch'";

const SET: &str = "INSERT INTO meta (key, value) VALUES ($1::text, $2::text) \
     ON CONFLICT (key) DO UPDATE SET value = excluded.value";

/// Commits that the other replicas of this process made within the last moment, and that it did not see.
const FLOOR_MARGIN_MS: Millis = 1_000;

/// A database cluster on one of its timelines. A promotion and a restore to a point in time each begin a new timeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    system: String,
    timeline: u32,
}

impl Identity {
    /// None where the server cannot tell: some that only look like PostgreSQL have no timelines, and some forbid the
    /// question. Any other failure says nothing about which server it is, so the connection is not used.
    pub async fn ask(client: &Client) -> Result<Option<Self>, Error> {
        let row = match client.query_one(ASK, &[]).await {
            Ok(row) => row,
            Err(error) if error.code().is_some_and(cannot_tell) => {
                tracing::warn!(error = describe(&error), "the server does not name its timeline");
                return Ok(None);
            }
            Err(error) => return Err(Error::Unavailable(describe(&error))),
        };
        let (system, file): (String, String) = (row.get(0), row.get(1));
        let timeline = file.get(..8).and_then(|digits| u32::from_str_radix(digits, 16).ok());
        Ok(timeline.map(|timeline| Self { system, timeline }))
    }

    fn text(&self) -> String {
        format!("{}/{}", self.system, self.timeline)
    }
}

fn cannot_tell(code: &SqlState) -> bool {
    [SqlState::INSUFFICIENT_PRIVILEGE, SqlState::UNDEFINED_FUNCTION, SqlState::FEATURE_NOT_SUPPORTED]
        .contains(code)
}

/// The servers that this process met, numbered: a number is never given to two of them.
#[derive(Default)]
pub(super) struct Servers {
    current: Mutex<Option<Identity>>,
    number: watch::Sender<u32>,
}

impl Servers {
    fn lock(&self) -> MutexGuard<'_, Option<Identity>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes whenever another server answers.
    pub fn number(&self) -> u32 {
        *self.number.borrow()
    }

    /// Tells when another server answers.
    pub fn changes(&self) -> watch::Receiver<u32> {
        self.number.subscribe()
    }

    /// The number of the server that a new connection reached. A server whose timeline was left behind by a promotion
    /// is refused: nothing that is written there lasts.
    pub fn meet(&self, identity: Option<&Identity>) -> Result<u32, Error> {
        let Some(identity) = identity else { return Ok(self.number()) };
        let mut current = self.lock();
        match &*current {
            None => *current = Some(identity.clone()),
            Some(known) if known == identity => {}
            Some(known) if known.system == identity.system && known.timeline > identity.timeline => {
                return Err(Error::Unavailable(format!(
                    "the server is on timeline {}, and timeline {} was promoted since. Stop the old server; after a \
                     deliberate return to it, restart this process",
                    identity.timeline, known.timeline
                )));
            }
            Some(known) => {
                tracing::error!(
                    from = known.text(),
                    to = identity.text(),
                    "another database server answers: transactions that did not reach it are lost"
                );
                *current = Some(identity.clone());
                self.number.send_modify(|number| *number += 1);
            }
        }
        Ok(self.number())
    }

    /// The database was last written on another server, which this process did not meet. Returns the number of the
    /// server that answers.
    pub fn moved(&self) -> u32 {
        let _current = self.lock();
        // Otherwise this process has met that server, and counted the change.
        self.number.send_if_modified(|number| {
            let first = *number == 0;
            *number += u32::from(first);
            first
        });
        self.number()
    }

    /// Below which fence nothing is granted, as far as this process knows: zero while it has met one server only.
    pub fn floor(&self, fences: &Fences) -> u64 {
        if self.number() == 0 { 0 } else { fences.floor() }
    }
}

/// What this process knows of the fences that were granted.
pub(super) struct Fences {
    opened: Instant,
    granted: AtomicU64,
    /// The most that the server's clock was ahead of the time since `opened`.
    ahead: AtomicI64,
}

impl Default for Fences {
    fn default() -> Self {
        Self { opened: Instant::now(), granted: AtomicU64::new(0), ahead: AtomicI64::new(Millis::MIN) }
    }
}

impl Fences {
    fn elapsed(&self) -> Millis {
        self.opened.elapsed().as_millis() as Millis
    }

    /// A group was committed at this moment of the server's clock.
    pub fn saw(&self, now: Millis, granted: impl Iterator<Item = u64>) {
        self.ahead.fetch_max(now - self.elapsed(), Relaxed);
        if let Some(highest) = granted.max() {
            self.granted.fetch_max(highest, Relaxed);
        }
    }

    /// Above every fence that this process saw, and above those that other replicas were granted by the same server's
    /// clock until now.
    fn floor(&self) -> u64 {
        let clock = match self.ahead.load(Relaxed) {
            Millis::MIN => 0,
            ahead => (ahead + self.elapsed() + FLOOR_MARGIN_MS).max(0) as u64 * 1024,
        };
        clock.max(self.granted.load(Relaxed) + 1)
    }
}

/// Joins the ledger's writers on this server: stores below which fence nothing is granted, and returns the epoch of
/// positions and whether the last to join did so on another server.
///
/// An epoch starts where the server is another one than that of the last epoch, and where a stored position is ahead
/// of the server's own transactions, as after a dump and a restore: otherwise new events would hide behind old ones.
pub(super) async fn join(
    client: &mut Client,
    identity: Option<&Identity>,
    floor: u64,
) -> Result<(i32, bool), Error> {
    let failed = |e: PgError| Error::Unavailable(describe(&e));
    let transaction = client.transaction().await.map_err(failed)?;
    transaction.batch_execute(LOCK).await.map_err(failed)?;
    let row = transaction.query_one(FACTS, &[]).await.map_err(failed)?;
    let (mut epoch, ahead): (i32, bool) = (row.get(0), row.get(1));
    let (known, lifted): (Option<String>, i64) = (row.get(2), row.get(3));
    let identity = identity.map(Identity::text);
    let other = known.is_some() && identity.is_some() && known != identity;
    if ahead || other {
        epoch += 1;
        transaction.execute(SET, &[&"epoch", &epoch.to_string()]).await.map_err(failed)?;
        tracing::info!(epoch, ?known, ?identity, "positions start a new epoch: the database is another one");
    }
    if identity.is_some() && known != identity {
        transaction.execute(SET, &[&"server", &identity]).await.map_err(failed)?;
    }
    if floor as i64 > lifted {
        transaction.execute(SET, &[&"fence_floor", &floor.to_string()]).await.map_err(failed)?;
    }
    transaction.commit().await.map_err(failed)?;
    Ok((epoch, other))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(system: &str, timeline: u32) -> Identity {
        Identity { system: system.to_owned(), timeline }
    }

    #[test]
    fn each_server_has_a_number_and_one_left_behind_is_refused() {
        let servers = Servers::default();
        assert_eq!(servers.meet(Some(&identity("a", 1))).unwrap(), 0);
        assert_eq!(servers.meet(Some(&identity("a", 1))).unwrap(), 0);
        assert_eq!(servers.meet(Some(&identity("a", 2))).unwrap(), 1, "promoted");
        let refused = servers.meet(Some(&identity("a", 1))).unwrap_err().to_string();
        assert!(refused.contains("timeline 2 was promoted"), "{refused}");
        assert_eq!(servers.meet(Some(&identity("b", 1))).unwrap(), 2, "another cluster");
        assert_eq!(servers.meet(None).unwrap(), 2);
    }

    async fn asked(before: &str) -> Result<Option<Identity>, Error> {
        let url = tokio::task::spawn_blocking(|| tenure_testkit::shared().create_database()).await.unwrap();
        let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        let _fails_where_it_should = client.batch_execute(before).await;
        Identity::ask(&client).await
    }

    #[tokio::test]
    async fn a_failed_question_is_no_proof_that_the_server_is_the_same() {
        assert!(asked("").await.unwrap().is_some());
        let aborted = asked("BEGIN; SELECT 1 / 0").await;
        assert!(matches!(&aborted, Err(Error::Unavailable(why)) if why.contains("25P02")), "{aborted:?}");
        let forbidden = "REVOKE ALL ON FUNCTION pg_control_system() FROM PUBLIC; SET ROLE pg_signal_backend";
        assert_eq!(asked(forbidden).await.unwrap(), None, "a server may forbid the question");
    }

    #[test]
    fn the_floor_is_above_everything_that_may_have_been_granted() {
        let servers = Servers::default();
        let fences = Fences::default();
        fences.saw(1_000_000, [7, 5].into_iter());
        fences.saw(940_000, std::iter::empty());
        assert_eq!(servers.floor(&fences), 0, "nothing was lost yet");
        servers.meet(Some(&identity("a", 1))).unwrap();
        servers.meet(Some(&identity("a", 2))).unwrap();
        assert!(servers.floor(&fences) >= 1_000_000 * 1024, "by the clock that was ahead");
        fences.saw(940_000, [u64::from(u32::MAX) * 1024].into_iter());
        assert!(servers.floor(&fences) > u64::from(u32::MAX) * 1024, "and what was granted ahead of it");
    }
}
