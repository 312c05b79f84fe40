//! Claim: who may claim which work items, when, and the result of a repeated claim.

use std::collections::BTreeSet;

use tenure_core::{
    Action, Actor, Code, Reply, State,
    action::{Claim, ClaimBy, ClaimFilter, Decide, Tenants},
    in_turns,
    model::{Disposition, ErrorClass, WaitKind},
    reply::Ticked,
};

use crate::common::*;

#[test]
fn a_claim_gives_a_lease_under_a_growing_fence() {
    let mut w = World::default();
    let first = w.held("a");
    let row = w.row(first.work).clone();
    assert_eq!(row.state, State::Running);
    assert_eq!((row.attempt, row.fence), (1, START as u64 * 1024));
    assert_eq!(row.lease.as_ref().unwrap().expires_at, START + 45 * SECOND);
    assert_eq!(row.due_at, Some(START + LAPSE));
    assert!(!row.started(), "a claim does not start rerunnable work");

    w.release(&first).unwrap();
    let second = w.claim(first.work, &w2());
    assert_eq!(second.fence, first.fence + 1, "grows even if the clock does not advance");
    assert_eq!(w.row(first.work).attempt, 2);
}

#[test]
fn only_queued_work_can_be_claimed() {
    let table: [(&str, Prepare, Code); 9] = [
        ("running", |w| w.held("a").work, Code::Busy),
        (
            "cancel requested",
            |w| {
                let l = w.held("a");
                w.cancel(l.work).unwrap();
                l.work
            },
            Code::Busy,
        ),
        (
            "stalled",
            |w| {
                let l = w.held_with("a", owner_bound);
                w.after(LAPSE, l.work);
                l.work
            },
            Code::Busy,
        ),
        (
            "retry scheduled",
            |w| {
                let l = w.held("a");
                w.fail(&l, ErrorClass::Unavailable, "down").unwrap();
                l.work
            },
            Code::NotClaimable,
        ),
        (
            "waiting",
            |w| {
                let l = w.held("a");
                w.wait(&l, "ref");
                l.work
            },
            Code::NotClaimable,
        ),
        ("owned externally", |w| w.ingest_with("a", external), Code::NotClaimable),
        (
            "quarantined",
            |w| {
                let id = w.ingest("a");
                w.quarantine(id).unwrap();
                id
            },
            Code::NotClaimable,
        ),
        (
            "over",
            |w| {
                let l = w.held("a");
                w.close(&l, State::Succeeded).unwrap();
                l.work
            },
            Code::Terminal,
        ),
        ("unknown", |w| w.work_id(), Code::NotFound),
    ];
    for (name, prepare, code) in table {
        let mut w = World::default();
        let id = prepare(&mut w);
        let events = w.events();
        assert_eq!(w.try_claim(id, &w2()).unwrap_err().code, code, "{name}");
        assert_eq!(w.events(), events, "{name}: a refusal writes nothing");
    }
}

#[test]
fn a_busy_work_names_its_holder() {
    let mut w = World::default();
    let lease = w.held("a");
    let refusal = w.try_claim(lease.work, &w2()).unwrap_err();
    assert!(refusal.detail.contains("held by w1"), "{}", refusal.detail);
}

#[test]
fn ids_are_all_or_nothing() {
    let mut w = World::default();
    let (a, b) = (w.ingest("a"), w.ingest("b"));
    let held = w.held("c").work;
    let refusal = w.claim_as(&claimant(&w2(), "r"), ClaimBy::Ids(vec![a, held, b])).unwrap_err();
    assert_eq!(refusal.code, Code::Busy);
    assert_eq!((w.state(a), w.state(b)), (State::Queued, State::Queued));

    let grants = w.claim_as(&claimant(&w2(), "r"), ClaimBy::Ids(vec![a, b])).unwrap();
    assert_eq!(grants.len(), 2, "the refused request left no trace");
    for ids in [vec![], vec![a, a]] {
        let refusal = w.claim_as(&claimant(&w2(), "r2"), ClaimBy::Ids(ids)).unwrap_err();
        assert!(matches!(refusal.code, Code::Invalid | Code::Busy));
    }
}

#[test]
fn a_selection_claims_only_claimable_work() {
    let mut w = World::default();
    let (a, held, b) = (w.ingest("a"), w.held("b").work, w.ingest("c"));
    let unknown = w.work_id();
    let chosen = ClaimBy::Chosen(vec![a, held, unknown, b]);
    let grants = w.claim_as(&claimant(&w2(), "r"), chosen).unwrap();
    assert_eq!(grants.iter().map(|g| g.work.id).collect::<Vec<_>>(), [a, b]);
}

