//! Budgets: the amounts that are spent and reserved.

use rusqlite::{Row, params};
use tenure_core::command::budget::{Budget, BudgetKey};

use super::{
    SqliteStore,
    read::bound,
    row::{self, Read},
};
use crate::store::{BudgetStore, StoreFuture};

pub(super) const BUDGETS: &str = "SELECT spent, reserved FROM budget WHERE key = ?1";
const ALL_BUDGETS: &str = "SELECT spent, reserved, key FROM budget WHERE key > ?1 ORDER BY key LIMIT ?2";
pub(super) const SAVE_BUDGETS: &str = "INSERT OR ROLLBACK INTO budget (key, spent, reserved) VALUES (?1, ?2, ?3) \
     ON CONFLICT (key) DO UPDATE SET spent = excluded.spent, reserved = excluded.reserved";

impl BudgetStore for SqliteStore {
    fn budgets<'a>(&'a self, keys: &'a [BudgetKey]) -> StoreFuture<'a, Vec<(BudgetKey, Budget)>> {
        let keys = keys.to_vec();
        self.read(move |reader| {
            let mut found = Vec::with_capacity(keys.len());
            for key in keys {
                let here = reader.all(BUDGETS, [key.text()], budget)?;
                found.extend(here.into_iter().map(|budget| (key.clone(), budget)));
            }
            Ok(found)
        })
    }

    fn all_budgets<'a>(&'a self, after: &'a str, limit: usize) -> StoreFuture<'a, Vec<(BudgetKey, Budget)>> {
        let after = after.to_owned();
        self.read(move |reader| {
            reader
                .all(ALL_BUDGETS, params![after, bound(limit)], |row| Ok((row::json(row, 2)?, budget(row)?)))
        })
    }
}

pub(super) fn budget(row: &Row<'_>) -> Read<Budget> {
    Ok(Budget { spent: row.get::<_, i64>(0)? as u64, reserved: row.get::<_, i64>(1)? as u64 })
}
