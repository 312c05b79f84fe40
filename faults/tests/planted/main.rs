//! The checker finds each error that is planted in a history without one, and names it.

mod clean;

use clean::{ASKED, COMMAND, PAID, WAIT};
use serde_json::{Value, json};
use tenure_api::wire::Event;
use tenure_faults::{
    checker::{Losses, Report, Rule, check, expired},
    history::{Call, Outcome, Record, until},
    run::Run,
};

type Plant = fn(&mut Run);

#[test]
fn a_history_without_errors_has_none() {
    assert_eq!(check(&clean::run(), Losses::Forbidden), Report::default());
}

const PLANTED: &[(&str, Rule, Plant)] = &[
    ("an acknowledged ingest is gone", Rule::LostWrite, |run| forget_work(run, ASKED)),
    ("an acknowledged progress is gone", Rule::LostWrite, |run| forget(run, PAID, "progressed")),
    ("an acknowledged step is gone", Rule::LostWrite, |run| forget(run, PAID, "step_completed")),
    ("an acknowledged claim is gone", Rule::LostWrite, |run| forget(run, ASKED, "claimed")),
    ("an acknowledged receipt is gone", Rule::LostWrite, |run| forget(run, PAID, "command_succeeded")),
    ("an acknowledged close-out is gone", Rule::LostWrite, |run| forget(run, PAID, "close_out")),
    ("an acknowledged answer is gone", Rule::LostWrite, |run| forget(run, ASKED, "wait_resolved")),
    ("a progress stores another content", Rule::AnswerDiffers, |run| {
        event(run, PAID, "progressed").payload = Some(json!({ "at": 2 }));
    }),
    ("a result is another", Rule::AnswerDiffers, |run| {
        event(run, PAID, "close_out").payload = Some(json!({ "paid": false }));
    }),
    ("a reply tells of another state", Rule::AnswerDiffers, |run| {
        acknowledged(run, |call| matches!(call, Call::Progress { .. }))["state"] = json!("queued");
    }),
    ("a dispatch that did not dispatch is acknowledged", Rule::AnswerDiffers, |run| {
        acknowledged(run, |call| matches!(call, Call::Dispatch { .. }))["state"] = json!("blocked");
    }),
    ("a row is not what its log says", Rule::RowDiffers, |run| {
        run.works[1].state = "running".parse::<tenure_api::wire::State>().unwrap().into();
    }),
    ("a number is left out", Rule::BrokenChain, |run| event(run, PAID, "close_out").seq += 1),
    ("an event was edited", Rule::BrokenChain, |run| event(run, PAID, "step_begun").hash = "other".into()),
    ("an event starts elsewhere", Rule::IllegalMove, |run| {
        event(run, PAID, "close_out").from =
            Some("queued".parse::<tenure_api::wire::State>().unwrap().into());
    }),
    ("a terminal changed", Rule::TerminalChanged, |run| {
        let after = json!({ "to": "queued", "from": "succeeded", "type": "requeued" });
        append(run, PAID, after);
    }),
    ("two ends were acknowledged", Rule::TerminalChanged, |run| {
        let close = find(run, |call| matches!(call, Call::CloseOut { .. }));
        let Call::CloseOut { state, .. } = &mut close.call else { unreachable!() };
        *state = "failed".parse().unwrap();
    }),
    ("a claim took a running work", Rule::TwoHolders, |run| {
        let claim = run.log.iter_mut().rfind(|event| event.work.as_str() == PAID && event.kind == "claimed");
        claim.unwrap().from = Some("running".parse::<tenure_api::wire::State>().unwrap().into());
    }),
    ("two workers were granted one lease", Rule::TwoHolders, |run| {
        event(run, ASKED, "claimed").data["worker"]["id"] = json!("c");
    }),
    ("two works of one session were held at once", Rule::TwoHolders, |run| {
        let held = run.log.iter().position(|event| event.work.as_str() == ASKED && event.kind == "claimed");
        let claim = run.log.remove(held.unwrap());
        let first = run.log.iter().position(|event| event.kind == "progressed").unwrap();
        run.log.insert(first, claim);
        run.followed.clear();
    }),
    ("a fence was granted twice", Rule::FenceRepeated, |run| {
        event_of(run, PAID, "claimed", 20).fence = Some(10);
    }),
    ("a later claim has a lower fence", Rule::FenceRepeated, |run| {
        let claim = find(run, |call| matches!(call, Call::Claim(claim) if claim.request_id == "r20"));
        let Outcome::Ok(body) = &mut claim.outcome else { unreachable!() };
        body["leases"][0]["fence"] = json!(9);
    }),
    ("a superseded holder renewed", Rule::StaleWrite, |run| {
        let renewal = find(run, |call| matches!(call, Call::Renew { .. })).clone();
        let last = run.history.last().unwrap().answered_us;
        run.history.push(Record { asked_us: last + 1, answered_us: last + 2, ..renewal });
    }),
    ("a superseded holder's progress was written", Rule::StaleWrite, |run| {
        let progress = find(run, |call| matches!(call, Call::Progress { .. }));
        let Call::Progress { fence, .. } = &mut progress.call else { unreachable!() };
        *fence = 10;
    }),
    ("an event carries an old fence", Rule::StaleWrite, |run| {
        event(run, PAID, "step_begun").fence = Some(10);
    }),
    ("the provider was called without a dispatch", Rule::EffectWithoutIntent, |run| {
        run.effects[0].fence = 10;
    }),
    ("the provider was called twice for one dispatch", Rule::UnlicensedRepeat, |run| {
        let again = run.effects[0].clone();
        run.effects.push(again);
    }),
    ("a dispatch was repeated without a licence", Rule::UnlicensedRepeat, |run| {
        let again = json!({
            "to": "succeeded", "from": "succeeded", "type": "command_dispatched",
            "data": { "command": COMMAND, "now": "dispatched", "under": 20 },
        });
        append(run, PAID, again);
    }),
    ("one source is two works", Rule::TwoWorks, |run| {
        let source = run.works[0].source.clone();
        run.works[1].source = source;
    }),
    ("a wait was answered twice", Rule::TwoWinners, |run| {
        let again = json!({
            "to": "queued", "from": "queued", "type": "wait_resolved",
            "data": { "wait": WAIT }, "payload": "no",
        });
        append(run, ASKED, again);
    }),
    ("two answers were told to be the first", Rule::TwoWinners, |run| {
        let second = run.history.iter_mut().rfind(|record| matches!(record.call, Call::Answer { .. }));
        let Outcome::Ok(body) = &mut second.unwrap().outcome else { unreachable!() };
        body["answers"][0]["first"] = json!(true);
    }),
    ("a claim's repeat returned another token", Rule::ClaimNotRepeated, |run| {
        let is_repeat = |call: &Call| matches!(call, Call::Claim(claim) if claim.request_id == "r20");
        let repeat = run.history.iter_mut().rfind(|record| is_repeat(&record.call)).unwrap();
        let Outcome::Ok(body) = &mut repeat.outcome else { unreachable!() };
        body["leases"][0]["token"] = json!("another");
    }),
    ("a reader missed an event", Rule::CursorSkipped, |run| drop(run.followed[0].remove(3))),
    ("a reader saw events in another order", Rule::CursorSkipped, |run| run.followed[0].swap(3, 4)),
    ("a reader saw what is gone", Rule::LostWrite, |run| run.followed[0][3].hash = "gone".into()),
    ("a refused progress was written", Rule::RefusedWrote, |run| {
        find(run, |call| matches!(call, Call::Progress { .. })).outcome =
            Outcome::Refused("lease_lost".into());
    }),
    ("verification found a fault", Rule::NotVerified, |run| run.faults.push("a work is damaged".into())),
];

