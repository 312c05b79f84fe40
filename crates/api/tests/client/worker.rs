//! The worker loop: claims, renewals, stopped handlers, deliveries and drains.

use std::{collections::VecDeque, future::pending, time::Duration};

use crate::fake::{Answer, Asked, Fake, RENEW, TTL, ack, grant, problem, renewed};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tenure_api::{
    Error,
    wire::{DrainReport, ErrorClass, Failure, Lever, Liveness, NewWait, Usage, WaitKind},
    worker::{self, Job, Options, Outcome},
};
use tokio::{sync::mpsc, time::Instant};

fn options() -> Options {
    Options { incarnation: "boot".into(), liveness: Liveness::Opaque, ..Options::new("worker-1") }
}

/// A server that grants these, one list for each claim, renews everything, and accepts every end.
fn granting(grants: impl IntoIterator<Item = Value>) -> impl FnMut(&Asked) -> Answer {
    let mut grants: VecDeque<Value> = grants.into_iter().collect();
    move |asked| match asked.path.as_str() {
        // A drain repeats its last claim with this kind to get its leases: here there are none.
        "/v1/work/claim" if asked.body["kinds"][0] == "nothing: draining" => {
            Answer::Json(200, json!({ "leases": [] }))
        }
        "/v1/work/claim" => match grants.pop_front() {
            Some(grant) => Answer::Json(200, json!({ "leases": [grant] })),
            None => Answer::Silence,
        },
        "/v1/work/renew" => renewed(asked, false),
        _ => ack("succeeded"),
    }
}

/// Runs a worker until a path with this ending was requested.
async fn until_asked<H, F, O>(fake: &Fake, options: Options, handler: H, path: &str) -> DrainReport
where
    H: Fn(Job) -> F + Send + Sync + 'static,
    F: Future<Output = O> + Send + 'static,
    O: Into<Outcome> + 'static,
{
    worker::run(fake.client(), options, handler, fake.until(path, 1)).await
}

#[tokio::test(start_paused = true)]
async fn a_work_is_claimed_handled_and_closed_out() {
    let fake = Fake::new(granting([grant("w_1", "rerunnable")]));
    #[derive(Deserialize)]
    struct Input {
        n: i64,
    }
    #[derive(Serialize)]
    struct Doubled {
        twice: i64,
    }
    let handler = |job: Job| async move { Ok::<_, Error>(Doubled { twice: job.input::<Input>()?.n * 2 }) };
    worker::run(fake.client(), options(), handler, fake.until("/claim", 2)).await;
    let close = &fake.asked("/w_1/close-out")[0].body;
    assert_eq!(*close, json!({ "fence": 7, "token": "t", "state": "succeeded", "result": { "twice": 2 } }));
    let claims = fake.asked("/claim");
    assert_eq!(claims[0].body["max"], 1);
    assert_eq!(claims[0].body["worker"]["id"], "worker-1");
    assert_ne!(
        claims[0].body["request_id"], claims[1].body["request_id"],
        "an answered request is not repeated"
    );
}

