//! Compares the budget counters with the logs: recomputes what was spent and what is reserved.

use std::collections::{BTreeMap, BTreeSet};

use tenure_core::{
    Event, Fact, WorkId,
    command::budget::{Account, Budget, BudgetKey},
    refold,
};

use crate::{Error, Ledger, Position};

const PAGE: usize = 500;

/// The totals according to the logs.
pub(crate) struct Spending {
    /// The end of the feed before the first log was read.
    from: Position,
    told: BTreeMap<BudgetKey, Budget>,
    /// A newer version told something of a command that this one does not know: it may have spent.
    unknown: bool,
}

impl Spending {
    pub fn new(from: Position) -> Self {
        Self { from, told: BTreeMap::new(), unknown: false }
    }

    pub fn hear(&mut self, events: &[Event]) {
        let of_command = |event: &Event| event.fact.is_unknown() && event.fact.kind().starts_with("command_");
        self.unknown |= events.iter().any(of_command);
        for (key, more) in refold::spending(events) {
            let sum = self.told.entry(key).or_default();
            sum.spent = sum.spent.saturating_add(more.spent);
            sum.reserved = sum.reserved.saturating_add(more.reserved);
        }
    }
}

impl Ledger {
    /// The counters that differ from the logs. Counters that change during the verification are left for the
    /// next one. If something was pruned, a counter may be higher than the logs.
    pub(crate) async fn budget_faults(&self, spending: Spending) -> Result<Vec<String>, Error> {
        let mut stored = BTreeMap::new();
        let mut after = String::new();
        loop {
            let page = self.store().all_budgets(&after, PAGE).await?;
            let Some((last, _)) = page.last() else { break };
            after = last.text();
            stored.extend(page);
        }
        if spending.unknown || (stored.is_empty() && spending.told.is_empty()) {
            return Ok(Vec::new());
        }
        let pruned = self.store().any_pruned().await?;
        let moved = self.moved_budgets(spending.from).await?;
        let keys: BTreeSet<&BudgetKey> = stored.keys().chain(spending.told.keys()).collect();
        let counted = keys.into_iter().filter(|key| key.account != Account::Replays && !moved.contains(key));
        let of = |all: &BTreeMap<BudgetKey, Budget>, key| all.get(key).copied().unwrap_or_default();
        let wrong = counted.filter_map(|key| {
            let (is, told) = (of(&stored, key), of(&spending.told, key));
            let spent = if pruned { is.spent >= told.spent } else { is.spent == told.spent };
            (!spent || is.reserved != told.reserved).then(|| {
                let said = |amount| key.unit.amount(amount);
                format!(
                    "the budget {} has {} spent and {} reserved, but the logs have {} and {}",
                    key.words(),
                    said(is.spent),
                    said(is.reserved),
                    said(told.spent),
                    said(told.reserved)
                )
            })
        });
        Ok(wrong.collect())
    }

    /// The counters of every work item whose commands changed since then.
    async fn moved_budgets(&self, mut from: Position) -> Result<BTreeSet<BudgetKey>, Error> {
        let mut works: BTreeSet<WorkId> = BTreeSet::new();
        loop {
            let page = self.feed(from, PAGE).await?;
            let moved = page.events.iter().map(|stored| &stored.event);
            works.extend(moved.filter(|event| event.fact.command().is_some()).map(|event| event.work));
            from = page.next;
            if !page.full {
                break;
            }
        }
        let mut keys = BTreeSet::new();
        for id in works {
            // An unreadable work item is reported as its own fault.
            let Some(work) = self.readable_works(&[id]).await?.rows.pop() else { continue };
            let events = match self.log(&work).await {
                Err(error) if error.is_of_stored() => continue,
                events => events?,
            };
            for event in events {
                if let Fact::CommandDispatched(dispatched) = event.fact {
                    keys.extend(dispatched.reserved.into_iter().map(|one| one.key));
                }
            }
        }
        Ok(keys)
    }
}
