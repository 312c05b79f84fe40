//! Raw transitions on SQLite, with the ledger's statements. The bound values are read from the ledger's own
//! rows, column by column, so that this follows changes of the tables.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use rusqlite::{Connection, OptionalExtension, Row, Statement, types::Value};
use tenure_store::sqlite_bench_support::{
    INSERT_COMMAND, INSERT_EVENT, UPDATE_COMMAND, UPDATE_WORK, connect,
};
use uuid::Uuid;

use super::{
    Stage,
    columns::{Columns, Shape, Table, read_back},
    marks::{Fresh, Mark, Marks},
};
use crate::{Result, stats::Rate};

const LAST_EVENT: &str = "event.position = work.last_event";

pub struct Raw {
    connection: Connection,
    stages: Vec<Vec<Bound>>,
    pub(super) marks: Marks,
}

/// A statement, and its bound values for each work item.
struct Bound {
    shape: Shape,
    values: Vec<Vec<Value>>,
}

impl Raw {
    pub fn open(path: &Path) -> Result<Raw> {
        Ok(Raw { connection: connect(path)?, stages: Vec::new(), marks: Marks::default() })
    }

    /// Reads back the transition that the ledger has just made of every work item.
    pub(super) fn learn(&mut self, stage: Stage) -> Result<()> {
        let shapes = shapes(stage)?;
        let mut statement = self.connection.prepare(&read_back(&shapes, LAST_EVENT))?;
        let mut stage: Vec<Bound> =
            shapes.into_iter().map(|shape| Bound { shape, values: Vec::new() }).collect();
        let (mut marks, mut rows) = (Vec::new(), statement.query([])?);
        while let Some(row) = rows.next()? {
            let event = row.get("last_event")?;
            marks.push(Mark {
                seq: row.get(0)?,
                at: row.get(1)?,
                head: row.get(2)?,
                event,
                ..Mark::default()
            });
            let mut at = 3;
            for bound in &mut stage {
                bound.values.push(values(row, at, bound.shape.columns.0.len())?);
                at += bound.shape.columns.0.len();
            }
        }
        self.marks.learn(marks)?;
        let last = "SELECT id FROM command ORDER BY id DESC LIMIT 1";
        let last: Option<[u8; 16]> = self.connection.query_row(last, [], |row| row.get(0)).optional()?;
        self.marks.command = last.map_or(Uuid::nil(), Uuid::from_bytes);
        self.stages.push(stage);
        Ok(())
    }

    /// Takes work items through all stages, `size` of them in each commit, and counts them.
    pub fn run(&mut self, size: usize, slice: Duration) -> Result<Rate> {
        let prepare = |bound: &Bound| self.connection.prepare(bound.shape.sql);
        let prepare = |stage: &Vec<Bound>| stage.iter().map(prepare).collect::<rusqlite::Result<Vec<_>>>();
        let mut prepared = self.stages.iter().map(prepare).collect::<rusqlite::Result<Vec<_>>>()?;
        let (mut count, began) = (0, Instant::now());
        while began.elapsed() < slice {
            let works = self.marks.turn(size);
            for (stage, statements) in self.stages.iter_mut().zip(&mut prepared) {
                self.connection.execute_batch("BEGIN IMMEDIATE")?;
                self.marks.step(works.clone());
                for work in works.clone() {
                    let mark = &self.marks.all[work];
                    for (bound, statement) in stage.iter_mut().zip(&mut *statements) {
                        bound.execute(statement, work, mark)?;
                    }
                }
                self.connection.execute_batch("COMMIT")?;
            }
            count += size as u64;
        }
        Ok(Rate { count, elapsed: began.elapsed() })
    }
}

impl Bound {
    fn execute(&mut self, statement: &mut Statement<'_>, work: usize, mark: &Mark) -> Result<()> {
        let values = &mut self.values[work];
        for (at, moving) in &self.shape.moving {
            put(&mut values[*at], &mark.of(*moving))?;
        }
        for (i, value) in values.iter().enumerate() {
            statement.raw_bind_parameter(i + 1, value)?;
        }
        match statement.raw_execute()? {
            1 => Ok(()),
            n => Err(format!("a raw statement changed {n} rows, not one").into()),
        }
    }
}

/// The statements of one transition, in the ledger's order.
fn shapes(stage: Stage) -> Result<Vec<Shape>> {
    let update = |table, sql| Result::Ok(Shape::new(table, sql, Columns::assigned(sql)?));
    let event = Shape::insert(Table::Event, INSERT_EVENT)?;
    let work = update(Table::Work, UPDATE_WORK)?;
    let command = match stage {
        Stage::Progress => return Ok(vec![event, work]),
        Stage::NewCommand => Shape::insert(Table::Command, INSERT_COMMAND)?,
        Stage::Command => update(Table::Command, UPDATE_COMMAND)?,
    };
    Ok(vec![event, work, command])
}

fn values(row: &Row<'_>, first: usize, count: usize) -> rusqlite::Result<Vec<Value>> {
    (first..first + count).map(|at| row.get(at)).collect()
}

fn put(value: &mut Value, fresh: &Fresh<'_>) -> Result<()> {
    match (value, fresh) {
        (Value::Integer(integer), Fresh::Number(number)) => *integer = *number,
        (Value::Blob(blob), Fresh::Id(id)) => blob.copy_from_slice(id.as_bytes()),
        (Value::Blob(blob), Fresh::Bytes(bytes)) => blob[..bytes.len()].copy_from_slice(bytes),
        (value, _) => return Err(format!("what moves was not expected to be {:?}", value.data_type()).into()),
    }
    Ok(())
}