#[tokio::test(start_paused = true)]
async fn it_claims_up_to_its_capacity_and_renews_in_one_call() {
    let fake = Fake::new(granting([grant("w_1", "rerunnable"), grant("w_2", "rerunnable")]));
    let options = Options { capacity: 2, ..options() };
    until_asked(&fake, options, |_| pending::<Outcome>(), "/renew").await;
    let claims = fake.asked("/claim");
    assert_eq!(claims[0].body["max"], 2);
    assert_eq!(claims[1].body["max"], 1);
    assert_eq!(claims.len(), 2, "its capacity is used");
    let renewals = fake.asked("/renew");
    assert_eq!(renewals[0].at - claims[0].at, RENEW);
    assert_eq!(renewals[0].body["leases"].as_array().unwrap().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_handler_is_stopped_when_no_renewal_was_confirmed_in_time() {
    struct Stopped(mpsc::UnboundedSender<Instant>);
    impl Drop for Stopped {
        fn drop(&mut self) {
            let _ = self.0.send(Instant::now());
        }
    }
    let mut once = granting([grant("w_1", "rerunnable")]);
    let mut renewals = 0;
    let fake = Fake::new(move |asked| match asked.path.as_str() {
        "/v1/work/renew" => {
            renewals += 1;
            if renewals == 1 { renewed(asked, false) } else { Answer::Silence }
        }
        _ => once(asked),
    });
    let (sender, mut stopped) = mpsc::unbounded_channel();
    let handler = move |_: Job| {
        let guard = Stopped(sender.clone());
        async move {
            let _guard = guard;
            pending::<Outcome>().await
        }
    };
    let mut at = None;
    worker::run(fake.client(), options(), handler, async { at = stopped.recv().await }).await;
    let stopped = at.unwrap();
    let renewals = fake.asked("/renew");
    assert_eq!(stopped - renewals[0].at, TTL, "counted from when the confirmed renewal was sent");
    assert!(renewals.len() > 2, "it kept trying");
    assert!(
        fake.asked("/close-out").is_empty() && fake.asked("/release").is_empty(),
        "another worker may hold it now"
    );
}

#[tokio::test(start_paused = true)]
async fn a_cancel_request_reaches_the_handler() {
    let mut life = granting([grant("w_1", "rerunnable")]);
    let fake = Fake::new(move |asked| match asked.path.as_str() {
        "/v1/work/renew" => renewed(asked, true),
        _ => life(asked),
    });
    let handler = |job: Job| async move {
        job.cancelled().await;
        Outcome::Stopped
    };
    until_asked(&fake, options(), handler, "/w_1/close-out").await;
    assert_eq!(fake.asked("/w_1/close-out")[0].body["state"], "cancelled");
}

#[tokio::test(start_paused = true)]
async fn failures_and_panics_are_reported_with_their_class() {
    let fake = Fake::new(granting([grant("w_1", "rerunnable"), grant("w_2", "rerunnable")]));
    let handler = |job: Job| async move {
        assert_eq!(job.id().as_str(), "w_1", "odd input");
        Outcome::Err(Failure::new(ErrorClass::RateLimited, "slow down"))
    };
    until_asked(&fake, options(), handler, "/w_2/fail").await;
    assert_eq!(fake.asked("/w_1/fail")[0].body["error"]["class"], "rate_limited");
    let panic = &fake.asked("/w_2/fail")[0].body["error"];
    assert_eq!(panic["class"], "unknown");
    assert!(panic["message"].as_str().unwrap().contains("odd input"), "{panic}");
}

#[tokio::test(start_paused = true)]
async fn an_early_answer_reruns_the_handler_at_once() {
    let mut life = granting([grant("w_1", "rerunnable")]);
    let fake = Fake::new(move |asked| match asked.path.as_str() {
        "/v1/work/w_1/wait" => Answer::Json(
            200,
            json!({
                "work": { "id": "w_1", "state": "running", "seq": 4 },
                "answers": [{
                    "id": "wt_1", "work": "w_1", "tenant": "default", "ref": "colour", "kind": "user",
                    "state": "answered", "opened_at": "2026-01-31T08:15:00.000Z", "on_timeout": "time_out",
                    "answer": "blue"
                }]
            }),
        ),
        _ => life(asked),
    });
    let handler = |job: Job| async move {
        job.used(&Usage { model: Some("m".to_owned()), calls: 1, ..Usage::default() });
        match job.answer::<String>("colour")? {
            Some(colour) => Ok(colour),
            None => Err(Outcome::wait(NewWait::new(WaitKind::User, "colour"))),
        }
    };
    until_asked(&fake, options(), handler, "/w_1/close-out").await;
    assert_eq!(fake.asked("/w_1/wait").len(), 1);
    let close = &fake.asked("/w_1/close-out")[0].body;
    assert_eq!(close["result"], "blue");
    let used = |calls: u64| json!([{ "model": "m", "calls": calls }]);
    assert_eq!(fake.asked("/w_1/wait")[0].body["usage"], used(1));
    assert_eq!(close["usage"], used(2), "the usage is reported once, at the end of the lease");
}

#[tokio::test(start_paused = true)]
async fn an_input_of_the_wrong_type_fails_without_a_retry() {
    let fake = Fake::new(granting([grant("w_1", "rerunnable")]));
    let handler = |job: Job| async move { job.input::<Vec<u8>>() };
    until_asked(&fake, options(), handler, "/w_1/fail").await;
    let error = &fake.asked("/w_1/fail")[0].body["error"];
    assert_eq!(error["class"], "validation");
    assert!(error["message"].as_str().unwrap().contains("the input of w_1"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_refused_renewal_stops_the_handler_and_reports_nothing() {
    let mut life = granting([grant("w_1", "rerunnable"), grant("w_2", "rerunnable")]);
    let fake = Fake::new(move |asked| match asked.path.as_str() {
        "/v1/work/renew" => {
            let Answer::Json(_, lost) = problem(409, "lease_lost", json!(false)) else { unreachable!() };
            Answer::Json(200, json!({ "leases": [{ "id": "w_1", "problem": lost }] }))
        }
        _ => life(asked),
    });
    let handler = |job: Job| async move {
        if job.id().as_str() == "w_1" { pending().await } else { Outcome::Ok(json!(null)) }
    };
    until_asked(&fake, options(), handler, "/w_2/close-out").await;
    assert!(fake.asked("/w_1/close-out").is_empty() && fake.asked("/w_1/release").is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_outcome_is_retried_while_the_lease_is_renewed() {
    let mut life = granting([grant("w_1", "rerunnable")]);
    let mut tries = 0;
    let fake = Fake::new(move |asked| match asked.path.as_str() {
        "/v1/work/w_1/close-out" => {
            tries += 1;
            if tries < 60 { problem(503, "unavailable", json!(true)) } else { ack("succeeded") }
        }
        _ => life(asked),
    });
    let stop = fake.until("/close-out", 60);
    let report = worker::run(fake.client(), options(), |_| async { Outcome::Ok(json!(1)) }, stop).await;
    assert!(report.deferred.is_empty(), "{report:?}");
    assert!(!fake.asked("/renew").is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_slow_grant_is_confirmed_before_its_handler_starts() {
    let mut quick = grant("w_1", "rerunnable");
    quick["ttl_ms"] = json!(300);
    quick["renew_ms"] = json!(100);
    let mut life = granting([quick]);
    // The claim is retried automatically, and counts from when it was first sent.
    let mut lost = 3;
    let fake = Fake::new(move |asked| {
        if asked.path == "/v1/work/claim" && lost > 0 {
            lost -= 1;
            return Answer::Lost;
        }
        life(asked)
    });
    until_asked(&fake, options(), |_| async { Outcome::Ok(json!(1)) }, "/close-out").await;
    let (renewal, close) = (&fake.asked("/renew")[0], &fake.asked("/close-out")[0]);
    assert!(renewal.at <= close.at, "renewed first");
}

#[tokio::test(start_paused = true)]
async fn a_drain_reports_confirmed_and_deferred_actions() {
    let mut life =
        granting([grant("w_1", "rerunnable"), grant("w_2", "owner_bound"), grant("w_3", "rerunnable")]);
    let fake = Fake::new(move |asked| match asked.path.as_str() {
        "/v1/work/claim" if asked.body["kinds"][0] == "nothing: draining" => {
            Answer::Json(200, json!({ "leases": [grant("w_4", "rerunnable")] }))
        }
        "/v1/work/w_1/release" => Answer::Silence,
        _ => life(asked),
    });
    let handler = |job: Job| async move {
        if job.id().as_str() != "w_3" {
            return pending().await;
        }
        job.cancelled().await;
        Outcome::Stopped
    };
    let stop = fake.until("/claim", 4);
    let begun = Instant::now();
    let options = Options { capacity: 4, ..options() };
    let report = worker::run(fake.client(), options, handler, stop).await;
    assert_eq!(begun.elapsed(), Duration::from_secs(25), "no longer than its deadline");

    let done = |lever: Lever, id: &str| {
        report.confirmed.iter().any(|it| it.lever == lever && it.work == Some(id.into()))
    };
    let not = |lever: Lever, id: &str| {
        report.deferred.iter().any(|it| it.lever == lever && it.work == Some(id.into()))
    };
    assert!(report.confirmed.iter().any(|it| it.lever == Lever::StopClaiming));
    assert!(done(Lever::Release, "w_4"), "leases of the last claim are released: {report:?}");
    assert!(done(Lever::RequestCancel, "w_3") && !fake.asked("/w_3/release").is_empty());
    assert!(not(Lever::RequestCancel, "w_1") && not(Lever::Release, "w_1"), "{report:?}");
    assert!(done(Lever::Abandon, "w_2"), "{report:?}");
    assert_eq!(fake.asked("/w_2/close-out")[0].body["state"], "abandoned");
    assert_eq!(fake.asked("/claim").len(), 5, "nothing new is claimed");
}

#[tokio::test(start_paused = true)]
async fn a_drain_reports_a_refusal_as_deferred() {
    let mut life = granting([grant("w_1", "rerunnable")]);
    let fake = Fake::new(move |asked| match asked.path.as_str() {
        "/v1/work/w_1/release" => problem(409, "lease_lost", json!(false)),
        _ => life(asked),
    });
    let report =
        worker::run(fake.client(), options(), |_| pending::<Outcome>(), fake.until("/renew", 1)).await;
    let release = report.deferred.iter().find(|it| it.lever == Lever::Release);
    assert!(release.is_some_and(|it| it.because.contains("lease_lost")), "{report:?}");
}

#[tokio::test(start_paused = true)]
async fn a_drain_without_a_server_still_stops_handlers_in_time() {
    let mut life = granting([grant("w_1", "rerunnable")]);
    let mut up = true;
    let fake = Fake::new(move |asked| {
        up &= asked.body["kinds"][0] != "nothing: draining";
        if up { life(asked) } else { Answer::Silence }
    });
    let begun = Instant::now();
    let options = Options { capacity: 2, drain_within: Duration::from_secs(300), ..options() };
    let options = Options { stop_within: Duration::from_secs(200), ..options };
    let report = worker::run(fake.client(), options, |_| pending::<Outcome>(), fake.until("/claim", 2)).await;
    assert!(begun.elapsed() < Duration::from_secs(300), "{:?}", begun.elapsed());
    assert!(report.deferred.iter().any(|it| it.lever == Lever::StopClaiming), "{report:?}");
    assert!(
        fake.asked("/w_1/release").is_empty(),
        "it was stopped by the worker's own clock, and is not reported"
    );
}

#[tokio::test(start_paused = true)]
async fn progress_never_makes_a_renewal_too_large() {
    let fake = Fake::new(granting([grant("w_1", "rerunnable"), grant("w_2", "rerunnable")]));
    let handler = |job: Job| async move {
        job.note(&"x".repeat(200 * 1024)).unwrap();
        pending::<Outcome>().await
    };
    let options = Options { capacity: 2, ..options() };
    worker::run(fake.client(), options, handler, fake.until("/renew", 2)).await;
    let noted = |n: usize| {
        let leases = fake.asked("/renew")[n].body["leases"].as_array().unwrap().clone();
        leases.iter().filter(|lease| lease.get("progress").is_some()).count()
    };
    assert_eq!((noted(0), noted(1)), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_checkpoint_is_not_made_twice() {
    let mut life = granting([grant("w_1", "rerunnable")]);
    let fake = Fake::new(move |asked| match asked.path.as_str() {
        "/v1/work/w_1/steps/draft%20it" => {
            let step = json!({
                "name": "draft it", "ordinal": 1, "input_hash": "0", "begun_at": "2026-01-31T08:15:00.000Z",
                "result": "stored"
            });
            Answer::Json(200, json!({ "step": step, "reused": true }))
        }
        _ => life(asked),
    });
    let handler = |job: Job| async move {
        job.step::<String, Error, _>("draft it", &1, || async { panic!("made twice") }).await
    };
    until_asked(&fake, options(), handler, "/w_1/close-out").await;
    assert_eq!(fake.asked("/w_1/close-out")[0].body["result"], "stored");
}
