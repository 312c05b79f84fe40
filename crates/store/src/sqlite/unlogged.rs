//! The tables of rows that no log tells of, each read whole: by the migration that adds the MACs, and by `verify`.

use rusqlite::{Connection, OptionalExtension, Row, params_from_iter, types::Value};
use tenure_core::WorkId;

use super::{
    credential,
    retention::{self, ANCHOR, position, pruning_columns, tombstone_columns},
    row::{self, Read, kept_columns, to_json},
};
use crate::{
    Anchor,
    token::Key,
    unlogged::{Link, Unlogged},
};

struct Table {
    name: &'static str,
    columns: &'static str,
    key: &'static str,
    read: fn(&Row<'_>) -> Read<Box<dyn Unlogged>>,
}

const TABLES: [Table; 5] = [
    Table {
        name: "credential",
        columns: credential::columns!(),
        key: "id",
        read: |row| Ok(Box::new(credential::credential(row)?)),
    },
    Table {
        name: "kept",
        columns: kept_columns!(),
        key: "tenant, reference",
        read: |row| Ok(Box::new(row::kept(row)?)),
    },
    Table {
        name: "pruning",
        columns: pruning_columns!(),
        key: "number",
        read: |row| Ok(Box::new(retention::pruning(row)?)),
    },
    Table {
        name: "tombstone",
        columns: tombstone_columns!(),
        key: "work",
        read: |row| Ok(Box::new(retention::tombstone(row)?)),
    },
    Table { name: "link", columns: "position, hash, work", key: "position", read: link },
];

fn link(row: &Row<'_>) -> Read<Box<dyn Unlogged>> {
    let work = row.get::<_, Option<[u8; 16]>>(2)?.map(|id| WorkId(uuid::Uuid::from_bytes(id)));
    Ok(Box::new(Link { position: position(row.get(0)?), hash: row::digest(row, 1)?, work }))
}

/// A fault a row, at most so many of each table.
pub(super) fn faults(conn: &Connection, key: &Key, most: usize) -> Read<Vec<String>> {
    let mut faults = Vec::new();
    for Table { name, columns, read, .. } in TABLES {
        let mut statement = conn.prepare(&format!("SELECT {columns}, mac FROM {name}"))?;
        let mac = statement.column_count() - 1;
        let mut rows = statement.query([])?;
        let mut found = Vec::new();
        while let (Some(row), true) = (rows.next()?, found.len() < most) {
            match read(row) {
                Ok(one) => found.extend(key.fault(&*one, row::mac(row, mac)?)),
                Err(fault) => found.push(format!("a row of `{name}` cannot be read: {}", fault.of_row()?)),
            }
        }
        faults.append(&mut found);
    }
    Ok(faults)
}

/// Adds the MACs of the rows that are there and of the anchor. Only the migration may: it takes every row for genuine.
pub(super) fn add_macs(conn: &Connection, key: &Key) -> Read<()> {
    for Table { name, columns, key: id, read } in TABLES {
        let mut statement = conn.prepare(&format!("SELECT {columns}, {id} FROM {name}"))?;
        let (all, ids) = (statement.column_count(), id.split(", ").count());
        let mut rows = statement.query([])?;
        let mut macs: Vec<Vec<Value>> = Vec::new();
        while let Some(row) = rows.next()? {
            // One that cannot be read gets none: `verify` names it.
            let Ok(one) = read(row) else { continue };
            let mut values = vec![Value::Blob(key.row_mac(&*one).0.to_vec())];
            for column in all - ids..all {
                values.push(row.get(column)?);
            }
            macs.push(values);
        }
        let places = vec!["?"; ids].join(", ");
        let mut update = conn.prepare(&format!("UPDATE {name} SET mac = ? WHERE ({id}) = ({places})"))?;
        for values in macs {
            update.execute(params_from_iter(values))?;
        }
    }
    let anchor = conn.query_row(ANCHOR, [], |row| Ok(row::json::<Anchor>(row, 0))).optional()?.transpose()?;
    let stored = to_json(&key.with_mac(anchor.unwrap_or_default()))?;
    conn.execute("INSERT OR REPLACE INTO meta (key, value) VALUES ('anchor', CAST(?1 AS BLOB))", [stored])?;
    Ok(())
}
