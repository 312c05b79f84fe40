//! Reads. Each sees one state of the file and never blocks the writer.

use rusqlite::{Connection, Params, Row, types::Value};
use tenure_core::{action::Names, limits};

use super::{
    fault::Fault,
    row::{self, Read, Specs},
};
use crate::{Listed, listed::RowKey};

/// The result from the index or, if the index is damaged, from the table.
pub(super) fn undamaged<T>(indexed: Read<T>, unindexed: impl FnOnce() -> Read<T>) -> Read<T> {
    match indexed {
        Err(Fault::Data(_)) => unindexed(),
        read => read,
    }
}

pub(super) struct Reader {
    pub conn: Connection,
    pub specs: Specs,
}

impl Reader {
    pub fn new(conn: Connection) -> Self {
        Self { conn, specs: row::specs() }
    }

    /// A page of rows with their keys, up to the byte limit.
    pub fn listed<T, K: RowKey>(
        &self,
        sql: &str,
        params: impl Params,
        limit: usize,
        key: impl Fn(&Row<'_>) -> Read<K>,
        read: impl Fn(&Row<'_>) -> Read<T>,
    ) -> Read<Listed<T, K>> {
        let mut statement = self.conn.prepare_cached(sql)?;
        let mut rows = statement.query(params)?;
        let mut listed = Listed::default();
        let mut bytes = 0;
        while let Some(found) = rows.next()? {
            take(&mut listed, key(found)?, read(found))?;
            bytes += row::bytes(found)?;
            if bytes >= limits::PAGE_BYTES {
                return Ok(Listed { full: true, ..listed });
            }
        }
        Ok(listed.up_to(limit))
    }

    pub fn all<T>(&self, sql: &str, key: impl Params, read: impl Fn(&Row<'_>) -> Read<T>) -> Read<Vec<T>> {
        let mut statement = self.conn.prepare_cached(sql)?;
        let mut rows = statement.query(key)?;
        let mut all = Vec::new();
        while let Some(found) = rows.next()? {
            all.push(read(found)?);
        }
        Ok(all)
    }
}

/// Adds a row to a page, or the reason why it cannot be read. Fails if nothing more can be read.
pub(super) fn take<T, K: RowKey>(listed: &mut Listed<T, K>, key: K, row: Read<T>) -> Read<()> {
    let row = match row {
        Ok(row) => Ok(row),
        Err(fault) => Err(fault.of_row()?),
    };
    listed.take(key, row);
    Ok(())
}

pub(super) fn bound(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// Builds a WHERE clause with its values. Its text contains only names from this crate.
#[derive(Clone, Default)]
pub(super) struct Conditions {
    pub parts: Vec<String>,
    pub values: Vec<Value>,
}

impl Conditions {
    /// A condition without a value.
    pub fn plain(mut self, part: String) -> Self {
        self.parts.push(part);
        self
    }

    pub fn and(mut self, part: &str, value: impl Into<Value>) -> Self {
        self.parts.push(part.to_owned());
        self.values.push(value.into());
        self
    }

    pub fn and_names(mut self, column: &str, names: Option<&Names>) -> Self {
        // A single name can use an index; several names are only a condition.
        if let Some(Names::Only(list)) = names
            && let [only] = list.as_slice()
        {
            return self.and(&format!("{column} = ?"), only.clone());
        }
        if let Some(Names::Only(list)) = names {
            let marks = vec!["?"; list.len()].join(", ");
            self.parts.push(format!("{column} IN ({marks})"));
            self.values.extend(list.iter().map(|name| Value::from(name.clone())));
        }
        self
    }

    pub fn select(mut self, lead: &str, order: &str, limit: usize) -> (String, Vec<Value>) {
        if self.parts.is_empty() {
            self.parts.push("TRUE".into());
        }
        self.values.push(bound(limit).into());
        (format!("{lead} WHERE {} {order} LIMIT ?", self.parts.join(" AND ")), self.values)
    }
}
