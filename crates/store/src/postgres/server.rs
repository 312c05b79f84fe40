//! Recognises the PostgreSQL server, and handles a change of server.
//!
//! A promoted replica may lack the last transactions of the server that it replaces. Cached rows are not valid on it,
//! positions of the feed start a new epoch, and fences start above every fence that may have been granted and lost.

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicI64, AtomicU64, Ordering::Relaxed},
    },
    time::Instant,
};

use tenure_core::Millis;
use tokio::sync::watch;
use tokio_postgres::{Client, Error as PgError, Transaction, error::SqlState};

use super::{fault::describe, migrate::LOCK};
use crate::Error;

/// Every role may call these functions unless that was revoked. The timeline is in the first eight digits of the name
/// of a WAL file; the checkpoint's timeline stays the old one for a while after a promotion.
const ASK: &str = "SELECT system_identifier::text, pg_walfile_name(pg_current_wal_insert_lsn()), \
     extract(epoch FROM pg_postmaster_start_time())::text FROM pg_control_system()";

const FACTS: &str = "SELECT m.value::int, coalesce((SELECT e.txn FROM event e WHERE e.epoch = m.value::int \
     ORDER BY e.txn DESC LIMIT 1) > pg_snapshot_xmax(pg_current_snapshot())::text::bigint, false), \
     pg_snapshot_xmax(pg_current_snapshot())::text::bigint, extract(epoch FROM clock_timestamp())::bigint, \
     (SELECT value FROM meta WHERE key = 'server'), (SELECT value FROM meta WHERE key = 'started'), \
     (SELECT value FROM meta WHERE key = 'branch'), \
     coalesce((SELECT value::bigint FROM meta WHERE key = 'fence_floor'), 0) \
     FROM meta m WHERE m.key = 'epoch'";

const SET: &str = "INSERT INTO meta (key, value) VALUES ($1::text, $2::text) \
     ON CONFLICT (key) DO UPDATE SET value = excluded.value";

/// Waits for the groups that are writing events. Later groups read the new epoch as they insert.
const NO_EVENTS: &str = "LOCK TABLE event IN SHARE MODE";

/// A margin for commits of other replicas within the last moment, which this process did not see.
const FLOOR_MARGIN_MS: Millis = 1_000;

/// The second from which epochs are counted: 2026-01-01. They reach until 2094.
const EPOCHS_FROM: i64 = 1_767_225_600;

/// A database cluster on one of its timelines. Each promotion and each restore to a point in time begins a new
/// timeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    system: String,
    timeline: u32,
    /// When the server was started. Two replicas of one primary may be promoted to the same timeline, and restored
    /// files keep theirs.
    started: String,
}

impl Identity {
    /// None if the server cannot tell: some compatible servers have no timelines, and some forbid the question. Any
    /// other failure does not show which server it is, so the connection is not used.
    pub async fn ask(client: &Client) -> Result<Option<Self>, Error> {
        let row = match client.query_one(ASK, &[]).await {
            Ok(row) => row,
            Err(error) if error.code().is_some_and(cannot_tell) => {
                tracing::warn!(error = describe(&error), "the server does not name its timeline");
                return Ok(None);
            }
            Err(error) => return Err(Error::Unavailable(describe(&error))),
        };
        let (system, file, started): (String, String, String) = (row.get(0), row.get(1), row.get(2));
        let timeline = file.get(..8).and_then(|digits| u32::from_str_radix(digits, 16).ok());
        Ok(timeline.map(|timeline| Self { system, timeline, started }))
    }

    fn text(&self) -> String {
        format!("{}/{}", self.system, self.timeline)
    }
}

fn cannot_tell(code: &SqlState) -> bool {
    [SqlState::INSUFFICIENT_PRIVILEGE, SqlState::UNDEFINED_FUNCTION, SqlState::FEATURE_NOT_SUPPORTED]
        .contains(code)
}

/// The servers that this process has met, numbered. A restart of a server also gives it a new number.
#[derive(Default)]
pub(super) struct Servers {
    met: Mutex<Met>,
    number: watch::Sender<u32>,
}

#[derive(Default)]
struct Met {
    identity: Option<Identity>,
    branch: Option<Branch>,
    /// How often a different database was found.
    changes: u32,
    /// The highest transaction of this process that wrote events, and its server's number.
    committed: (u32, i64),
}

impl Met {
    /// Whether a connection reached a different database than earlier ones. For the first connection, only the database
    /// itself can tell.
    fn is_left(&self, branch: &str, other_server: bool) -> bool {
        (other_server && self.changes == 0) || self.branch.as_ref().is_some_and(|known| known.name != branch)
    }
}

/// One history of a database. It has a random name in `meta`, and a new one after each promotion, restore, or return to
/// earlier files.
#[derive(Clone)]
struct Branch {
    name: String,
    /// The server's number when this process first joined the branch.
    since: u32,
    /// The last epoch that this process knows, of this branch or an earlier one.
    epoch: i32,
    /// The count of database changes when a connection last joined.
    changes: u32,
}

