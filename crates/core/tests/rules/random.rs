//! Random histories: several workers, work items, sessions, sweepers and mistakes, in any order. The world
//! checks the invariants after every decision; the checks here are those that need to know the request as
//! well.

use std::collections::BTreeSet;

use proptest::{prelude::*, strategy::ValueTree, test_runner::TestRunner};
use tenure_core::{
    Action, Actor, Code, Fact, Millis, Refusal, Reply, State, Submission, Usage, WorkId,
    action::{
        Claim, ClaimBy, CloseOut, Decide, Holder, Ingest, Renew, Resolve, StepAction, StepVerb, Target,
        Tenants, TokenCheck, WaitAction, WaitSpec,
    },
    liveness::{Grade, Liveness, Seen, Sighting},
    model::{AcceptStrength, Disposition, ErrorClass, OnParentClose, OnTimeout, WaitKind, Worker},
    payload::Digest,
    policy::OnExpiry,
    records::reference_to_command,
    recovery::Verdict,
    reply::Ticked,
};

use crate::{common::*, forecast, plan};

mod commands;

/// One random action: its kind, and three numbers from which its details are derived.
type Act = (u8, u8, u8, u8);

struct Actors {
    world: World,
    /// Every lease that was ever granted, stale ones included.
    leases: Vec<Lease>,
    /// The last holder's verb that ended an attempt, with its reply.
    ended: Option<(Lease, Action, Reply)>,
}

fn usage(n: u8) -> Vec<Usage> {
    let of = |n: u8| Usage { model: Some(format!("m{}", n % 2)), calls: u64::from(n), ..Usage::default() };
    (0..n % 3).map(of).collect()
}

fn histories() -> impl Strategy<Value = Vec<Act>> {
    prop::collection::vec(any::<Act>(), 1..160)
}

fn lived(acts: Vec<Act>) -> World {
    let mut actors = Actors { world: World::default(), leases: Vec::new(), ended: None };
    acts.into_iter().for_each(|act| actors.act(act));
    actors.sweep_out();
    actors.world
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300,
        max_shrink_iters: 4_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn no_history_breaks_an_invariant(acts in histories()) {
        lived(acts);
    }
}

/// Histories that reach few states would prove little.
#[test]
fn random_histories_reach_every_state_and_event() {
    let mut runner = TestRunner::deterministic();
    let (mut moves, mut kinds) = (BTreeSet::new(), BTreeSet::new());
    for _ in 0..300 {
        let acts = histories().new_tree(&mut runner).expect("a history").current();
        for event in lived(acts).log.values().flatten() {
            moves.insert((event.from, event.to));
            kinds.insert(event.fact.kind().to_owned());
        }
    }
    let unseen: Vec<_> =
        Fact::TYPES.iter().map(|(kind, _)| kind).filter(|kind| !kinds.contains(**kind)).collect();
    assert!(unseen.is_empty(), "never happened, so let an act of `Actors` cause it: {unseen:?}");
    for state in State::ALL {
        assert!(
            moves.iter().any(|(_, to)| *to == state),
            "{state} was never reached: let an act of `Actors` lead there"
        );
    }
}

fn workers() -> [Worker; 4] {
    let evidence = Liveness::LocalProcess { boot_id: "b".into(), pid_namespace: 1, pid: 7, start_time: 9 };
    [w1(), worker("w1", "boot-2"), w2(), Worker { liveness: evidence, ..worker("w2", "boot-2") }]
}

impl Actors {
    fn act(&mut self, (what, a, b, c): Act) {
        match what % 36 {
            0..=2 => self.ingest(a, b, c),
            3..=6 => self.claim(a, b, c),
            7..=13 => self.verb(what % 36, a, b, c),
            14 | 15 => self.resolve(a, b, c),
            16..=18 => self.operate(a, b, c),
            19 => self.decide(a, b),
            20..=22 => self.tick(a, b, c),
            23 => self.repeat(),
            26..=35 => self.command(what % 36 - 26, a, b, c),
            _ => self.world.pass(JUMPS[usize::from(a) % JUMPS.len()]),
        }
    }

    fn pick(&self, n: u8) -> Option<WorkId> {
        let ids: Vec<WorkId> = self.world.log.keys().copied().collect();
        (!ids.is_empty()).then(|| ids[usize::from(n) % ids.len()])
    }

    /// Prefers a work item in this state.
    fn prefer(&self, n: u8, state: State) -> Option<WorkId> {
        let such: Vec<WorkId> =
            self.world.log.keys().copied().filter(|id| self.world.state(*id) == state).collect();
        if such.is_empty() { self.pick(n) } else { Some(such[usize::from(n) % such.len()]) }
    }

