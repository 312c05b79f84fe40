//! Raw transitions on PostgreSQL: the ledger's statements with their rows as arrays, sent together with BEGIN
//! and COMMIT. The bound values are read from the ledger's own rows and kept by columns, so that a commit
//! only binds slices of them.

use std::{ops::Range, time::Duration};

use futures_util::future::try_join_all;
use tenure_store::postgres_bench_support::{
    INSERT_COMMAND, INSERT_EVENT, SAVE_COMMAND_STATUS, UPDATE_COMMAND, UPDATE_WORK,
};
use tokio_postgres::{Client, Statement};
use uuid::Uuid;

use super::{
    Stage,
    cells::{Cells, Param},
    columns::{Columns, Shape, Table, read_back},
    marks::{Mark, Marks},
};
use crate::{Result, pg, plan::Commit, stats::Rate};

const LAST_EVENT: &str = "event.work = work.id AND event.seq = work.seq";

pub struct Raw {
    pub(super) lanes: Vec<Lane>,
}

/// A connection with its own work items to cycle through.
pub(super) struct Lane {
    client: Client,
    stages: Vec<Vec<Bound>>,
    pub(super) marks: Marks,
}

/// A statement, and its bound values: a column for each parameter, with a cell for each work item.
struct Bound {
    shape: Shape,
    statement: Statement,
    cells: Vec<Cells>,
}

impl Raw {
    pub async fn open(url: &str, connections: usize) -> Result<Raw> {
        let mut lanes = Vec::new();
        for _ in 0..connections {
            let client = pg::connect(url).await?;
            lanes.push(Lane { client, stages: Vec::new(), marks: Marks::default() });
        }
        Ok(Raw { lanes })
    }

    /// Reads back the transition that the ledger has just made of every work item, a share of them for each
    /// lane.
    pub(super) async fn learn(&mut self, stage: Stage) -> Result<()> {
        let shares = self.lanes.len();
        for (number, lane) in self.lanes.iter_mut().enumerate() {
            lane.learn(stage, number, shares).await?;
        }
        Ok(())
    }

    pub async fn run(&mut self, commit: Commit, slice: Duration) -> Result<Rate> {
        pg::run(&mut self.lanes, commit, slice).await
    }
}

impl Lane {
    async fn learn(&mut self, stage: Stage, number: usize, shares: usize) -> Result<()> {
        let shapes = shapes(stage)?;
        let found = self.client.query(&read_back(&shapes, LAST_EVENT), &[]).await?;
        let share = found.len() / shares;
        let mine = &found[number * share..(number + 1) * share];
        let mark = |row: &tokio_postgres::Row| {
            let (seq, at, head) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
            Ok(Mark { seq, at, head, ..Mark::default() })
        };
        self.marks.learn(mine.iter().map(mark).collect::<Result<_>>()?)?;
        self.marks.txn = self.client.query_one("SELECT max(txn) FROM event", &[]).await?.try_get(0)?;
        let last = "SELECT id FROM command ORDER BY id DESC LIMIT 1";
        let last = self.client.query_opt(last, &[]).await?;
        self.marks.command = last.map_or(Ok(Uuid::nil()), |row| row.try_get(0))?;
        let (mut bound, mut first) = (Vec::new(), 3);
        for shape in shapes {
            let columns = first..first + shape.columns.0.len();
            first = columns.end;
            let cells = columns.map(|at| Cells::read(mine, at)).collect::<Result<_>>()?;
            bound.push(Bound { statement: self.client.prepare(shape.sql).await?, shape, cells });
        }
        self.stages.push(bound);
        Ok(())
    }
}

impl pg::Lane for Lane {
    async fn turn(&mut self, size: usize) -> Result<()> {
        let works = self.marks.turn(size);
        for stage in &mut self.stages {
            self.marks.step(works.clone());
            for bound in &mut *stage {
                bound.put(works.clone(), &self.marks)?;
            }
            commit(&self.client, stage, works.clone()).await?;
        }
        Ok(())
    }
}

/// Polled in this order, they are sent in this order without waiting for each other.
async fn commit(client: &Client, stage: &[Bound], works: Range<usize>) -> Result<()> {
    let mut statements = Vec::with_capacity(stage.len());
    for bound in stage {
        statements.push(client.execute_raw(&bound.statement, bound.params(&works)));
    }
    let (began, changed, committed) = tokio::join!(
        client.batch_execute("BEGIN"),
        try_join_all(statements),
        client.batch_execute("COMMIT"),
    );
    began?;
    let changed = changed?;
    committed?;
    if changed.iter().any(|rows| *rows != works.len() as u64) {
        return Err(format!("raw statements changed {changed:?} rows for {} works", works.len()).into());
    }
    Ok(())
}

impl Bound {
    fn put(&mut self, works: Range<usize>, marks: &Marks) -> Result<()> {
        for (at, moving) in &self.shape.moving {
            for work in works.clone() {
                self.cells[*at].put(work, &marks.all[work].of(*moving))?;
            }
        }
        Ok(())
    }

    /// Each parameter's cells of these work items; the first cell if it is not an array.
    fn params(&self, works: &Range<usize>) -> Vec<Param<'_>> {
        let pairs = self.cells.iter().zip(self.statement.params());
        pairs.map(|(cells, kind)| cells.param(kind, works.clone())).collect()
    }
}

/// The statements of one transition, in the ledger's order.
fn shapes(stage: Stage) -> Result<Vec<Shape>> {
    let update = |table, sql| Result::Ok(Shape::new(table, sql, Columns::listed(sql, "AS v(")?));
    let event = Shape::insert(Table::Event, INSERT_EVENT)?;
    let work = update(Table::Work, UPDATE_WORK)?;
    let command = match stage {
        Stage::Progress => return Ok(vec![event, work]),
        Stage::NewCommand => Shape::insert(Table::Command, INSERT_COMMAND)?,
        Stage::Command => update(Table::Command, UPDATE_COMMAND)?,
    };
    Ok(vec![event, work, command, Shape::insert(Table::CommandStatus, SAVE_COMMAND_STATUS)?])
}
