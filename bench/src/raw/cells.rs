//! A column of values, of any type that its table has.

use std::ops::Range;

use tokio_postgres::{
    Row,
    types::{FromSql, Kind, ToSql, Type},
};
use uuid::Uuid;

use super::marks::Fresh;
use crate::Result;

pub type Param<'a> = Box<dyn ToSql + Sync + Send + 'a>;

pub enum Cells {
    Uuid(Vec<Option<Uuid>>),
    Bytes(Vec<Option<Vec<u8>>>),
    Text(Vec<Option<String>>),
    Big(Vec<Option<i64>>),
    Int(Vec<Option<i32>>),
    Small(Vec<Option<i16>>),
    Bool(Vec<Option<bool>>),
}

impl Cells {
    /// One column of a query's result.
    pub fn read(rows: &[Row], at: usize) -> Result<Cells> {
        let Some(row) = rows.first() else { return Err("there are no works to read".into()) };
        Ok(match *row.columns()[at].type_() {
            Type::UUID => Cells::Uuid(column(rows, at)?),
            Type::BYTEA => Cells::Bytes(column(rows, at)?),
            Type::TEXT => Cells::Text(column(rows, at)?),
            Type::INT8 => Cells::Big(column(rows, at)?),
            Type::INT4 => Cells::Int(column(rows, at)?),
            Type::INT2 => Cells::Small(column(rows, at)?),
            Type::BOOL => Cells::Bool(column(rows, at)?),
            ref other => return Err(format!("columns of type {other} are new to the benchmark").into()),
        })
    }

    /// Some of the cells as an array; the first of them if the statement takes a single value.
    pub fn param(&self, kind: &Type, range: Range<usize>) -> Param<'_> {
        match self {
            Cells::Uuid(cells) => param(cells, kind, range),
            Cells::Bytes(cells) => param(cells, kind, range),
            Cells::Text(cells) => param(cells, kind, range),
            Cells::Big(cells) => param(cells, kind, range),
            Cells::Int(cells) => param(cells, kind, range),
            Cells::Small(cells) => param(cells, kind, range),
            Cells::Bool(cells) => param(cells, kind, range),
        }
    }

    pub fn put(&mut self, at: usize, fresh: &Fresh<'_>) -> Result<()> {
        match (self, fresh) {
            (Cells::Big(cells), Fresh::Number(number)) => cells[at] = Some(*number),
            (Cells::Uuid(cells), Fresh::Id(id)) => cells[at] = Some(*id),
            (Cells::Bytes(cells), Fresh::Bytes(bytes)) => {
                let cell = cells[at].as_mut().ok_or("what moves should be there")?;
                cell[..bytes.len()].copy_from_slice(bytes);
            }
            _ => return Err("what moves should be a bigint, an id or bytes".into()),
        }
        Ok(())
    }
}

fn column<'a, T: FromSql<'a>>(rows: &'a [Row], at: usize) -> Result<Vec<Option<T>>> {
    rows.iter().map(|row| Ok(row.try_get(at)?)).collect()
}

fn param<'a, T>(cells: &'a [Option<T>], kind: &Type, range: Range<usize>) -> Param<'a>
where
    T: ToSql + Sync + Send,
{
    match kind.kind() {
        Kind::Array(_) => Box::new(&cells[range]),
        _ => Box::new(&cells[range.start]),
    }
}
