//! Ingest and close-out: exactly one work item for one identity, and ends that are declared with proof.

use serde_json::json;
use tenure_core::{
    Action, Actor, Code, Evidence, Payload, Reply, State,
    action::{CloseOut, Ingest, Tenants},
    model::{Disposition, ErrorClass, Output, Workflow},
    policy::LeaseTimings,
};

use crate::common::*;

#[test]
fn one_identity_is_one_work() {
    let mut w = World::default();
    let first = w.ingest("a");
    let events = w.events();
    let reply = w.try_ingest("a", |i| i.priority = 1).unwrap();
    let Reply::Ingested { work, created, .. } = reply else { panic!("{reply:?}") };
    assert_eq!((work.id, created), (first, false), "16");
    assert_eq!(w.events(), events);

    let lease = w.claim(first, &w1());
    w.close(&lease, State::Succeeded).unwrap();
    assert_eq!(w.ingest("a"), first, "even after its end");
    for (name, other) in [
        ("tenant", (|i: &mut Ingest| i.tenant = "globex".into()) as fn(&mut Ingest)),
        ("system", |i| i.source.system = "manual".into()),
        ("run", |i| i.source.run_id = "2".into()),
    ] {
        assert_ne!(w.ingest_with("a", other), first, "another {name} is another work");
    }
}

#[test]
fn another_content_under_the_same_identity_is_a_conflict() {
    let mut w = World::default();
    w.ingest("a");
    for other in [
        (|i: &mut Ingest| i.kind = "other".into()) as fn(&mut Ingest),
        |i| i.disposition = Disposition::OwnerBound,
        |i| i.input = payload("other"),
    ] {
        assert_eq!(w.try_ingest("a", other).unwrap_err().code, Code::IdempotencyMismatch, "15");
    }
}

#[test]
fn key_order_and_number_form_do_not_change_the_content() {
    let mut w = World::default();
    let first = w.ingest_with("a", |i| i.input = Payload::new(&json!({ "x": 1, "y": 2.0 })).unwrap());
    let again = w.ingest_with("a", |i| i.input = Payload::new(&json!({ "y": 2, "x": 1 })).unwrap());
    assert_eq!(first, again);
}

#[test]
fn an_ingest_may_claim_in_the_same_transaction() {
    let mut w = World::default();
    let me = claimant(&w1(), "r");
    let claim = |i: &mut Ingest| i.claim = Some(claimant(&w1(), "r"));
    let Reply::Ingested { grant: Some(grant), .. } = w.try_ingest("a", claim).unwrap() else { panic!() };
    assert_eq!(grant.work.state, State::Running);
    let Reply::Ingested { grant: Some(again), created, .. } = w.try_ingest("a", claim).unwrap() else {
        panic!()
    };
    assert_eq!((again.work.fence, created), (grant.work.fence, false), "the repeat returns the lease");
    w.close(&lease(&grant), State::Succeeded).unwrap();
    let Reply::Ingested { grant, .. } = w.try_ingest("a", claim).unwrap() else { panic!() };
    assert_eq!(grant, None, "never an ended one");
    assert_eq!(w.claim_as(&me, tenure_core::action::ClaimBy::Chosen(Vec::new())).unwrap(), []);
}

#[test]
fn an_ingest_into_a_busy_session_is_queued() {
    let mut w = World::default();
    w.held_with("a", in_session);
    let reply = w.try_ingest("b", |i| {
        in_session(i);
        i.claim = Some(claimant(&w2(), "r"));
    });
    let Reply::Ingested { work, grant, .. } = reply.unwrap() else { panic!() };
    assert_eq!((work.state, grant), (State::Queued, None));
}

#[test]
fn an_ingest_does_not_overtake_an_older_work_of_its_session() {
    let mut w = World::default();
    w.ingest_with("a", in_session);
    w.pass(1);
    let reply = w.try_ingest("b", |i| {
        in_session(i);
        i.claim = Some(claimant(&w2(), "r"));
    });
    let Reply::Ingested { work, grant, .. } = reply.unwrap() else { panic!() };
    assert_eq!((work.state, grant), (State::Queued, None));
}

