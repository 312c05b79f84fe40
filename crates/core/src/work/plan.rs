//! A row of a recovery plan: what recovery would do now with a work item that lost its holder. Knows no rule of its
//! own: it asks [`decide`](crate::decide) for the Tick of a sweeper that has not watched the lease, so that only
//! evidence counts, never time.

use super::{
    forecast::{After, Beside, tick},
    tick::recovery_facts,
};
use crate::{
    Millis, WorkId, due,
    event::{Event, Fact},
    fold,
    liveness::{self, Grade, Seen, Sighting},
    model::{ReasonCode, Work},
    recovery::{self, Rule, Verdict},
    span::span,
    state::State,
};

/// The decision of recovery on one work item, as of now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanRow {
    pub work: WorkId,
    /// Its last event. The row is no longer true once there is another.
    pub seq: u64,
    /// None where a request to cancel decides instead of recovery.
    pub verdict: Option<Verdict>,
    /// The state that follows.
    pub to: State,
    /// The completed step after which it goes on.
    pub from_step: Option<String>,
    /// How certain it is that its holder is alive. None if nobody has held it since it was set aside.
    pub grade: Option<Grade>,
    /// The evidence that its holder is dead.
    pub proof: Option<String>,
    /// The rule that applies, in a sentence.
    pub rule: &'static str,
    /// Why recovery cannot do it now. None: it is safe to have it carried out.
    pub waits_for: Option<String>,
}

/// Whether recovery has something to decide about it, or decided that a person must: it lost its holder, or was set
/// aside because of that. Not while its lease may still be renewed and nothing proves its holder dead.
pub fn concerns(work: &Work, sighting: Option<&Sighting>, now: Millis) -> bool {
    match work.state {
        State::Stalled => true,
        State::Running | State::CancelRequested => {
            due::lapse_at(work).is_some_and(|at| at <= now)
                || liveness::grade(work, sighting, now).is_some_and(|(grade, _)| grade == Grade::Dead)
        }
        State::Quarantined => set_aside(work).is_some(),
        State::Queued
        | State::RetryScheduled
        | State::WaitingUser
        | State::WaitingApproval
        | State::WaitingAuth
        | State::WaitingTool
        | State::WaitingExternal
        | State::Succeeded
        | State::CompletedWithWarnings
        | State::Failed
        | State::TimedOut
        | State::Cancelled
        | State::Abandoned => false,
    }
}

/// The rule by which recovery set it aside: the rest is a person's.
fn set_aside(work: &Work) -> Option<Rule> {
    match work.body.reason.as_ref().filter(|_| work.state == State::Quarantined)?.code {
        ReasonCode::InDoubt => Some(Rule::InDoubt),
        ReasonCode::PoisonLapses => Some(Rule::Poison),
        _ => None,
    }
}

/// None for a work item that recovery is not concerned with.
pub fn row(work: &Work, beside: &Beside<'_>, sighting: Option<&Sighting>, now: Millis) -> Option<PlanRow> {
    let fence = work.lease.as_ref().map(|lease| lease.fence);
    let sighting = sighting.filter(|seen| Some(seen.fence) == fence);
    let grade = liveness::grade(work, sighting, now).map(|(grade, _)| grade);
    let plain = PlanRow {
        work: work.id,
        seq: work.seq,
        verdict: None,
        to: work.state,
        from_step: None,
        grade,
        proof: sighting.filter(|seen| seen.seen == Seen::Gone).map(|seen| seen.detail.clone()),
        rule: "",
        waits_for: None,
    };
    if !concerns(work, sighting, now) {
        return None;
    }
    if let Some(rule) = set_aside(work) {
        let waits_for = format!("A person decides on it: `tenure explain {}` says how.", work.id);
        return Some(PlanRow {
            verdict: Some(rule.verdict()),
            rule: rule.sentence(),
            waits_for: Some(waits_for),
            ..plain
        });
    }
    Some(match tick(work, beside, now, 0, sighting) {
        Some(after) => decided(work, beside, &after, now, plain),
        None => undecided(work, beside, sighting, now, plain),
    })
}

