//! The schema: `schema.sql`, and numbered migrations. Each is applied once, in one transaction under the file's write
//! lock.

use std::path::PathBuf;

use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};
use tenure_core::{Millis, state_machine};

use super::{fault::Fault, loss, settings::explain, unlogged};
use crate::{Error, check, states::sql, token::Key};

pub(super) struct Migration {
    pub number: i64,
    pub name: &'static str,
    /// Programs that do not know this migration must not open the ledger any more.
    pub breaking: bool,
    pub sql: &'static str,
}

/// The schema of a new ledger comes first; migrations follow.
pub(super) const MIGRATIONS: &[Migration] =
    &[Migration { number: 1, name: check::FIRST, breaking: true, sql: sql!(include_str!("schema.sql")) }];

const MIGRATION_TABLE: &str = "CREATE TABLE IF NOT EXISTS migration (
    number INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    breaking INTEGER NOT NULL,
    applied_at INTEGER NOT NULL
) STRICT";

const OPENED: &str = "INSERT INTO meta (key, value) VALUES ('opened_at', CAST(?1 AS BLOB)) \
     ON CONFLICT (key) DO UPDATE SET value = excluded.value";

/// Refuses a file that is not a ledger, before anything in it is changed.
pub(super) fn recognise(conn: &Connection) -> Result<(), Error> {
    let count =
        |sql: &str| conn.query_row(sql, [], |row| row.get::<_, i64>(0)).map_err(|error| failed(conn, &error));
    let tables = count("SELECT count(*) FROM sqlite_schema WHERE type = 'table'")?;
    let ours = count("SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'migration'")?;
    if tables > 0 && ours == 0 {
        return Err(Error::Unusable(format!(
            "{} is an SQLite database, but of something else. Give the path of a ledger, or of a new file",
            place(conn).display()
        )));
    }
    Ok(())
}

/// Brings the schema up to date.
pub(super) fn run(conn: &mut Connection, migrations: &[Migration], now: Millis) -> Result<(), Error> {
    let place = place(conn);
    let failed = |error| explain(&place, &error);
    let transaction = Transaction::new(conn, TransactionBehavior::Immediate).map_err(failed)?;
    transaction.execute_batch(MIGRATION_TABLE).map_err(failed)?;
    refuse_older(&transaction)?;
    refuse_newer(&transaction, migrations)?;
    for migration in migrations {
        apply(&transaction, migration, now)?;
    }
    // A file that cannot be written must fail at open, not at the first write.
    transaction.execute(OPENED, [now.to_string()]).map_err(failed)?;
    loss::mark(&transaction).map_err(failed)?;
    transaction.commit().map_err(failed)
}

fn refuse_older(conn: &Connection) -> Result<(), Error> {
    let first: Option<String> = conn
        .query_row("SELECT name FROM migration WHERE number = 1", [], |row| row.get(0))
        .optional()
        .map_err(|error| failed(conn, &error))?;
    check::refuse_older(first.as_deref(), &place(conn).display(), "give the path of a new file")
}

