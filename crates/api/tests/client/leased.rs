//! A leased work item in a program's own loop: its lease is renewed while the handle lives, and no longer.

use std::time::Duration;

use crate::fake::{Answer, Asked, Fake, RENEW, TTL, ack, grant, problem, renewed, work};
use serde_json::{Value, json};
use tenure_api::{
    Error,
    wire::{
        AcceptStrength, Code, Disposition, End, ErrorClass, Failure, Ingest, Intent, NewWait, Source, State,
        WaitKind,
    },
    worker::{Attempt, ClaimOptions, Fate, LeasedWork, Outcome},
};
use tokio::time::{Instant, advance};

/// Grants this at each claim, and renews and accepts everything, unless the script says otherwise.
fn server(mut script: impl FnMut(&Asked) -> Option<Answer> + Send + 'static) -> Fake {
    Fake::new(move |asked| {
        if let Some(answer) = script(asked) {
            return answer;
        }
        match asked.path.as_str() {
            "/v1/work/claim" => Answer::Json(200, json!({ "leases": [grant("w_1", "rerunnable")] })),
            "/v1/work/renew" => renewed(asked, false),
            _ => ack("succeeded"),
        }
    })
}

async fn hold(fake: &Fake) -> LeasedWork {
    fake.client().holder("bridge").claim(ClaimOptions::default()).await.unwrap().unwrap()
}

fn lost(asked: &Asked) -> Answer {
    let Answer::Json(_, problem) = problem(409, "lease_lost", json!(false)) else { unreachable!() };
    match asked.path.as_str() {
        "/v1/work/renew" => Answer::Json(200, json!({ "leases": [{ "id": "w_1", "problem": problem }] })),
        _ => Answer::Json(409, problem),
    }
}

/// Lets time pass, and everything that becomes due happen.
async fn pass(time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        advance(Duration::from_secs(1)).await;
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
    }
}

