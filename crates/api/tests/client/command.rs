//! Side effects of a handler: dispatched, executed once, and reported however they end.

use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use serde_json::{Value, json};
use tenure_api::{
    Client, Error,
    wire::{CallFailure, Command, ErrorClass, Failure, Intent},
    worker::{self, Evidence, Fate, Job, Options, Outcome, Trouble},
};

use crate::fake::{Answer, Asked, Fake, ack, problem, work};

fn command(state: &str, more: Value) -> Value {
    let mut command = json!({
        "id": "c_1", "work": "w_1", "tenant": "default", "tool": "mail", "target": "bob", "kind": "message",
        "executor": "worker", "risk": "low", "idempotency": "native", "state": state, "command_key": "k",
        "input_hash": "h", "idempotency_key": "tenure-1", "seal": "s", "attempt": 1,
        "decision": { "policy_version": "p", "effect": "allow" },
        "submitter": { "type": "worker", "id": "w" }, "created_at": "2026-01-31T08:15:00.000Z",
        "updated_at": "2026-01-31T08:15:00.000Z"
    });
    command.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    command
}

/// Grants one work item, and responds to command requests by this script.
fn serving(mut script: impl FnMut(&Asked) -> Answer + Send + 'static) -> Fake {
    let mut granted = false;
    Fake::new(move |asked| match asked.path.as_str() {
        path if path.contains("/commands") => script(asked),
        "/v1/work/claim" if asked.body["kinds"][0] == "nothing: draining" => {
            Answer::Json(200, json!({ "leases": [] }))
        }
        "/v1/work/claim" if granted => Answer::Silence,
        "/v1/work/claim" => {
            granted = true;
            let grant = json!({
                "work": work("w_1", "rerunnable"), "input": 1, "fence": 7, "token": "t",
                "expires_at": "2026-01-31T08:15:45.000Z", "renew_ms": 15000, "ttl_ms": 45000
            });
            Answer::Json(200, json!({ "leases": [grant] }))
        }
        "/v1/work/renew" => Answer::Json(200, json!({ "leases": [] })),
        _ => ack("succeeded"),
    })
}

/// Reserves and dispatches, and accepts every report.
fn obliging(asked: &Asked) -> Answer {
    let state = match asked.path.rsplit('/').next().unwrap() {
        "commands" => "pending",
        "dispatch" => "dispatched",
        "receipt" => "succeeded",
        "fail" => "failed",
        _ => "uncertain",
    };
    let by = json!({ "type": "worker", "id": "w" });
    let dispatch = json!({ "number": 3, "at": "2026-01-31T08:15:00.000Z", "fence": 7, "by": by });
    Answer::Json(200, command(state, json!({ "dispatch": dispatch })))
}

fn mail() -> Intent {
    Intent::new("mail", "bob", json!({}))
}

/// A refused dispatch, with the command as it is then.
fn not_dispatched(code: &str, command: Value) -> Answer {
    let Answer::Json(status, mut body) = problem(409, code, json!(null)) else { unreachable!() };
    body["command"] = command;
    Answer::Json(status, body)
}

fn options() -> Options {
    Options::new("worker-1")
}