    fn ingest(&mut self, a: u8, b: u8, c: u8) {
        let parent = self.pick(c).filter(|_| b.is_multiple_of(4));
        let id = self.world.work_id();
        let ingest = random_ingest(id, a, b, c, parent);
        let identity = (ingest.source.clone(), ingest.tenant.clone());
        let (disposition, input) = (ingest.disposition, ingest.input.clone());
        let known = self
            .world
            .records
            .works
            .values()
            .find(|w| (w.spec.source.clone(), w.spec.tenant.clone()) == identity);
        let same = known.map(|w| w.spec.disposition == disposition);
        let events = self.world.events();
        let outcome = self.world.submit(Actor::machine("gateway"), Action::Ingest(Box::new(ingest)));
        match (same, outcome) {
            (Some(true), Ok(Reply::Ingested { created, .. })) => {
                assert!(!created, "16: one identity is one work");
                assert_eq!(self.world.events(), events);
            }
            (Some(false), outcome) => {
                let refusal = outcome.expect_err("15: other content is a conflict");
                assert!(matches!(refusal.code, Code::IdempotencyMismatch | Code::Invalid), "{refusal}");
            }
            (None, Ok(Reply::Ingested { created, grant, .. })) => {
                assert!(created);
                assert_eq!(self.world.log[&id][0].payload, Some(input));
                self.leases.extend(grant.map(|grant| lease(&grant)));
            }
            (_, Err(refusal)) => {
                assert!(matches!(refusal.code, Code::Invalid | Code::ParentClosed), "{refusal}")
            }
            (_, other) => panic!("{other:?}"),
        }
    }

    fn claim(&mut self, a: u8, b: u8, c: u8) {
        let queued = if b < 200 { self.prefer(a, State::Queued) } else { self.prefer(a, State::Stalled) };
        let Some(first) = queued else { return };
        let second = self.pick(a.wrapping_add(c));
        let request =
            if c.is_multiple_of(3) { format!("r{}", b % 5) } else { format!("new{}", self.world.events()) };
        let mut me = claimant(&workers()[usize::from(b) % 4], &request);
        me.defer_start = c.is_multiple_of(5);
        let ids = [Some(first), second].into_iter().flatten();
        let by = if c.is_multiple_of(2) { ClaimBy::Ids(vec![first]) } else { ClaimBy::Chosen(ids.collect()) };
        let fences: Vec<(WorkId, u64)> = self.world.records.works.values().map(|w| (w.id, w.fence)).collect();
        let action = Action::Claim(Claim { claimant: me.clone(), by });
        let actor = Actor::worker(&me.worker.id);
        let asked = Submission::new(actor.clone(), Tenants::All, action.clone(), [0; 16]);
        let repeated = self.world.records.requests.contains_key(&me.key(&asked));
        let Ok(Reply::Claimed(grants)) = self.world.submit(actor, action) else {
            return;
        };
        for grant in &grants {
            let before = fences.iter().find(|(id, _)| *id == grant.work.id).map_or(0, |(_, fence)| *fence);
            assert_eq!(grant.work.fence > before, !repeated, "19: a repeat grants nothing new");
            if let Some(starter) = grant.work.starter() {
                assert!(starter.is(&me.worker, &me.worker.id), "10: another owner");
            }
            let lease = lease(grant);
            if !self.leases.contains(&lease) {
                self.leases.push(lease);
            }
        }
    }

    /// A holder's verb, mostly of the newest lease, sometimes with a stale fence or a wrong token.
    fn verb(&mut self, what: u8, a: u8, b: u8, c: u8) {
        if self.leases.is_empty() {
            return;
        }
        let newest = self.leases.len() - 1;
        let lease = self.leases[if c.is_multiple_of(4) {
            usize::from(a) % self.leases.len()
        } else {
            newest.saturating_sub(usize::from(c % 3))
        }]
        .clone();
        let genuine = c % 16 != 7;
        let holder = Holder { genuine, ..lease.holder() };
        let action = self.holders_action(what, holder, a, b);
        let row = self.world.row(lease.work).clone();
        let events = self.world.events();
        let outcome = self.world.by(&lease, action.clone());
        let current = genuine && row.lease.as_ref().is_some_and(|held| held.fence == lease.fence);
        let wrote = self.world.events() > events;
        assert!(!wrote || current, "6: a superseded or forged write was accepted: {action:?}");
        if let Ok(Reply::Renewed(renewals)) = &outcome {
            assert!(current || renewals[0].outcome.is_err(), "6: a lost lease was renewed");
            return;
        }
        assert!(current || genuine || outcome.is_err(), "6: a wrong token is refused");
        if let Err(refusal) = &outcome
            && !current
        {
            let checked_before = matches!(refusal.code, Code::Invalid | Code::NotFound);
            assert!(refusal.code == Code::LeaseLost || checked_before, "6: {refusal}");
        }
        let over = self.world.row(lease.work).lease.as_ref().is_none_or(|held| held.fence != lease.fence);
        if let Ok(reply) = outcome
            && current
            && over
        {
            self.ended = Some((lease, action, reply));
        }
    }

