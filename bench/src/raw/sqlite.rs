//! Raw transitions on SQLite. The statements are the ledger's; what they bind is read from what the ledger
//! wrote, column by column, so that this follows the tables wherever they go.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use rusqlite::{Connection, Statement, types::Value};
use tenure_store::sqlite_bench_support::{EVENT_INSERT, WORK_UPDATE, connect};

use super::columns::{Columns, Moving};
use crate::{Result, stats::Rate};

pub struct Raw {
    connection: Connection,
    works: Vec<Work>,
    moving: Moving,
    done: usize,
}

/// A work's last event and its row, as the two statements bind them.
struct Work {
    event: Vec<Value>,
    row: Vec<Value>,
}

impl Raw {
    pub fn open(path: &Path) -> Result<Raw> {
        let connection = connect(path)?;
        let event = Columns::listed(EVENT_INSERT, "INTO event (")?;
        let row = Columns::assigned(WORK_UPDATE)?;
        let works = works(&connection, &event, &row)?;
        Ok(Raw { connection, works, moving: Moving::of(&event, &row)?, done: 0 })
    }

    pub fn run(&mut self, size: usize, slice: Duration) -> Result<Rate> {
        let (before, began) = (self.done, Instant::now());
        let mut insert = self.connection.prepare(EVENT_INSERT)?;
        let mut update = self.connection.prepare(WORK_UPDATE)?;
        while began.elapsed() < slice {
            self.connection.execute_batch("BEGIN IMMEDIATE")?;
            for _ in 0..size {
                let count = self.works.len();
                let work = &mut self.works[self.done % count];
                step(work, &self.moving, self.done as u64);
                execute(&mut insert, &work.event)?;
                execute(&mut update, &work.row)?;
                self.done += 1;
            }
            self.connection.execute_batch("COMMIT")?;
        }
        Ok(Rate { count: (self.done - before) as u64, elapsed: began.elapsed() })
    }
}

fn execute(statement: &mut Statement<'_>, values: &[Value]) -> Result<()> {
    for (i, value) in values.iter().enumerate() {
        statement.raw_bind_parameter(i + 1, value)?;
    }
    match statement.raw_execute()? {
        1 => Ok(()),
        n => Err(format!("a raw statement changed {n} rows, not one").into()),
    }
}

/// Each work's row and last event, in the order in which the works were made.
fn works(connection: &Connection, event: &Columns, row: &Columns) -> Result<Vec<Work>> {
    let sql = format!(
        "SELECT {}, {} FROM work JOIN event ON event.work = work.id AND event.seq = work.seq ORDER BY work.id",
        event.of("event"),
        row.of("work")
    );
    let mut statement = connection.prepare(&sql)?;
    let works = statement.query_map([], |found| {
        let value = |i: usize| found.get::<_, Value>(i);
        let split = event.0.len();
        Ok(Work {
            event: (0..split).map(value).collect::<rusqlite::Result<_>>()?,
            row: (split..split + row.0.len()).map(value).collect::<rusqlite::Result<_>>()?,
        })
    })?;
    Ok(works.collect::<rusqlite::Result<_>>()?)
}

/// Moves a work to its next event. The hash is new, but nothing is hashed.
fn step(work: &mut Work, moving: &Moving, number: u64) {
    increment(&mut work.event[moving.event_seq]);
    increment(&mut work.event[moving.event_at]);
    increment(&mut work.row[moving.row_seq]);
    increment(&mut work.row[moving.updated_at]);
    work.event[moving.prev_hash] = work.row[moving.head].clone();
    if let Value::Blob(hash) = &mut work.row[moving.head] {
        hash[..8].copy_from_slice(&number.to_be_bytes());
    }
    work.event[moving.hash] = work.row[moving.head].clone();
}

fn increment(value: &mut Value) {
    if let Value::Integer(integer) = value {
        *integer += 1;
    }
}
