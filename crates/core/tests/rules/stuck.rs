//! Which work items are stuck, and why: one table for each cause, with the neighbours that are not.

use tenure_core::{
    Action, Actor, Command, Wait, WorkId,
    command::{Effect, Idempotency, Intent, Recorded, Risk},
    model::{Disposition, ErrorClass, WaitKind, WaitState},
    policy::{OnSpinning, Spinning, WorkPolicy},
    records::reference_to,
    stuck::{Capacity, Cause, Patience, Stuck, StuckFacts, circles, classify},
};

use crate::common::*;

const PATIENCE: Patience = Patience { idle_ms: 300 * SECOND, retry_ms: 60 * SECOND };
const LONELY: Capacity = Capacity { claimable: true, busy: false, seen: false };

impl World {
    fn stuck_with(&self, id: WorkId, capacity: Capacity) -> Option<Stuck> {
        let open = |wait: &&Wait| wait.state == WaitState::Open;
        let all: Vec<Wait> = self.records.waits.values().flatten().filter(open).cloned().collect();
        let circles = circles(&all);
        let waits: Vec<Wait> = all.iter().filter(|wait| wait.work == id).cloned().collect();
        let commands: Vec<Command> = self.records.commands_of(id).to_vec();
        let facts = StuckFacts {
            work: self.row(id),
            waits: &waits,
            commands: &commands,
            circle: circles.get(&id).map_or(&[], Vec::as_slice),
            capacity,
        };
        classify(&facts, &PATIENCE, self.now)
    }

    fn stuck(&self, id: WorkId) -> Option<Stuck> {
        self.stuck_with(id, LONELY)
    }

    #[track_caller]
    fn expect_stuck(&self, id: WorkId, cause: Cause, evidence: &str, next: &str) {
        let found = self.stuck(id).expect("it is stuck");
        assert_eq!(found.cause, cause);
        assert!(found.evidence.iter().any(|proof| proof.text.contains(evidence)), "{found:#?}");
        assert_eq!(found.next.replace(&id.to_string(), "W"), next);
        assert!(!found.next.contains(['`', '…', '<']), "it can be typed as it is: {}", found.next);
    }
}

#[test]
fn a_queued_item_without_a_worker() {
    let mut w = World::default();
    let id = w.ingest("a");
    w.pass(PATIENCE.idle_ms - 1);
    assert_eq!(w.stuck(id), None, "somebody may still come");
    w.pass(1);
    for (capacity, name) in [
        (Capacity { claimable: false, ..LONELY }, "another one of its session comes first"),
        (Capacity { busy: true, ..LONELY }, "its workers are busy"),
        (Capacity { seen: true, ..LONELY }, "a worker was here a moment ago"),
    ] {
        assert_eq!(w.stuck_with(id, capacity), None, "{name}");
    }
    w.expect_stuck(
        id,
        Cause::NoWorker,
        "nobody holds work of kind `reply` from `conversation`",
        "tenure workers",
    );
    // An item that came back to the queue waits from then on.
    let lease = w.claim(id, &w1());
    w.release(&lease).unwrap();
    assert_eq!(w.stuck(id), None);
}

#[test]
fn a_lost_lease() {
    let mut w = World::default();
    let lease = w.held_with("a", |i| i.disposition = Disposition::OwnerBound);
    assert_eq!(w.stuck(lease.work), None);
    w.pass(45 * SECOND + 1);
    w.expect_stuck(lease.work, Cause::LeaseLost, "a sweeper judges it in", "tenure show W");
    w.pass(LAPSE);
    w.tick(lease.work);
    w.expect_stuck(lease.work, Cause::LeaseLost, "It is owner-bound and has started", "tenure show W");
    assert_eq!(w.stuck(lease.work).unwrap().evidence[0].worker.as_deref(), Some("w1"));
}

#[test]
fn waits_that_nobody_answers() {
    let mut w = World::default();
    for (source, kind, assignee, endless, stuck) in [
        ("a", WaitKind::User, None, true, true),
        ("b", WaitKind::User, Some("ana"), true, false),
        ("c", WaitKind::User, None, false, false),
        ("d", WaitKind::External, None, true, true),
    ] {
        let lease = w.held(source);
        w.wait_with(&lease, source, |wait| {
            wait.kind = kind;
            wait.assignee = assignee.map(str::to_owned);
            wait.endless = endless;
        })
        .unwrap();
        assert_eq!(w.stuck(lease.work), None, "{source}: it was just asked");
        w.pass(PATIENCE.idle_ms);
        if stuck {
            let why = "it has no deadline, and nobody is assigned to answer it";
            w.expect_stuck(lease.work, Cause::UnansweredWait, why, "tenure show W");
            assert!(w.stuck(lease.work).unwrap().evidence[0].wait.is_some());
        } else {
            assert_eq!(w.stuck(lease.work), None, "{source}");
        }
    }
}

#[test]
fn works_that_wait_for_each_other() {
    let mut w = World::default();
    let [a, b, c] = ["a", "b", "c"].map(|id| w.held(id));
    let outside = w.held("outside");
    let wait = |w: &mut World, lease: &Lease, target: WorkId| {
        w.wait_with(lease, &reference_to(target), |wait| wait.kind = WaitKind::External).unwrap();
    };
    wait(&mut w, &a, b.work);
    wait(&mut w, &b, c.work);
    wait(&mut w, &outside, a.work);
    for lease in [&a, &b, &outside] {
        assert_eq!(w.stuck(lease.work), None, "c may still end");
    }
    wait(&mut w, &c, a.work);
    for (lease, way) in [(&a, [&a, &b, &c]), (&b, [&b, &c, &a]), (&c, [&c, &a, &b])] {
        let next = "tenure cancel W --reason 'it waits for work that waits for it'";
        w.expect_stuck(lease.work, Cause::CircularWait, "Each waits for the next", next);
        let found = w.stuck(lease.work).unwrap();
        assert_eq!(found.evidence[0].works, way.map(|lease| lease.work));
    }
    assert_eq!(w.stuck(outside.work), None, "it goes on once the circle is broken");
}

