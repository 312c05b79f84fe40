//! The numbered invariants, asserted after every accepted decision.

use std::collections::{BTreeMap, BTreeSet};

use tenure_core::{
    Decision, Event, Fact, Millis, Records, State, Work, WorkId, chain, due, fold, invariant,
    model::WaitState,
    records::{Change, Touch},
    state,
};

use super::World;

pub fn decision(world: &World, before: &Records, decision: &Decision) {
    let mut touched: BTreeSet<WorkId> = decision.events.iter().map(|event| event.work).collect();
    for change in &decision.changes {
        if let Change::Work { work, touch } = change {
            assert!(*touch == Touch::Insert || before.works.contains_key(&work.id), "{touch:?} of nothing");
            touched.insert(work.id);
        }
    }
    rows_are_written_once(decision);
    for id in &touched {
        let row = world.row(*id);
        log(row, &world.log[id]);
        row_is_its_log(row, &world.log[id]);
        rest_of_the_row(world, row);
        if let Some(old) = before.works.get(id) {
            later(old, row);
        }
    }
    super::commands::check(world, before, &touched);
    waits_end_once(world, before);
    one_holder_a_session(world);
}

/// A store writes set-based: two rows of one key in one decision would collide.
fn rows_are_written_once(decision: &Decision) {
    let mut waits = BTreeSet::new();
    let mut steps = BTreeSet::new();
    let mut works = BTreeSet::new();
    let mut commands = BTreeSet::new();
    let mut budgets = BTreeSet::new();
    for change in &decision.changes {
        let fresh = match change {
            Change::Wait(wait) => waits.insert(wait.id),
            Change::Step(step) => steps.insert((step.work, step.ordinal)),
            Change::Work { work, .. } => works.insert(work.id),
            Change::Command { command, .. } => commands.insert(command.id),
            Change::Budget { key, .. } => budgets.insert(key.clone()),
            Change::BeginAttempt(_)
            | Change::EndAttempt { .. }
            | Change::Keep(_)
            | Change::Unkeep { .. }
            | Change::Erase { .. }
            | Change::Wake { .. } => true,
        };
        assert!(fresh, "one decision writes one row twice: {change:?}");
    }
}

/// 3, 4 and 5: gapless, chained, only moves of the table, no move after an end, fences grow.
fn log(row: &Work, events: &[Event]) {
    let mut previous = fold::GENESIS;
    let mut state: Option<State> = None;
    let mut fence = 0;
    for (i, event) in events.iter().enumerate() {
        assert_eq!(event.seq, i as u64 + 1, "3: {} has a gap", row.id);
        assert_eq!(chain::fault(event, previous), None, "3: {}", row.id);
        assert_eq!(event.from, state, "4: {} moves from a state that it is not in", row.id);
        match event.from {
            None => assert!(state::BORN.iter().any(|(born, _)| *born == event.to), "4: born {}", event.to),
            Some(from) => {
                assert!(from.may_become(event.to), "4: {from} -> {}", event.to);
                let stays = event.from == Some(event.to);
                let after_end =
                    event.fact.command().is_some() || matches!(event.fact, Fact::ContentErased(_));
                let allowed = after_end && stays;
                assert!(!from.is_terminal() || allowed, "4: {} was written to after its end", row.id);
            }
        }
        if let Fact::Claimed(_) = event.fact {
            assert!(event.fence > Some(fence), "5: the fence of {} did not grow", row.id);
            fence = event.fence.unwrap_or(0);
        }
        assert_eq!(Fact::parse(event.fact.kind(), &event.data).as_ref(), Ok(&event.fact), "a stored fact");
        previous = event.hash;
        state = Some(event.to);
    }
    assert_eq!(state, Some(row.state), "2: the row has the state of its last event");
}

/// 2.
fn row_is_its_log(row: &Work, events: &[Event]) {
    let folded = fold::fold(events).expect("a log begins with work_created");
    assert!(fold::matches(row, &folded), "2: the row is not its log:\n{row:#?}\n{folded:#?}");
}

