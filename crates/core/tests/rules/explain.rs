//! The explanation of a work item in each state, word for word.

use tenure_core::{
    Actor, Command, State, WorkId,
    action::{CloseOut, Decide},
    command::{self, Effect, Idempotency, Risk},
    explain::{Around, Explanation, Idle, explain},
    liveness::Seen,
    model::{ErrorClass, OnTimeout, WaitKind},
    policy::OnExpiry,
    records::{reference_to, reference_to_command},
};

use crate::common::*;

impl World {
    pub fn explain(&self, id: WorkId) -> Explanation {
        self.explain_beside(id, None)
    }

    /// Beside workers that wait for work.
    pub fn explain_beside(&self, id: WorkId, idle: Option<&Idle>) -> Explanation {
        let work = self.row(id);
        let waits = self.records.waits.get(&id).map_or(&[][..], Vec::as_slice);
        let commands: Vec<Command> =
            self.records.commands_of(id).iter().filter(|command| command.state.is_open()).cloned().collect();
        let session = work.spec.session_key().and_then(|key| self.records.sessions.get(&key));
        let ahead = session.and_then(|view| view.holder.or(view.head)).filter(|ahead| *ahead != id);
        let ahead = ahead.filter(|_| work.state == State::Queued).map(|ahead| self.row(ahead));
        let around = Around { waits, last: &self.log[&id], commands: &commands, ahead, idle };
        explain(work, &around, self.now)
    }
}

/// Prepares, lets five minutes pass, and compares; `W` stands for the work item's id.
fn says(prepare: fn(&mut World) -> WorkId, sentence: &str, next: &str) {
    let mut w = World::default();
    let id = prepare(&mut w);
    w.pass(300 * SECOND);
    let found = w.explain(id);
    assert_eq!(found.sentence.replace(&id.to_string(), "W"), sentence);
    assert_eq!(found.next.replace(&id.to_string(), "W"), next);
}

const CLAIM: &str = "nothing: the next worker that claims `reply` from `conversation` gets it; \
                     `tenure workers` shows whether there is one";
const RERUN: &str = "nothing: it is over; to run it again, `tenure rerun W --reason …`";
const ABANDON: &str = "`tenure abandon W --reason …` once you know that its owner will not return; until then nothing: its owner may still continue";

#[test]
fn queued_beside_idle_workers() {
    let mut w = World::default();
    let id = w.ingest("a");
    w.pass(300 * SECOND);
    let others = |list: &[(&str, u64)]| list.iter().map(|(what, n)| ((*what).to_owned(), *n)).collect();
    for (idle, sentence, next) in [
        (
            Idle::default(),
            "Queued 5 m: nobody has claimed it yet; no worker waits for work at this daemon.",
            "nothing, if workers that claim `reply` from `conversation` are busy: `tenure workers` shows them; \
             otherwise start one, or add `reply` to the kinds that a worker claims",
        ),
        (
            Idle { takes: 0, others: others(&[("`digest`", 2), ("`mail` or `sms` from `manual`", 1)]) },
            "Queued 5 m: nobody has claimed it yet; 2 idle workers claim `digest`, 1 idle worker claims `mail` or \
             `sms` from `manual`, none claims `reply` at this daemon.",
            "nothing, if workers that claim `reply` from `conversation` are busy: `tenure workers` shows them; \
             otherwise start one, or add `reply` to the kinds that a worker claims",
        ),
        (
            Idle { takes: 1, others: others(&[("`digest`", 2)]) },
            "Queued 5 m: nobody has claimed it yet; 1 idle worker claims `reply` at this daemon.",
            "nothing: an idle worker is given it within a second",
        ),
        (
            Idle { takes: 0, others: others(&[("`a`", 1), ("`b`", 1), ("`c`", 1), ("`d`", 1), ("`e`", 4)]) },
            "Queued 5 m: nobody has claimed it yet; 1 idle worker claims `a`, 1 idle worker claims `b`, 1 idle \
             worker claims `c`, 5 idle workers claim other work, none claims `reply` at this daemon.",
            "nothing, if workers that claim `reply` from `conversation` are busy: `tenure workers` shows them; \
             otherwise start one, or add `reply` to the kinds that a worker claims",
        ),
    ] {
        let found = w.explain_beside(id, Some(&idle));
        assert_eq!((found.sentence.as_str(), found.next.as_str()), (sentence, next));
    }
}