#[test]
fn an_overdue_retry() {
    let mut w = World::default();
    let lease = w.held("a");
    w.fail(&lease, ErrorClass::Transport, "reset").unwrap();
    w.pass(SECOND + PATIENCE.retry_ms - 1);
    assert_eq!(w.stuck(lease.work), None);
    w.pass(1);
    let next = "tenure retry W --reason 'its retry is overdue'";
    w.expect_stuck(lease.work, Cause::RetryOverdue, "nothing has queued it", next);
}

#[test]
fn poison() {
    let mut w = World::default();
    let id = w.ingest_with("a", |i| i.policy.retry.max_attempts = 9);
    for _ in 0..3 {
        let lease = w.claim(id, &w1());
        w.fail(&lease, ErrorClass::Unknown, "boom").unwrap();
        w.pass(HOUR);
        w.tick(id);
    }
    w.expect_stuck(id, Cause::Poison, "It failed 3 times in the same way, in 3 attempts", "tenure events W");
    w.expect_stuck(id, Cause::Poison, "The last error: boom", "tenure events W");
    // An item that a person set aside is not stuck: the person knows.
    let other = w.ingest("b");
    w.quarantine(other).unwrap();
    assert_eq!(w.stuck(other), None);
}

fn judged(then: OnSpinning) -> WorkPolicy {
    WorkPolicy { spinning: Some(Spinning { after_ms: 120_000, then }), ..policy() }
}

#[test]
fn a_spinning_holder() {
    let mut w = World::default();
    let lease = w.held_with("a", |i| i.policy = judged(OnSpinning::Mark));
    let renew = |w: &mut World, ms: i64| {
        for _ in 0..ms / (15 * SECOND) {
            w.pass(15 * SECOND);
            w.renew(&lease).unwrap();
        }
    };
    renew(&mut w, 105 * SECOND);
    assert_eq!(w.stuck(lease.work), None);
    renew(&mut w, 15 * SECOND);
    let next = "tenure quarantine W --reason 'its holder is spinning'";
    w.expect_stuck(
        lease.work,
        Cause::Spinning,
        "has shown no progress, step, command or receipt for 2 m",
        next,
    );
    // Any sign of work counts: an event, or new progress with a renewal.
    w.progress(&lease, None).unwrap();
    assert_eq!(w.stuck(lease.work), None);
    renew(&mut w, 120 * SECOND);
    assert!(w.stuck(lease.work).is_some());
    w.renew_with(&lease, payload("new")).unwrap();
    assert_eq!(w.stuck(lease.work), None);
    renew(&mut w, 120 * SECOND);
    w.renew_with(&lease, payload("new")).unwrap();
    assert!(w.stuck(lease.work).is_some(), "the same progress again is none");
    // An operator's request is no sign of work either.
    w.submit(
        Actor::person("ana"),
        Action::RequestRelease { work: lease.work, reason: "why does it take so long?".to_owned() },
    )
    .unwrap();
    assert!(w.stuck(lease.work).is_some());
}

#[test]
fn a_command_in_doubt() {
    let mut w = World::default();
    let lease = w.held("a");
    let id = w.dispatched(&lease, tool(Idempotency::None, Risk::Low));
    assert_eq!(w.stuck(lease.work), None, "its call is being made");
    w.uncertain(id).unwrap();
    w.pass(HOUR);
    let next = format!("tenure commands show {id}");
    w.expect_stuck(
        lease.work,
        Cause::InDoubt,
        "has been in doubt for 1 h: only a person can find out",
        &next,
    );
    // That its lease is over as well is no cause of its own.
    w.tick(lease.work);
    w.expect_stuck(lease.work, Cause::InDoubt, &format!("mail to bob ({id})"), &next);
    w.record(id, Recorded::DidNotHappen).unwrap();
    w.tick(lease.work);
    let next = "tenure requeue W --reason 'nothing is in doubt any more'";
    w.expect_stuck(lease.work, Cause::InDoubt, "nothing is in doubt any more", next);
}

#[test]
fn a_wait_for_a_tool_that_is_done() {
    let mut w = World::default();
    let lease = w.held("a");
    let id = w.dispatched(&lease, tool(Idempotency::None, Risk::Low));
    w.receipt(id).unwrap();
    let next = w.command_id();
    let (next, later) = intent(next, "hi", evaluation(Effect::Allow, lookup()));
    let other = w.try_reserve(&lease, (next, Intent { target: "ann".into(), ..later })).unwrap().id;
    w.wait_with(&lease, "callback", |wait| {
        wait.kind = WaitKind::Tool;
        wait.assignee = Some("mail".to_owned());
        wait.endless = true;
    })
    .unwrap();
    w.pass(PATIENCE.idle_ms);
    assert_eq!(w.stuck(lease.work), None, "{other} may still lead to an answer");
    w.cancel_command(other).unwrap();
    let why = "every command of the work item has ended";
    w.expect_stuck(lease.work, Cause::UnansweredWait, why, "tenure show W");
}