fn refuse_newer(conn: &Connection, migrations: &[Migration]) -> Result<(), Error> {
    let known = migrations.last().map_or(0, |last| last.number);
    let newer: Option<(i64, String)> = conn
        .query_row(
            "SELECT number, name FROM migration WHERE number > ?1 AND breaking ORDER BY number DESC",
            [known],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
        .optional()
        .map_err(|error| failed(conn, &error))?;
    match newer {
        None => Ok(()),
        Some((number, name)) => Err(Error::Unusable(format!(
            "a newer version has changed {} (migration {number}, `{name}`; this version knows {known}). \
             Install that version, or restore a backup made before the upgrade",
            place(conn).display()
        ))),
    }
}

fn apply(conn: &Connection, migration: &Migration, now: Millis) -> Result<(), Error> {
    let done: Option<i64> = conn
        .query_row("SELECT 1 FROM migration WHERE number = ?1", [migration.number], |row| row.get(0))
        .optional()
        .map_err(|error| failed(conn, &error))?;
    if done.is_some() {
        return Ok(());
    }
    conn.execute_batch(&filled(migration.sql)).map_err(|error| failed(conn, &error))?;
    if migration.number == 1 {
        make_key(conn)?;
        unlogged::first_anchor(conn, &key(conn)?).map_err(Fault::into_error)?;
    }
    conn.execute(
        "INSERT INTO migration (number, name, breaking, applied_at) VALUES (?1, ?2, ?3, ?4)",
        params![migration.number, migration.name, migration.breaking, now],
    )
    .map_err(|error| failed(conn, &error))?;
    Ok(())
}

/// The CHECK constraint on moves is generated from the core's table.
fn filled(sql: &str) -> String {
    sql.replace("@moves", &state_machine::sql_check("from_state", "to_state"))
}

/// The key of all tokens is created with the ledger and never changes.
fn make_key(conn: &Connection) -> Result<(), Error> {
    let mut key = [0; 32];
    getrandom::fill(&mut key)
        .map_err(|error| Error::Unavailable(format!("no randomness for the ledger's key: {error}")))?;
    conn.execute("INSERT INTO meta (key, value) VALUES ('key', ?1)", [&key[..]])
        .map_err(|error| failed(conn, &error))?;
    Ok(())
}

pub(super) fn key(conn: &Connection) -> Result<Key, Error> {
    conn.query_row("SELECT value FROM meta WHERE key = 'key'", [], |row| row.get(0))
        .map(Key::new)
        .map_err(|error| failed(conn, &error))
}

/// The path of a connection's file.
fn place(conn: &Connection) -> PathBuf {
    conn.path().unwrap_or_default().into()
}

pub(super) fn failed(conn: &Connection, error: &rusqlite::Error) -> Error {
    explain(&place(conn), error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_migration_is_applied_once_and_a_ledger_keeps_its_key() {
        let mut conn = Connection::open_in_memory().unwrap();
        run(&mut conn, MIGRATIONS, 1).unwrap();
        let token = |conn: &Connection| key(conn).unwrap().wait(tenure_core::WaitId(uuid::Uuid::nil()));
        let before = token(&conn);
        let more = Migration {
            number: 2,
            name: "more",
            breaking: false,
            sql: "CREATE TABLE more (x INTEGER) STRICT",
        };
        let migrations = [Migration { ..MIGRATIONS[0] }, more];
        for _ in 0..2 {
            run(&mut conn, &migrations, 2).unwrap();
        }
        assert_eq!(token(&conn), before);
        let mut other = Connection::open_in_memory().unwrap();
        run(&mut other, MIGRATIONS, 1).unwrap();
        assert_ne!(token(&other), before);
    }

    #[test]
    fn a_ledger_of_a_development_version_is_refused_by_name() {
        let mut conn = Connection::open_in_memory().unwrap();
        conn.execute_batch(MIGRATION_TABLE).unwrap();
        for (number, name) in [(1, "ledger"), (30, "kept")] {
            conn.execute("INSERT INTO migration VALUES (?1, ?2, 1, 1)", params![number, name]).unwrap();
        }
        let error = run(&mut conn, MIGRATIONS, 1).unwrap_err();
        assert!(matches!(&error, Error::Unusable(why) if why.contains("development version")), "{error}");
    }

    #[test]
    fn a_newer_breaking_schema_is_refused_and_a_compatible_one_is_not() {
        let mut conn = Connection::open_in_memory().unwrap();
        run(&mut conn, MIGRATIONS, 1).unwrap();
        conn.execute("INSERT INTO migration VALUES (900, 'more', 0, 1)", []).unwrap();
        run(&mut conn, MIGRATIONS, 1).unwrap();
        conn.execute("INSERT INTO migration VALUES (901, 'other', 1, 1)", []).unwrap();
        let error = run(&mut conn, MIGRATIONS, 1).unwrap_err();
        assert!(matches!(&error, Error::Unusable(why) if why.contains("901")), "{error}");
    }

    #[test]
    fn somebody_elses_database_is_left_alone() {
        let conn = Connection::open_in_memory().unwrap();
        recognise(&conn).unwrap();
        conn.execute_batch("CREATE TABLE notes (text TEXT)").unwrap();
        assert!(matches!(recognise(&conn), Err(Error::Unusable(_))));
    }
}
