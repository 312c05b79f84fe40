//! The transitions without a ledger, on a ledger's tables: its indexes, constraints and triggers, its own
//! statements, and values that it wrote itself, for a progress event or a command's life. Nothing is loaded,
//! decided or hashed: the rest is the cost of the tables.

mod cells;
mod columns;
mod marks;
mod postgres;
mod sqlite;

use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt, stream};

use crate::{Result, plan::Commit, site::Place, stats::Rate, subject::Subject};

pub enum Raw {
    Sqlite(sqlite::Raw),
    Postgres(postgres::Raw),
}

/// The transition that one commit makes for each of its work items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Progress,
    /// A work item gets one more command.
    NewCommand,
    /// That command moves to its next state.
    Command,
}

impl Raw {
    /// Transitions of work items. Lets a ledger create the tables and `rows` running work items, each with a
    /// progress event, then continues without it.
    pub async fn transitions(place: &Place, rows: usize, connections: usize) -> Result<Raw> {
        let subject = Subject::new(place.ledger().await?)?;
        let held = subject.hold("raw", rows).await?;
        all(held.iter().map(|lease| subject.progress(lease, 42))).await?;
        let mut raw = Raw::open(place, connections).await?;
        raw.learn(Stage::Progress).await?;
        subject.close().await?;
        Ok(raw)
    }

    /// Lives of commands: reserved, dispatched, receipted. Lets a ledger take a command of each of `rows`
    /// work items through these stages, and reads the values back after each.
    pub async fn commands(place: &Place, rows: usize) -> Result<Raw> {
        let subject = Subject::new(place.ledger().await?)?;
        let held = subject.hold("raw", rows).await?;
        let mut raw = Raw::open(place, 1).await?;
        let ids = all(held.iter().map(|lease| subject.reserve(lease))).await?;
        raw.learn(Stage::NewCommand).await?;
        all(held.iter().zip(&ids).map(|(lease, id)| subject.dispatch(lease, *id))).await?;
        raw.learn(Stage::Command).await?;
        all(held.iter().zip(&ids).map(|(lease, id)| subject.receipt(lease, *id))).await?;
        raw.learn(Stage::Command).await?;
        subject.close().await?;
        Ok(raw)
    }

    async fn open(place: &Place, connections: usize) -> Result<Raw> {
        Ok(match place {
            Place::Sqlite(path) => Raw::Sqlite(sqlite::Raw::open(path)?),
            Place::Postgres(url) => Raw::Postgres(postgres::Raw::open(url, connections).await?),
        })
    }

    /// Uses the transition that the ledger has just made of every work item for the next stage.
    async fn learn(&mut self, stage: Stage) -> Result<()> {
        match self {
            Raw::Sqlite(raw) => raw.learn(stage),
            Raw::Postgres(raw) => raw.learn(stage).await,
        }
    }

    /// Counts transitions of work items, or lives of commands. A life takes three commits.
    pub async fn run(&mut self, commit: Commit, slice: Duration) -> Result<Rate> {
        match self {
            Raw::Sqlite(raw) => raw.run(commit.size, slice),
            Raw::Postgres(raw) => raw.run(commit, slice).await,
        }
    }
}