    fn holders_action(&mut self, what: u8, holder: Holder, a: u8, b: u8) -> Action {
        match what {
            7 => Action::Renew(vec![Renew {
                holder,
                progress: (a.is_multiple_of(2)).then(|| payload("on it")),
            }]),
            8 if a.is_multiple_of(2) => Action::Accept { holder, strength: AcceptStrength::Weak },
            8 => Action::Progress { holder, progress: payload("p"), request_id: Some(format!("p{}", b % 2)) },
            9 => {
                let input = if b.is_multiple_of(5) { "other" } else { "same" };
                let begun = self.world.row(holder.work).body.step.clone().filter(|_| b.is_multiple_of(2));
                let verb = match (&begun, b % 3) {
                    (Some(_), _) => StepVerb::Complete { result: payload("done") },
                    (None, 0) => StepVerb::Begin { restart: a.is_multiple_of(2) },
                    (None, _) => StepVerb::Begin { restart: false },
                };
                let step = begun.unwrap_or_else(|| format!("s{}", a % 3));
                Action::Step(StepAction { holder, step, input_hash: Digest::of(input), verb })
            }
            10 | 11 => {
                let mut waits = vec![self.random_wait(a, b)];
                if b.is_multiple_of(3) {
                    waits.push(self.random_wait(a.wrapping_add(1), b.wrapping_add(1)));
                }
                Action::Wait(WaitAction { holder, waits, message: None, tool: None, usage: usage(a) })
            }
            12 if a.is_multiple_of(3) => Action::Release { holder, message: None, usage: usage(b) },
            12 if a % 3 == 1 => Action::AbandonOwn { holder, reason: "drain".into(), usage: usage(b) },
            12 => {
                let class = [ErrorClass::Unknown, ErrorClass::Unavailable, ErrorClass::Validation];
                let lease = Lease { work: holder.work, fence: holder.fence, worker: String::new() };
                let mut fail = failure(&lease, class[usize::from(b) % 3], "again");
                fail.holder = holder;
                fail.usage = usage(b);
                Action::Fail(fail)
            }
            _ => {
                let states = [
                    State::Succeeded,
                    State::Failed,
                    State::Cancelled,
                    State::CompletedWithWarnings,
                    State::Abandoned,
                    State::TimedOut,
                ];
                let state = states[usize::from(a) % states.len()];
                Action::CloseOut { holder, close: CloseOut { usage: usage(b), ..close(state) } }
            }
        }
    }

    fn random_wait(&mut self, a: u8, b: u8) -> WaitSpec {
        let target = self.pick(b).filter(|_| a.is_multiple_of(5));
        let reference = target.map_or_else(|| format!("ref{}", a % 3), |id| format!("work:{id}"));
        let policies = [
            OnTimeout::TimeOut,
            OnTimeout::Fail,
            OnTimeout::Warn,
            OnTimeout::Cancel,
            OnTimeout::Escalate,
            OnTimeout::Default,
        ];
        let on_timeout = policies[usize::from(b) % policies.len()];
        let handed = self.dispatched(b).filter(|_| a % 3 == 1);
        let named = self.any_command(b).filter(|_| handed.is_none() && a % 7 == 2);
        let reference = named.map_or(reference, reference_to_command);
        WaitSpec {
            command: handed,
            timeout_ms: (!a.is_multiple_of(4)).then(|| 1_000 * u64::from(b) + 1),
            endless: a.is_multiple_of(8),
            on_timeout,
            default: (on_timeout == OnTimeout::Default).then(|| payload("default")),
            ..self.world.spec(&reference, WaitKind::ALL[usize::from(a) % WaitKind::ALL.len()])
        }
    }

