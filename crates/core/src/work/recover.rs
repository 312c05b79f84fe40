//! Recover: a person has one row of a recovery plan carried out now. The row is computed again over the records of
//! the decision, so that a change since the plan is refused here and never overwritten.

use crate::{
    action::Recover,
    decide::{Context, Decision},
    limits,
    model::Work,
    recovery::{self, Instead},
    refusal::{Code, Refusal},
    state::State,
    work::{
        abandon,
        forecast::Beside,
        plan::{self, PlanRow},
        quarantine,
        tick::{self, Look, TickOutcome},
    },
};

pub(crate) fn decide(cx: Context<'_>, recover: &Recover) -> Result<Decision, Refusal> {
    limits::reason(&recover.reason)?;
    limits::name("plan", &recover.plan)?;
    let work = cx.work(recover.work)?;
    let row = unchanged(cx, work, recover)?;
    if recover.instead.is_some() {
        recovery::may_override(&cx.submission.actor)?;
    }
    match recover.instead {
        Some(_) if work.state == State::Quarantined => Err(Refusal::new(
            Code::IllegalState,
            "The work item is set aside already: a person decides on it with `decide`.",
        )),
        Some(Instead::Quarantine) => quarantine::decide(cx, work.id, &recover.reason),
        Some(Instead::Abandon) => abandon::request(cx, work.id, &recover.reason),
        None => carry_out(cx, work, recover, row),
    }
}

fn carry_out(cx: Context<'_>, work: &Work, recover: &Recover, row: PlanRow) -> Result<Decision, Refusal> {
    if let Some(waits_for) = row.waits_for {
        return Err(Refusal::new(Code::NotDue, waits_for));
    }
    // Nobody has watched the lease for this decision: only evidence counts, never time.
    let look = Look { at: cx.now, watched_ms: 0, sighting: recover.sighting.as_ref() };
    match tick::look(cx, work, look)? {
        TickOutcome::Acted(draft) => draft.done(),
        TickOutcome::Nothing | TickOutcome::NotYet => Err(stale(work, "nothing is due")),
    }
}

/// The row as it is now, if it is still the plan's.
fn unchanged(cx: Context<'_>, work: &Work, recover: &Recover) -> Result<PlanRow, Refusal> {
    if work.seq != recover.seq {
        return Err(stale(work, &format!("the plan was made at event {}", recover.seq)));
    }
    let open = |command: &&crate::command::Command| command.state.is_open();
    let commands: Vec<_> = cx.records.commands_of(work.id).iter().filter(open).cloned().collect();
    let beside = Beside {
        steps: cx.records.steps.get(&work.id).map_or(&[], Vec::as_slice),
        commands: &commands,
        parent: work.spec.parent.and_then(|parent| cx.records.peer(parent)),
    };
    match plan::row(work, &beside, recover.sighting.as_ref(), cx.now) {
        Some(row) if (row.verdict, row.to) == (recover.verdict, recover.to) => Ok(row),
        Some(row) => Err(stale(work, &format!("recovery would now make it {}", row.to))),
        None => Err(stale(work, "recovery has nothing to decide about it")),
    }
}

fn stale(work: &Work, why: &str) -> Refusal {
    Refusal::new(
        Code::PlanStale,
        format!(
            "The work item is {} at event {}, and {why}. Nothing was changed; compute the plan again.",
            work.state, work.seq
        ),
    )
}