#[test]
fn a_flood_of_one_tenant_does_not_starve_the_others() {
    let mut w = World::default();
    let mut ingest = |tenant: &str, number: usize, priority| {
        w.ingest_with(&number.to_string(), |ingest| {
            ingest.tenant = tenant.to_owned();
            ingest.priority = priority;
        })
    };
    let flood: Vec<_> = (0..5).map(|n| ingest("flood", n, 3)).collect();
    let [quiet, later, other] = [("quiet", 5), ("quiet", 6), ("other", 7)].map(|(t, n)| ingest(t, n, 3));
    let urgent = ingest("flood", 8, 1);
    let works = || [&flood[..], &[quiet, later, other, urgent]].concat();
    let mut first = BTreeSet::new();
    for seed in 0..50 {
        let works = works().into_iter().map(|id| w.row(id)).collect();
        let order: Vec<_> = in_turns(works, &[seed; 16]).into_iter().map(|work| work.id).collect();
        assert_eq!(order[0], urgent, "priority comes first");
        assert_eq!(BTreeSet::from_iter(&order[1..4]), BTreeSet::from([&flood[0], &quiet, &other]));
        assert_eq!(BTreeSet::from_iter(&order[4..6]), BTreeSet::from([&flood[1], &later]));
        assert_eq!(order[6..], flood[2..], "each tenant's works keep their order");
        first.insert(order[1]);
    }
    assert_eq!(first.len(), 3, "no tenant is always first");
}

#[test]
fn a_repeated_claim_returns_its_valid_leases() {
    let mut w = World::default();
    let (a, b, c) = (w.ingest("a"), w.ingest("b"), w.ingest("c"));
    let me = claimant(&w1(), "r");
    let first = w.claim_as(&me, ClaimBy::Ids(vec![a, b])).unwrap();
    let events = w.events();
    assert_eq!(w.claim_as(&me, ClaimBy::Ids(vec![a, b])).unwrap(), first);
    assert_eq!(
        w.claim_as(&me, ClaimBy::Chosen(vec![c])).unwrap(),
        first,
        "the request id decides, not the body"
    );
    assert_eq!(w.events(), events, "19: a repeat writes nothing");

    w.close(&lease(&first[0]), State::Succeeded).unwrap();
    let still = w.claim_as(&me, ClaimBy::Ids(vec![a, b])).unwrap();
    assert_eq!(still.iter().map(|g| g.work.id).collect::<Vec<_>>(), [b], "never an ended one");

    let other = claimant(&worker("w1", "boot-2"), "r");
    assert_eq!(w.claim_as(&other, ClaimBy::Ids(vec![b])).unwrap_err().code, Code::Busy);
}

#[test]
fn a_repeat_of_an_empty_claim_claims_again() {
    let mut w = World::default();
    let filter = || ClaimBy::Filter(ClaimFilter { max: 1, ..ClaimFilter::default() });
    let me = claimant(&w1(), "r");
    assert_eq!(w.claim_as(&me, filter()).unwrap(), []);
    let id = w.ingest("a");
    assert_eq!(w.claim_as(&me, ClaimBy::Chosen(vec![id])).unwrap().len(), 1);
}

#[test]
fn a_repeat_shows_no_foreign_tenants_lease() {
    let mut w = World::default();
    let id = w.ingest("a");
    let me = claimant(&w1(), "r");
    w.claim_as(&me, ClaimBy::Ids(vec![id])).unwrap();
    let action = Action::Claim(Claim { claimant: me, by: ClaimBy::Ids(vec![id]) });
    let elsewhere = Tenants::Only(vec!["globex".into()]);
    let refusal = w.submit_for(Actor::worker("w1"), elsewhere, action).unwrap_err();
    assert_eq!(refusal.code, Code::NotFound, "another's request, and a work that does not exist for it");
}

