//! Rebuilds from a log the records beside the row: attempts, steps, waits and commands. Decisions write them
//! together with their events; verification compares the two.

use std::collections::{BTreeMap, HashMap};

use crate::{
    Millis,
    command::{
        self, Command, Tally,
        budget::{Budget, BudgetKey},
    },
    event::{ClosedBy, Event, Fact},
    fold,
    ids::WaitId,
    model::{Attempt, AttemptEnd, AttemptOutcome, ErrorInfo, OnTimeout, Step, Wait, WaitState, Work},
    reply::Ack,
    usage::Usage,
};

/// The first record that differs from the whole log of its work item.
pub fn fault(
    work: &Work,
    events: &[Event],
    attempts: &[Attempt],
    steps: &[Step],
    waits: &[Wait],
    commands: &[Command],
) -> Option<String> {
    attempts_fault(work, events, attempts)
        .or_else(|| steps_fault(work, events, steps))
        .or_else(|| waits_fault(work, events, waits))
        .or_else(|| commands_fault(work, events, commands))
}

/// The budgets according to a log: what its commands spent, and what is still reserved for them. Replay
/// counters count people's actions and are left out.
pub fn spending(events: &[Event]) -> BTreeMap<BudgetKey, Budget> {
    let mut all: BTreeMap<BudgetKey, Budget> = BTreeMap::new();
    for event in events {
        let Fact::CommandSucceeded(succeeded) = &event.fact else { continue };
        for one in &succeeded.spent {
            let budget = all.entry(one.key.clone()).or_default();
            budget.spent = budget.spent.saturating_add(one.amount);
        }
    }
    for command in command::fold::fold(events).values() {
        for one in command.body.dispatch.iter().flat_map(|dispatch| &dispatch.reserved) {
            let budget = all.entry(one.key.clone()).or_default();
            budget.reserved = budget.reserved.saturating_add(one.amount);
        }
    }
    all
}

/// Every command equals the fold of its events, and the row counts them correctly.
fn commands_fault(work: &Work, events: &[Event], commands: &[Command]) -> Option<String> {
    let said = command::fold::fold(events);
    if said.len() != commands.len() {
        return Some(format!("its log has {} commands, and {} are stored", said.len(), commands.len()));
    }
    let mut tally = Tally { total: commands.len() as u32, ..Tally::default() };
    for command in commands {
        if !said.get(&command.id).is_some_and(|said| command::fold::matches(command, said)) {
            return Some(format!("command {} differs from its log", command.id));
        }
        if command.is_worker() {
            tally.follow(None, command.state);
        }
        tally.replays += command.body.replays;
    }
    (tally != work.body.commands).then(|| "its count of commands is wrong".to_owned())
}

/// Every claim is an attempt, and every attempt a claim. Only the attempt of the present lease is open.
fn attempts_fault(work: &Work, events: &[Event], attempts: &[Attempt]) -> Option<String> {
    let claims: Vec<(&Event, &crate::event::Claimed)> = events
        .iter()
        .filter_map(|event| match &event.fact {
            Fact::Claimed(claimed) => Some((event, claimed)),
            _ => None,
        })
        .collect();
    if claims.len() != attempts.len() {
        return Some(format!("it was claimed {} times and has {} attempts", claims.len(), attempts.len()));
    }
    claims.into_iter().zip(attempts).find_map(|((event, claimed), attempt)| {
        let said = Attempt {
            work: work.id,
            number: event.attempt,
            fence: event.fence.unwrap_or_default(),
            worker: claimed.worker.id.clone(),
            incarnation: claimed.worker.incarnation.clone(),
            request: claimed.request,
            claimed_at: event.at,
            end: attempt.end.clone(),
        };
        let current = work.lease.as_ref().is_some_and(|lease| lease.fence == attempt.fence);
        let ended = attempt.end.as_ref().map(|end| end.at);
        let usage = attempt.end.as_ref().map_or(&[][..], |end| &end.usage);
        let same = said == *attempt && usage == used(event, events);
        let right = attempt.end.as_ref().is_none_or(|end| is_logged(end, work, event, events));
        (!same || current == ended.is_some() || !right)
            .then(|| format!("attempt {} differs from its log", attempt.number))
    })
}