/// The initial state is created through the ledger, with enough concurrent calls to fill its groups.
async fn all<T>(calls: impl Iterator<Item = impl Future<Output = Result<T>>>) -> Result<Vec<T>> {
    stream::iter(calls).buffered(1_024).try_collect().await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pg;

    const SLICE: Duration = Duration::from_millis(20);
    const WORKS: usize = 20;

    /// Each work item has been ingested, claimed and reported on before raw starts.
    const BEFORE: u64 = 3 * WORKS as u64;

    /// The events, the ones that follow their predecessor, and the positions according to the work items.
    const KEPT: &str = "SELECT (SELECT count(*) FROM event), \
         (SELECT count(*) FROM event e WHERE e.seq = 1 OR e.prev_hash = \
          (SELECT p.hash FROM event p WHERE p.work = e.work AND p.seq = e.seq - 1)), \
         (SELECT CAST(sum(seq) AS bigint) FROM work)";

    /// The commands, the succeeded ones, and the events of each kind.
    const COMMANDS: &str = "SELECT (SELECT count(*) FROM command), \
         (SELECT count(*) FROM command c JOIN event e ON e.work = c.work AND e.seq = c.seq \
          WHERE c.state = {succeeded} AND c.dispatches = 1 AND c.due_at IS NULL AND e.type = 'command_succeeded'), \
         (SELECT count(*) FROM event WHERE type = 'command_reserved'), \
         (SELECT count(*) FROM event WHERE type = 'command_dispatched'), \
         (SELECT count(*) FROM event WHERE type = 'command_succeeded')";

    /// Rows of the narrow table that agree.
    const TWINS: &str = "SELECT count(*) FROM command_status WHERE state = {succeeded} AND due_at IS NULL";

    /// How many transitions raw made, with commits of several sizes.
    async fn run(raw: &mut Raw, commits: &[(usize, usize)]) -> u64 {
        let mut count = 0;
        for (connections, size) in commits.iter().copied() {
            count += raw.run(Commit { connections, size }, SLICE).await.unwrap().count;
        }
        assert!(count > 0);
        count
    }

    /// The triggers are active: one step ahead of its work items, raw gets the error that an event does not
    /// follow.
    async fn refused(raw: &mut Raw) {
        let error = raw.run(Commit { connections: 1, size: 1 }, SLICE).await.unwrap_err();
        assert!(crate::told(&*error).contains("follow"), "{error:?}");
    }

    fn named(sql: &str) -> String {
        sql.replace("{succeeded}", &tenure_core::CommandState::Succeeded.code().to_string())
    }

    fn sqlite<const N: usize>(path: &std::path::Path, sql: &str) -> [i64; N] {
        let connection = rusqlite::Connection::open(path).unwrap();
        let row =
            connection.query_row(&named(sql), [], |row| Ok(std::array::from_fn(|at| row.get(at).unwrap())));
        row.unwrap()
    }

    async fn postgres<const N: usize>(url: &str, sql: &str) -> [i64; N] {
        let row = pg::connect(url).await.unwrap().query_one(&named(sql), &[]).await.unwrap();
        std::array::from_fn(|at| row.get(at))
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn sqlite_keeps_what_is_counted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("raw.db");
        let mut raw = Raw::transitions(&Place::Sqlite(path.clone()), WORKS, 1).await.unwrap();
        let count = (BEFORE + run(&mut raw, &[(1, 1), (1, 7)]).await) as i64;
        assert_eq!(sqlite(&path, KEPT), [count; 3]);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn postgres_keeps_what_is_counted() {
        let url = tenure_testkit::shared().create_database();
        let mut raw = Raw::transitions(&Place::Postgres(url.clone()), WORKS, 2).await.unwrap();
        let count = (BEFORE + run(&mut raw, &[(1, 1), (2, 5)]).await) as i64;
        assert_eq!(postgres(&url, KEPT).await, [count; 3]);
    }

    /// Ingested and claimed, and three events for each command.
    fn events(commands: i64) -> i64 {
        2 * WORKS as i64 + 3 * commands
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn sqlite_keeps_every_life_of_a_command() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("raw.db");
        let mut raw = Raw::commands(&Place::Sqlite(path.clone()), WORKS).await.unwrap();
        let commands = WORKS as i64 + run(&mut raw, &[(1, 1), (1, 7), (1, WORKS)]).await as i64;
        assert_eq!(sqlite(&path, KEPT), [events(commands); 3]);
        assert_eq!(sqlite(&path, COMMANDS), [commands; 5]);
        let Raw::Sqlite(inner) = &mut raw else { unreachable!() };
        inner.marks.step(0..WORKS);
        refused(&mut raw).await;
        assert_eq!(sqlite(&path, COMMANDS), [commands; 5]);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn postgres_keeps_every_life_of_a_command() {
        let url = tenure_testkit::shared().create_database();
        let mut raw = Raw::commands(&Place::Postgres(url.clone()), WORKS).await.unwrap();
        let commands = WORKS as i64 + run(&mut raw, &[(1, 1), (1, 7), (1, WORKS)]).await as i64;
        assert_eq!(postgres(&url, KEPT).await, [events(commands); 3]);
        assert_eq!(postgres(&url, COMMANDS).await, [commands; 5]);
        assert_eq!(postgres(&url, TWINS).await, [commands]);
        let Raw::Postgres(inner) = &mut raw else { unreachable!() };
        inner.lanes[0].marks.step(0..WORKS);
        refused(&mut raw).await;
        assert_eq!(postgres(&url, COMMANDS).await, [commands; 5]);
    }
}
