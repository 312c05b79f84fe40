//! Recovery plans: computed without a trace, named by their rows, and carried out exactly or not at all.

use tenure_core::{
    Code, Refusal, State, WorkId,
    command::ToolFacts,
    liveness::{Grade, Liveness},
    model::Worker,
    recovery::{Instead, Verdict},
};

use super::{Bed, LAPSE_MS, claimant, commands, job, owner_bound, refused, request};
use crate::{
    AppliedPlan, ApplyPlan, Caller, Error, PlanFilter, PlanOverride, PlannedRecovery, RecoveryPlan,
    RowOutcome,
};

async fn plan(caller: &Caller) -> RecoveryPlan {
    caller.recovery_plan(&PlanFilter::default()).await.unwrap()
}

fn of(plan: &str) -> ApplyPlan {
    ApplyPlan {
        filter: PlanFilter::default(),
        plan: plan.to_owned(),
        rows: Vec::new(),
        overrides: Vec::new(),
        reason: "the host is gone".to_owned(),
    }
}

async fn done(caller: &Caller, apply: &ApplyPlan) -> Vec<(PlannedRecovery, RowOutcome)> {
    match caller.apply_plan(apply).await.unwrap() {
        AppliedPlan::Done(done) => done,
        AppliedPlan::Stale(now) => panic!("the plan is {now:?} now"),
    }
}

async fn stale(caller: &Caller, apply: &ApplyPlan) -> RecoveryPlan {
    match caller.apply_plan(apply).await.unwrap() {
        AppliedPlan::Stale(now) => now,
        AppliedPlan::Done(done) => panic!("it was carried out: {done:?}"),
    }
}

fn row(plan: &RecoveryPlan, id: WorkId) -> &PlannedRecovery {
    plan.rows.iter().find(|planned| planned.row.work == id).expect("a row of the plan")
}

/// A work item that stalled, and whose lease a person's request has ended since.
async fn given_up(bed: &mut Bed, name: &str) -> WorkId {
    let id = bed.held(owner_bound(name), "w").await.work.id;
    bed.pass(LAPSE_MS).await;
    bed.person().request_abandon(id, "the machine was scrapped").await.unwrap();
    id
}

pub async fn a_plan_touches_nothing_and_is_named_by_its_rows(bed: &mut Bed) {
    let empty = plan(&bed.person()).await;
    assert!(empty.rows.is_empty() && empty.complete);
    let bound = bed.held(owner_bound("bound"), "w").await.work.id;
    let free = bed.held(job("free"), "v").await.work.id;
    bed.clock.advance(LAPSE_MS);
    let before = bed.snapshot().await;
    let made = plan(&bed.person()).await;
    assert_ne!(made.id, empty.id);
    assert_eq!(plan(&bed.machine()).await.id, made.id, "the same rows are the same plan");
    assert_eq!(bed.snapshot().await, before);
    let verdicts: Vec<_> = made.rows.iter().map(|planned| (planned.row.work, planned.row.verdict)).collect();
    assert_eq!(verdicts, [(free, Some(Verdict::Retry)), (bound, Some(Verdict::Leave))], "newest first");
    assert!(made.rows.iter().all(|planned| planned.row.waits_for.is_some()), "nobody has watched them");
    let filter = PlanFilter { worker: Some("v".to_owned()), ..PlanFilter::default() };
    let narrow = bed.person().recovery_plan(&filter).await.unwrap();
    assert_eq!(narrow.rows.len(), 1);
    assert_ne!(narrow.id, made.id);
    let other = bed.person().within(vec!["elsewhere".to_owned()]);
    assert!(plan(&other).await.rows.is_empty(), "work items of other tenants do not exist");

    let outcomes = done(&bed.person(), &of(&made.id)).await;
    assert!(outcomes.iter().all(|(_, outcome)| matches!(outcome, RowOutcome::Left(_))), "{outcomes:?}");
    assert_eq!(bed.snapshot().await, before, "time alone carries out nothing");
}

