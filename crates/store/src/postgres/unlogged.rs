//! The tables of rows that are not derived from the log, each read whole by `verify`.

use futures_util::{StreamExt, TryStreamExt};
use tokio_postgres::{Client, Error as PgError, Row, types::ToSql};

use super::{
    credential::CredentialRow,
    fault::Fault,
    retention::{self, PruningRow, link_columns, tombstone_columns},
    row::{self, KeptRow},
};
use crate::{
    Anchor, Error,
    columns::{names, statement},
    token::Key,
    unlogged::Unlogged,
};

struct Table {
    name: &'static str,
    columns: &'static str,
    read: fn(&Row) -> Result<Box<dyn Unlogged>, Error>,
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
    Table { name: "link", columns: link_columns!(), read: |row| Ok(Box::new(retention::link(row)?)) },
];

fn failed(error: PgError) -> Error {
    Fault::from(error).error()
}

/// One fault for each row, up to a limit for each table.
pub(super) async fn faults(client: &Client, key: &Key, most: usize) -> Result<Vec<String>, Error> {
    let mut faults = Vec::new();
    for Table { name, columns, read } in TABLES {
        let sql = format!("SELECT {columns}, mac FROM {name}");
        let rows = client.query_raw(&sql, std::iter::empty::<&(dyn ToSql + Sync)>()).await.map_err(failed)?;
        let wrong = rows.map_err(failed).try_filter_map(async |row| {
            Ok(match read(&row) {
                Ok(one) => key.fault(&*one, row::mac(&row, row.len() - 1)?),
                Err(Error::Corrupt(why)) => Some(format!("a row of `{name}` cannot be read: {why}")),
                // Only the newer version that wrote a row can check it.
                Err(Error::Newer(_)) => None,
                Err(error) => return Err(error),
            })
        });
        let found: Vec<String> = std::pin::pin!(wrong.take(most)).try_collect().await?;
        faults.extend(found);
    }
    Ok(faults)
}

/// The anchor of a new ledger. Every ledger has one from its creation, so deleting it does not hide anything.
pub(super) async fn first_anchor(client: &Client, key: &Key) -> Result<(), Error> {
    let stored = row::json(&key.with_mac(Anchor::default()));
    let insert = "INSERT INTO meta (key, value) VALUES ('anchor', $1)";
    client.execute(insert, &[&stored]).await.map(drop).map_err(failed)
}
