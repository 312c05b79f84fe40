//! For the benchmark only: the transition of a progress event by the ledger's own statements on the
//! ledger's own tables, with nothing around them.

use std::path::Path;

use rusqlite::{Connection, params, types::Value};

pub use super::tables::{EVENT_INSERT, WORK_UPDATE};
use super::{fault::Fault, settings};
use crate::Error;

/// A connection set up as the ledger's writer is.
pub fn connect(path: &Path) -> Result<Connection, Error> {
    settings::writer(path, false)
}

/// A running work, with what the update of its row binds.
struct Held {
    seq: i64,
    id: Value,
    /// Where it lies, then what follows the hash: ?1 and ?5 to ?21 of [`WORK_UPDATE`].
    rowid: i64,
    rest: Vec<Value>,
}

/// The running works of a closed ledger, in the order of their ids.
pub struct Raw {
    conn: Connection,
    held: Vec<Held>,
    done: usize,
}

const HELD: &str = "SELECT seq, id, rowid, attempt, fence, lease_fence, expires_at, renewed_at, renewed_by, \
     lapsed_at, open_waits, next_retry_at, due_at, reason, owner, progress, updated_at, children, waiters, \
     body FROM work WHERE state = 1 ORDER BY id";
const RUNNING: i64 = 1;
const PROGRESS: &str = r#"{"done":42,"of":100,"stage":"reading"}"#;

impl Raw {
    pub fn open(path: &Path) -> Result<Raw, Error> {
        let conn = connect(path)?;
        let held = Self::held(&conn).map_err(|error| Fault::from(error).into_error())?;
        Ok(Raw { conn, held, done: 0 })
    }

    fn held(conn: &Connection) -> rusqlite::Result<Vec<Held>> {
        let mut held = Vec::new();
        let mut statement = conn.prepare(HELD)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let mut rest = (3..20).map(|column| row.get(column)).collect::<rusqlite::Result<Vec<Value>>>()?;
            rest[12] = Value::Text(PROGRESS.to_owned());
            held.push(Held { seq: row.get(0)?, id: row.get(1)?, rowid: row.get(2)?, rest });
        }
        Ok(held)
    }

    /// How many works there are to go round on.
    pub fn works(&self) -> usize {
        self.held.len()
    }

    /// Commits so many transitions, each of the next work.
    pub fn commit(&mut self, size: usize) -> rusqlite::Result<()> {
        let mut insert = self.conn.prepare_cached(EVENT_INSERT)?;
        let mut update = self.conn.prepare_cached(WORK_UPDATE)?;
        self.conn.prepare_cached("BEGIN IMMEDIATE")?.raw_execute()?;
        let (works, hash) = (self.held.len(), [7_u8; 32]);
        for number in self.done..self.done + size {
            let held = &mut self.held[number % works];
            held.seq += 1;
            insert.execute(params![
                held.id,
                held.seq,
                1_790_000_000_000_i64,
                "progressed",
                RUNNING,
                RUNNING,
                "worker",
                "bench",
                held.rest[0],
                None::<&str>,
                held.rest[1],
                "{}",
                None::<&str>,
                PROGRESS,
                None::<&str>,
                &hash[..],
                &hash[..16],
                &hash[..],
                &hash[..],
            ])?;
            update.raw_bind_parameter(1, held.rowid)?;
            update.raw_bind_parameter(2, RUNNING)?;
            update.raw_bind_parameter(3, held.seq)?;
            update.raw_bind_parameter(4, &hash[..])?;
            for (value, at) in held.rest.iter().zip(5..) {
                update.raw_bind_parameter(at, value)?;
            }
            update.raw_execute()?;
        }
        self.conn.prepare_cached("COMMIT")?.raw_execute()?;
        self.done += size;
        Ok(())
    }
}
