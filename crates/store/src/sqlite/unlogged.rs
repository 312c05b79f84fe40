//! The tables of rows that are not derived from the log, each read whole by `verify`.

use rusqlite::{Connection, Row};
use tenure_core::WorkId;

use super::{
    credential::CredentialRow,
    retention::{self, PruningRow, position, tombstone_columns},
    row::{self, KeptRow, Read, to_json},
};
use crate::{
    Anchor, Error,
    columns::{names, statement},
    token::Key,
    unlogged::{Link, Unlogged},
};

struct Table {
    name: &'static str,
    columns: &'static str,
    read: fn(&Row<'_>) -> Read<Box<dyn Unlogged>>,
}

const TABLES: [Table; 5] = [
    Table {
        name: "credential",
        columns: statement!({ names(CredentialRow::COLUMNS) }),
        read: |row| Ok(Box::new(CredentialRow::read(row, 0)?)),
    },
    Table {
        name: "kept",
        columns: statement!({ names(KeptRow::COLUMNS) }),
        read: |row| Ok(Box::new(KeptRow::read(row, 0)?)),
    },
    Table {
        name: "pruning",
        columns: statement!({ names(PruningRow::COLUMNS) }),
        read: |row| Ok(Box::new(PruningRow::read(row, 0)?)),
    },
    Table {
        name: "tombstone",
        columns: tombstone_columns!(),
        read: |row| Ok(Box::new(retention::tombstone(row)?)),
    },
    Table { name: "link", columns: "position, hash, work", read: link },
];

fn link(row: &Row<'_>) -> Read<Box<dyn Unlogged>> {
    let work = row.get::<_, Option<[u8; 16]>>(2)?.map(|id| WorkId(uuid::Uuid::from_bytes(id)));
    Ok(Box::new(Link { position: position(row.get(0)?), hash: row::digest(row, 1)?, work }))
}

/// One fault for each row, up to a limit for each table.
pub(super) fn faults(conn: &Connection, key: &Key, most: usize) -> Read<Vec<String>> {
    let mut faults = Vec::new();
    for Table { name, columns, read } in TABLES {
        let mut statement = conn.prepare(&format!("SELECT {columns}, mac FROM {name}"))?;
        let mac = statement.column_count() - 1;
        let mut rows = statement.query([])?;
        let mut found = Vec::new();
        while let (Some(row), true) = (rows.next()?, found.len() < most) {
            match read(row) {
                Ok(one) => found.extend(key.fault(&*one, row::mac(row, mac)?)),
                Err(fault) => {
                    // Only the newer version that wrote a row can check it.
                    if let Error::Corrupt(why) = fault.of_row()? {
                        found.push(format!("a row of `{name}` cannot be read: {why}"));
                    }
                }
            }
        }
        faults.append(&mut found);
    }
    Ok(faults)
}

/// The anchor of a new ledger. Every ledger has one from its creation, so deleting it does not hide anything.
pub(super) fn first_anchor(conn: &Connection, key: &Key) -> Read<()> {
    let stored = to_json(&key.with_mac(Anchor::default()))?;
    conn.execute("INSERT INTO meta (key, value) VALUES ('anchor', CAST(?1 AS BLOB))", [stored])?;
    Ok(())
}