#[test]
fn queued() {
    says(|w| w.ingest("a"), "Queued 5 m: nobody has claimed it yet.", CLAIM);
    says(
        |w| w.ingest_with("a", |i| i.policy = timeouts(None, Some(7_500_000), Some(360_000))),
        "Queued 5 m: nobody has claimed it yet; unless it is claimed, it times out in 1 m; \
         its overall deadline ends it in 2 h.",
        CLAIM,
    );
    says(
        |w| {
            let l = w.held("a");
            w.release(&l).unwrap();
            l.work
        },
        "Queued 5 m: its holder released it.",
        CLAIM,
    );
    says(
        |w| {
            let l = w.held("a");
            w.after(LAPSE, l.work);
            l.work
        },
        "Queued 5 m: its holder was lost and recovery queued it again.",
        CLAIM,
    );
    says(
        |w| {
            let l = w.held_with("a", |i| {
                owner_bound(i);
                i.policy.lease.grace_ms = 600_000
            });
            w.wait(&l, "ref");
            w.resolve("ref", "x").unwrap();
            l.work
        },
        "Queued 5 m: its last wait is answered; only w1 (incarnation boot-1), which started it, may claim it; after that it stalls in 5 m.",
        "nothing: w1 claims it, or it stalls",
    );
    says(
        |w| {
            let id = w.ingest("a");
            w.quarantine(id).unwrap();
            w.decide(id, Decide::Requeue).unwrap();
            id
        },
        "Queued 5 m: a person decided to run it again.",
        CLAIM,
    );
}

#[test]
fn retry_scheduled() {
    says(
        |w| {
            let l = w.held_with("a", |i| i.policy.retry.initial_ms = 300_000);
            w.fail(&l, ErrorClass::RateLimited, "slow down").unwrap();
            w.now -= 120 * SECOND;
            l.work
        },
        "Retry scheduled: attempt 1 failed 3 m ago (rate limited: slow down), failure 1 of 3; \
         it is queued again in 2 m.",
        "nothing: it is queued again in 2 m; to retry now, `tenure retry W --reason …`",
    );
}

#[test]
fn running() {
    let stop = "nothing: it is being worked on; to stop it, `tenure cancel W --reason …`";
    says(
        |w| {
            let l = w.held_with("a", |i| i.policy = timeouts(Some(3_600_000), None, None));
            w.begin(&l, "draft", "x", false).unwrap();
            w.pass(295 * SECOND);
            w.renew(&l).unwrap();
            w.pass(-295 * SECOND);
            l.work
        },
        "Running 5 m: w1 holds it (attempt 1, step `draft`), renewed 5 s ago; the attempt may run until its \
         deadline in 55 m.",
        stop,
    );
    let mut w = World::default();
    let lease = w.held("a");
    w.pass(50 * SECOND);
    let found = w.explain(lease.work).sentence;
    assert_eq!(
        found,
        "Running 50 s: w1 holds it (attempt 1), last renewed 50 s ago, 3 renewals missed; if it stays silent, its lease lapses in 25 s and recovery queues it again."
    );
}