#[track_caller]
fn is_lost<T: std::fmt::Debug>(verb: Result<T, Error>) {
    assert_eq!(verb.unwrap_err().code(), Some(Code::LeaseLost));
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_renewed_until_the_attempt_ends() {
    let fake = server(|_| None);
    let mut leased = hold(&fake).await;
    leased.note(&json!({ "asking": "the restaurant" })).unwrap();
    fake.until("/renew", 3).await;
    let renewals = fake.asked("/renew");
    assert_eq!(renewals[0].at - fake.asked("/claim")[0].at, RENEW);
    assert_eq!(renewals[1].at - renewals[0].at, RENEW);
    let lease = |n: usize| renewals[n].body["leases"][0].clone();
    let note = json!({ "asking": "the restaurant" });
    assert_eq!(lease(0), json!({ "id": "w_1", "fence": 7, "token": "t", "progress": note }));
    assert_eq!(lease(1), json!({ "id": "w_1", "fence": 7, "token": "t" }), "each note is sent once");

    assert_eq!(leased.input::<Value>().unwrap(), json!({ "n": 1 }));
    assert_eq!(leased.succeed(&12).await.unwrap().state, State::Succeeded);
    let close = json!({ "fence": 7, "token": "t", "state": "succeeded", "result": 12 });
    assert_eq!(fake.asked("/close-out")[0].body, close);
    let before = fake.asked("/renew").len();
    pass(10 * TTL).await;
    assert_eq!(fake.asked("/renew").len(), before, "an ended attempt has no lease");
}

#[tokio::test(start_paused = true)]
async fn a_dropped_handle_stops_renewing() {
    let fake = server(|_| None);
    let leased = hold(&fake).await;
    fake.until("/renew", 2).await;
    drop(leased);
    pass(10 * TTL).await;
    assert_eq!(fake.asked("/renew").len(), 2);
    assert!(fake.asked("/release").is_empty(), "it is not released: it may have had effects");
}

#[tokio::test(start_paused = true)]
async fn a_lost_lease_stops_the_renewals_and_every_verb_says_so() {
    let fake = server(|asked| (asked.path != "/v1/work/claim").then(|| lost(asked)));
    let mut leased = hold(&fake).await;
    leased.cancelled().await;
    assert!(leased.is_lost());
    is_lost(leased.note(&1));
    is_lost(leased.progress(&1).await);
    is_lost(leased.accept(AcceptStrength::Strong).await);
    is_lost(leased.step::<i32, Error, _>("draft", &1, || async { Ok(1) }).await);
    is_lost(
        leased
            .command(Intent::new("send_email", "bob@example.com", json!({})), |_| async { unreachable!() })
            .await
            .map(|_: Fate| ()),
    );
    is_lost(leased.wait([NewWait::new(WaitKind::User, "colour")]).await);
    is_lost(leased.fail(Failure::new(ErrorClass::Transport, "cut")).await);
    is_lost(leased.release("later").await);
    is_lost(leased.close_out(End::new(State::Failed)).await);
    is_lost(leased.succeed(&1).await);
    is_lost(leased.finish(Outcome::Stopped).await);
    pass(10 * TTL).await;
    assert_eq!(fake.asked("/renew").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_loop_without_confirmed_renewals_is_asked_to_stop() {
    let fake = server(|asked| (asked.path == "/v1/work/renew").then_some(Answer::Silence));
    let mut leased = hold(&fake).await;
    leased.cancelled().await;
    assert_eq!(Instant::now() - fake.asked("/claim")[0].at, TTL, "counted from when the claim was sent");
    assert!(!leased.is_lost(), "the ledger has not refused a renewal");
    assert!(fake.asked("/renew").len() > 2, "it kept trying");
    leased.release("no answer").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_cancel_reaches_the_loop_and_is_acknowledged() {
    let fake = server(|asked| (asked.path == "/v1/work/renew").then(|| renewed(asked, true)));
    let mut leased = hold(&fake).await;
    leased.cancelled().await;
    leased.finish(Outcome::Stopped).await.unwrap();
    assert_eq!(fake.asked("/close-out")[0].body["state"], "cancelled");
}

#[tokio::test(start_paused = true)]
async fn a_refused_end_leaves_the_lease() {
    let mut open = true;
    let fake = server(move |asked| {
        let first = asked.path.ends_with("/close-out") && std::mem::take(&mut open);
        first.then(|| problem(409, "commands_open", json!(false)))
    });
    let mut leased = hold(&fake).await;
    assert_eq!(leased.succeed(&1).await.unwrap_err().code(), Some(Code::CommandsOpen));
    fake.until("/renew", 1).await;
    leased.succeed(&1).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_already_answered_wait_keeps_the_lease() {
    let fake = server(|asked| {
        let answer = json!({
            "id": "wt_1", "work": "w_1", "tenant": "default", "ref": "colour", "kind": "user", "answer": "blue",
            "state": "answered", "opened_at": "2026-01-31T08:15:00.000Z", "on_timeout": "time_out"
        });
        let going = json!({ "work": { "id": "w_1", "state": "running", "seq": 4 }, "answers": [answer] });
        asked.path.ends_with("/wait").then_some(Answer::Json(200, going))
    });
    let mut leased = hold(&fake).await;
    assert_eq!(leased.answer::<String>("colour").unwrap(), None);
    let attempt = leased.wait([NewWait::new(WaitKind::User, "colour")]).await.unwrap();
    assert!(matches!(attempt, Attempt::GoesOn(_)), "{attempt:?}");
    assert_eq!(leased.answer::<String>("colour").unwrap().as_deref(), Some("blue"));
    assert!(matches!(leased.answer::<u32>("colour").unwrap_err(), Error::Json { .. }));
    fake.until("/renew", 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_work_is_recorded_and_claimed_in_the_same_call() {
    let mut times = 0;
    let fake = server(move |asked| {
        times += u32::from(asked.path == "/v1/work");
        let mut answer = json!({ "work": work("w_1", "rerunnable"), "created": times == 1 });
        if times == 1 {
            answer["lease"] = grant("w_1", "rerunnable");
        }
        (asked.path == "/v1/work").then_some(Answer::Json(200, answer))
    });
    let holder = fake.client().holder("bridge");
    let message =
        Ingest::typed(Source::conversation("msg-77"), "chat", Disposition::Rerunnable, &"hello").unwrap();
    let first = holder.ingest(message.clone()).await.unwrap();
    assert!(first.created && first.leased.is_some());
    let second = holder.ingest(message).await.unwrap();
    assert!(!second.created && second.leased.is_none());
    let asked = &fake.asked("/v1/work")[0].body;
    assert_eq!((&asked["input"], &asked["claim"]["worker"]["id"]), (&json!("hello"), &json!("bridge")));
    assert_eq!(asked["source"], json!({ "system": "conversation", "id": "msg-77" }));
}
