//! A held work on a real ledger: it stays held while its handle lives, and no longer.

use serde_json::json;
use tenure_embed::{
    prelude::*,
    wire::{AcceptStrength, Code, Quarantine},
};

use crate::bed::{LONG, Place, brief, on_both_databases};

async fn hold(tenure: &Tenure, id: &str) -> Held {
    tenure.holder("bridge").ingest(brief(id)).await.unwrap().held.unwrap()
}

#[track_caller]
fn is_lost<T: std::fmt::Debug>(verb: Result<T, Error>) {
    assert_eq!(verb.unwrap_err().code(), Some(Code::LeaseLost));
}

async fn it_outlives_many_leases(place: Place) {
    let tenure = Tenure::open(&place.db).await.unwrap();
    let mut held = hold(&tenure, "a").await;
    // Another work's start deadline is what passes meanwhile: longer than this one's lease and grace.
    let later = Ingest::typed(Source::manual("b"), "other", Disposition::Rerunnable, &1).unwrap();
    let timeouts = tenure_embed::wire::Timeouts { start_ms: Some(2_500), ..Default::default() };
    let policy = tenure_embed::wire::WorkPolicy { timeouts: Some(timeouts), ..Default::default() };
    let later = tenure.ingest(&Ingest { policy: Some(policy), ..later }).await.unwrap().work.id;
    let ended = tenure.work_at_end(&later, LONG).await.unwrap();
    assert_eq!(ended.state, State::TimedOut);

    let work = tenure.work(held.id()).await.unwrap();
    assert_eq!((work.state.known(), work.attempt), (Some(State::Running), 1));
    held.progress(&json!({ "done": 0.5 })).await.unwrap();
    assert_eq!(held.succeed(&"done").await.unwrap().state, State::Succeeded);
    tenure.close().await.unwrap();
}

async fn a_dropped_one_is_given_to_somebody_else(place: Place) {
    let tenure = Tenure::open(&place.db).await.unwrap();
    let first = hold(&tenure, "a").await;
    first.step::<_, Error, _>("think", &1, || async { Ok("thought".to_owned()) }).await.unwrap();
    drop(first);
    let waiting = ClaimOptions { wait: LONG, ..ClaimOptions::default() };
    let mut second = tenure.holder("another").claim(waiting).await.unwrap().unwrap();
    assert_eq!(second.grant.work.attempt, 2);
    let again = || async { panic!("it was thought before") };
    let thought = second.step::<String, Error, _>("think", &1, again).await.unwrap();
    second.succeed(&thought).await.unwrap();
    tenure.close().await.unwrap();
}

async fn a_lost_lease_refuses_every_verb(place: Place) {
    let tenure = Tenure::open(&place.db).await.unwrap();
    let mut held = hold(&tenure, "a").await;
    let id = held.id().clone();
    let aside = Quarantine { reason: "look at it first".to_owned(), if_seq: None };
    tenure.quarantine(&id, &aside).await.unwrap();
    held.cancelled().await;
    assert!(held.is_lost());
    is_lost(held.note(&1));
    is_lost(held.progress(&1).await);
    is_lost(held.accept(AcceptStrength::Strong).await);
    is_lost(held.step::<i32, Error, _>("draft", &1, || async { Ok(1) }).await);
    is_lost(held.command(Intent::new("mail", "bob", json!({})), |_| async { unreachable!() }).await);
    is_lost(held.wait([NewWait::new(WaitKind::User, "colour")]).await);
    is_lost(held.fail(Failure::new(ErrorClass::Transport, "cut")).await);
    is_lost(held.release("later").await);
    is_lost(held.close_out(End::new(State::Failed)).await);
    is_lost(held.succeed(&1).await);
    assert_eq!(tenure.work(&id).await.unwrap().state, State::Quarantined);
    tenure.close().await.unwrap();
}

async fn a_pause_holds_nobody_and_its_answer_comes_with_the_next_lease(place: Place) {
    let tenure = Tenure::open(&place.db).await.unwrap();
    let mut held = hold(&tenure, "a").await;
    let id = held.id().clone();
    let Attempt::Waiting(waiting) = held.wait([NewWait::new(WaitKind::User, "colour")]).await.unwrap() else {
        panic!("nobody has answered")
    };
    assert_eq!(waiting.work.state, State::WaitingUser);
    is_lost(held.progress(&1).await);
    let answer = tenure_embed::wire::ResolveWait {
        token: Some(waiting.waits[0].token.clone()),
        seal: None,
        payload: json!("blue"),
        claim: None,
    };
    tenure.resolve_wait(&waiting.waits[0].id, &answer).await.unwrap();
    let this = ClaimOptions { work: Some(id), ..ClaimOptions::default() };
    let mut held = tenure.holder("bridge").claim(this).await.unwrap().unwrap();
    assert_eq!(held.answer::<String>("colour").unwrap().as_deref(), Some("blue"));
    held.succeed(&"painted").await.unwrap();
    tenure.close().await.unwrap();
}

on_both_databases!(
    it_outlives_many_leases,
    a_dropped_one_is_given_to_somebody_else,
    a_lost_lease_refuses_every_verb,
    a_pause_holds_nobody_and_its_answer_comes_with_the_next_lease,
);