#[test]
fn the_consequence_of_a_lapse() {
    let table: [(Prepare, &str); 5] = [
        (
            |w| w.held_with("a", owner_bound).work,
            "recovery leaves it until its owner returns or is proven dead",
        ),
        (
            |w| {
                w.held_with("a", |i| {
                    owner_bound(i);
                    i.policy.on_expiry = OnExpiry::Timeout
                })
                .work
            },
            "recovery times it out, as it declared",
        ),
        (
            |w| w.held_with("a", |i| i.policy.retry.max_attempts = 1).work,
            "recovery fails it, because its attempts are exhausted",
        ),
        (
            |w| {
                let id = w.ingest("a");
                for _ in 0..2 {
                    w.claim(id, &w1());
                    w.after(LAPSE, id);
                }
                w.claim(id, &w1());
                id
            },
            "recovery quarantines it",
        ),
        (
            |w| {
                let l = w.held("a");
                w.abandon(l.work).unwrap();
                l.work
            },
            "recovery abandons it, as ana requested",
        ),
    ];
    for (prepare, expected) in table {
        let mut w = World::default();
        let id = prepare(&mut w);
        w.pass(50 * SECOND);
        let said = w.explain(id).sentence;
        assert!(said.contains(expected), "{said}");
        // The predicted verdict is the one that is reached.
        let before = w.state(id);
        w.after(LAPSE, id);
        let found = (before, w.state(id));
        let then = match expected {
            "recovery quarantines it" => State::Quarantined,
            "recovery times it out, as it declared" => State::TimedOut,
            "recovery fails it, because its attempts are exhausted" => State::Failed,
            "recovery abandons it, as ana requested" => State::Abandoned,
            _ => State::Stalled,
        };
        assert_eq!(found, (State::Running, then), "{expected}");
    }
}

#[test]
fn waiting() {
    says(
        |w| {
            let l = w.held("a");
            let mut specs =
                [("tool", WaitKind::Tool), ("pay", WaitKind::Approval)].map(|(r, k)| w.spec(r, k));
            specs[1].assignee = Some("ana".into());
            specs[1].prompt = Some("Pay 40 EUR?".into());
            w.wait_for(&l, specs.into()).unwrap();
            l.work
        },
        "Waiting 5 m: ana must answer `pay`: Pay 40 EUR?, and 1 more must be answered; unanswered, \
         it times out in 24 h.",
        "`tenure approve W`, or `tenure reject W`",
    );
    for (on_timeout, then) in [
        (OnTimeout::TimeOut, "times out"),
        (OnTimeout::Fail, "fails"),
        (OnTimeout::Warn, "completes with a warning"),
        (OnTimeout::Cancel, "is cancelled"),
        (OnTimeout::Escalate, "escalates and keeps waiting"),
        (OnTimeout::Default, "continues with the default answer"),
    ] {
        let mut w = World::default();
        let lease = w.held("a");
        w.wait_with(&lease, "ref", |spec| {
            spec.on_timeout = on_timeout;
            spec.default = (on_timeout == OnTimeout::Default).then(|| payload("x"));
        })
        .unwrap();
        let said = w.explain(lease.work).sentence;
        assert_eq!(said, format!("Waiting 0 s: the user must answer `ref`; unanswered, it {then} in 24 h."));
    }
    says(
        |w| w.ingest_with("a", external),
        "Waiting 5 m: it is owned externally, and ends when its owner completes it.",
        "nothing: its owner completes it; to give it up, `tenure abandon W --reason …`",
    );
}

#[test]
fn waiting_for_a_work() {
    let mut w = World::default();
    let (waiter, target) = (w.held("a"), w.ingest("b"));
    w.wait_with(&waiter, &reference_to(target), |spec| spec.endless = true).unwrap();
    let said = w.explain(waiter.work);
    assert!(said.sentence.ends_with("it waits without a deadline."), "{}", said.sentence);
    let expected =
        format!("nothing: it continues when {target} ends; `tenure explain {target}` explains that one");
    assert_eq!(said.next, expected);
}

#[test]
fn waiting_for_a_command() {
    let mut w = World::default();
    for (kind, expected) in [
        (WaitKind::Approval, "`tenure approve C --reason …`, or `tenure reject C --reason …`"),
        (
            WaitKind::Tool,
            "nothing: it continues when C is settled; `tenure commands show C` explains that one",
        ),
    ] {
        let lease = w.held(&format!("{kind:?}"));
        let id = w.reserve(&lease, evaluation(Effect::NeedsApproval, lookup()));
        let spec = w.spec(&reference_to_command(id), kind);
        w.wait_for(&lease, vec![spec]).unwrap();
        assert_eq!(w.explain(lease.work).next.replace(&id.to_string(), "C"), expected);
    }
}

