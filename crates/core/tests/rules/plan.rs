//! A recovery plan: each verdict row is seen, a safe row is carried out exactly, and everything else is refused.

use tenure_core::{
    Action, Actor, Fact, Refusal, State, WorkId,
    action::Recover,
    liveness::{Grade, Seen, Sighting},
    model::AcceptStrength,
    policy::OnExpiry,
    recovery::{Instead, Verdict},
    refusal::Code,
    reply::Ack,
    work::{
        forecast::Beside,
        plan::{PlanRow, row},
    },
};

use crate::common::*;

fn gone(w: &World, id: WorkId) -> Sighting {
    Sighting { fence: w.row(id).fence, seen: Seen::Gone, detail: "pid 4711 on host-a".into() }
}

fn planned(w: &World, id: WorkId, sighting: Option<&Sighting>) -> Option<PlanRow> {
    let work = w.row(id);
    let commands: Vec<_> =
        w.records.commands_of(id).iter().filter(|command| command.state.is_open()).cloned().collect();
    let beside = Beside {
        steps: w.records.steps.get(&id).map_or(&[], Vec::as_slice),
        commands: &commands,
        parent: work.spec.parent.map(|parent| w.row(parent)),
    };
    row(work, &beside, sighting, w.now)
}

fn recover(row: &PlanRow, sighting: Option<&Sighting>, instead: Option<Instead>) -> Action {
    Action::Recover(Box::new(Recover {
        work: row.work,
        plan: "p_1".into(),
        seq: row.seq,
        verdict: row.verdict,
        to: row.to,
        instead,
        sighting: sighting.cloned(),
        reason: "the host is gone".into(),
    }))
}

fn apply(w: &mut World, row: &PlanRow, sighting: Option<&Sighting>) -> Result<Ack, Refusal> {
    w.person(recover(row, sighting, None))
}

/// In any history, a plan's row is what happens if it is carried out on a copy of the world.
pub fn comes_true(w: &World, id: WorkId) {
    for sighting in [None, Some(gone(w, id))] {
        let sighting = sighting.as_ref().filter(|_| w.row(id).lease.is_some());
        let Some(row) = planned(w, id, sighting) else { continue };
        let mut later = w.clone();
        let done = apply(&mut later, &row, sighting);
        if row.waits_for.is_some() {
            assert_eq!(done.unwrap_err().code, Code::NotDue, "{row:?}");
            continue;
        }
        assert_eq!(done.expect("a safe row").state, row.to, "{row:?}");
        let new: Vec<_> = later.log[&id].iter().filter(|event| event.seq > row.seq).collect();
        assert!(matches!(new[0].fact, Fact::RecoveryApplied(_)), "{row:?}");
        let recovered = new.iter().find_map(|event| match &event.fact {
            Fact::Recovered(recovered) => Some((recovered.verdict, recovered.from_step.clone())),
            _ => None,
        });
        match recovered {
            Some((verdict, from_step)) => {
                assert_eq!((Some(verdict), from_step), (row.verdict, row.from_step.clone()), "{row:?}");
            }
            None => {
                assert!(matches!(row.verdict, None | Some(Verdict::Leave | Verdict::Reconcile)), "{row:?}")
            }
        }
        let again = apply(&mut later, &row, sighting).unwrap_err();
        assert_eq!(again.code, Code::PlanStale, "a row is carried out once: {row:?}");
    }
}

/// Has the row of a work item carried out, if it has one that is safe. 9: never because of time alone.
pub fn carry_out(w: &mut World, id: WorkId, sighting: Option<&Sighting>) {
    let Some(row) = planned(w, id, sighting) else { return };
    let done = apply(w, &row, sighting);
    assert_eq!(done.is_ok(), row.waits_for.is_none(), "{row:?}: {done:?}");
    for event in w.log[&id].iter().filter(|event| event.seq > row.seq) {
        if let Fact::LeaseLapsed(lapsed) = &event.fact {
            assert_eq!(lapsed.grade, Grade::Dead, "9: a living holder was expired");
        }
    }
}

fn started(w: &mut World) -> Lease {
    let lease = w.held("a");
    w.accept_work(&lease, AcceptStrength::Weak).unwrap();
    lease
}