#[test]
fn each_planted_error_is_found_and_named() {
    let mut missed = Vec::new();
    for (name, rule, plant) in PLANTED {
        let mut run = clean::run();
        plant(&mut run);
        let report = check(&run, Losses::Forbidden);
        if !report.violations.iter().any(|violation| violation.rule == *rule) {
            missed.push(format!("{name}: no {rule:?} among {:?}", report.violations));
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

/// An asynchronous failover may lose what was acknowledged; it is counted, and everything else still counts.
#[test]
fn losses_are_counted_where_they_are_allowed() {
    let mut run = clean::run();
    forget_work(&mut run, ASKED);
    run.log.retain(|event| event.work.as_str() == PAID);
    let report = check(&run, Losses::Counted);
    assert_eq!(report.violations, []);
    assert!(report.lost >= 4, "ingest, claim, wait and answers: {}", report.lost);
    let mut reused = clean::run();
    event_of(&mut reused, PAID, "claimed", 20).fence = Some(10);
    let found = check(&reused, Losses::Counted).violations;
    assert!(found.iter().any(|violation| violation.rule == Rule::FenceRepeated), "{found:?}");
}

/// A claim whose commit an asynchronous failover lost claims anew when it is sent again. That is a loss where losses are
/// allowed, and only then.
#[test]
fn a_lost_claim_that_claims_anew_is_a_loss() {
    let mut run = clean::run();
    let is_asked = |record: &&Record| matches!(&record.call, Call::Claim(claim) if claim.request_id == "r30");
    let mut anew = run.history.iter().find(is_asked).unwrap().clone();
    let Outcome::Ok(body) = &mut anew.outcome else { unreachable!() };
    body["leases"][0]["fence"] = json!(40);
    body["leases"][0]["token"] = json!("t40");
    let last = run.history.last().unwrap().answered_us;
    run.history.push(Record { asked_us: last + 1, answered_us: last + 2, ..anew });
    let differs = |run: &Run, losses| {
        let violations = check(run, losses).violations;
        violations.iter().any(|violation| violation.rule == Rule::ClaimNotRepeated)
    };
    assert!(differs(&run, Losses::Counted), "the first claim is stored: its repeat has to be the same");
    forget(&mut run, ASKED, "claimed");
    assert!(!differs(&run, Losses::Counted), "the first claim is gone");
    assert!(differs(&run, Losses::Forbidden), "nothing may be lost");
}

/// A step that is completed again returns what is stored. If an asynchronous failover loses that and the step is
/// completed anew, the log has another result than the one that was told.
#[test]
fn a_lost_result_that_was_told_again_is_a_loss() {
    let mut run = clean::run();
    let completed = run.history.iter().position(|record| matches!(record.call, Call::Step { .. })).unwrap();
    let mut again = run.history[completed].clone();
    let Outcome::Ok(body) = &mut again.outcome else { unreachable!() };
    body["reused"] = json!(true);
    let last = run.history.last().unwrap().answered_us;
    again = Record { asked_us: last + 1, answered_us: last + 2, ..again };
    run.history.push(again.clone());
    assert_eq!(check(&run, Losses::Forbidden), Report::default(), "it is told what is stored");
    let Outcome::Ok(body) = &mut again.outcome else { unreachable!() };
    body["step"]["result"] = json!({ "done": 2 });
    *run.history.last_mut().unwrap() = again;
    let counted = check(&run, Losses::Counted);
    assert_eq!((counted.violations, counted.lost), (vec![], 1));
    let found = check(&run, Losses::Forbidden).violations;
    assert!(found.iter().any(|violation| violation.rule == Rule::LostWrite), "{found:?}");
}

#[test]
fn a_lapse_is_found_where_every_holder_renews() {
    let found = expired(&clean::run());
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].rule, Rule::LivingHolderExpired);
}

/// A history that is cut off does not count as acknowledged what was answered later.
#[test]
fn a_cut_history_forgets_later_answers() {
    let run = clean::run();
    let close = run.history.iter().find(|record| matches!(record.call, Call::CloseOut { .. })).unwrap();
    let cut = until(&run.history, close.answered_us);
    assert!(matches!(cut.last().unwrap().outcome, Outcome::Unknown(_)));
    assert!(cut.len() < run.history.len());
}

fn find(run: &mut Run, is: impl Fn(&Call) -> bool) -> &mut Record {
    run.history.iter_mut().find(|record| is(&record.call)).unwrap()
}

fn acknowledged(run: &mut Run, is: impl Fn(&Call) -> bool) -> &mut Value {
    match &mut find(run, is).outcome {
        Outcome::Ok(body) => body,
        other => panic!("{other:?}"),
    }
}

fn event<'a>(run: &'a mut Run, work: &str, kind: &str) -> &'a mut Event {
    run.log.iter_mut().find(|event| event.work.as_str() == work && event.kind == kind).unwrap()
}

