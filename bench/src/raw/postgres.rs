//! Raw transitions on PostgreSQL: the ledger's two statements with their rows as arrays, sent in one go with
//! BEGIN and COMMIT. What they bind is read from what the ledger wrote, and kept by columns: a commit binds
//! slices of them and builds nothing.

use std::{ops::Range, time::Duration};

use tenure_store::postgres_bench_support::{INSERT_EVENT, UPDATE_WORK};
use tokio_postgres::{Client, Statement};

use super::{
    cells::{Cells, Param},
    columns::{Columns, Moving},
};
use crate::{Result, pg, plan::Commit, stats::Rate};

pub struct Raw {
    lanes: Vec<Lane>,
}

/// A connection and the works that it alone goes round on.
struct Lane {
    client: Client,
    insert: Statement,
    update: Statement,
    /// What the statements bind: for each parameter a column, in it a cell for each work.
    events: Vec<Cells>,
    rows: Vec<Cells>,
    moving: Moving,
    /// Where the events' place in the feed is, and the next one.
    txn: (usize, i64),
    works: usize,
    /// The work whose turn it is.
    next: usize,
    done: usize,
}

impl Raw {
    pub async fn open(url: &str, connections: usize) -> Result<Raw> {
        let mut lanes = Vec::new();
        for number in 0..connections {
            lanes.push(Lane::open(url, number, connections).await?);
        }
        Ok(Raw { lanes })
    }

    pub async fn run(&mut self, commit: Commit, slice: Duration) -> Result<Rate> {
        pg::run(&mut self.lanes, commit, slice).await
    }
}

impl Lane {
    /// Takes one share of the works out of so many.
    async fn open(url: &str, number: usize, shares: usize) -> Result<Lane> {
        let client = pg::connect(url).await?;
        let event = Columns::listed(INSERT_EVENT, "INTO event (")?;
        let row = Columns::listed(UPDATE_WORK, "AS v(")?;
        let sql = format!(
            "SELECT {}, {} FROM work JOIN event ON event.work = work.id AND event.seq = work.seq ORDER BY work.id",
            event.of("event"),
            row.of("work")
        );
        let found = client.query(&sql, &[]).await?;
        let works = found.len() / shares;
        let mine = &found[number * works..(number + 1) * works];
        let cells = |range: Range<usize>| range.map(|at| Cells::read(mine, at)).collect::<Result<Vec<_>>>();
        let split = event.0.len();
        let last: i64 = client.query_one("SELECT max(txn) FROM event", &[]).await?.try_get(0)?;
        Ok(Lane {
            insert: client.prepare(INSERT_EVENT).await?,
            update: client.prepare(UPDATE_WORK).await?,
            events: cells(0..split)?,
            rows: cells(split..split + row.0.len())?,
            moving: Moving::of(&event, &row)?,
            txn: (event.place("txn")?, last + 1),
            works,
            next: 0,
            done: 0,
            client,
        })
    }

    /// Moves works to their next events. The hashes are new, but nothing is hashed.
    fn step(&mut self, works: Range<usize>) -> Result<()> {
        let moving = &self.moving;
        self.events[moving.event_seq].increment(works.clone())?;
        self.events[moving.event_at].increment(works.clone())?;
        self.rows[moving.row_seq].increment(works.clone())?;
        self.rows[moving.updated_at].increment(works.clone())?;
        let heads = self.rows[moving.head].bytes()?;
        let previous = self.events[moving.prev_hash].bytes()?;
        previous[works.clone()].clone_from_slice(&heads[works.clone()]);
        for (head, number) in heads[works.clone()].iter_mut().flatten().zip(self.done as u64..) {
            head[..8].copy_from_slice(&number.to_be_bytes());
        }
        self.events[moving.hash].bytes()?[works.clone()].clone_from_slice(&heads[works]);
        Ok(())
    }
}

impl pg::Lane for Lane {
    async fn commit(&mut self, size: usize) -> Result<()> {
        // An array is one slice: where too few works are left for it, it starts over.
        let first = if self.next + size > self.works { 0 } else { self.next };
        let works = first..first + size;
        self.step(works.clone())?;
        self.events[self.txn.0].set(first, self.txn.1)?;
        self.txn.1 += 1;
        let insert = bound(&self.events, &self.insert, &works);
        let update = bound(&self.rows, &self.update, &works);
        // Polled in this order, they go out in this order, none waiting for the one before.
        let (began, inserted, updated, committed) = tokio::join!(
            self.client.batch_execute("BEGIN"),
            self.client.execute_raw(&self.insert, insert),
            self.client.execute_raw(&self.update, update),
            self.client.batch_execute("COMMIT"),
        );
        began?;
        let changed = (inserted?, updated?);
        committed?;
        if changed != (works.len() as u64, works.len() as u64) {
            return Err(format!("raw statements changed {changed:?} rows for {} works", works.len()).into());
        }
        self.next = first + size;
        self.done += size;
        Ok(())
    }
}

/// Each parameter's cells of these works; of one that is no array, the first.
fn bound<'a>(columns: &'a [Cells], statement: &Statement, works: &Range<usize>) -> Vec<Param<'a>> {
    let pairs = columns.iter().zip(statement.params());
    pairs.map(|(cells, kind)| cells.param(kind, works.clone())).collect()
}
