//! Brings a database to this version's schema, once, whoever comes first.

use tenure_core::state_machine;
use tokio_postgres::{Client, Error as PgError};

use super::{fault::describe, unlogged};
use crate::{Error, token::Key};

pub(super) struct Migration {
    pub number: i32,
    name: &'static str,
    /// Whether binaries that do not know it must not use the ledger any more.
    breaking: bool,
    sql: &'static str,
}

/// Adds the MACs of rows that are there already.
const MACS: i32 = 25;

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
        breaking: true,
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
        breaking: false,
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
        breaking: false,
        sql: include_str!("migrations/0014_linked_log.sql"),
    },
    Migration {
        number: 15,
        name: "attempt_ends",
        breaking: true,
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

/// Any number that nobody else is likely to lock.
pub(super) const LOCK: &str = "SELECT pg_advisory_xact_lock(7311450182)";

/// A large table takes as long as it takes, by whatever plan is best.
const UNHURRIED: &str = "SET LOCAL statement_timeout = 0; SET LOCAL enable_seqscan = on; \
     SET LOCAL enable_bitmapscan = on; SET LOCAL enable_hashjoin = on; SET LOCAL enable_mergejoin = on";

const TABLE: &str = "CREATE TABLE migration (number integer PRIMARY KEY, name text NOT NULL, \
     breaking boolean NOT NULL, applied_at timestamptz NOT NULL DEFAULT now())";

/// Applies what is missing and answers with the ledger's key.
pub(super) async fn migrate(client: &mut Client) -> Result<Key, Error> {
    up_to(client, MIGRATIONS).await
}

/// Applies what is missing of the given migrations.
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
        if migration.number == MACS {
            unlogged::add_macs(transaction.client(), &make_key(&transaction).await?).await?;
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

/// Makes the tables of a new ledger in the first schema of the search path.
pub(super) async fn make_tables(client: &Client) -> Result<(), PgError> {
    client.batch_execute(TABLE).await?;
    for migration in MIGRATIONS {
        client.batch_execute(&filled(migration.sql)).await?;
    }
    Ok(())
}

/// The checks on moves have one source: the core's table.
fn filled(sql: &str) -> String {
    sql.replace("{from_to}", &state_machine::sql_mask_check("from_state", "to_state"))
}

/// The key of the ledger's tokens, made by the first to come.
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

    /// Every column, constraint, index and trigger, in words.
    const DUMP: &str = "SELECT string_agg(line, E'\\n' ORDER BY line) FROM ( \
         SELECT format('%s.%s %s %s %s', table_name, column_name, data_type, is_nullable, column_default) \
         FROM information_schema.columns WHERE table_schema = 'public' \
         UNION ALL SELECT conrelid::regclass || ' ' || pg_get_constraintdef(oid) FROM pg_constraint \
         WHERE connamespace = 'public'::regnamespace \
         UNION ALL SELECT indexdef FROM pg_indexes WHERE schemaname = 'public' \
         UNION ALL SELECT pg_get_triggerdef(t.oid) FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid \
         WHERE c.relnamespace = 'public'::regnamespace) AS lines(line)";

    async fn dump(steps: impl Iterator<Item = usize>) -> String {
        let url = tenure_testkit::shared().create_database();
        let (mut client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        for count in steps {
            up_to(&mut client, &MIGRATIONS[..count]).await.unwrap();
        }
        client.query_one(DUMP, &[]).await.unwrap().get(0)
    }

    #[tokio::test]
    async fn a_fresh_schema_is_a_migrated_one() {
        let fresh = dump(std::iter::once(MIGRATIONS.len())).await;
        let migrated = dump(1..=MIGRATIONS.len()).await;
        assert_eq!(fresh, migrated);
        assert!(fresh.contains("event_follows"));
        assert!(fresh.contains(".from_state"), "{fresh}");
    }

    #[test]
    fn numbers_rise() {
        assert!(MIGRATIONS.windows(2).all(|pair| pair[0].number < pair[1].number));
    }
}