fn event_of<'a>(run: &'a mut Run, work: &str, kind: &str, fence: u64) -> &'a mut Event {
    let is = |event: &Event| event.work.as_str() == work && event.kind == kind && event.fence == Some(fence);
    run.log.iter_mut().find(|event| is(event)).unwrap()
}

/// As if it had never been written: nobody has seen it, and later events close the gap.
fn forget(run: &mut Run, work: &str, kind: &str) {
    let gone = run.log.iter().position(|event| event.work.as_str() == work && event.kind == kind).unwrap();
    run.log.remove(gone);
}

fn forget_work(run: &mut Run, work: &str) {
    run.log.retain(|event| event.work.as_str() != work);
    run.works.retain(|row| row.id.as_str() != work);
}

/// One more event at the end of a work's log.
fn append(run: &mut Run, work: &str, fields: Value) {
    let last = run.log.iter().rfind(|event| event.work.as_str() == work).unwrap();
    let mut event = serde_json::to_value(last).unwrap();
    event["seq"] = json!(last.seq + 1);
    event["prev_hash"] = json!(last.hash);
    event["hash"] = json!(format!("{work}-{}", last.seq + 1));
    event["position"] = json!(format!("p{:04}", run.log.len()));
    event.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    run.log.push(serde_json::from_value(event).unwrap());
}