#[test]
fn externally_owned_work_waits_for_its_owner() {
    let mut w = World::default();
    let id = w.ingest_with("a", external);
    assert_eq!((w.state(id), w.row(id).due_at), (State::WaitingExternal, None));
    let forged = Action::Complete { work: id, genuine: false, close: close(State::Succeeded) };
    assert_eq!(w.submit(Actor::machine("x"), forged).unwrap_err().code, Code::TokenRefused);
    assert_eq!(w.complete(id, close(State::Abandoned)).unwrap_err().code, Code::IllegalState);
    assert_eq!(w.complete(id, close(State::Succeeded)).unwrap().state, State::Succeeded);

    let events = w.events();
    w.complete(id, close(State::Succeeded)).unwrap();
    assert_eq!(w.events(), events, "the same end again");
    let other = CloseOut { result: Some(payload("other")), ..close(State::Succeeded) };
    assert_eq!(w.complete(id, other).unwrap_err().code, Code::Terminal);
    let plain = w.ingest("b");
    assert_eq!(w.complete(plain, close(State::Succeeded)).unwrap_err().code, Code::IllegalState);
}

#[test]
fn another_reference_is_another_end() {
    let at = |reference: &str| CloseOut {
        result: None,
        result_ref: Some(reference.to_owned()),
        ..close(State::Succeeded)
    };
    let mut w = World::default();
    let id = w.ingest_with("a", external);
    w.complete(id, at("s3://one")).unwrap();
    w.complete(id, at("s3://one")).unwrap();
    assert_eq!(w.complete(id, at("s3://two")).unwrap_err().code, Code::Terminal);
}

#[test]
fn its_owner_may_declare_every_end_but_abandoned() {
    for state in State::ALL.into_iter().filter(|state| state.is_terminal() && *state != State::Abandoned) {
        let mut w = World::default();
        let id = w.ingest_with("a", external);
        assert_eq!(w.complete(id, close(state)).unwrap().state, state);
    }
}

#[test]
fn detached_work_is_recorded_with_its_end() {
    let born = |close: CloseOut| {
        move |i: &mut Ingest| {
            external(i);
            i.evidence = vec![Evidence { kind: "trace".into(), reference: "t-1".into() }];
            i.born = Some(close);
        }
    };
    let proof = Evidence { kind: "log".into(), reference: "l-9".into() };
    let warned = CloseOut {
        result: None,
        no_output: true,
        evidence: vec![proof.clone()],
        ..close(State::CompletedWithWarnings)
    };
    let mut w = World::default();
    let id = w.ingest_with("a", born(warned));
    let row = w.row(id);
    assert_eq!((row.state, row.due_at), (State::CompletedWithWarnings, None));
    assert_eq!(
        (&row.body.warnings[..], &row.body.output),
        (&["nearly".to_owned()][..], &Some(Output::NoOutput))
    );
    assert_eq!(w.log[&id][0].evidence.len(), 2);
    assert_eq!(w.log[&id][0].evidence[1], proof);

    let id = w.ingest_with("b", born(close(State::Failed)));
    let error = w.row(id).body.error.clone().unwrap();
    assert_eq!((error.class, error.message.as_deref()), (ErrorClass::Validation, Some("bad input")));

    let inline = w.try_ingest("c", born(close(State::Succeeded))).unwrap_err();
    assert_eq!(inline.code, Code::Invalid, "its first event's payload is the input");
    let running = w.try_ingest("c", born(CloseOut { state: State::Running, ..close(State::Failed) }));
    assert_eq!(running.unwrap_err().code, Code::Invalid);
    let ours = w.try_ingest("c", |i| i.born = Some(close(State::Failed)));
    assert_eq!(ours.unwrap_err().code, Code::Invalid, "only externally owned work");
}

#[test]
fn bad_ingests_are_refused_with_a_type() {
    type Spoil = fn(&mut Ingest);
    let table: [(&str, Spoil, Code); 14] = [
        ("no tenant", |i| i.tenant = String::new(), Code::Invalid),
        ("no system", |i| i.source.system = String::new(), Code::Invalid),
        ("no id", |i| i.source.id = String::new(), Code::Invalid),
        ("long id", |i| i.source.id = "x".repeat(501), Code::Invalid),
        ("no run", |i| i.source.system = "scheduler".into(), Code::Invalid),
        ("no kind", |i| i.kind = String::new(), Code::Invalid),
        ("line break", |i| i.kind = "a\nb".into(), Code::Invalid),
        ("no session", |i| i.session = Some(String::new()), Code::Invalid),
        (
            "no version",
            |i| {
                i.workflow = Some(Workflow { id: "x".into(), version: String::new() });
            },
            Code::Invalid,
        ),
        (
            "short ttl",
            |i| {
                i.policy.lease = LeaseTimings { ttl_ms: 44_999, ..LeaseTimings::default() };
            },
            Code::ImpossibleTimings,
        ),
        ("no attempts", |i| i.policy.retry.max_attempts = 0, Code::ImpossibleTimings),
        ("no time", |i| i.policy.timeouts.start_ms = Some(0), Code::ImpossibleTimings),
        (
            "claimed outside",
            |i| {
                external(i);
                i.claim = Some(claimant(&w1(), "r"))
            },
            Code::Invalid,
        ),
        (
            "too much evidence",
            |i| {
                i.evidence = vec![Evidence { kind: "k".into(), reference: "r".into() }; 51];
            },
            Code::Invalid,
        ),
    ];
    let mut w = World::default();
    for (name, spoil, code) in table {
        assert_eq!(w.try_ingest("a", spoil).unwrap_err().code, code, "{name}");
    }
    assert!(w.log.is_empty(), "24");
    let scheduled = |i: &mut Ingest| {
        i.source.system = "scheduler".into();
        i.source.run_id = "2026-01-01".into();
    };
    w.ingest_with("a", scheduled);
}