/// The events of a decision, read as a row.
fn decided(work: &Work, beside: &Beside<'_>, after: &After, now: Millis, plain: PlanRow) -> PlanRow {
    let recovered = after.events.iter().find_map(|event| match &event.fact {
        Fact::Recovered(recovered) => Some(recovered),
        _ => None,
    });
    let has = |fact: fn(&Fact) -> bool| after.events.iter().any(|event| fact(&event.fact));
    let lapsed = has(|fact| matches!(fact, Fact::LeaseLapsed(_)));
    let to = after.work.state;
    let from_step = recovered.and_then(|recovered| recovered.from_step.clone());
    let row = PlanRow { to, from_step, ..plain };
    if has(|fact| matches!(fact, Fact::Cancelled(_))) {
        let rule = "It was asked to stop, and stopping it half-way is harmless.";
        return PlanRow { rule, ..row };
    }
    if recovered.is_none() && !lapsed {
        let rule = "Another rule decides first: a deadline, or the end of its parent.";
        let waits_for = Some("The sweeper does this by itself, at its next pass.".to_owned());
        return PlanRow { rule, waits_for, ..row };
    }
    if work.state == State::CancelRequested {
        let rule = match &work.body.abandon_request {
            Some(_) => Rule::AbandonRequested.sentence(),
            None => "It was asked to stop and did not: nobody can know how far it got.",
        };
        return PlanRow { verdict: Some(Verdict::Abandon), rule, ..row };
    }
    // The verdict is given on the work item as the lapse leaves it.
    let mut lost = work.clone();
    let before = |event: &&Event| !matches!(event.fact, Fact::Recovered(_));
    after.events.iter().take_while(before).for_each(|event| fold::apply(&mut lost, event));
    let grade = row.grade.unwrap_or(Grade::Silent);
    let rule = recovery::rule(&recovery_facts(&lost, &after.commands, beside.steps, grade, now));
    PlanRow { verdict: Some(rule.verdict()), rule: rule.sentence(), ..row }
}

/// Nothing happens now: recovery waits for evidence, or for a sweeper that has watched the lease.
fn undecided(
    work: &Work,
    beside: &Beside<'_>,
    sighting: Option<&Sighting>,
    now: Millis,
    plain: PlanRow,
) -> PlanRow {
    if work.state == State::Stalled {
        let grade = plain.grade.unwrap_or(Grade::Silent);
        let facts = recovery_facts(work, beside.commands, beside.steps, grade, now);
        let rule = recovery::rule(&facts);
        let waits_for = match rule.verdict() {
            Verdict::Reconcile => {
                "A lookup must first say whether its commands in doubt happened.".to_owned()
            }
            _ => "Only its owner, a proof of its death or a request to abandon it goes further.".to_owned(),
        };
        return PlanRow {
            verdict: Some(rule.verdict()),
            rule: rule.sentence(),
            waits_for: Some(waits_for),
            ..plain
        };
    }
    match tick(work, beside, now, u64::MAX, sighting) {
        Some(after) => {
            let ttl = span(work.spec.policy.lease.ttl_ms as Millis);
            let waits_for = format!(
                "A sweeper records the lapse once it has watched this lease for {ttl}, and then does this by itself."
            );
            let row = decided(work, beside, &after, now, plain);
            PlanRow { waits_for: Some(waits_for), ..row }
        }
        None => {
            let left = work.body.cancel.as_ref().map_or(0, |cancel| (cancel.deadline_at - now).max(0));
            PlanRow {
                rule: "It was asked to stop, and has until its cancel deadline.",
                waits_for: Some(format!("Its cancel deadline is in {}.", span(left))),
                ..plain
            }
        }
    }
}
