//! The schema: `schema.sql`, and numbered migrations. Each is applied once, by the first daemon that starts.

use tenure_core::state_machine;
use tokio_postgres::{Client, Error as PgError};

use super::{fault::describe, unlogged};
use crate::{Error, check, states::sql, token::Key};

pub(super) struct Migration {
    pub number: i32,
    name: &'static str,
    /// Whether programs that do not know this migration must not use the ledger any more.
    breaking: bool,
    sql: &'static str,
}

/// The schema of a new ledger comes first; migrations follow.
pub(super) const MIGRATIONS: &[Migration] =
    &[Migration { number: 1, name: check::FIRST, breaking: true, sql: sql!(include_str!("schema.sql")) }];

/// A number that other programs are unlikely to lock.
pub(super) const LOCK: &str = "SELECT pg_advisory_xact_lock(7311450182)";

/// No time limit for migrations of large tables, and any plan.
const UNHURRIED: &str = "SET LOCAL statement_timeout = 0; SET LOCAL enable_seqscan = on; \
     SET LOCAL enable_bitmapscan = on; SET LOCAL enable_hashjoin = on; SET LOCAL enable_mergejoin = on";

const TABLE: &str = "CREATE TABLE migration (number integer PRIMARY KEY, name text NOT NULL, \
     breaking boolean NOT NULL, applied_at timestamptz NOT NULL DEFAULT now())";

/// Applies the missing migrations and returns the ledger's key.
pub(super) async fn migrate(client: &mut Client) -> Result<Key, Error> {
    up_to(client, MIGRATIONS).await
}

/// Applies the missing ones of these migrations.
pub(super) async fn up_to(client: &mut Client, migrations: &[Migration]) -> Result<Key, Error> {
    let failed = |e: PgError| Error::Unavailable(describe(&e));
    let transaction = client.transaction().await.map_err(failed)?;
    transaction.batch_execute(UNHURRIED).await.map_err(failed)?;
    transaction.batch_execute(LOCK).await.map_err(failed)?;
    let row = transaction
        .query_one(
            "SELECT to_regclass('migration') IS NOT NULL, EXISTS (SELECT 1 FROM pg_class c \
             WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r')",
            &[],
        )
        .await
        .map_err(failed)?;
    let (is_ledger, has_tables): (bool, bool) = (row.get(0), row.get(1));
    if !is_ledger && has_tables {
        return Err(Error::Unusable(
            "the database has tables, and they are not a ledger's. Use an empty database".to_owned(),
        ));
    }
    if !is_ledger {
        transaction.batch_execute(TABLE).await.map_err(failed)?;
    }
    let rows = transaction
        .query("SELECT number, name, breaking FROM migration ORDER BY number", &[])
        .await
        .map_err(failed)?;
    let applied: Vec<i32> = rows.iter().map(|row| row.get(0)).collect();
    let first: Option<&str> = rows.iter().find(|row| row.get::<_, i32>(0) == 1).map(|row| row.get(1));
    check::refuse_older(first, &"the database", "use an empty database")?;
    for row in &rows {
        let (number, name, breaking): (i32, String, bool) = (row.get(0), row.get(1), row.get(2));
        if breaking && !migrations.iter().any(|known| known.number == number) {
            return Err(Error::Unusable(format!(
                "its schema has migration {number} ({name}), which this version does not know. \
                 Use the version that made it, or a newer one"
            )));
        }
    }
    for migration in migrations.iter().filter(|migration| !applied.contains(&migration.number)) {
        transaction.batch_execute(&filled(migration.sql)).await.map_err(failed)?;
        if migration.number == 1 {
            unlogged::first_anchor(transaction.client(), &make_key(&transaction).await?).await?;
        }
        transaction
            .execute(
                "INSERT INTO migration (number, name, breaking) VALUES ($1, $2, $3)",
                &[&migration.number, &migration.name, &migration.breaking],
            )
            .await
            .map_err(failed)?;
    }
    let key = make_key(&transaction).await?;
    transaction.commit().await.map_err(failed)?;
    Ok(key)
}

/// Creates the tables of a new ledger in the first schema of the search path.
pub(super) async fn make_tables(client: &Client) -> Result<(), PgError> {
    client.batch_execute(TABLE).await?;
    for migration in MIGRATIONS {
        client.batch_execute(&filled(migration.sql)).await?;
    }
    Ok(())
}

/// The CHECK constraint on moves is generated from the core's table.
fn filled(sql: &str) -> String {
    sql.replace("@moves", &state_machine::sql_mask_check("from_state", "to_state"))
}

/// The key of the ledger's tokens, created by the first process.
async fn make_key(transaction: &tokio_postgres::Transaction<'_>) -> Result<Key, Error> {
    let failed = |e: PgError| Error::Unavailable(describe(&e));
    let mut key = [0u8; 32];
    getrandom::fill(&mut key).map_err(|e| Error::Unavailable(format!("no randomness: {e}")))?;
    transaction
        .execute(
            "INSERT INTO meta (key, value) VALUES ('key', encode($1::bytea, 'hex')), ('epoch', '1'), \
             ('clock', '0 0 0') \
             ON CONFLICT DO NOTHING",
            &[&&key[..]],
        )
        .await
        .map_err(failed)?;
    let row = transaction
        .query_one("SELECT decode(value, 'hex') FROM meta WHERE key = 'key'", &[])
        .await
        .map_err(failed)?;
    let stored: &[u8] = row.get(0);
    stored
        .try_into()
        .map(Key::new)
        .map_err(|_| Error::Corrupt("the ledger's key has not 32 bytes".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn connected() -> Client {
        let url = tenure_testkit::shared().create_database();
        let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }

    #[tokio::test]
    async fn a_migration_is_applied_once_and_a_ledger_keeps_its_key() {
        let mut client = connected().await;
        let token = |key: &Key| key.wait(tenure_core::WaitId(uuid::Uuid::nil()));
        let before = token(&up_to(&mut client, MIGRATIONS).await.unwrap());
        let first = Migration { ..MIGRATIONS[0] };
        let more =
            Migration { number: 2, name: "more", breaking: false, sql: "CREATE TABLE more (x integer)" };
        let migrations = [first, more];
        for _ in 0..2 {
            assert_eq!(token(&up_to(&mut client, &migrations).await.unwrap()), before);
        }
        assert_ne!(token(&up_to(&mut connected().await, MIGRATIONS).await.unwrap()), before);
    }

    #[tokio::test]
    async fn a_ledger_of_a_development_version_is_refused_by_name() {
        let mut client = connected().await;
        let older = "INSERT INTO migration VALUES (1, 'ledger', true), (30, 'kept', true)";
        client.batch_execute(&format!("{TABLE}; {older}")).await.unwrap();
        let error = up_to(&mut client, MIGRATIONS).await.map(drop).unwrap_err();
        assert!(matches!(&error, Error::Unusable(why) if why.contains("development version")), "{error}");
    }

    #[test]
    fn numbers_rise() {
        assert!(MIGRATIONS.windows(2).all(|pair| pair[0].number < pair[1].number));
    }
}