#[test]
fn a_command_that_needs_a_person_says_what_to_type() {
    let mut w = World::default();
    let lease = w.held("m");
    let id = w.dispatched(&lease, tool(Idempotency::None, Risk::Low));
    w.uncertain(id).unwrap();
    let next = |w: &World| command::explain(w.command(id), None, w.now).next.replace(&id.to_string(), "C");
    assert_eq!(
        next(&w),
        "find out, then `tenure commands record C --happened --ref … --reason …`, or `tenure commands record C \
         --did-not-happen --reason …`"
    );
    w.record(id, command::Recorded::DidNotHappen).unwrap();
    assert_eq!(next(&w), "`tenure commands replay C --reason …`, once the cause is fixed");
}

#[test]
fn an_ordered_command_is_explained_by_the_first_one_to_its_target() {
    let mut w = World::default();
    let lease = w.held("m");
    let first = w.reserve(&lease, evaluation(Effect::NeedsApproval, lookup()));
    let other = w.held("n");
    let second = w.reserve(&other, evaluation(Effect::Allow, lookup()));
    w.pass(300 * SECOND);
    let told = command::explain_behind(w.command(second), w.command(first), None, w.now);
    let short = |text: &str| text.replace(&first.to_string(), "C");
    assert_eq!(
        short(&told.sentence),
        "mail to bob waits behind C, which is blocked: mail to bob waits 5 m for an approval: no \
         reason is given."
    );
    let approve = "`tenure approve C --reason …`, or `tenure reject C --reason …`";
    assert_eq!(short(&told.next), approve);

    let kept = w.explain(other.work).with_command(told.clone());
    assert!(kept.sentence.ends_with(&format!(" Its command {}", told.sentence)), "{}", kept.sentence);
    let asked = Explanation { next: "`tenure resolve x`".to_owned(), ..kept };
    assert_eq!(
        asked.with_command(told.clone()).next,
        "`tenure resolve x`",
        "the work item's own next step comes first"
    );
    w.close(&other, State::Succeeded).unwrap();
    assert_eq!(short(&w.explain(other.work).with_command(told).next), approve, "an ended work needs nothing");
}

#[test]
fn stalled_answers_the_five_questions() {
    says(
        |w| {
            let l = w.held_with("a", owner_bound);
            w.begin(&l, "send", "x", false).unwrap();
            w.after(LAPSE, l.work);
            l.work
        },
        "Stalled 5 m: w1 held it and last renewed 6 m ago; nothing proves that it is dead; it had started, \
         step `send`, nothing is in doubt; recovery leaves it until its owner returns, is proven dead, or somebody requests its end.",
        ABANDON,
    );
    says(
        |w| {
            let l = w.held_with("a", owner_bound);
            w.wait(&l, "ref");
            w.resolve("ref", "x").unwrap();
            w.after(LAPSE, l.work);
            w.cancel(l.work).unwrap();
            l.work
        },
        "Stalled 5 m: w1 started it and did not come back for it; nothing proves that it is dead; \
         it had started, nothing is in doubt; ana requested a cancel 5 m ago, and its owner will be notified if it returns.",
        ABANDON,
    );
    let mut w = World::default();
    let id = w.ingest_with("a", owner_bound);
    let lease = w.claim(id, &local());
    w.pass(LAPSE);
    let stopped = tenure_core::liveness::Sighting {
        fence: lease.fence,
        seen: Seen::Stopped,
        detail: "pid 4711 is stopped".into(),
    };
    w.tick_with(id, u64::MAX, Some(stopped));
    w.abandon(id).unwrap();
    let said = w.explain(id);
    assert!(
        said.sentence.contains("stopped when last seen, which does not prove that it is dead"),
        "{}",
        said.sentence
    );
    assert!(said.sentence.contains("recovery abandons it, as ana requested"), "{}", said.sentence);
    assert_eq!(said.next, "nothing: the next sweep abandons it");
}

