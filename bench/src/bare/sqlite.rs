//! Bare transitions on SQLite: one connection, WAL, synchronous FULL.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use rusqlite::{Connection, params};

use crate::{Result, lite, stats::Rate};

const TABLES: &str = "
    CREATE TABLE item (
        id INTEGER PRIMARY KEY, state INTEGER NOT NULL, attempt INTEGER NOT NULL,
        lease_until INTEGER, owner TEXT, payload BLOB
    );
    CREATE INDEX item_by_state ON item (state, id);
    CREATE TABLE history (
        number INTEGER PRIMARY KEY, item INTEGER NOT NULL, kind INTEGER NOT NULL,
        at INTEGER NOT NULL, body BLOB
    );";
const FILL: &str = "INSERT INTO item VALUES (?1, 0, 0, NULL, NULL, zeroblob(200))";
const UPDATE: &str =
    "UPDATE item SET state = ?2, attempt = attempt + 1, lease_until = ?3, owner = 'worker' WHERE id = ?1";
const INSERT: &str = "INSERT INTO history (item, kind, at, body) VALUES (?1, ?2, ?3, ?4)";

pub struct Bare {
    connection: Connection,
    rows: i64,
    /// Transitions made so far.
    done: i64,
}

impl Bare {
    pub fn open(path: &Path, rows: usize) -> Result<Bare> {
        let connection = lite::connect(path)?;
        connection.execute_batch(TABLES)?;
        connection.execute_batch("BEGIN")?;
        for id in 0..rows {
            connection.prepare_cached(FILL)?.execute([id as i64])?;
        }
        connection.execute_batch("COMMIT; PRAGMA wal_checkpoint(TRUNCATE)")?;
        Ok(Bare { connection, rows: rows as i64, done: 0 })
    }

    pub fn run(&mut self, size: usize, slice: Duration) -> Result<Rate> {
        let (before, began) = (self.done, Instant::now());
        while began.elapsed() < slice {
            self.commit(size)?;
        }
        Ok(Rate { count: (self.done - before) as u64, elapsed: began.elapsed() })
    }

    fn commit(&mut self, size: usize) -> Result<()> {
        let mut update = self.connection.prepare_cached(UPDATE)?;
        let mut insert = self.connection.prepare_cached(INSERT)?;
        self.connection.execute_batch("BEGIN IMMEDIATE")?;
        for number in self.done..self.done + size as i64 {
            let (id, state) = (number % self.rows, number / self.rows % 4 + 1);
            update.execute(params![id, state, number])?;
            insert.execute(params![id, state, number, [1_u8; 100]])?;
        }
        self.connection.execute_batch("COMMIT")?;
        self.done += size as i64;
        Ok(())
    }
}