#[test]
fn a_foreign_tenant_does_not_exist() {
    let mut w = World::default();
    let id = w.work_id();
    let theirs = Tenants::Only(vec!["globex".into()]);
    let action = Action::Ingest(Box::new(ingest(id, "a")));
    let refused = w.submit_for(Actor::machine("g"), theirs.clone(), action).unwrap_err();
    assert_eq!(refused.code, Code::NotFound);
    let id = w.ingest("a");
    for action in [
        Action::Cancel { work: id, reason: "x".into(), deadline_ms: None },
        Action::Quarantine { work: id, reason: "x".into() },
        Action::Tick { work: id, looked_at: 0, watched_ms: 0, sighting: None },
        Action::Complete { work: id, genuine: true, close: close(State::Succeeded) },
    ] {
        let refused = w.submit_for(Actor::person("eve"), theirs.clone(), action).unwrap_err();
        assert_eq!(refused.code, Code::NotFound);
    }
    assert_eq!(w.state(id), State::Queued);
}

#[test]
fn a_close_out_needs_exactly_one_output() {
    let base = || close(State::Succeeded);
    let table = [
        ("nothing", CloseOut { result: None, ..base() }, Code::ResultMissing),
        ("two outputs", CloseOut { no_output: true, ..base() }, Code::Invalid),
        ("no end", CloseOut { state: State::Queued, ..base() }, Code::Invalid),
        ("no warnings", CloseOut { state: State::CompletedWithWarnings, ..base() }, Code::Invalid),
        (
            "empty reference",
            CloseOut { result: None, result_ref: Some(String::new()), ..base() },
            Code::Invalid,
        ),
        ("many warnings", CloseOut { warnings: vec!["x".into(); 51], ..base() }, Code::Invalid),
    ];
    let mut w = World::default();
    let lease = w.held("a");
    for (name, close, code) in table {
        let action = Action::CloseOut { holder: lease.holder(), close };
        assert_eq!(w.by(&lease, action).unwrap_err().code, code, "{name}");
    }
    assert_eq!(w.state(lease.work), State::Running);
}

#[test]
fn the_records_after_a_close_out() {
    let base = || CloseOut { result: None, ..close(State::Succeeded) };
    let mut w = World::default();
    let table = [
        (close(State::Succeeded), Some(Output::Inline { hash: payload("result").hash(), seq: 3 })),
        (CloseOut { result_ref: Some("s3://x".into()), ..base() }, Some(Output::Reference("s3://x".into()))),
        (CloseOut { no_output: true, ..base() }, Some(Output::NoOutput)),
        (close(State::Failed), None),
        (close(State::TimedOut), None),
    ];
    for (i, (close, output)) in table.into_iter().enumerate() {
        let lease = w.held(&format!("s{i}"));
        let state = close.state;
        w.by(&lease, Action::CloseOut { holder: lease.holder(), close }).unwrap();
        let row = w.row(lease.work);
        assert_eq!((row.state, &row.body.output), (state, &output));
        assert_eq!(row.body.completed_at, Some(w.now));
        assert_eq!((row.due_at, &row.lease, &row.body.reason), (None, &None, &None));
        assert_eq!(row.body.error.is_some(), !state.is_success());
    }
}

#[test]
fn a_title_shows_something() {
    let mut w = World::default();
    for title in ["", " ", "\u{a0}\u{3000}", "\u{200b}", "\u{feff} \u{2060}", "\u{3164}\u{2800}", "a\nb"] {
        let refusal = w.try_ingest("a", |i| i.title = Some(title.to_owned())).unwrap_err();
        assert_eq!(refusal.code, Code::Invalid, "{title:?}");
    }
    for (n, title) in [" a ", "\u{200b}é", "👩\u{200d}🚀", "退款"].into_iter().enumerate() {
        w.try_ingest(&n.to_string(), |i| i.title = Some(title.to_owned())).unwrap();
    }
}
