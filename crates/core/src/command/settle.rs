//! What is set aside at dispatch, and what becomes of it.

use std::collections::BTreeMap;

use super::{
    Command, Gate, Proof,
    budget::{Budget, BudgetKey, Reservation},
};
use crate::{decide::Context, records::Change, work::draft::Draft};

/// Sets aside what a call is expected to cost.
pub(super) fn reserve(
    cx: Context<'_>,
    draft: &mut Draft,
    command: &Command,
    gate: &Gate,
) -> Vec<Reservation> {
    let spec = &command.spec;
    let mut amounts: BTreeMap<BudgetKey, u64> = BTreeMap::new();
    for limit in &gate.limits {
        let amount = gate.estimate.of(&limit.unit);
        // The same counter under two limits is counted once.
        amounts.insert(limit.key(&spec.tenant, command.work, &spec.tool), amount);
    }
    for (key, amount) in &amounts {
        change(cx, draft, key, |budget| budget.reserved = budget.reserved.saturating_add(*amount));
    }
    amounts.into_iter().map(|(key, amount)| Reservation { key, amount }).collect()
}

/// It happened: what was set aside is spent, or as much as it cost in truth. What that was is told with the success.
pub(super) fn spend(
    cx: Context<'_>,
    draft: &mut Draft,
    command: &Command,
    proof: &Proof,
) -> Vec<Reservation> {
    let mut all = Vec::new();
    for Reservation { key, amount } in reservations(command) {
        let spent = proof.cost_in(&key.unit).unwrap_or(*amount);
        change(cx, draft, key, |budget| budget.settle(*amount, spent));
        all.push(Reservation { key: key.clone(), amount: spent });
    }
    all
}

/// It did not happen: what was set aside is free again.
pub(super) fn release(cx: Context<'_>, draft: &mut Draft, command: &Command) {
    for reservation in reservations(command) {
        change(cx, draft, &reservation.key, |budget| budget.settle(reservation.amount, 0));
    }
}

pub(super) fn reservations(command: &Command) -> &[Reservation] {
    command.body.dispatch.as_ref().map_or(&[], |dispatch| &dispatch.reserved)
}

pub(super) fn change(cx: Context<'_>, draft: &mut Draft, key: &BudgetKey, with: impl FnOnce(&mut Budget)) {
    let mut budget = cx.records.budgets.get(key).copied().unwrap_or_default();
    with(&mut budget);
    draft.change(Change::Budget { key: key.clone(), budget });
}