pub async fn exactly_the_plan_is_applied_or_nothing(bed: &mut Bed) {
    let id = given_up(bed, "one").await;
    let left = bed.held(owner_bound("left"), "w").await.work.id;
    bed.pass(LAPSE_MS).await;
    bed.expect(id, State::Abandoned).await;
    let id = given_up(bed, "two").await;
    bed.expect(left, State::Stalled).await;
    let made = plan(&bed.person()).await;
    assert_eq!(row(&made, id).row.verdict, Some(Verdict::Abandon));
    assert_eq!(row(&made, id).row.grade, Some(Grade::Silent));

    let forged = format!("p_{}", "0".repeat(32));
    assert_eq!(stale(&bed.person(), &of(&forged)).await.id, made.id, "a forged id is another plan");
    let filtered = ApplyPlan {
        filter: PlanFilter { kind: Some("other".to_owned()), ..PlanFilter::default() },
        ..of(&made.id)
    };
    assert!(stale(&bed.person(), &filtered).await.rows.is_empty(), "another filter is another plan");
    let silent = ApplyPlan { reason: " ".to_owned(), ..of(&made.id) };
    assert_eq!(refused(bed.person().apply_plan(&silent).await), Code::ReasonMissing);
    let stranger = bed.ingest(job("stranger")).await.id;
    let unknown = ApplyPlan { rows: vec![stranger], ..of(&made.id) };
    assert_eq!(refused(bed.person().apply_plan(&unknown).await), Code::Invalid);
    let twice = ApplyPlan { rows: vec![id, id], ..of(&made.id) };
    assert_eq!(refused(bed.person().apply_plan(&twice).await), Code::Invalid);
    let tried = done(&bed.person().trying(true), &of(&made.id)).await;
    assert!(tried.iter().any(|(_, outcome)| matches!(outcome, RowOutcome::Applied(ack) if ack.work == id)));
    assert_eq!(bed.work(id).await.state, State::Stalled, "a dry run writes nothing");

    let outcomes = done(&bed.person(), &of(&made.id)).await;
    let outcome = |id: WorkId| &outcomes.iter().find(|(planned, _)| planned.row.work == id).unwrap().1;
    assert!(matches!(outcome(id), RowOutcome::Applied(ack) if ack.state == State::Abandoned));
    assert!(matches!(outcome(left), RowOutcome::Left(why) if why.contains("proof of its death")));
    assert_eq!(
        bed.story(id).await.into_iter().rev().take(2).collect::<Vec<_>>(),
        ["recovered", "recovery_applied"]
    );
    let events = bed.events(id).await;
    let applied = &events[events.len() - 2].event;
    assert_eq!((applied.message.as_deref(), &applied.actor.id), (Some("the host is gone"), &"ada".into()));
    let again = stale(&bed.person(), &of(&made.id)).await;
    assert_eq!(again.rows.len(), 1, "applied twice: what is left is another plan");
    bed.expect(id, State::Abandoned).await;
}

pub async fn a_change_since_the_plan_is_never_overwritten(bed: &mut Bed) {
    let held = bed.held(owner_bound("one"), "w").await;
    let id = held.work.id;
    bed.pass(LAPSE_MS).await;
    let made = plan(&bed.person()).await;
    bed.worker("w").renew(&[(held.lease.clone(), None)]).await.unwrap()[0].outcome.clone().unwrap();
    let now = stale(&bed.person(), &of(&made.id)).await;
    assert!(now.rows.is_empty(), "its owner came back");
    bed.expect(id, State::Running).await;
    bed.worker("w").close_out(&held.lease, super::success()).await.unwrap();
    assert!(stale(&bed.person(), &of(&made.id)).await.rows.is_empty());
}

pub async fn a_plan_of_another_ledger_is_forged(bed: &mut Bed) {
    let mut other =
        Bed::open(|options| async move { crate::Ledger::open_memory(options).await.unwrap() }).await;
    let mine = plan(&bed.person()).await;
    let theirs = plan(&other.person()).await;
    assert!(mine.rows.is_empty() && theirs.rows.is_empty());
    assert_ne!(mine.id, theirs.id, "the id covers the ledger");
    assert_eq!(stale(&bed.person(), &of(&theirs.id)).await.id, mine.id);
    other.close().await;
}

pub async fn a_person_overrides_single_rows(bed: &mut Bed) {
    let mut ids = Vec::new();
    for name in ["left", "aside", "given up"] {
        ids.push(bed.held(owner_bound(name), "w").await.work.id);
    }
    let [left, aside, given_up] = ids[..] else { unreachable!() };
    bed.pass(LAPSE_MS).await;
    let made = plan(&bed.person()).await;
    let other = |work, instead, reason: &str| PlanOverride { work, instead, reason: reason.to_owned() };
    let overrides = vec![
        other(left, None, "ana is looking at it"),
        other(aside, Some(Instead::Quarantine), "it needs a second look"),
        other(given_up, Some(Instead::Abandon), "the machine was scrapped"),
    ];
    let apply = ApplyPlan { overrides, ..of(&made.id) };
    let before = bed.snapshot().await;
    assert_eq!(refused(bed.machine().apply_plan(&apply).await), Code::PersonRequired);
    let silent = ApplyPlan { overrides: vec![other(left, None, "")], ..of(&made.id) };
    assert_eq!(refused(bed.person().apply_plan(&silent).await), Code::ReasonMissing);
    assert_eq!(bed.snapshot().await, before);

    let outcomes = done(&bed.person(), &apply).await;
    let applied = outcomes.iter().filter(|(_, outcome)| matches!(outcome, RowOutcome::Applied(_)));
    assert_eq!((outcomes.len(), applied.count()), (3, 2));
    bed.sweep().await;
    assert_eq!(bed.state(left).await, State::Stalled);
    assert_eq!(bed.state(aside).await, State::Quarantined);
    assert_eq!(bed.state(given_up).await, State::Abandoned);
    assert!(
        bed.events(aside)
            .await
            .iter()
            .any(|stored| { stored.event.message.as_deref() == Some("it needs a second look") })
    );
}