    fn resolve(&mut self, a: u8, b: u8, c: u8) {
        let claim = (c.is_multiple_of(3)).then(|| claimant(&workers()[usize::from(b) % 4], &format!("x{c}")));
        let waits: Vec<_> = self.world.records.wait_ids.keys().copied().collect();
        let target = match waits.iter().max().filter(|_| a.is_multiple_of(4)) {
            Some(id) => {
                let token = if b.is_multiple_of(3) { TokenCheck::Wrong } else { TokenCheck::Genuine };
                Target::Wait { id: *id, token, seal: None }
            }
            None => reference_target(&format!("ref{}", a % 3)),
        };
        let resolve = Resolve { target, payload: payload(&format!("answer {b}")), claim };
        let action = Action::Resolve(resolve);
        let outcome = self.world.submit(Actor::machine("webhook"), action.clone());
        let Ok(Reply::Resolved { answers, grant, .. }) = outcome else { return };
        self.leases.extend(grant.map(|grant| lease(&grant)).filter(|lease| !self.leases.contains(lease)));
        for answer in answers {
            let seq = answer.seq.expect("an answer is an event") as usize;
            assert!(self.world.log[&answer.work][seq - 1].payload.is_some(), "18: the answer is stored");
        }
        // 18: a second answer returns the first one.
        let events = self.world.events();
        if let Ok(Reply::Resolved { answers, .. }) = self.world.submit(Actor::machine("webhook"), action) {
            assert!(answers.iter().all(|answer| !answer.first));
        }
        assert_eq!(self.world.events(), events, "18: a wait resolves once");
    }

    fn operate(&mut self, a: u8, b: u8, c: u8) {
        let picked = match b % 8 {
            0 => self.prefer(a, State::Stalled),
            2 => self.prefer(a, State::RetryScheduled),
            _ => self.pick(a),
        };
        let Some(work) = picked else { return };
        let reason = || "because".to_owned();
        let id = self.world.work_id();
        let action = match b % 8 {
            0 => Action::Cancel { work, reason: reason(), deadline_ms: Some(u64::from(c) * 1_000) },
            1 => Action::RequestAbandon { work, reason: reason() },
            2 => Action::RetryNow { work, reason: reason() },
            3 if self.world.row(work).state.is_terminal() => Action::Erase { work, reason: reason() },
            3 => Action::Quarantine { work, reason: reason() },
            4 => Action::RevokeWaits { work, reason: reason() },
            5 => Action::Complete { work, genuine: !c.is_multiple_of(4), close: close(State::Succeeded) },
            6 => Action::RequestRelease { work, reason: reason() },
            _ => Action::Rerun {
                execute: Vec::new(),
                of: work,
                id,
                from_step: (c.is_multiple_of(2)).then(|| "s1".into()),
                reason: reason(),
            },
        };
        let _: Result<Reply, Refusal> = self.world.submit(Actor::person("ana"), action);
    }

    fn decide(&mut self, a: u8, b: u8) {
        let Some(work) = self.prefer(a, State::Quarantined) else { return };
        let decision = match b % 3 {
            0 => Decide::Requeue,
            1 => Decide::Close(Box::new(close(State::Succeeded))),
            _ => Decide::Close(Box::new(CloseOut { state: State::Abandoned, ..close(State::Failed) })),
        };
        let quarantined = self.world.state(work) == State::Quarantined;
        assert!(quarantined || self.world.decide(work, decision.clone()).is_err());
        if quarantined {
            let machine = Action::Decide { work, reason: "no".into(), decision: decision.clone() };
            assert_eq!(
                self.world.submit(Actor::machine("bot"), machine).unwrap_err().code,
                Code::PersonRequired
            );
            let _: Result<_, Refusal> = self.world.decide(work, decision);
        }
    }

    fn tick(&mut self, a: u8, b: u8, c: u8) {
        let due = self.world.records.works.values().filter(|work| work.due_at.is_some());
        let next = due.min_by_key(|work| (work.due_at, work.id)).map(|work| work.id);
        let Some(work) = next.filter(|_| a < 160).or_else(|| self.pick(a)) else { return };
        let watched = [0, 44_999, 45_000, u64::MAX][usize::from(b) % 4];
        let seen = [None, None, None, Some(Seen::Gone), Some(Seen::Stopped), Some(Seen::Running)];
        let fence = self.world.row(work).fence.saturating_sub(u64::from(c.is_multiple_of(7)));
        let sighting =
            seen[usize::from(c) % seen.len()].map(|seen| Sighting { fence, seen, detail: "pid 7".into() });
        if b >= 224 {
            plan::carry_out(&mut self.world, work, sighting.as_ref());
        } else {
            self.judged(work, watched, sighting);
        }
    }