/// Whether a log has this end of the attempt that a claim began. The body hash of the ending verb is not in
/// the log.
fn is_logged(end: &AttemptEnd, work: &Work, claim: &Event, events: &[Event]) -> bool {
    let then: Vec<&Event> =
        events.iter().filter(|event| event.seq > claim.seq && event.at == end.at).collect();
    let own = |fits: &dyn Fn(&Event) -> bool| {
        then.iter().rev().find(|event| event.attempt == claim.attempt && fits(event)).copied()
    };
    let by_holder =
        |event: &Event| matches!(&event.fact, Fact::ClosedOut(closed) if closed.by == ClosedBy::Holder);
    let cancelled = |event: &Event| matches!(event.fact, Fact::Cancelled(_));
    let failed = |event: &Event| matches!(event.fact, Fact::AttemptFailed(_));
    // A wait whose answers all exist keeps its lease.
    let waits = |event: &Event| matches!(event.fact, Fact::WaitingSet(_)) && event.to.is_waiting();
    let (cause, by_verb) = match end.outcome {
        AttemptOutcome::ClosedOut => (own(&|event| by_holder(event) || cancelled(event)), true),
        AttemptOutcome::Failed => (own(&failed), true),
        AttemptOutcome::Waited => (own(&waits), true),
        AttemptOutcome::Released => {
            (own(&|event| matches!(event.fact, Fact::Released(_)) || cancelled(event)), true)
        }
        AttemptOutcome::TimedOut => (own(&|event| matches!(event.fact, Fact::TimeoutMarked(_))), false),
        AttemptOutcome::Superseded => {
            let otherwise = own(&|event| by_holder(event) || failed(event) || waits(event));
            (then.first().copied().filter(|_| otherwise.is_none()), false)
        }
    };
    let Some(cause) = cause else { return false };
    let last = match &end.ack {
        Some(ack) => ack.seq,
        None => cause.seq,
    };
    if end.ack.is_some() != by_verb || (end.body_hash.is_some() && !by_verb) {
        return false;
    }
    let Some(after) = fold::fold(events.iter().take_while(|event| event.seq <= last)) else { return false };
    let error = match end.outcome {
        AttemptOutcome::Failed | AttemptOutcome::TimedOut => after.body.error.as_ref(),
        _ => None,
    };
    is_error(end.error.as_ref(), error)
        && end.ack.as_ref().is_none_or(|ack| is_ack(ack, work, &after, events))
}

/// Compares the texts with the log, unless they were erased there.
fn is_error(stored: Option<&ErrorInfo>, logged: Option<&ErrorInfo>) -> bool {
    match (stored, logged) {
        (None, None) => true,
        (Some(stored), Some(logged)) => {
            stored.class == logged.class && (logged.message.is_none() || stored.message == logged.message)
        }
        _ => false,
    }
}

/// Whether a stored reply is the one of its verb. `after`: the work item after the verb.
fn is_ack(ack: &Ack, work: &Work, after: &Work, events: &[Event]) -> bool {
    let opened = |wait: &WaitId| {
        events.iter().any(|event| match &event.fact {
            Fact::WaitingSet(set) => set.waits.iter().any(|opened| opened.id == *wait),
            _ => false,
        })
    };
    ack.work == work.id
        && (ack.seq, ack.state, ack.next_retry_at) == (after.seq, after.state, after.next_retry_at)
        && ack.waits.iter().all(opened)
}

/// The usage that the ending verb of a claim's attempt reported.
fn used<'a>(claim: &Event, events: &'a [Event]) -> &'a [Usage] {
    let ends = |event: &&Event| {
        let by_holder = match &event.fact {
            Fact::ClosedOut(closed) => closed.by == ClosedBy::Holder,
            // A receipt's usage belongs to the command, not to the attempt.
            fact => fact.command().is_none(),
        };
        by_holder && event.attempt == claim.attempt && !event.fact.usage().is_empty()
    };
    events.iter().find(ends).map_or(&[], |event| event.fact.usage())
}

fn steps_fault(work: &Work, events: &[Event], steps: &[Step]) -> Option<String> {
    let taken_over = events.first().map_or(0, |event| match &event.fact {
        Fact::WorkCreated(created) => created.steps as usize,
        _ => 0,
    });
    // Steps that a rerun took over are in the log of another work item.
    let mut said: Vec<Step> =
        steps.iter().take(taken_over).map(|step| Step { voided: false, ..step.clone() }).collect();
    let foreign = |step: &Step| step.result.is_some_and(|(owner, _)| owner != work.id);
    if said.len() != taken_over || !said.iter().all(foreign) {
        return Some(format!("it took over {taken_over} steps and does not have them"));
    }
    for event in events {
        let name = event.step.as_deref().unwrap_or_default();
        let live = said.iter().position(|step| step.name == name && !step.voided);
        match &event.fact {
            Fact::StepBegun(begun) => {
                if let Some(first) = live {
                    said[first..].iter_mut().for_each(|step| step.voided = true);
                }
                said.push(Step {
                    work: work.id,
                    name: name.to_owned(),
                    ordinal: said.last().map_or(0, |last| last.ordinal + 1),
                    input_hash: begun.input_hash,
                    begun_at: event.at,
                    completed_at: None,
                    result: None,
                    voided: false,
                });
            }
            Fact::StepCompleted(_) => {
                if let Some(at) = live {
                    said[at].completed_at = Some(event.at);
                    said[at].result = Some((work.id, event.seq));
                }
            }
            _ => {}
        }
    }
    if said.len() != steps.len() {
        return Some(format!("its log has {} steps, and {} are stored", said.len(), steps.len()));
    }
    let differs = said.iter().zip(steps).find(|(said, stored)| said != stored);
    differs.map(|(_, stored)| format!("step `{}` differs from its log", stored.name))
}