#[test]
fn cancel_requested() {
    let wait = "nothing: its holder stops, or its lease expires";
    let mut w = World::default();
    let lease = w.held("a");
    w.cancel(lease.work).unwrap();
    w.pass(20 * SECOND);
    let said = w.explain(lease.work);
    assert_eq!(
        said.sentence,
        "Cancel requested 20 s ago by ana (no longer needed): w1 has not been notified yet and has 40 s to stop; \
         if its lease lapses it is cancelled in 55 s."
    );
    assert_eq!(said.next, wait);

    let mut w = World::default();
    let lease = w.held_with("a", owner_bound);
    w.cancel(lease.work).unwrap();
    w.renew(&lease).unwrap();
    w.pass(65 * SECOND);
    assert_eq!(
        w.explain(lease.work).sentence,
        "Cancel requested 1 m ago by ana (no longer needed): w1 was notified 1 m ago and can no longer renew; \
         if its lease lapses it is abandoned in 10 s."
    );
}

#[test]
fn quarantined() {
    let decide =
        "`tenure decide W requeue --reason …` to run it again, or `tenure decide W failed --reason …`";
    says(
        |w| {
            let id = w.ingest("a");
            w.quarantine(id).unwrap();
            id
        },
        "Quarantined 5 m: an operator set it aside (looks odd); it stays until a person decides.",
        decide,
    );
    says(
        |w| {
            let id = w.ingest("a");
            for _ in 0..3 {
                w.claim(id, &w1());
                w.after(LAPSE, id);
            }
            id
        },
        "Quarantined 5 m: it has lost one holder after another (it has lost 3 holders in a row: \
         a person must look); it stays until a person decides.",
        decide,
    );
    says(
        |w| {
            let id = w.ingest_with("a", external);
            w.quarantine(id).unwrap();
            id
        },
        "Quarantined 5 m: an operator set it aside (looks odd); it stays until a person decides.",
        "`tenure decide W failed --reason …`, or another terminal state: its owner runs it, not the queue",
    );
}

#[test]
fn over() {
    let done = "nothing: it is over";
    says(
        |w| {
            let l = w.held("a");
            w.close(&l, State::Succeeded).unwrap();
            l.work
        },
        "Succeeded 5 m ago in one attempt: its result is in event 3.",
        done,
    );
    says(
        |w| {
            let id = w.ingest_with("a", external);
            w.complete(id, CloseOut { result: None, no_output: true, ..close(State::Succeeded) }).unwrap();
            id
        },
        "Succeeded 5 m ago without an attempt: it declared that there is no output.",
        done,
    );
    says(
        |w| {
            let l = w.held("a");
            w.close(&l, State::CompletedWithWarnings).unwrap();
            l.work
        },
        "Completed with warnings 5 m ago in one attempt: nearly.",
        done,
    );
    says(
        |w| {
            let l = w.held("a");
            w.close(&l, State::Failed).unwrap();
            l.work
        },
        "Failed 5 m ago in one attempt: validation: bad input.",
        RERUN,
    );
    says(
        |w| {
            let id = w.ingest_with("a", |i| i.policy = timeouts(None, Some(1_000), None));
            w.after(1_000, id);
            id
        },
        "Timed out 5 m ago without an attempt: timeout: it did not end before its overall deadline.",
        RERUN,
    );
    says(
        |w| {
            let id = w.ingest("a");
            w.cancel(id).unwrap();
            id
        },
        "Cancelled 5 m ago without an attempt: ana requested it (no longer needed).",
        RERUN,
    );
    says(
        |w| {
            let l = w.held_with("a", owner_bound);
            w.abandon(l.work).unwrap();
            w.after(LAPSE, l.work);
            l.work
        },
        "Abandoned 5 m ago in one attempt: ana asked to abandon it: the host is gone.",
        "find out what it did; then `tenure rerun W --reason …`, if it is safe to run again",
    );
}

#[test]
fn a_work_is_explained_without_its_events_too() {
    let mut w = World::default();
    let lease = w.held("a");
    w.resolve_as(Actor::machine("m"), reference_target("x"), "y", None).unwrap();
    w.release(&lease).unwrap();
    let said = explain(w.row(lease.work), &Around::default(), w.now + 2 * SECOND);
    assert_eq!(said.sentence, "Queued 2 s: nobody has claimed it again.");
}