    /// 9 and 10: which verdicts a sweeper may reach, and from which evidence.
    fn judged(&mut self, work: WorkId, watched: u64, sighting: Option<Sighting>) -> Ticked {
        forecast::comes_true(&self.world, work);
        plan::comes_true(&self.world, work);
        let before = self.world.row(work).clone();
        let events = self.world.events();
        let ticked = self.world.tick_with(work, watched, sighting);
        let row = self.world.row(work);
        match ticked {
            Ticked::NotYet => {
                assert_eq!((events, &before), (self.world.events(), row), "9: nothing is written")
            }
            Ticked::Nothing => {
                assert_eq!(events, self.world.events());
                assert!(
                    row.due_at.is_none_or(|due| due > self.world.now),
                    "12: the sweep would spin: {row:#?}"
                );
            }
            Ticked::Acted => assert!(self.world.events() > events),
        }
        for event in self.world.log[&work].iter().filter(|event| event.seq > before.seq) {
            if let Fact::LeaseLapsed(lapsed) = &event.fact {
                let lapse = before.lease.as_ref().map_or(0, |lease| lease.expires_at) + 30 * SECOND;
                let fair = watched >= 45_000 && self.world.now >= lapse;
                assert!(lapsed.grade == Grade::Dead || fair, "9: a living holder was expired");
            }
            if let Fact::Recovered(recovered) = &event.fact
                && before.owner_bound_started()
            {
                let declared = match recovered.verdict {
                    Verdict::Abandon => {
                        recovered.grade == Grade::Dead
                            || before.body.abandon_request.is_some()
                            || before.body.cancel.is_some()
                    }
                    Verdict::TimeOut => before.spec.policy.on_expiry == OnExpiry::Timeout,
                    _ => false,
                };
                assert!(declared, "10: expiry alone ended started owner-bound work");
            }
        }
        ticked
    }

    /// 6: the identical verb again returns its first reply, and writes nothing.
    fn repeat(&mut self) {
        let Some((lease, action, reply)) = self.ended.clone() else { return };
        let events = self.world.events();
        let again = self.world.by(&lease, action).expect("a repeat is answered");
        assert_eq!(ack(again), ack(reply));
        assert_eq!(self.world.events(), events);
    }

    /// Lets time pass until nothing is due: no due date leads nowhere twice in a row.
    fn sweep_out(&mut self) {
        self.sweep_out_commands();
        for _ in 0..120 {
            let open = self.world.records.works.values().filter(|work| !work.state.is_terminal());
            let Some((due, work)) = open.filter_map(|work| Some((work.due_at?, work.id))).min() else {
                return;
            };
            self.world.now = self.world.now.max(due);
            self.judged(work, u64::MAX, None);
        }
    }
}

const JUMPS: [Millis; 8] =
    [1, SECOND, 20 * SECOND, 46 * SECOND, LAPSE, 90 * SECOND, 10 * 60 * SECOND, 25 * HOUR];

fn random_ingest(id: WorkId, a: u8, b: u8, c: u8, parent: Option<WorkId>) -> Ingest {
    let dispositions = [
        Disposition::Rerunnable,
        Disposition::OwnerBound,
        Disposition::ExternallyOwned,
        Disposition::Rerunnable,
    ];
    let mut work = ingest(id, &format!("source{}", a % 9));
    work.disposition = dispositions[usize::from(b) % 4];
    let external = work.disposition == Disposition::ExternallyOwned;
    work.session = (!c.is_multiple_of(3) && !external).then(|| "chat".to_owned());
    work.parent = parent;
    work.on_parent_close = if a.is_multiple_of(2) { OnParentClose::Cancel } else { OnParentClose::Leave };
    work.policy = match c % 6 {
        0 => timeouts(Some(60_000), None, None),
        1 => timeouts(None, Some(600_000), None),
        2 => timeouts(None, None, Some(30_000)),
        _ => policy(),
    };
    work.policy.on_expiry = if b % 8 == 1 { OnExpiry::Timeout } else { OnExpiry::Leave };
    work.claim =
        (a.is_multiple_of(5)).then(|| claimant(&workers()[usize::from(c) % 4], &format!("in{a}{b}{c}")));
    work.born = (external && c.is_multiple_of(5)).then(|| CloseOut {
        result: None,
        no_output: true,
        ..close(State::CompletedWithWarnings)
    });
    work
}