/// A wait according to a log.
struct LoggedWait<'a> {
    opened: &'a crate::event::WaitOpened,
    opened_at: Millis,
    deadline_at: Option<Millis>,
    escalated: bool,
    state: WaitState,
    ended_at: Option<Millis>,
    answer_seq: Option<u64>,
}

impl LoggedWait<'_> {
    fn end(&mut self, state: WaitState, at: Millis, answer_seq: Option<u64>) {
        (self.state, self.ended_at, self.answer_seq) = (state, Some(at), answer_seq);
    }

    /// An escalation extends the deadline by a duration that is not in the log.
    fn is(&self, wait: &Wait) -> bool {
        (self.opened.kind, &self.opened.reference, self.opened.on_timeout)
            == (wait.kind, &wait.reference, wait.detail.on_timeout)
            && (self.opened_at, self.state, self.ended_at, self.answer_seq)
                == (wait.opened_at, wait.state, wait.ended_at, wait.answer_seq)
            && (self.escalated || self.deadline_at == wait.deadline_at)
    }
}

/// The waits that are open after these events, the beginning of a log, each with the deadline that it was opened with.
pub fn open_waits(events: &[Event]) -> HashMap<WaitId, Option<Millis>> {
    let open = logged_waits(events).into_iter().filter(|(_, wait)| wait.state == WaitState::Open);
    open.map(|(id, wait)| (id, wait.deadline_at)).collect()
}

fn logged_waits(events: &[Event]) -> HashMap<WaitId, LoggedWait<'_>> {
    let mut logged: HashMap<WaitId, LoggedWait<'_>> = HashMap::new();
    let mut early: HashMap<WaitId, &Event> = HashMap::new();
    for event in events {
        collect_waits(event, &mut logged, &mut early);
        if !event.to.is_waiting() {
            let open = logged.values_mut().filter(|wait| wait.state == WaitState::Open);
            open.for_each(|wait| wait.end(WaitState::Cancelled, event.at, None));
        }
    }
    logged
}

fn waits_fault(work: &Work, events: &[Event], waits: &[Wait]) -> Option<String> {
    let logged = logged_waits(events);
    if logged.len() != waits.len() {
        return Some(format!("its log has {} waits, and {} are stored", logged.len(), waits.len()));
    }
    let right = |wait: &&Wait| {
        wait.tenant == work.spec.tenant && logged.get(&wait.id).is_some_and(|logged| logged.is(wait))
    };
    waits.iter().find(|wait| !right(wait)).map(|wait| format!("wait {} differs from its log", wait.id))
}

fn collect_waits<'a>(
    event: &'a Event,
    logged: &mut HashMap<WaitId, LoggedWait<'a>>,
    early: &mut HashMap<WaitId, &'a Event>,
) {
    match &event.fact {
        Fact::WaitingSet(set) => {
            for opened in &set.waits {
                let mut wait = LoggedWait {
                    opened,
                    opened_at: event.at,
                    deadline_at: opened.deadline_at,
                    escalated: false,
                    state: WaitState::Open,
                    ended_at: None,
                    answer_seq: None,
                };
                // The event of an early answer precedes the wait that it is for.
                if let Some(answer) = early.remove(&opened.id) {
                    wait.end(WaitState::Answered, answer.at, Some(answer.seq));
                }
                logged.insert(opened.id, wait);
            }
        }
        Fact::WaitResolved(resolved) if resolved.early => {
            early.insert(resolved.wait, event);
        }
        Fact::WaitResolved(resolved) => {
            if let Some(wait) = logged.get_mut(&resolved.wait) {
                wait.end(WaitState::Answered, event.at, Some(event.seq));
            }
        }
        Fact::WaitTimedOut(timed) => {
            if let Some(wait) = logged.get_mut(&timed.wait) {
                let answered = (timed.on_timeout == OnTimeout::Default).then_some(event.seq);
                wait.end(WaitState::TimedOut, event.at, answered);
            }
        }
        Fact::WaitEscalated(timed) => {
            if let Some(wait) = logged.get_mut(&timed.wait) {
                wait.escalated = true;
            }
        }
        _ => {}
    }
}