#[test]
fn filters_are_bounded_and_match_by_name() {
    let mut w = World::default();
    let id = w.ingest("a");
    for max in [0, 1_001] {
        let filter = ClaimFilter { max, ..ClaimFilter::default() };
        let refusal = w.claim_as(&claimant(&w1(), "r"), ClaimBy::Filter(filter)).unwrap_err();
        assert_eq!(refusal.code, Code::Invalid);
    }
    let row = w.row(id);
    let named = |sources: &[&str], kinds: &[&str], tenants: &[&str]| {
        let list = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect();
        ClaimFilter { sources: list(sources), kinds: list(kinds), tenants: list(tenants), max: 1 }
            .matches(&row.spec)
    };
    assert!(named(&[], &[], &[]));
    assert!(named(&["control", "conversation"], &["reply"], &[TENANT]));
    assert!(!named(&["control"], &[], &[]));
    assert!(!named(&[], &["summary"], &[]));
    assert!(!named(&[], &[], &["globex"]));
}

#[test]
fn a_session_gives_its_oldest_first_and_one_at_a_time() {
    let mut w = World::default();
    let old = w.ingest_with("a", in_session);
    w.pass(1);
    let new = w.ingest_with("b", in_session);
    assert_eq!(w.try_claim(new, &w1()).unwrap_err().code, Code::Busy, "an older one is first");
    let lease = w.claim(old, &w1());
    assert_eq!(w.try_claim(new, &w2()).unwrap_err().code, Code::Busy, "the session is held");
    w.close(&lease, State::Succeeded).unwrap();
    w.claim(new, &w2());
}

#[test]
fn states_that_block_a_session() {
    let table: [(&str, Verb, bool); 6] = [
        (
            "cancel requested",
            |w, l| {
                w.cancel(l.work).unwrap();
            },
            true,
        ),
        (
            "retry scheduled",
            |w, l| {
                w.fail(l, ErrorClass::Unavailable, "x").unwrap();
            },
            true,
        ),
        (
            "queued again",
            |w, l| {
                w.release(l).unwrap();
            },
            true,
        ),
        (
            "waiting",
            |w, l| {
                w.wait(l, "ref");
            },
            false,
        ),
        (
            "quarantined",
            |w, l| {
                w.quarantine(l.work).unwrap();
            },
            false,
        ),
        (
            "over",
            |w, l| {
                w.close(l, State::Failed).unwrap();
            },
            false,
        ),
    ];
    for (name, act, blocks) in table {
        let mut w = World::default();
        let lease = w.held_with("a", in_session);
        w.pass(1);
        let next = w.ingest_with("b", in_session);
        act(&mut w, &lease);
        assert_eq!(w.try_claim(next, &w2()).is_err(), blocks, "{name}");
    }
}

#[test]
fn a_stalled_work_holds_its_session() {
    let mut w = World::default();
    let lease = w.held_with("a", |i| {
        owner_bound(i);
        in_session(i)
    });
    let next = w.ingest_with("b", in_session);
    assert_eq!(w.after(LAPSE, lease.work), Ticked::Acted);
    assert_eq!(w.state(lease.work), State::Stalled);
    assert_eq!(w.try_claim(next, &w2()).unwrap_err().code, Code::Busy);
}

#[test]
fn sessions_of_two_tenants_are_two() {
    let mut w = World::default();
    w.held_with("a", in_session);
    w.held_with("b", |i| {
        in_session(i);
        i.tenant = "globex".into()
    });
}

#[test]
fn one_claim_takes_one_work_of_a_session() {
    let mut w = World::default();
    let a = w.ingest_with("a", in_session);
    let b = w.ingest_with("b", in_session);
    let grants = w.claim_as(&claimant(&w1(), "r"), ClaimBy::Chosen(vec![a, b])).unwrap();
    assert_eq!(grants.len(), 1);
}

#[test]
fn started_owner_bound_work_is_for_the_incarnation_that_started_it() {
    let strangers = [worker("w1", "boot-2"), worker("w2", "boot-1")];
    let mut w = World::default();
    let lease = w.held_with("a", owner_bound);
    assert!(w.row(lease.work).started(), "the claim itself starts it");
    w.wait(&lease, "ref");
    w.resolve("ref", "yes").unwrap();
    for stranger in &strangers {
        assert_eq!(w.try_claim(lease.work, stranger).unwrap_err().code, Code::OwnerBound);
    }
    w.claim(lease.work, &w1());

    w.after(LAPSE, lease.work);
    assert_eq!(w.state(lease.work), State::Stalled);
    for stranger in &strangers {
        assert_eq!(w.try_claim(lease.work, stranger).unwrap_err().code, Code::Busy);
    }
    w.claim(lease.work, &w1());
}

