//! Budgets in memory.

use std::collections::BTreeMap;

use tenure_core::command::budget::{Budget, BudgetKey};

use super::Memory;
use crate::store::{BudgetStore, StoreFuture};

impl BudgetStore for Memory {
    fn budgets<'a>(&'a self, keys: &'a [BudgetKey]) -> StoreFuture<'a, Vec<(BudgetKey, Budget)>> {
        self.ready(|inner| {
            let known = |key: &BudgetKey| Some((key.clone(), *inner.records.budgets.get(key)?));
            keys.iter().filter_map(known).collect()
        })
    }

    fn all_budgets<'a>(&'a self, after: &'a str, limit: usize) -> StoreFuture<'a, Vec<(BudgetKey, Budget)>> {
        self.ready(|inner| {
            let all = inner.records.budgets.iter().map(|(key, budget)| (key.text(), (key.clone(), *budget)));
            let later: BTreeMap<_, _> = all.filter(|(text, _)| text.as_str() > after).collect();
            later.into_values().take(limit).collect()
        })
    }
}
