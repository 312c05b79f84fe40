//! Budgets: the amounts that are spent and reserved.

use std::collections::BTreeMap;

use tenure_core::command::budget::{Budget, BudgetKey};
use tokio_postgres::Row;

use super::{Postgres, connection::params, row::get};
use crate::{
    Error,
    store::{BudgetStore, StoreFuture},
};

/// Creates missing counters, because only an existing row can be locked. Sorted, so that two groups lock in the same
/// order.
pub(super) const OPEN_BUDGETS: &str = "INSERT INTO budget (key, spent, reserved) \
     SELECT k, 0, 0 FROM unnest($1::text[]) AS k ORDER BY k ON CONFLICT DO NOTHING";
pub(super) const LOCK_BUDGETS: &str =
    "SELECT key, spent, reserved FROM budget WHERE key = ANY($1::text[]) ORDER BY key FOR NO KEY UPDATE";
const BUDGETS: &str = "SELECT key, spent, reserved FROM budget WHERE key = ANY($1::text[])";

const ALL_BUDGETS: &str = "SELECT key, spent, reserved FROM budget WHERE key COLLATE \"C\" > $1::text \
     ORDER BY key COLLATE \"C\" LIMIT $2::bigint";
pub(super) const SAVE_BUDGETS: &str = "UPDATE budget b SET spent = v.spent, reserved = v.reserved \
     FROM (SELECT unnest($1::text[]), unnest($2::bigint[]), unnest($3::bigint[])) AS v(key, spent, reserved) \
     WHERE b.key = v.key";

impl BudgetStore for Postgres {
    fn budgets<'a>(&'a self, keys: &'a [BudgetKey]) -> StoreFuture<'a, Vec<(BudgetKey, Budget)>> {
        Box::pin(async move {
            let texts: Vec<String> = keys.iter().map(BudgetKey::text).collect();
            let mut found = BTreeMap::new();
            for row in self.points.query(BUDGETS, params![texts]).await? {
                found.insert(get::<String>(&row, 0)?, budget(&row)?);
            }
            Ok(keys.iter().filter_map(|key| Some((key.clone(), *found.get(&key.text())?))).collect())
        })
    }

    fn all_budgets<'a>(&'a self, after: &'a str, limit: usize) -> StoreFuture<'a, Vec<(BudgetKey, Budget)>> {
        Box::pin(async move {
            // Sorted by bytes, because each database may sort text differently.
            let rows = self.points.query(ALL_BUDGETS, params![after, limit as i64]).await?;
            let key = |text: &str| {
                serde_json::from_str(text)
                    .map_err(|error| Error::Corrupt(format!("a stored row cannot be read: {error}")))
            };
            rows.iter().map(|row| Ok((key(get(row, 0)?)?, budget(row)?))).collect()
        })
    }
}

pub(super) fn budget(row: &Row) -> Result<Budget, Error> {
    Ok(Budget { spent: get::<i64>(row, 1)? as u64, reserved: get::<i64>(row, 2)? as u64 })
}