/// The database's description of itself.
struct ServerInfo {
    epoch: i32,
    /// A stored position is ahead of the server's own transactions, as after a dump and a restore.
    ahead: bool,
    next_transaction: i64,
    seconds: i64,
    server: Option<String>,
    started: Option<String>,
    branch: Option<String>,
    floor: i64,
}

impl ServerInfo {
    async fn ask(transaction: &Transaction<'_>) -> Result<Self, PgError> {
        let row = transaction.query_one(FACTS, &[]).await?;
        Ok(Self {
            epoch: row.get(0),
            ahead: row.get(1),
            next_transaction: row.get(2),
            seconds: row.get(3),
            server: row.get(4),
            started: row.get(5),
            branch: row.get(6),
            floor: row.get(7),
        })
    }

    fn is_of(&self, branch: &Branch) -> bool {
        self.branch.as_ref() == Some(&branch.name)
    }

    /// Above every known epoch, and above those of lost branches, which only the clock bounds.
    fn next_epoch(&self, known: Option<&Branch>) -> i32 {
        let above = self.epoch.max(known.map_or(0, |branch| branch.epoch)) + 1;
        // A clock that is far ahead must leave room for later epochs.
        above.max((self.seconds - EPOCHS_FROM).clamp(0, i64::from(i32::MAX / 2)) as i32)
    }
}

impl Servers {
    fn met(&self) -> MutexGuard<'_, Met> {
        self.met.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A number that changes with the server.
    pub fn number(&self) -> u32 {
        *self.number.borrow()
    }

    /// Notifies of a change of server.
    pub fn news(&self) -> watch::Receiver<u32> {
        self.number.subscribe()
    }

    /// How often the database changed. A restart of the same server does not count.
    pub fn changes(&self) -> u32 {
        self.met().changes
    }

    /// The number of the server that a new connection reached. A server whose timeline was abandoned by a promotion is
    /// refused: commits on it are lost.
    pub fn meet(&self, identity: Option<&Identity>) -> Result<u32, Error> {
        let Some(identity) = identity else { return Ok(self.number()) };
        let mut met = self.met();
        if let Some(known) = met.identity.as_ref().filter(|known| *known != identity) {
            if known.system == identity.system && known.timeline > identity.timeline {
                return Err(Error::Unavailable(format!(
                    "the server is on timeline {}, and timeline {} was promoted since. Stop the old server; after a \
                     deliberate return to it, restart this process",
                    identity.timeline, known.timeline
                )));
            }
            if known.text() == identity.text() {
                tracing::info!("the database server was started anew");
            } else {
                tracing::error!(
                    from = known.text(),
                    to = identity.text(),
                    "another database server answers: transactions that did not reach it are lost"
                );
                met.changes += 1;
            }
            self.number.send_modify(|number| *number += 1);
        }
        met.identity = Some(identity.clone());
        Ok(self.number())
    }

    /// Records a committed transaction of this process that wrote events.
    pub fn committed(&self, server: u32, transaction: i64) {
        let mut met = self.met();
        met.committed = met.committed.max((server, transaction));
    }

    /// The lowest fence that may be granted, as far as this process knows. Zero while it has met one database only.
    fn floor(&self, fences: &Fences) -> u64 {
        if self.changes() == 0 { 0 } else { fences.floor() }
    }

    /// Joins the ledger's writers on this server: stores the lowest fence that may be granted, and starts an epoch of
    /// positions if new events would otherwise be hidden behind lost ones. Returns the server's number.
    ///
    /// The database is a different one if its server is, if it is on another branch, or if it lacks a transaction that
    /// this process saw committed.
    pub async fn join(
        &self,
        client: &mut Client,
        identity: Option<&Identity>,
        fences: &Fences,
    ) -> Result<u32, Error> {
        let failed = |e: PgError| Error::Unavailable(describe(&e));
        // Read before the server is asked, because other lanes commit meanwhile.
        let (known, committed) = {
            let met = self.met();
            (met.branch.clone(), met.committed)
        };
        let transaction = client.transaction().await.map_err(failed)?;
        transaction.batch_execute(LOCK).await.map_err(failed)?;
        let facts = ServerInfo::ask(&transaction).await.map_err(failed)?;
        let set = async |key: &str, value: &str| {
            transaction.execute(SET, &[&key, &value]).await.map(drop).map_err(failed)
        };
        let (server, started) = identity.map(|identity| (identity.text(), identity.started.clone())).unzip();
        let differs = |stored: &Option<String>, asked: &Option<String>| {
            stored.is_some() && asked.is_some() && stored != asked
        };
        let other = differs(&facts.server, &server);
        let put_back = known.as_ref().is_some_and(|branch| {
            facts.is_of(branch) && committed.0 >= branch.since && facts.next_transaction <= committed.1
        });
        let parted = facts.ahead || other || put_back;
        let branch = match &facts.branch {
            Some(name) if !parted => name.clone(),
            _ => random_name()?,
        };
        let moved = self.met().is_left(&branch, other);
        // If no process has run through the change, restored files are recognisable only by the start of the server.
        let starts = parted
            || differs(&facts.started, &started)
            || known.as_ref().is_some_and(|known| !facts.is_of(known) && facts.epoch <= known.epoch);
        let epoch = if starts { facts.next_epoch(known.as_ref()) } else { facts.epoch };
        if starts {
            transaction.batch_execute(NO_EVENTS).await.map_err(failed)?;
            set("epoch", &epoch.to_string()).await?;
            tracing::info!(epoch, from = ?facts.server, to = ?server, "positions start a new epoch");
        }
        for (key, stored, asked) in
            [("server", &facts.server, &server), ("started", &facts.started, &started)]
        {
            if let Some(value) = asked.as_ref().filter(|_| stored != asked) {
                set(key, value).await?;
            }
        }
        if facts.branch.as_ref() != Some(&branch) {
            set("branch", &branch).await?;
        }
        let floor = if moved { fences.floor() } else { self.floor(fences) };
        if floor as i64 > facts.floor {
            set("fence_floor", &floor.to_string()).await?;
        }
        transaction.commit().await.map_err(failed)?;
        Ok(self.joined(branch, epoch, other))
    }

