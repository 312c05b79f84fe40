//! A work held by a loop of the program's own: it is renewed while it is held, and no longer.

use std::time::Duration;

use crate::fake::{Answer, Asked, Fake, RENEW, TTL, ack, grant, problem, renewed, work};
use serde_json::{Value, json};
use tenure_api::{
    Error,
    wire::{
        AcceptStrength, Code, Disposition, End, ErrorClass, Failure, Ingest, Intent, NewWait, Source, State,
        WaitKind,
    },
    worker::{Attempt, ClaimOptions, Fate, Held, Outcome},
};
use tokio::time::{Instant, advance};

/// Grants this at each claim, and renews and takes everything, unless the script says otherwise.
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

async fn hold(fake: &Fake) -> Held {
    fake.client().holder("bridge").claim(ClaimOptions::default()).await.unwrap().unwrap()
}

fn lost(asked: &Asked) -> Answer {
    let Answer::Json(_, problem) = problem(409, "lease_lost", json!(false)) else { unreachable!() };
    match asked.path.as_str() {
        "/v1/work/renew" => Answer::Json(200, json!({ "leases": [{ "id": "w_1", "problem": problem }] })),
        _ => Answer::Json(409, problem),
    }
}

/// Time passes, and everything that is due in it happens.
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
async fn it_is_renewed_by_itself_until_it_ends() {
    let fake = server(|_| None);
    let mut held = hold(&fake).await;
    held.note(&json!({ "asking": "the restaurant" })).unwrap();
    fake.until("/renew", 3).await;
    let renewals = fake.asked("/renew");
    assert_eq!(renewals[0].at - fake.asked("/claim")[0].at, RENEW);
    assert_eq!(renewals[1].at - renewals[0].at, RENEW);
    let lease = |n: usize| renewals[n].body["leases"][0].clone();
    let note = json!({ "asking": "the restaurant" });
    assert_eq!(lease(0), json!({ "id": "w_1", "fence": 7, "token": "t", "progress": note }));
    assert_eq!(lease(1), json!({ "id": "w_1", "fence": 7, "token": "t" }), "each note once");

    assert_eq!(held.input::<Value>().unwrap(), json!({ "n": 1 }));
    assert_eq!(held.succeed(&12).await.unwrap().state, State::Succeeded);
    let close = json!({ "fence": 7, "token": "t", "state": "succeeded", "result": 12 });
    assert_eq!(fake.asked("/close-out")[0].body, close);
    let before = fake.asked("/renew").len();
    pass(10 * TTL).await;
    assert_eq!(fake.asked("/renew").len(), before, "an ended attempt has no lease");
}

#[tokio::test(start_paused = true)]
async fn dropped_it_is_renewed_no_longer() {
    let fake = server(|_| None);
    let held = hold(&fake).await;
    fake.until("/renew", 2).await;
    drop(held);
    pass(10 * TTL).await;
    assert_eq!(fake.asked("/renew").len(), 2);
    assert!(fake.asked("/release").is_empty(), "nothing is said of it: it may have had effects");
}

#[tokio::test(start_paused = true)]
async fn a_lost_lease_stops_the_renewals_and_every_verb_says_so() {
    let fake = server(|asked| (asked.path != "/v1/work/claim").then(|| lost(asked)));
    let mut held = hold(&fake).await;
    held.cancelled().await;
    assert!(held.is_lost());
    is_lost(held.note(&1));
    is_lost(held.progress(&1).await);
    is_lost(held.accept(AcceptStrength::Strong).await);
    is_lost(held.step::<i32, Error, _>("draft", &1, || async { Ok(1) }).await);
    is_lost(
        held.command(Intent::new("send_email", "bob@example.com", json!({})), |_| async { unreachable!() })
            .await
            .map(|_: Fate| ()),
    );
    is_lost(held.wait([NewWait::new(WaitKind::User, "colour")]).await);
    is_lost(held.fail(Failure::new(ErrorClass::Transport, "cut")).await);
    is_lost(held.release("later").await);
    is_lost(held.close_out(End::new(State::Failed)).await);
    is_lost(held.succeed(&1).await);
    is_lost(held.finish(Outcome::Stopped).await);
    pass(10 * TTL).await;
    assert_eq!(fake.asked("/renew").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn without_a_confirmed_renewal_it_is_asked_to_stop_and_the_ledger_decides() {
    let fake = server(|asked| (asked.path == "/v1/work/renew").then_some(Answer::Silence));
    let mut held = hold(&fake).await;
    held.cancelled().await;
    assert_eq!(Instant::now() - fake.asked("/claim")[0].at, TTL, "counted from when the claim was sent");
    assert!(!held.is_lost(), "nobody has said that somebody else holds it");
    assert!(fake.asked("/renew").len() > 2, "it went on trying");
    held.release("no answer").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_cancel_reaches_the_loop_and_is_acknowledged() {
    let fake = server(|asked| (asked.path == "/v1/work/renew").then(|| renewed(asked, true)));
    let mut held = hold(&fake).await;
    held.cancelled().await;
    held.finish(Outcome::Stopped).await.unwrap();
    assert_eq!(fake.asked("/close-out")[0].body["state"], "cancelled");
}

#[tokio::test(start_paused = true)]
async fn a_refused_end_leaves_the_lease() {
    let mut open = true;
    let fake = server(move |asked| {
        let first = asked.path.ends_with("/close-out") && std::mem::take(&mut open);
        first.then(|| problem(409, "commands_open", json!(false)))
    });
    let mut held = hold(&fake).await;
    assert_eq!(held.succeed(&1).await.unwrap_err().code(), Some(Code::CommandsOpen));
    fake.until("/renew", 1).await;
    held.succeed(&1).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_is_answered_already_goes_on_under_the_same_lease() {
    let fake = server(|asked| {
        let answer = json!({
            "id": "wt_1", "work": "w_1", "tenant": "default", "ref": "colour", "kind": "user", "answer": "blue",
            "state": "answered", "opened_at": "2026-01-31T08:15:00.000Z", "on_timeout": "time_out"
        });
        let going = json!({ "work": { "id": "w_1", "state": "running", "seq": 4 }, "answers": [answer] });
        asked.path.ends_with("/wait").then_some(Answer::Json(200, going))
    });
    let mut held = hold(&fake).await;
    assert_eq!(held.answer::<String>("colour").unwrap(), None);
    let attempt = held.wait([NewWait::new(WaitKind::User, "colour")]).await.unwrap();
    assert!(matches!(attempt, Attempt::GoesOn(_)), "{attempt:?}");
    assert_eq!(held.answer::<String>("colour").unwrap().as_deref(), Some("blue"));
    assert!(matches!(held.answer::<u32>("colour").unwrap_err(), Error::Json { .. }));
    fake.until("/renew", 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_work_is_recorded_and_held_in_the_same_act() {
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
    assert!(first.created && first.held.is_some());
    let second = holder.ingest(message).await.unwrap();
    assert!(!second.created && second.held.is_none());
    let asked = &fake.asked("/v1/work")[0].body;
    assert_eq!((&asked["input"], &asked["claim"]["worker"]["id"]), (&json!("hello"), &json!("bridge")));
    assert_eq!(asked["source"], json!({ "system": "conversation", "id": "msg-77" }));
}