async fn handle<F>(fake: &Fake, handler: impl Fn(Job) -> F + Send + Sync + 'static, until: &str)
where
    F: Future<Output = Outcome> + Send + 'static,
{
    let client: Client = fake.client();
    worker::run(client, options(), handler, fake.until(until, 1)).await;
}

fn ended(fate: Result<Fate, Error>) -> Outcome {
    match fate.map(Fate::or_end) {
        Ok(Ok(command)) => Outcome::Ok(json!(command.receipt.and_then(|receipt| receipt.external_id))),
        Ok(Err(outcome)) => outcome,
        Err(error) => Outcome::Err(Failure::new(ErrorClass::Unknown, error.to_string())),
    }
}

#[tokio::test(start_paused = true)]
async fn an_effect_is_recorded_dispatched_done_and_reported() {
    let fake = serving(obliging);
    let handler = |job: Job| async move {
        let mail = Intent {
            step: Some("s".to_owned()),
            slot: Some("1".to_owned()),
            ..Intent::new("mail", "bob", json!({ "text": "hi" }))
        };
        let call = async |command: Command| Ok(Evidence::id(format!("for {}", command.idempotency_key)));
        ended(job.command(mail, call).await)
    };
    handle(&fake, handler, "/close-out").await;
    let reserved = &fake.asked("/w_1/commands")[0].body;
    assert_eq!(
        *reserved,
        json!({ "fence": 7, "token": "t", "tool": "mail", "target": "bob", "step": "s", "slot": "1",
            "arguments": { "text": "hi" } })
    );
    assert!(fake.asked("/dispatch")[0].body["request_id"].is_string());
    let receipt = &fake.asked("/receipt")[0].body;
    assert_eq!(
        (&receipt["external_id"], &receipt["fence"], &receipt["dispatch"], &receipt["evidence"]["kind"]),
        (&json!("for tenure-1"), &json!(7), &json!(3), &json!("provider"))
    );
}

#[tokio::test(start_paused = true)]
async fn lost_responses_are_retried_and_the_call_is_made_once() {
    let mut lost = 0;
    let fake = serving(move |asked| {
        let cut = asked.path.ends_with("/dispatch") || asked.path.ends_with("/receipt");
        lost += usize::from(cut);
        // More often than one call retries automatically: a receipt is sent until it is confirmed.
        if cut && ![3, 12].contains(&lost) { Answer::Lost } else { obliging(asked) }
    });
    let calls = Arc::new(AtomicUsize::new(0));
    let count = calls.clone();
    let handler = move |job: Job| {
        let count = count.clone();
        async move {
            let run = job.command(mail(), async |_| {
                count.fetch_add(1, Ordering::Relaxed);
                Ok(Evidence::id("m-1"))
            });
            ended(run.await)
        }
    };
    handle(&fake, handler, "/close-out").await;
    let asked = fake.asked("/dispatch");
    assert_eq!(asked.len(), 3);
    assert!(asked.iter().all(|one| one.body == asked[0].body));
    assert_eq!((fake.asked("/receipt").len(), calls.load(Ordering::Relaxed)), (9, 1));
}

#[tokio::test(start_paused = true)]
async fn known_outcomes_are_reported_and_unknown_ones_are_uncertain() {
    for (trouble, path, said) in [
        (Trouble::Refused as fn(_) -> _, "/fail", json!(null)),
        (Trouble::Unsent, "/fail", json!(true)),
        (Trouble::Unknown, "/uncertain", json!(null)),
    ] {
        let fake = serving(obliging);
        let handler = move |job: Job| async move {
            let error = CallFailure::new(ErrorClass::Auth, "no");
            ended(job.command(mail(), async |_| Err(trouble(error))).await)
        };
        handle(&fake, handler, "/w_1/fail").await;
        let told = &fake.asked(&format!("/c_1{path}"))[0].body;
        assert_eq!((&told["error"]["class"], &told["unsent"]), (&json!("auth"), &said), "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_cut_off_is_in_doubt() {
    let panics = |job: Job| async move { ended(job.command(mail(), async |_| panic!("oh")).await) };
    let fake = serving(obliging);
    handle(&fake, panics, "/uncertain").await;
    assert_eq!(fake.asked("/uncertain")[0].body["error"]["message"], "its call panicked");
    // No renewal is confirmed, so the handler is stopped in the middle of its call.
    let hangs = |job: Job| async move { ended(job.command(mail(), async |_| pending().await).await) };
    let fake = serving(obliging);
    handle(&fake, hangs, "/uncertain").await;
    assert_eq!(fake.asked("/uncertain")[0].body["error"]["message"], "its call was cut off");
    assert!(fake.asked("/receipt").is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_blocked_effect_is_not_done_and_its_handler_waits() {
    let reason = json!({ "reason": { "code": "approval_required", "message": "ask ana" } });
    let fake = serving(move |asked| match asked.path.ends_with("/dispatch") {
        true => not_dispatched("approval_required", command("blocked", reason.clone())),
        false => Answer::Json(200, command("blocked", reason.clone())),
    });
    let handler =
        |job: Job| async move { ended(job.command(mail(), async |_| unreachable!("nobody approved")).await) };
    handle(&fake, handler, "/wait").await;
    let wait = &fake.asked("/wait")[0].body;
    assert_eq!(
        (&wait["waits"][0]["kind"], &wait["waits"][0]["ref"]),
        (&json!("approval"), &json!("command:c_1"))
    );
    assert_eq!(wait["reason"], json!({ "tool": "mail", "message": "ask ana" }));
    assert_eq!(fake.asked("/dispatch").len(), 1, "the ledger decides whether it is sent");

    for (code, class) in [("policy_denied", "policy_denied"), ("budget", "quota")] {
        let blocked = command("blocked", json!({ "attempt": 0, "reason": { "code": code } }));
        let fake = serving(move |asked| match asked.path.ends_with("/dispatch") {
            true => not_dispatched(code, blocked.clone()),
            false => Answer::Json(200, blocked.clone()),
        });
        let handler = |job: Job| async move {
            ended(job.command(mail(), async |_| unreachable!("it is blocked")).await)
        };
        handle(&fake, handler, "/w_1/fail").await;
        assert_eq!(fake.asked("/w_1/fail")[0].body["error"]["class"], class);
        assert_eq!(fake.asked("/dispatch").len(), 1, "a command of an earlier attempt is dispatched again");
    }
}

#[tokio::test(start_paused = true)]
async fn an_effect_that_happened_or_is_in_doubt_is_not_repeated() {
    let receipt = json!({ "receipt": { "at": "2026-01-31T08:15:00.000Z", "evidence": { "kind": "provider" },
        "external_id": "m-1" } });
    let fake = serving(move |_| Answer::Json(200, command("succeeded", receipt.clone())));
    let handler =
        |job: Job| async move { ended(job.command(mail(), async |_| unreachable!("it happened")).await) };
    handle(&fake, handler, "/close-out").await;
    assert_eq!(fake.asked("/close-out")[0].body["result"], "m-1");
    assert!(fake.asked("/dispatch").is_empty());
    for (code, state, told) in [
        ("in_doubt", "uncertain", "in doubt"),
        ("not_due", "pending", "later"),
        ("illegal_state", "failed", "did not happen"),
        ("superseded", "cancelled", "did not happen"),
    ] {
        let fake = serving(move |asked| match asked.path.ends_with("/dispatch") {
            true => not_dispatched(code, command(state, json!({}))),
            false => Answer::Json(200, command("pending", json!({}))),
        });
        let handler =
            |job: Job| async move { ended(job.command(mail(), async |_| unreachable!("not now")).await) };
        handle(&fake, handler, "/w_1/fail").await;
        let message = fake.asked("/w_1/fail")[0].body["error"]["message"].as_str().unwrap().to_owned();
        assert!(message.contains(told), "{message}");
    }
}