    /// A connection has joined the writers of this branch. Returns the server's number.
    fn joined(&self, name: String, epoch: i32, other: bool) -> u32 {
        let mut met = self.met();
        let moved = met.is_left(&name, other);
        if moved {
            // Otherwise it was counted when its server was met.
            if met.changes == met.branch.as_ref().map_or(0, |known| known.changes) {
                tracing::error!("the database is another one than before: transactions are lost");
                met.changes += 1;
            }
            self.number.send_modify(|number| *number += 1);
        }
        let known = met.branch.take();
        let since = known.as_ref().filter(|_| !moved).map_or(self.number(), |known| known.since);
        let epoch = known.map_or(epoch, |known| known.epoch.max(epoch));
        met.branch = Some(Branch { name, since, epoch, changes: met.changes });
        self.number()
    }
}

fn random_name() -> Result<String, Error> {
    let mut name = [0; 16];
    getrandom::fill(&mut name).map_err(|error| Error::Unavailable(format!("no randomness: {error}")))?;
    Ok(uuid::Uuid::from_bytes(name).simple().to_string())
}

/// The fences that were granted, as far as this process knows.
pub(super) struct Fences {
    opened: Instant,
    granted: AtomicU64,
    /// The greatest lead of the server's clock over the time since `opened`.
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

    /// A group was committed at this time of the server's clock.
    pub fn saw(&self, now: Millis, granted: impl Iterator<Item = u64>) {
        self.ahead.fetch_max(now - self.elapsed(), Relaxed);
        if let Some(highest) = granted.max() {
            self.granted.fetch_max(highest, Relaxed);
        }
    }

    /// Above every fence that this process saw, and above those that other replicas may have been granted by the same
    /// server's clock until now.
    fn floor(&self) -> u64 {
        let clock = match self.ahead.load(Relaxed) {
            Millis::MIN => 0,
            ahead => (ahead + self.elapsed() + FLOOR_MARGIN_MS).max(0) as u64 * 1024,
        };
        clock.max(self.granted.load(Relaxed) + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(system: &str, timeline: u32) -> Identity {
        Identity { system: system.to_owned(), timeline, started: "1".to_owned() }
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
        assert_eq!(servers.changes(), 2);
        let anew = Identity { started: "2".to_owned(), ..identity("b", 1) };
        assert_eq!(servers.meet(Some(&anew)).unwrap(), 3, "its files may have been put back");
        assert_eq!(servers.changes(), 2, "and may not");
    }

    #[test]
    fn a_change_is_counted_once_however_many_connections_find_it() {
        let servers = Servers::default();
        assert_eq!(servers.meet(Some(&identity("a", 1))).unwrap(), 0);
        let joined = |branch: &str, epoch| servers.joined(branch.to_owned(), epoch, false);
        assert_eq!((joined("one", 1), joined("one", 1), servers.changes()), (0, 0, 0));
        servers.meet(Some(&identity("a", 2))).unwrap();
        assert_eq!((joined("two", 9), servers.changes()), (2, 1), "it was counted when the server was met");
        assert_eq!((joined("two", 9), joined("three", 5), servers.changes()), (2, 3, 2));
        assert_eq!(
            servers.met().branch.as_ref().map(|branch| branch.epoch),
            Some(9),
            "the last that is known"
        );
    }

    #[test]
    fn an_epoch_is_above_those_of_lost_branches() {
        let facts = |epoch, seconds| ServerInfo {
            epoch,
            ahead: false,
            next_transaction: 1,
            seconds,
            server: None,
            started: None,
            branch: None,
            floor: 0,
        };
        let known = Branch { name: "lost".to_owned(), since: 0, epoch: 700, changes: 0 };
        let now = EPOCHS_FROM + 600;
        assert_eq!(facts(1, now).next_epoch(None), 600, "by the clock");
        assert_eq!(facts(650, now).next_epoch(None), 651);
        assert_eq!(facts(1, now).next_epoch(Some(&known)), 701);
        assert_eq!(facts(1, 0).next_epoch(None), 2, "a clock far behind");
        assert!(facts(1, i64::MAX).next_epoch(None) < i32::MAX, "and far ahead");
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