/// Section by section: what the plan says of a holder that is proven dead.
#[test]
fn every_rule_has_its_row() {
    type Case = (&'static str, fn(&mut World) -> Lease, Option<Verdict>, State, &'static str);
    let cases: [Case; 13] = [
        (
            "abandon request",
            |w| {
                let lease = started(w);
                w.abandon(lease.work).unwrap();
                lease
            },
            Some(Verdict::Abandon),
            State::Abandoned,
            "A person asked to abandon it",
        ),
        (
            "owner-bound, started, dead",
            |w| w.held_with("a", owner_bound),
            Some(Verdict::Abandon),
            State::Abandoned,
            "proven dead",
        ),
        (
            "owner-bound, not started",
            |w| {
                let id = w.ingest_with("a", owner_bound);
                let mut deferred = claimant(&w1(), "r");
                deferred.defer_start = true;
                let by = tenure_core::action::ClaimBy::Ids(vec![id]);
                lease(&w.claim_as(&deferred, by).unwrap()[0])
            },
            Some(Verdict::Retry),
            State::Queued,
            "never started",
        ),
        (
            "owner-bound, declared",
            |w| {
                let lease = w.held_with("a", |i| {
                    owner_bound(i);
                    i.policy.on_expiry = OnExpiry::Timeout;
                });
                w.pass(LAPSE);
                lease
            },
            Some(Verdict::Abandon),
            State::Abandoned,
            "proven dead",
        ),
        (
            "in doubt, native key",
            |w| {
                let lease = started(w);
                w.dispatched(&lease, native());
                lease
            },
            Some(Verdict::Retry),
            State::Queued,
            "declared rerunnable",
        ),
        (
            "in doubt, lookup",
            |w| {
                let lease = started(w);
                w.dispatched(&lease, lookup());
                lease
            },
            Some(Verdict::Reconcile),
            State::Stalled,
            "looked up first",
        ),
        (
            "in doubt, neither",
            |w| {
                let lease = started(w);
                w.dispatched(&lease, Default::default());
                lease
            },
            Some(Verdict::Quarantine),
            State::Quarantined,
            "a person must find out",
        ),
        (
            "three lapses",
            |w| {
                let id = w.ingest_with("a", |i| i.policy.retry.max_attempts = 9);
                for _ in 0..2 {
                    w.claim(id, &w1());
                    w.after(LAPSE, id);
                }
                w.claim(id, &w1())
            },
            Some(Verdict::Quarantine),
            State::Quarantined,
            "lost three holders",
        ),
        (
            "exhausted",
            |w| w.held_with("a", |i| i.policy.retry.max_attempts = 1),
            Some(Verdict::Fail),
            State::Failed,
            "exhausted",
        ),
        ("never started", |w| w.held("a"), Some(Verdict::Retry), State::Queued, "never started"),
        (
            "with a checkpoint",
            |w| {
                let lease = started(w);
                w.begin(&lease, "draft", "x", false).unwrap();
                w.complete_step(&lease, "draft", "x").unwrap();
                lease
            },
            Some(Verdict::Resume),
            State::Queued,
            "last completed step",
        ),
        ("rerunnable", started, Some(Verdict::Retry), State::Queued, "declared rerunnable"),
        (
            "asked to cancel",
            |w| {
                let lease = w.held("a");
                w.cancel(lease.work).unwrap();
                lease
            },
            None,
            State::Cancelled,
            "asked to stop",
        ),
    ];
    for (name, prepare, verdict, to, rule) in cases {
        let mut w = World::default();
        let id = prepare(&mut w).work;
        let proof = gone(&w, id);
        let row = planned(&w, id, Some(&proof)).expect(name);
        assert_eq!((row.verdict, row.to), (verdict, to), "{name}");
        assert!(row.rule.contains(rule), "{name}: {}", row.rule);
        assert_eq!(row.waits_for, None, "{name}: a proof of death needs no watching");
        assert_eq!(row.proof.as_deref(), Some("pid 4711 on host-a"), "{name}");
        comes_true(&w, id);
        let ack = apply(&mut w, &row, Some(&proof)).expect(name);
        assert_eq!((ack.state, w.state(id)), (to, to), "{name}");
        let applied = &w.log[&id][row.seq as usize];
        assert_eq!(
            (applied.message.as_deref(), &applied.actor),
            (Some("the host is gone"), &Actor::person("ana"))
        );
        assert!(
            matches!(&applied.fact, Fact::RecoveryApplied(fact) if fact.plan == "p_1" && fact.verdict == verdict)
        );
    }
}

