//! Waits: opened, answered, timed out, cancelled; exactly one of these ends a wait.

use tenure_core::{
    Action, Actor, Code, Reply, State, WaitId,
    action::{Target, Tenants, TokenCheck, WaitAction, WaitSpec},
    limits,
    model::{ErrorClass, OnTimeout, Output, WaitKind, WaitState},
    reply::{ResolvedWait, Ticked},
};

use crate::common::*;

fn answers(reply: Reply) -> (Vec<ResolvedWait>, bool) {
    match reply {
        Reply::Resolved { answers, kept, .. } => (answers, kept),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_wait_ends_the_lease_and_its_answer_queues_the_work() {
    let mut w = World::default();
    let lease = w.held("a");
    let wait = w.wait(&lease, "ref");
    let row = w.row(lease.work);
    assert_eq!((row.state, &row.lease), (State::WaitingUser, &None));
    assert_eq!(row.due_at, Some(START + 24 * HOUR), "people get a day");

    let (first, kept) = answers(w.resolve("ref", "yes").unwrap());
    assert_eq!((first[0].wait, first[0].first, kept), (wait, true, false));
    assert_eq!(w.state(lease.work), State::Queued);
    assert_eq!(w.last(lease.work).payload, Some(payload("yes")));

    let events = w.events();
    let (second, _) = answers(w.resolve("ref", "no").unwrap());
    assert_eq!((second[0].seq, second[0].first), (first[0].seq, false), "18: the first answer is returned");
    assert_eq!(w.events(), events);
}

#[test]
fn each_kind_has_its_state_and_its_default_deadline() {
    for (kind, state, hours) in [
        (WaitKind::User, State::WaitingUser, 24),
        (WaitKind::Approval, State::WaitingApproval, 24),
        (WaitKind::Auth, State::WaitingAuth, 24),
        (WaitKind::Tool, State::WaitingTool, 2),
        (WaitKind::External, State::WaitingExternal, 2),
    ] {
        let mut w = World::default();
        let lease = w.held("a");
        w.wait_with(&lease, "ref", |spec| spec.kind = kind).unwrap();
        assert_eq!((w.state(lease.work), w.row(lease.work).due_at), (state, Some(START + hours * HOUR)));
    }
}

#[test]
fn with_several_waits_the_first_kind_shows_and_all_must_be_answered() {
    let mut w = World::default();
    let lease = w.held("a");
    let specs = [("x", WaitKind::External), ("u", WaitKind::User), ("p", WaitKind::Approval)]
        .map(|(reference, kind)| w.spec(reference, kind));
    w.wait_for(&lease, specs.into()).unwrap();
    for (reference, state) in [("p", State::WaitingUser), ("u", State::WaitingExternal), ("x", State::Queued)]
    {
        assert!(w.state(lease.work).is_waiting());
        match reference {
            "p" => w.approve_wait(reference).unwrap(),
            _ => w.resolve(reference, "ok").unwrap(),
        };
        assert_eq!(w.state(lease.work), state, "after {reference}");
    }
}

#[test]
fn only_a_person_approves_whatever_token_the_agent_has() {
    let mut w = World::default();
    let lease = w.held("a");
    w.resolve("early", "yes").unwrap();
    let specs = [("early", WaitKind::Approval), ("p", WaitKind::Approval)].map(|(r, kind)| w.spec(r, kind));
    let id = specs[1].id;
    w.wait_for(&lease, specs.into()).unwrap();
    assert_eq!(w.row(lease.work).open_waits, 2, "a machine's early answer approves nothing");
    let target = Target::Wait { id, token: TokenCheck::Genuine, seal: None };
    let refused = w.resolve_as(Actor::worker("w1"), target, "yes", None).unwrap_err();
    assert_eq!(refused.code, Code::PersonRequired);
    for reference in ["p", "early"] {
        w.approve_wait(reference).unwrap();
    }
    assert_eq!(w.state(lease.work), State::Queued);
}

#[test]
fn on_timeout_decides_after_a_deadline() {
    let table = [
        (OnTimeout::TimeOut, State::TimedOut, WaitState::TimedOut),
        (OnTimeout::Fail, State::Failed, WaitState::TimedOut),
        (OnTimeout::Warn, State::CompletedWithWarnings, WaitState::TimedOut),
        (OnTimeout::Cancel, State::Cancelled, WaitState::TimedOut),
        (OnTimeout::Escalate, State::WaitingUser, WaitState::Open),
        (OnTimeout::Default, State::Queued, WaitState::TimedOut),
    ];
    for (on_timeout, state, ended) in table {
        let mut w = World::default();
        let lease = w.held("a");
        let mut specs = vec![w.spec("ref", WaitKind::User)];
        specs[0].on_timeout = on_timeout;
        specs[0].timeout_ms = Some(60_000);
        specs[0].default = (on_timeout == OnTimeout::Default).then(|| payload("go on"));
        if state.is_terminal() {
            specs.push(w.spec("other", WaitKind::Tool));
        }
        w.wait_for(&lease, specs).unwrap();
        assert_eq!(w.after(59_999, lease.work), Ticked::Nothing, "{on_timeout:?}");
        assert_eq!(w.after(1, lease.work), Ticked::Acted, "{on_timeout:?}");
        assert_eq!(w.state(lease.work), state, "{on_timeout:?}");
        let waits = &w.records.waits[&lease.work];
        assert_eq!(waits[0].state, ended, "{on_timeout:?}");
        assert!(waits[1..].iter().all(|wait| wait.state == WaitState::Cancelled), "{on_timeout:?}");
    }
}

#[test]
fn an_escalation_is_rearmed_and_can_still_be_answered() {
    let mut w = World::default();
    let lease = w.held("a");
    w.wait_with(&lease, "ref", |spec| {
        spec.on_timeout = OnTimeout::Escalate;
        spec.timeout_ms = Some(60_000);
        spec.assignee = Some("ana".into());
    })
    .unwrap();
    for n in 1..=3 {
        assert_eq!(w.after(60_000, lease.work), Ticked::Acted);
        assert_eq!(w.records.waits[&lease.work][0].detail.escalations, n);
        assert_eq!(w.row(lease.work).body.wait_due, Some(w.now + 60_000));
        assert_eq!(w.tick(lease.work), Ticked::Nothing, "once a deadline");
    }
    w.resolve("ref", "at last").unwrap();
    assert_eq!(w.state(lease.work), State::Queued);
}

#[test]
fn a_default_is_an_answer_like_any_other() {
    let mut w = World::default();
    let lease = w.held("a");
    w.wait_with(&lease, "ref", |spec| {
        spec.on_timeout = OnTimeout::Default;
        spec.default = Some(payload("go on"));
    })
    .unwrap();
    w.after(24 * HOUR, lease.work);
    assert_eq!(w.last(lease.work).payload, Some(payload("go on")));
    let (late, kept) = answers(w.resolve("ref", "too late").unwrap());
    assert_eq!((late[0].first, late[0].seq, kept), (false, Some(w.row(lease.work).seq), false));
    let grants = w.try_claim(lease.work, &w2()).unwrap();
    assert_eq!(grants[0].answers[0].answer_seq, late[0].seq);
}

#[test]
fn an_endless_wait_has_no_deadline() {
    let mut w = World::default();
    let lease = w.held("a");
    w.wait_with(&lease, "ref", |spec| spec.endless = true).unwrap();
    assert_eq!(w.row(lease.work).due_at, None);
    assert_eq!(w.after(1_000 * HOUR, lease.work), Ticked::Nothing);
}

#[test]
fn an_early_answer_is_kept_and_matched_once() {
    let mut w = World::default();
    let (first, kept) = answers(w.resolve("ref", "early").unwrap());
    assert!(first.is_empty() && kept);
    assert!(answers(w.resolve("ref", "another").unwrap()).1, "the first stays");

    let lease = w.held("a");
    let Reply::Waiting { ack, answers } = w.wait_with(&lease, "ref", |_| {}).unwrap() else { panic!() };
    assert_eq!(ack.state, State::Running, "a wait whose answers all exist keeps its lease");
    let seq = answers[0].answer_seq.unwrap() as usize;
    assert_eq!(w.log[&lease.work][seq - 1].payload, Some(payload("early")));
    w.renew(&lease).unwrap();

    let other = w.held("b");
    w.wait(&other, "ref");
    assert_eq!(w.state(other.work), State::WaitingUser, "it was used");
}

#[test]
fn reopening_an_answered_wait_returns_its_answer_at_once() {
    let mut w = World::default();
    let first = w.held("a");
    let wait = w.wait(&first, "ref");
    w.resolve("ref", "yes").unwrap();
    let second = w.claim(first.work, &w2());
    let events = w.events();
    for _ in 0..2 {
        let Reply::Waiting { ack, answers } = w.wait_with(&second, "ref", |_| {}).unwrap() else { panic!() };
        assert_eq!((ack.state, ack.waits, answers[0].id), (State::Running, vec![wait], wait));
    }
    assert_eq!(w.events(), events, "a repeat writes nothing");
}

#[test]
fn repeating_a_wait_writes_nothing() {
    let mut w = World::default();
    w.resolve("ref", "early").unwrap();
    let lease = w.held("a");
    let specs = vec![w.spec("ref", WaitKind::User)];
    let first = w.wait_for(&lease, specs.clone()).unwrap();
    let events = w.events();
    assert_eq!(w.wait_for(&lease, specs).unwrap(), first, "with the same ids as the first call");
    assert_eq!(w.events(), events);
}

#[test]
fn a_wait_with_some_early_answers_leaves_the_rest_open() {
    let mut w = World::default();
    w.resolve("early", "yes").unwrap();
    let lease = w.held("a");
    let specs: Vec<WaitSpec> = ["early", "late"].map(|r| w.spec(r, WaitKind::User)).into();
    let Reply::Waiting { answers, .. } = w.wait_for(&lease, specs.clone()).unwrap() else { panic!() };
    assert_eq!(answers.len(), 1);
    assert_eq!((w.state(lease.work), w.row(lease.work).open_waits), (State::WaitingUser, 1));
    w.resolve("late", "yes").unwrap();
    let Reply::Waiting { answers: again, .. } = w.wait_for(&lease, specs).unwrap() else { panic!() };
    assert_eq!(again, answers, "6: the repeat returns the first reply, not today's");
}

#[test]
fn early_answers_expire_and_are_bounded() {
    let mut w = World::default();
    w.resolve("ref", "early").unwrap();
    w.pass(limits::KEPT_MS);
    let lease = w.held("a");
    w.wait(&lease, "ref");
    assert_eq!(w.state(lease.work), State::WaitingUser, "a day is over");

    w.records.kept_counts.insert(TENANT.into(), limits::KEPT_PER_TENANT);
    assert_eq!(w.resolve("one more", "x").unwrap_err().code, Code::LimitReached);
    assert!(w.resolve("ref", "x").is_ok(), "an open wait needs no room");
}

#[test]
fn an_answer_goes_to_every_open_wait_of_its_tenant() {
    let mut w = World::default();
    let (a, b) = (w.held("a"), w.held("b"));
    let foreign = w.held_with("c", |i| i.tenant = "globex".into());
    for lease in [&a, &b, &foreign] {
        w.wait(lease, "ref");
    }
    assert_eq!(answers(w.resolve("ref", "yes").unwrap()).0.len(), 2);
    assert_eq!((w.state(a.work), w.state(b.work)), (State::Queued, State::Queued));
    assert_eq!(w.state(foreign.work), State::WaitingUser);
}

#[test]
fn an_answer_goes_only_to_open_waits() {
    let mut w = World::default();
    let (a, b) = (w.held("a"), w.held("b"));
    w.wait(&a, "ref");
    w.resolve("ref", "first").unwrap();
    w.wait(&b, "ref");
    let (given, _) = answers(w.resolve("ref", "second").unwrap());
    assert_eq!(given.iter().map(|answer| (answer.work, answer.first)).collect::<Vec<_>>(), [(b.work, true)]);
}

#[test]
fn a_wait_is_answered_by_its_token_or_by_a_person() {
    let by_id = |id: WaitId, token| Target::Wait { id, token, seal: None };
    let (absent, genuine, wrong) = (TokenCheck::Absent, TokenCheck::Genuine, TokenCheck::Wrong);
    let mut w = World::default();
    let lease = w.held("a");
    let wait = w.wait(&lease, "ref");
    let machine = || Actor::machine("mail");
    for (actor, token) in [(machine(), absent), (machine(), wrong), (Actor::person("ana"), wrong)] {
        let refused = w.resolve_as(actor, by_id(wait, token), "x", None).unwrap_err();
        assert_eq!(refused.code, Code::TokenRefused, "{token:?}");
    }
    let unknown = w.wait_id();
    assert_eq!(w.resolve_as(machine(), by_id(unknown, genuine), "x", None).unwrap_err().code, Code::NotFound);
    w.resolve_as(Actor::person("ana"), by_id(wait, absent), "x", None).unwrap();
    let (again, _) = answers(w.resolve_as(machine(), by_id(wait, genuine), "y", None).unwrap());
    assert!(!again[0].first);

    let action = Action::Resolve(tenure_core::action::Resolve {
        target: reference_target("ref"),
        payload: payload("x"),
        claim: None,
    });
    let elsewhere = Tenants::Only(vec!["globex".into()]);
    assert_eq!(w.submit_for(machine(), elsewhere, action).unwrap_err().code, Code::NotFound);
}

#[test]
fn exactly_one_of_answer_timeout_and_cancel_wins() {
    let mut w = World::default();
    let lease = w.held("a");
    let wait = w.wait(&lease, "ref");
    w.cancel(lease.work).unwrap();
    let target = Target::Wait { id: wait, token: TokenCheck::Genuine, seal: None };
    assert_eq!(w.resolve_as(Actor::machine("m"), target, "x", None).unwrap_err().code, Code::IllegalState);
    assert_eq!(w.state(lease.work), State::Cancelled);
    assert!(answers(w.resolve("ref", "x").unwrap()).1, "by reference it is stored for the next wait");

    let late = w.held("b");
    w.wait(&late, "other");
    w.pass(25 * HOUR);
    w.resolve("other", "just before the sweep").unwrap();
    assert_eq!(w.tick(late.work), Ticked::Nothing, "the answer came first");
}

#[test]
fn answered_and_claimed_in_one_transaction() {
    let mut w = World::default();
    let lease = w.held("a");
    w.wait(&lease, "ref");
    let me = claimant(&w2(), "r");
    let machine = || Actor::machine("gateway");
    let reply = w.resolve_as(machine(), reference_target("ref"), "yes", Some(me.clone())).unwrap();
    let Reply::Resolved { grant: Some(grant), .. } = reply else { panic!("{reply:?}") };
    assert_eq!((w.state(lease.work), w.row(lease.work).attempt), (State::Running, 2));
    assert_eq!(grant.answers[0].reference, "ref");
    let again = w.resolve_as(machine(), reference_target("ref"), "yes", Some(me)).unwrap();
    let Reply::Resolved { grant: Some(same), .. } = again else { panic!("{again:?}") };
    assert_eq!(same.work.fence, grant.work.fence, "the repeat returns the lease");
}

#[test]
fn an_answer_counts_even_if_its_claim_is_not_possible() {
    let mut w = World::default();
    let bound = w.held_with("a", |i| {
        owner_bound(i);
        in_session(i)
    });
    w.wait(&bound, "ref");
    let reply = w.resolve_as(Actor::machine("g"), reference_target("ref"), "yes", Some(claimant(&w2(), "r")));
    let Reply::Resolved { grant, .. } = reply.unwrap() else { panic!() };
    assert_eq!((grant, w.state(bound.work)), (None, State::Queued));

    let mut w = World::default();
    let waiting = w.held_with("a", in_session);
    w.wait(&waiting, "ref");
    w.held_with("b", in_session);
    let reply = w.resolve_as(Actor::machine("g"), reference_target("ref"), "yes", Some(claimant(&w2(), "r")));
    let Reply::Resolved { grant, .. } = reply.unwrap() else { panic!() };
    assert_eq!((grant, w.state(waiting.work)), (None, State::Queued), "its session is held");
}

#[test]
fn revoked_waits_let_the_work_go_on_without_answers() {
    let mut w = World::default();
    let lease = w.held("a");
    w.wait(&lease, "ref");
    w.revoke(lease.work).unwrap();
    assert_eq!(w.state(lease.work), State::Queued);
    let grants = w.try_claim(lease.work, &w2()).unwrap();
    assert_eq!(grants[0].answers[0].state, WaitState::Cancelled);
    assert_eq!(w.revoke(lease.work).unwrap_err().code, Code::IllegalState);
}

#[test]
fn an_auth_failure_may_wait_for_a_reconnect_instead() {
    let mut w = World::default();
    let lease = w.held("a");
    let mut fail = failure(&lease, ErrorClass::Auth, "token expired");
    fail.wait = Some(w.spec("auth:mail", WaitKind::Auth));
    let first = w.by(&lease, Action::Fail(fail.clone())).unwrap();
    assert_eq!((w.state(lease.work), w.row(lease.work).body.failures), (State::WaitingAuth, 0));
    assert_eq!(w.by(&lease, Action::Fail(fail.clone())).unwrap(), first, "6");

    let other = w.held("b");
    let wait = |spec: WaitSpec, class| {
        let mut fail = failure(&other, class, "x");
        fail.wait = Some(spec);
        Action::Fail(fail)
    };
    let (user, auth) = (w.spec("r", WaitKind::User), w.spec("r", WaitKind::Auth));
    let reserved = w.spec("command:c_1", WaitKind::Auth);
    for (action, code) in [
        (wait(auth, ErrorClass::Unavailable), Code::Invalid),
        (wait(user, ErrorClass::Auth), Code::Invalid),
        (wait(reserved, ErrorClass::Auth), Code::ReferenceReserved),
    ] {
        assert_eq!(w.by(&other, action).unwrap_err().code, code);
    }
}

#[test]
fn bad_waits_are_refused_with_a_type() {
    type Spoil = fn(&mut WaitSpec);
    let table: [(&str, Spoil, Code); 9] = [
        ("no reference", |s| s.reference = String::new(), Code::Invalid),
        ("long reference", |s| s.reference = "x".repeat(501), Code::Invalid),
        ("reserved", |s| s.reference = "command:c_1".into(), Code::ReferenceReserved),
        ("no such work", |s| s.reference = "work:nothing".into(), Code::ReferenceReserved),
        ("no time", |s| s.timeout_ms = Some(0), Code::ImpossibleTimings),
        (
            "endless and not",
            |s| {
                s.timeout_ms = Some(1);
                s.endless = true
            },
            Code::ImpossibleTimings,
        ),
        ("a century", |s| s.timeout_ms = Some(100 * 365 * 86_400_000), Code::ImpossibleTimings),
        ("a missing default", |s| s.on_timeout = OnTimeout::Default, Code::Invalid),
        ("an unused default", |s| s.default = Some(payload("x")), Code::Invalid),
    ];
    let mut w = World::default();
    let lease = w.held("a");
    for (name, spoil, code) in table {
        assert_eq!(w.wait_with(&lease, "ref", spoil).unwrap_err().code, code, "{name}");
    }
    let twice: Vec<WaitSpec> = ["ref", "ref"].map(|r| w.spec(r, WaitKind::User)).into();
    assert_eq!(w.wait_for(&lease, twice).unwrap_err().code, Code::Invalid);
    assert_eq!(w.wait_for(&lease, Vec::new()).unwrap_err().code, Code::Invalid);
    let many: Vec<WaitSpec> = (0..101).map(|n| w.spec(&format!("r{n}"), WaitKind::User)).collect();
    assert_eq!(w.wait_for(&lease, many[..101].to_vec()).unwrap_err().code, Code::Invalid);
    w.wait_for(&lease, many[..100].to_vec()).unwrap();
    w.revoke(lease.work).unwrap();
    let next = w.claim(lease.work, &w2());
    assert_eq!(w.wait_for(&next, many[100..].to_vec()).unwrap_err().code, Code::LimitReached);
    assert_eq!(w.state(lease.work), State::Running);
}

#[test]
fn the_reason_of_a_wait_names_its_tool() {
    let mut w = World::default();
    let lease = w.held("a");
    let waits = vec![w.spec("ref", WaitKind::Tool)];
    let tool = Some("browser".to_owned());
    let message = Some("rendering".into());
    let action = WaitAction { holder: lease.holder(), waits, message, tool, usage: Vec::new() };
    w.by(&lease, Action::Wait(action)).unwrap();
    let reason = w.row(lease.work).body.reason.clone().unwrap();
    assert_eq!((reason.tool.as_deref(), reason.message.as_deref()), (Some("browser"), Some("rendering")));
}

#[test]
fn a_timed_out_wait_leaves_its_trace_on_the_row() {
    let mut w = World::default();
    let lease = w.held("a");
    w.wait_with(&lease, "ref", |spec| spec.on_timeout = OnTimeout::Warn).unwrap();
    w.after(24 * HOUR, lease.work);
    let body = &w.row(lease.work).body;
    assert_eq!(body.warnings, ["nobody answered `ref` in time"]);
    assert_eq!(body.output, None::<Output>);
}