/// The report of a quarantine can be read in the plan, and recovery touches it no more.
pub async fn what_recovery_set_aside_is_reported(bed: &mut Bed) {
    let (held, command) = commands::dispatched(bed, "one", ToolFacts::default()).await;
    bed.pass(LAPSE_MS).await;
    bed.expect(held.work.id, State::Quarantined).await;
    let made = plan(&bed.person()).await;
    let planned = row(&made, held.work.id);
    assert_eq!((planned.row.verdict, planned.row.to), (Some(Verdict::Quarantine), State::Quarantined));
    assert_eq!(planned.commands.iter().map(|open| open.id).collect::<Vec<_>>(), [command]);
    let report = planned.work.body.reason.as_ref().unwrap().message.clone().unwrap();
    assert!(report.contains("mail"), "{report}");
    let outcomes = done(&bed.person(), &of(&made.id)).await;
    assert!(matches!(&outcomes[..], [(_, RowOutcome::Left(why))] if why.contains("A person decides")));
    bed.expect(held.work.id, State::Quarantined).await;
}

/// A process that is gone is proof: its work items need not wait for the next look of a sweeper.
#[cfg(target_os = "linux")]
pub async fn a_proven_death_is_carried_out_at_once(bed: &mut Bed) {
    let Some(Liveness::LocalProcess { boot_id, pid_namespace, start_time, .. }) = crate::local_process()
    else {
        panic!("Linux tells about processes");
    };
    let mut child = std::process::Command::new("true").spawn().expect("a process that ends at once");
    let pid = child.id();
    child.wait().expect("it has ended");
    let liveness = Liveness::LocalProcess { boot_id, pid_namespace, pid, start_time };
    let mut ids = Vec::new();
    for new in [job("free"), owner_bound("bound")] {
        let work = bed.ingest(new).await;
        let mut claimant = claimant("w", &request());
        claimant.worker = Worker { liveness: liveness.clone(), ..Worker::new("w", "w-1") };
        bed.worker("w").claim_ids(claimant, vec![work.id]).await.unwrap();
        ids.push(work.id);
    }
    let made = plan(&bed.machine()).await;
    for (id, to) in ids.iter().zip([State::Queued, State::Abandoned]) {
        let row = &row(&made, *id).row;
        assert_eq!((row.to, row.grade, &row.waits_for), (to, Some(Grade::Dead), &None));
        assert!(row.proof.as_deref().is_some_and(|proof| proof.contains(&pid.to_string())), "{row:?}");
    }
    let one = ApplyPlan { rows: vec![ids[0]], ..of(&made.id) };
    assert_eq!(done(&bed.machine(), &one).await.len(), 1);
    assert_eq!(bed.state(ids[0]).await, State::Queued);
    assert_eq!(bed.state(ids[1]).await, State::Running, "only the chosen row");
    let rest = stale(&bed.machine(), &of(&made.id)).await;
    done(&bed.machine(), &of(&rest.id)).await;
    assert_eq!(bed.state(ids[1]).await, State::Abandoned);
    let lapse = bed.events(ids[1]).await.into_iter().map(|stored| stored.event);
    let lapse = lapse.filter(|event| event.fact.kind() == "lease_lapsed").last().unwrap();
    assert_eq!(lapse.evidence.len(), 1, "the proof is kept");
}

/// Between the plan and the decision anything may happen: then the row is refused, and the others go on.
pub async fn two_people_apply_one_plan_at_once(bed: &mut Bed) {
    let mut ids = Vec::new();
    for name in ["a", "b", "c", "d"] {
        ids.push(bed.held(owner_bound(name), "w").await.work.id);
    }
    bed.pass(LAPSE_MS).await;
    for id in &ids {
        bed.person().request_abandon(*id, "scrapped").await.unwrap();
    }
    let made = plan(&bed.person()).await;
    let (ada, gateway, apply) = (bed.person(), bed.machine(), of(&made.id));
    let both = tokio::join!(ada.apply_plan(&apply), gateway.apply_plan(&apply));
    let mut applied = 0;
    for one in [both.0.unwrap(), both.1.unwrap()] {
        let AppliedPlan::Done(rows) = one else { continue };
        for (_, outcome) in rows {
            match outcome {
                RowOutcome::Applied(_) => applied += 1,
                RowOutcome::Refused(Error::Refused(Refusal { code: Code::PlanStale, .. })) => {}
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(applied, ids.len(), "each row once");
    for id in ids {
        bed.expect(id, State::Abandoned).await;
        let story = bed.story(id).await;
        assert_eq!(story.iter().filter(|kind| **kind == "recovery_applied").count(), 1, "{story:?}");
    }
}
