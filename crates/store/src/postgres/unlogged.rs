//! The tables of rows that no log tells of, each read whole: by the migration that adds the MACs, and by `verify`.

use futures_util::{StreamExt, TryStreamExt};
use tokio_postgres::{Client, Error as PgError, Row, types::ToSql};

use super::{
    credential,
    fault::Fault,
    retention::{self, ANCHOR, link_columns, pruning_columns, tombstone_columns},
    row::{self, get, kept_columns},
};
use crate::{Anchor, Error, token::Key, unlogged::Unlogged};

struct Table {
    name: &'static str,
    columns: &'static str,
    read: fn(&Row) -> Result<Box<dyn Unlogged>, Error>,
}

const TABLES: [Table; 5] = [
    Table {
        name: "credential",
        columns: credential::columns!(),
        read: |row| Ok(Box::new(credential::credential(row)?)),
    },
    Table { name: "kept", columns: kept_columns!(), read: |row| Ok(Box::new(row::kept(row)?)) },
    Table {
        name: "pruning",
        columns: pruning_columns!(),
        read: |row| Ok(Box::new(retention::pruning(row)?)),
    },
    Table {
        name: "tombstone",
        columns: tombstone_columns!(),
        read: |row| Ok(Box::new(retention::tombstone(row)?)),
    },
    Table { name: "link", columns: link_columns!(), read: |row| Ok(Box::new(retention::link(row)?)) },
];

/// Rows of one statement.
const AT_ONCE: usize = 1_000;

fn failed(error: PgError) -> Error {
    Fault::from(error).error()
}

/// A fault a row, at most so many of each table.
pub(super) async fn faults(client: &Client, key: &Key, most: usize) -> Result<Vec<String>, Error> {
    let mut faults = Vec::new();
    for Table { name, columns, read } in TABLES {
        let sql = format!("SELECT {columns}, mac FROM {name}");
        let rows = client.query_raw(&sql, std::iter::empty::<&(dyn ToSql + Sync)>()).await.map_err(failed)?;
        let wrong = rows.map_err(failed).try_filter_map(async |row| {
            Ok(match read(&row) {
                Ok(one) => key.fault(&*one, row::mac(&row, row.len() - 1)?),
                Err(Error::Corrupt(why)) => Some(format!("a row of `{name}` cannot be read: {why}")),
                Err(error) => return Err(error),
            })
        });
        let found: Vec<String> = std::pin::pin!(wrong.take(most)).try_collect().await?;
        faults.extend(found);
    }
    Ok(faults)
}

/// Adds the MACs of the rows that are there and of the anchor. Only the migration may: it takes every row for genuine.
pub(super) async fn add_macs(client: &Client, key: &Key) -> Result<(), Error> {
    for Table { name, columns, read } in TABLES {
        let rows = client.query(&format!("SELECT {columns}, ctid::text FROM {name}"), &[]).await;
        let update = format!(
            "UPDATE {name} t SET mac = v.mac FROM unnest($1::text[], $2::bytea[]) AS v(place, mac) \
             WHERE t.ctid = v.place::tid"
        );
        for rows in rows.map_err(failed)?.chunks(AT_ONCE) {
            let (mut places, mut macs): (Vec<String>, Vec<Vec<u8>>) = (Vec::new(), Vec::new());
            for row in rows {
                // One that cannot be read gets none: `verify` names it.
                let Ok(one) = read(row) else { continue };
                places.push(get(row, row.len() - 1)?);
                macs.push(key.row_mac(&*one).0.to_vec());
            }
            client.execute(&update, &[&places, &macs]).await.map_err(failed)?;
        }
    }
    let found = client.query_opt(ANCHOR, &[]).await.map_err(failed)?;
    let anchor: Option<Anchor> = found.as_ref().map(|row| row::parse(get(row, 0)?)).transpose()?;
    let stored = row::json(&key.with_mac(anchor.unwrap_or_default()));
    let set =
        "INSERT INTO meta (key, value) VALUES ('anchor', $1) ON CONFLICT (key) DO UPDATE SET value = $1";
    client.execute(set, &[&stored]).await.map(drop).map_err(failed)
}
