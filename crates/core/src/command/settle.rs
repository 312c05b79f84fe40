//! Budget reservations: made at dispatch, then spent or released.

use std::collections::BTreeMap;

use super::{
    Command, Evaluation, Proof,
    budget::{BudgetKey, Reservation, Shift},
};
use crate::{records::Change, work::draft::Draft};

/// Reserves the expected cost of a call.
pub(super) fn reserve(draft: &mut Draft, command: &Command, evaluation: &Evaluation) -> Vec<Reservation> {
    let spec = &command.spec;
    let mut amounts: BTreeMap<BudgetKey, u64> = BTreeMap::new();
    for limit in &evaluation.limits {
        let amount = evaluation.estimate.of(&limit.unit);
        // A counter that two limits share is counted once.
        amounts.insert(limit.key(&spec.tenant, command.work, &spec.tool), amount);
    }
    for (key, amount) in &amounts {
        shift(draft, key, Shift { set_aside: *amount, ..Shift::default() });
    }
    amounts.into_iter().map(|(key, amount)| Reservation { key, amount }).collect()
}

/// The effect happened: the reserved amount is spent, or the actual cost. The success event records it. An
/// amount that was released before is spent as well, because the call was made nevertheless.
pub(super) fn spend(draft: &mut Draft, command: &Command, proof: &Proof) -> Vec<Reservation> {
    let set_aside = !reservations(command).is_empty();
    let mut all = Vec::new();
    for Reservation { key, amount } in charged(command) {
        let spent = proof.cost_in(&key.unit).unwrap_or(*amount);
        let given_back = if set_aside { *amount } else { 0 };
        shift(draft, key, Shift { given_back, spent, ..Shift::default() });
        all.push(Reservation { key: key.clone(), amount: spent });
    }
    all
}

/// The effect did not happen: the reserved amount is released.
pub(super) fn release(draft: &mut Draft, command: &Command) {
    for Reservation { key, amount } in reservations(command) {
        shift(draft, key, Shift { given_back: *amount, ..Shift::default() });
    }
}

pub(super) fn reservations(command: &Command) -> &[Reservation] {
    command.body.dispatch.as_ref().map_or(&[], |dispatch| &dispatch.reserved)
}

/// The amounts that a receipt is charged to.
pub(super) fn charged(command: &Command) -> &[Reservation] {
    match reservations(command) {
        [] => command.body.dispatch.as_ref().map_or(&[], |dispatch| &dispatch.given_back),
        reserved => reserved,
    }
}

pub(super) fn shift(draft: &mut Draft, key: &BudgetKey, by: Shift) {
    draft.change(Change::Budget { key: key.clone(), by });
}
