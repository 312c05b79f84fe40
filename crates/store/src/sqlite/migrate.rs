//! The schema: numbered steps, each run once, in one transaction under the file's write lock.

use std::path::PathBuf;

use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};
use tenure_core::Millis;

use super::{fault::Fault, loss, settings::explain, unlogged};
use crate::{Error, token::Key};

pub(super) struct Migration {
    pub number: i64,
    pub name: &'static str,
    /// Programs that do not know it must not open the ledger any more.
    pub breaking: bool,
    pub sql: &'static str,
}

/// Adds the MACs of rows that are there already.
const MACS: i64 = 25;

pub(super) const MIGRATIONS: &[Migration] = &[
    Migration { number: 1, name: "ledger", breaking: true, sql: include_str!("migrations/0001_ledger.sql") },
    Migration {
        number: 2,
        name: "credentials",
        breaking: false,
        sql: include_str!("migrations/0002_credentials.sql"),
    },
    Migration { number: 3, name: "waits", breaking: false, sql: include_str!("migrations/0003_waits.sql") },
    Migration {
        number: 4,
        name: "retention",
        breaking: true,
        sql: include_str!("migrations/0004_retention.sql"),
    },
    Migration {
        number: 5,
        name: "lighter",
        breaking: false,
        sql: include_str!("migrations/0005_lighter.sql"),
    },
    Migration {
        number: 6,
        name: "schedules",
        breaking: false,
        sql: include_str!("migrations/0006_schedules.sql"),
    },
    Migration { number: 7, name: "usage", breaking: true, sql: include_str!("migrations/0007_usage.sql") },
    Migration {
        number: 8,
        name: "early_answers",
        breaking: true,
        sql: include_str!("migrations/0008_early_answers.sql"),
    },
    Migration {
        number: 9,
        name: "commands",
        breaking: true,
        sql: include_str!("migrations/0009_commands.sql"),
    },
    Migration {
        number: 11,
        name: "intake",
        breaking: false,
        sql: include_str!("migrations/0011_intake.sql"),
    },
    Migration {
        number: 12,
        name: "one_row",
        breaking: true,
        sql: include_str!("migrations/0012_one_row.sql"),
    },
    Migration {
        number: 13,
        name: "last_event",
        breaking: false,
        sql: include_str!("migrations/0013_last_event.sql"),
    },
    Migration {
        number: 14,
        name: "linked_log",
        breaking: true,
        sql: include_str!("migrations/0014_linked_log.sql"),
    },
    Migration {
        number: 15,
        name: "attempt_ends",
        breaking: false,
        sql: include_str!("migrations/0015_attempt_ends.sql"),
    },
    Migration {
        number: 16,
        name: "principals",
        breaking: true,
        sql: include_str!("migrations/0016_principals.sql"),
    },
    Migration {
        number: 23,
        name: "by_tenant",
        breaking: false,
        sql: include_str!("migrations/0023_by_tenant.sql"),
    },
    Migration {
        number: 24,
        name: "lanes_by_tenant",
        breaking: true,
        sql: include_str!("migrations/0024_lanes_by_tenant.sql"),
    },
    Migration { number: MACS, name: "macs", breaking: true, sql: include_str!("migrations/0025_macs.sql") },
    Migration {
        number: 29,
        name: "late_receipts",
        breaking: true,
        sql: include_str!("migrations/0029_late_receipts.sql"),
    },
    Migration { number: 30, name: "kept", breaking: false, sql: include_str!("migrations/0030_kept.sql") },
];

const MIGRATION_TABLE: &str = "CREATE TABLE IF NOT EXISTS migration (
    number INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    breaking INTEGER NOT NULL,
    applied_at INTEGER NOT NULL
) STRICT";

const OPENED: &str = "INSERT INTO meta (key, value) VALUES ('opened_at', CAST(?1 AS BLOB)) \
     ON CONFLICT (key) DO UPDATE SET value = excluded.value";

/// Refuses a file that is something else, before anything in it is touched.
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
    refuse_newer(&transaction, migrations)?;
    for migration in migrations {
        apply(&transaction, migration, now)?;
    }
    // A file that cannot be written must be found out now, not by the first who wants to.
    transaction.execute(OPENED, [now.to_string()]).map_err(failed)?;
    loss::mark(&transaction).map_err(failed)?;
    transaction.commit().map_err(failed)
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
    conn.execute_batch(migration.sql).map_err(|error| failed(conn, &error))?;
    match migration.number {
        1 => make_key(conn)?,
        MACS => unlogged::add_macs(conn, &key(conn)?).map_err(Fault::into_error)?,
        _ => {}
    }
    conn.execute(
        "INSERT INTO migration (number, name, breaking, applied_at) VALUES (?1, ?2, ?3, ?4)",
        params![migration.number, migration.name, migration.breaking, now],
    )
    .map_err(|error| failed(conn, &error))?;
    Ok(())
}

/// The key of every token is made with the ledger and never changes.
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

/// The file that a connection is to.
fn place(conn: &Connection) -> PathBuf {
    conn.path().unwrap_or_default().into()
}

pub(super) fn failed(conn: &Connection, error: &rusqlite::Error) -> Error {
    explain(&place(conn), error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema(conn: &Connection) -> Vec<(String, Option<String>)> {
        let mut statement = conn.prepare("SELECT name, sql FROM sqlite_schema ORDER BY name").unwrap();
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        rows.map(Result::unwrap).collect()
    }

    #[test]
    fn a_migrated_ledger_is_like_a_fresh_one() {
        let mut fresh = Connection::open_in_memory().unwrap();
        run(&mut fresh, MIGRATIONS, 1).unwrap();
        let mut migrated = Connection::open_in_memory().unwrap();
        for upto in 1..=MIGRATIONS.len() {
            run(&mut migrated, &MIGRATIONS[..upto], upto as Millis).unwrap();
        }
        run(&mut migrated, MIGRATIONS, 99).unwrap();
        assert_eq!(schema(&fresh), schema(&migrated));
        let token = |conn: &Connection| key(conn).unwrap().wait(tenure_core::WaitId(uuid::Uuid::nil()));
        assert_ne!(token(&fresh), token(&migrated));
    }

    #[test]
    fn the_check_of_events_is_the_table_of_moves() {
        let check = tenure_core::state_machine::sql_check("from_state", "to_state");
        let squeeze = |sql: &str| sql.split_whitespace().collect::<Vec<_>>().join(" ");
        let sql = squeeze(MIGRATIONS[0].sql).replace("( ", "(").replace(" )", ")");
        assert!(sql.contains(&check), "the migration must contain\n{check}");
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