/// 5, 8 and 12, and the row's summaries match the records that they sum up.
fn rest_of_the_row(world: &World, row: &Work) {
    assert_eq!(invariant::fault(row), None, "8, 12: {row:#?}");
    let attempts = world.attempts.range((row.id, 0)..=(row.id, u64::MAX));
    let unended: Vec<u64> = attempts.filter(|(_, ended)| !**ended).map(|((_, fence), _)| *fence).collect();
    let held: Vec<u64> = row.lease.iter().map(|lease| lease.fence).collect();
    assert_eq!(unended, held, "5: unsuperseded leases of {}", row.id);

    let waits = world.records.waits.get(&row.id).map_or(&[][..], Vec::as_slice);
    let open = || waits.iter().filter(|wait| wait.state == WaitState::Open);
    assert_eq!(open().count(), row.open_waits as usize, "open waits of {}", row.id);
    assert_eq!(waits.len(), row.body.waits as usize, "waits of {}", row.id);
    if row.open_waits > 0 {
        assert_eq!(open().filter_map(|wait| wait.deadline_at).min(), row.body.wait_due, "wait due");
    }
    let steps = world.records.steps.get(&row.id).map_or(0, Vec::len);
    assert_eq!(steps, row.body.steps as usize, "steps of {}", row.id);
    armed(world, row);
}

/// 12: the due date is never after the next deadline, which is computed here independently. One that has
/// passed without effect, because the session is busy, is looked at again later.
fn armed(world: &World, row: &Work) {
    let lapse = row.held_lease().map(|lease| lease.expires_at + row.spec.policy.lease.grace_ms as Millis);
    let awake = !matches!(row.state, State::CancelRequested | State::Quarantined);
    let start = row.spec.start_at().filter(|_| row.state == State::Queued && row.attempt == 0);
    let owner = row.body.bound_until.filter(|at| *at > world.now);
    let execution = row.body.execution_at.filter(|_| row.state == State::Running);
    let lapse = lapse.filter(|_| row.state == State::Running || due::harmless_to_cancel(row));
    let deadlines = [
        row.spec.overall_at().filter(|_| awake),
        start,
        owner,
        row.next_retry_at,
        row.body.wait_due,
        execution,
        lapse,
    ];
    if row.state.is_terminal() {
        return assert_eq!(row.due_at, None, "12: over");
    }
    if let Some(next) = deadlines.into_iter().flatten().min() {
        let due = row.due_at.unwrap_or_else(|| panic!("12: not armed, but {next} comes: {row:#?}"));
        assert!(due <= next.max(world.now), "12: due {due}, but {next} comes first: {row:#?}");
    }
}

/// 4 and 5: immutable fields did not change.
fn later(old: &Work, new: &Work) {
    assert!(new.fence >= old.fence, "5: fences never shrink");
    assert!(new.attempt >= old.attempt && new.seq >= old.seq);
    assert_eq!(old.spec, new.spec, "a spec never changes");
    if old.state.is_terminal() {
        let mut body = old.body.clone();
        body.commands = new.body.commands;
        let mut progress = old.progress.clone();
        // An erasure takes the texts away, and nothing else.
        if new.body.erased_at != old.body.erased_at {
            progress = None;
            body.erased_at = new.body.erased_at;
            body.error.iter_mut().for_each(|error| error.message = None);
            body.reason.iter_mut().for_each(|reason| reason.message = None);
            body.cancel.iter_mut().for_each(|cancel| cancel.reason = None);
            body.abandon_request.iter_mut().for_each(|request| request.reason = None);
        }
        let (seq, head, updated_at) = (new.seq, new.head, new.updated_at);
        let by_commands = Work { seq, head, updated_at, progress, body, ..old.clone() };
        assert_eq!(by_commands, *new, "4: {} changed after its end", old.id);
    }
    if new.seq == old.seq {
        assert_eq!(old.state, new.state, "2: a state moves with an event");
        assert_eq!(old.body, new.body, "2: a body changes with an event");
    }
}

/// 18: an ended wait does not end again.
fn waits_end_once(world: &World, before: &Records) {
    let erased_at = |records: &Records, work| records.works.get(work).and_then(|work| work.body.erased_at);
    for (work, waits) in &before.waits {
        let erased = erased_at(before, work) != erased_at(&world.records, work);
        for old in waits.iter().filter(|wait| wait.state != WaitState::Open) {
            let mut old = old.clone();
            if erased {
                old.detail.erase();
            }
            let new = world.records.waits[work].iter().find(|wait| wait.id == old.id);
            assert_eq!(new, Some(&old), "18: an ended wait changed");
        }
    }
}

/// 5.
fn one_holder_a_session(world: &World) {
    let mut holders = BTreeMap::new();
    for work in world.records.works.values().filter(|work| work.state.holds_session()) {
        if let Some(key) = work.spec.session_key() {
            let other = holders.insert(key, work.id);
            assert_eq!(other, None, "5: {} shares its session with a held work", work.id);
        }
    }
}