#[test]
fn a_repeat_belongs_to_the_actor_that_claimed() {
    let mut w = World::default();
    let (first, second) = (w.ingest("a"), w.ingest("b"));
    let mut claim = |actor: &str, id| {
        let by = ClaimBy::Chosen(vec![id]);
        let action = Action::Claim(Claim { claimant: claimant(&w1(), "the same request"), by });
        match w.submit(Actor::worker(actor).named("ana"), action).unwrap() {
            Reply::Claimed(grants) => grants.iter().map(|grant| grant.work.id).collect::<Vec<_>>(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(claim("p_1", first), [first]);
    assert_eq!(claim("p_1", second), [first], "its repeat returns the same lease");
    assert_eq!(claim("p_2", second), [second], "another actor with the same worker name gets its own lease");
}

#[test]
fn owner_bound_work_belongs_to_the_actor_that_claimed_it() {
    let mut w = World::default();
    let lease = w.held_with("a", owner_bound);
    w.wait(&lease, "ref");
    w.resolve("ref", "yes").unwrap();
    let by = ClaimBy::Ids(vec![lease.work]);
    let action = Action::Claim(Claim { claimant: claimant(&w1(), "other"), by });
    let colleague = w.submit(Actor::worker("another"), action);
    assert_eq!(colleague.unwrap_err().code, Code::OwnerBound, "the worker's names alone are not enough");
    w.claim(lease.work, &w1());
}

#[test]
fn a_deferred_start_leaves_owner_bound_work_open_to_all() {
    let mut w = World::default();
    let id = w.ingest_with("a", owner_bound);
    let mut me = claimant(&w1(), "r");
    me.defer_start = true;
    let grants = w.claim_as(&me, ClaimBy::Ids(vec![id])).unwrap();
    assert!(!w.row(id).started());
    w.release(&lease(&grants[0])).unwrap();
    w.claim(id, &w2());
    assert_eq!(w.row(id).body.first_started.as_ref().unwrap().worker, "w2");
}

#[test]
fn a_returning_owner_learns_of_a_pending_cancel() {
    let mut w = World::default();
    let lease = w.held_with("a", owner_bound);
    w.after(LAPSE, lease.work);
    assert_eq!(w.cancel(lease.work).unwrap().state, State::Stalled, "its outcome is unknown");
    w.pass(HOUR);
    let again = w.claim(lease.work, &w1());
    assert_eq!(w.state(lease.work), State::CancelRequested);
    assert_eq!(w.row(lease.work).body.cancel.as_ref().unwrap().requested_by, Actor::person("ana"));
    assert!(w.renew(&again).unwrap().cancel_requested);
}

#[test]
fn a_lease_returns_steps_and_answers() {
    let mut w = World::default();
    let first = w.held("a");
    w.begin(&first, "draft", "x", false).unwrap();
    w.complete_step(&first, "draft", "x").unwrap();
    let wait = w.spec("ref", WaitKind::User);
    w.wait_for(&first, vec![wait]).unwrap();
    w.resolve("ref", "yes").unwrap();
    let grants = w.try_claim(first.work, &w2()).unwrap();
    assert_eq!(grants[0].steps[0].name, "draft");
    assert_eq!(grants[0].answers[0].reference, "ref");
}

#[test]
fn claimants_are_checked() {
    let mut w = World::default();
    let id = w.ingest("a");
    let long = "x".repeat(201);
    for (worker_id, incarnation, request) in
        [("", "i", "r"), ("w", "", "r"), ("w", "i", ""), (long.as_str(), "i", "r"), ("w\n", "i", "r")]
    {
        let me = claimant(&worker(worker_id, incarnation), request);
        assert_eq!(w.claim_as(&me, ClaimBy::Ids(vec![id])).unwrap_err().code, Code::Invalid);
    }
}

#[test]
fn requeued_owner_bound_work_waits_for_its_owner() {
    let mut w = World::default();
    let lease = w.held_with("a", owner_bound);
    w.quarantine(lease.work).unwrap();
    w.decide(lease.work, Decide::Requeue).unwrap();
    assert_eq!(w.try_claim(lease.work, &w2()).unwrap_err().code, Code::OwnerBound);
    assert_eq!(w.after(LAPSE, lease.work), Ticked::Acted);
    assert_eq!(w.state(lease.work), State::Stalled);
    assert_eq!(w.row(lease.work).spec.disposition, Disposition::OwnerBound);
}