/// 9, 10: time alone carries out nothing, because nobody has watched the lease for a plan.
#[test]
fn a_lease_past_its_grace_is_planned_and_not_touched() {
    type Case = (&'static str, fn(&mut World) -> Lease, Option<Verdict>, State);
    let prepared: [Case; 3] = [
        ("rerunnable", started, Some(Verdict::Retry), State::Queued),
        ("owner-bound", |w| w.held_with("a", owner_bound), Some(Verdict::Leave), State::Stalled),
        (
            "owner-bound, declared",
            |w| {
                w.held_with("a", |i| {
                    owner_bound(i);
                    i.policy.on_expiry = OnExpiry::Timeout;
                })
            },
            Some(Verdict::TimeOut),
            State::TimedOut,
        ),
    ];
    for (name, prepare, verdict, to) in prepared {
        let mut w = World::default();
        let lease = prepare(&mut w);
        w.pass(LAPSE - 1);
        assert_eq!(planned(&w, lease.work, None), None, "{name}: it may still renew");
        w.pass(1);
        let row = planned(&w, lease.work, None).expect(name);
        assert_eq!((row.verdict, row.to), (verdict, to), "{name}");
        assert!(
            row.waits_for.as_ref().is_some_and(|why| why.contains("watched this lease for 45 s")),
            "{row:?}"
        );
        let before = w.row(lease.work).clone();
        assert_eq!(apply(&mut w, &row, None).unwrap_err().code, Code::NotDue, "{name}");
        assert_eq!(w.row(lease.work), &before, "24: {name}");
        w.renew(&lease).unwrap();
        assert_eq!(
            apply(&mut w, &row, None).unwrap_err().code,
            Code::PlanStale,
            "{name}: it is alive after all"
        );
    }
}

#[test]
fn a_stalled_row_waits_for_evidence_or_a_person() {
    let mut w = World::default();
    let bound = w.held_with("a", owner_bound).work;
    w.after(LAPSE, bound);
    let row = planned(&w, bound, None).unwrap();
    assert_eq!((row.verdict, row.to), (Some(Verdict::Leave), State::Stalled));
    assert_eq!(apply(&mut w, &row, None).unwrap_err().code, Code::NotDue, "10: expiry alone ends nothing");
    let stopped = Sighting { seen: Seen::Stopped, ..gone(&w, bound) };
    assert!(planned(&w, bound, Some(&stopped)).unwrap().waits_for.is_some(), "suspended is not dead");
    let other = Sighting { fence: 1, ..gone(&w, bound) };
    let row = planned(&w, bound, Some(&other)).unwrap();
    assert!(row.waits_for.is_some() && row.proof.is_none(), "the proof is about another lease");

    let mut w = World::default();
    let lease = started(&mut w);
    let command = w.dispatched(&lease, lookup());
    w.after(LAPSE, lease.work);
    let row = planned(&w, lease.work, None).unwrap();
    assert_eq!((row.verdict, row.to), (Some(Verdict::Reconcile), State::Stalled));
    assert_eq!(apply(&mut w, &row, None).unwrap_err().code, Code::NotDue);
    w.receipt(command).unwrap();
    assert_eq!(apply(&mut w, &row, None).unwrap_err().code, Code::PlanStale, "the evidence is in");
    let row = planned(&w, lease.work, None).unwrap();
    assert_eq!((row.verdict, row.to, &row.waits_for), (Some(Verdict::Retry), State::Queued, &None));
    apply(&mut w, &row, None).unwrap();
    assert_eq!(w.story(lease.work)[row.seq as usize..], ["recovery_applied", "recovered"]);
}

#[test]
fn a_row_that_was_set_aside_is_a_persons() {
    let mut w = World::default();
    let lease = started(&mut w);
    w.dispatched(&lease, Default::default());
    w.after(LAPSE, lease.work);
    let row = planned(&w, lease.work, None).unwrap();
    assert_eq!((row.verdict, row.to), (Some(Verdict::Quarantine), State::Quarantined));
    assert_eq!(apply(&mut w, &row, None).unwrap_err().code, Code::NotDue);
    for instead in [Instead::Quarantine, Instead::Abandon] {
        let refused = w.person(recover(&row, None, Some(instead))).unwrap_err();
        assert_eq!(refused.code, Code::IllegalState, "{instead:?}");
    }
    let asked = w.ingest("b");
    w.quarantine(asked).unwrap();
    assert_eq!(planned(&w, asked, None), None, "recovery did not set it aside");
    assert_eq!(planned(&w, w.log.keys().copied().min().unwrap(), None).map(|row| row.work), Some(lease.work));
}

#[test]
fn only_a_person_overrides_and_only_with_what_operators_may_do() {
    let mut w = World::default();
    let lease = w.held_with("a", owner_bound);
    w.after(LAPSE, lease.work);
    let row = planned(&w, lease.work, None).unwrap();
    let machine = w.submit(Actor::machine("bot"), recover(&row, None, Some(Instead::Abandon)));
    assert_eq!(machine.unwrap_err().code, Code::PersonRequired);
    let mut copy = w.clone();
    let ack = copy.person(recover(&row, None, Some(Instead::Quarantine))).unwrap();
    assert_eq!(ack.state, State::Quarantined);
    let ack = w.person(recover(&row, None, Some(Instead::Abandon))).unwrap();
    assert_eq!(ack.state, State::Stalled, "a request: the sweep acts on it");
    assert_eq!(w.story(lease.work)[row.seq as usize..], ["recovery_applied", "abandon_requested"]);
    w.tick(lease.work);
    assert_eq!(w.state(lease.work), State::Abandoned);

    let mut w = World::default();
    let id = started(&mut w).work;
    w.pass(LAPSE);
    let row = planned(&w, id, None).unwrap();
    let mut again = row.clone();
    again.verdict = Some(Verdict::Leave);
    let forged = w.person(recover(&again, None, Some(Instead::Abandon))).unwrap_err();
    assert_eq!(forged.code, Code::PlanStale, "the verdict is not what the plan says");
    again = PlanRow { seq: row.seq + 1, ..row.clone() };
    assert_eq!(apply(&mut w, &again, None).unwrap_err().code, Code::PlanStale);
    let mut silent = recover(&row, None, None);
    if let Action::Recover(recover) = &mut silent {
        recover.reason = " ".into();
    }
    assert_eq!(w.person(silent).unwrap_err().code, Code::ReasonMissing);
}
