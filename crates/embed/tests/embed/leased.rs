//! A leased work item on a real ledger: it stays leased while its handle lives, and no longer.

use serde_json::json;
use tenure_embed::{
    prelude::*,
    wire::{AcceptStrength, Code, Quarantine},
};

use crate::bed::{LONG, Place, brief, on_both_databases};

async fn hold(tenure: &Tenure, id: &str) -> LeasedWork {
    tenure.holder("bridge").ingest(brief(id)).await.unwrap().leased.unwrap()
}

#[track_caller]
fn is_lost<T: std::fmt::Debug>(verb: Result<T, Error>) {
    assert_eq!(verb.unwrap_err().code(), Some(Code::LeaseLost));
}

async fn a_held_work_is_renewed_over_many_leases(place: Place) {
    let tenure = Tenure::open(&place.db).await.unwrap();
    let mut leased = hold(&tenure, "a").await;
    // The start deadline of another work item is awaited, which is longer than this one's lease and grace.
    let later = Ingest::typed(Source::manual("b"), "other", Disposition::Rerunnable, &1).unwrap();
    let timeouts = tenure_embed::wire::Timeouts { start_ms: Some(2_500), ..Default::default() };
    let policy = tenure_embed::wire::WorkPolicy { timeouts: Some(timeouts), ..Default::default() };
    let later = tenure.ingest(&Ingest { policy: Some(policy), ..later }).await.unwrap().work.id;
    let ended = tenure.work_at_end(&later, LONG).await.unwrap();
    assert_eq!(ended.state, State::TimedOut);

    let work = tenure.work(leased.id()).await.unwrap();
    assert_eq!((work.state.known(), work.attempt), (Some(State::Running), 1));
    leased.progress(&json!({ "done": 0.5 })).await.unwrap();
    assert_eq!(leased.succeed(&"done").await.unwrap().state, State::Succeeded);
    tenure.close().await.unwrap();
}

async fn dropped_work_is_claimed_by_another_worker(place: Place) {
    let tenure = Tenure::open(&place.db).await.unwrap();
    let first = hold(&tenure, "a").await;
    first.step::<_, Error, _>("think", &1, || async { Ok("thought".to_owned()) }).await.unwrap();
    drop(first);
    let waiting = ClaimOptions { wait: LONG, ..ClaimOptions::default() };
    let mut second = tenure.holder("another").claim(waiting).await.unwrap().unwrap();
    assert_eq!(second.grant.work.attempt, 2);
    let again = || async { panic!("the checkpoint is reused") };
    let thought = second.step::<String, Error, _>("think", &1, again).await.unwrap();
    second.succeed(&thought).await.unwrap();
    tenure.close().await.unwrap();
}

async fn a_lost_lease_refuses_every_verb(place: Place) {
    let tenure = Tenure::open(&place.db).await.unwrap();
    let mut leased = hold(&tenure, "a").await;
    let id = leased.id().clone();
    let aside = Quarantine { reason: "look at it first".to_owned(), if_seq: None };
    tenure.quarantine(&id, &aside).await.unwrap();
    leased.cancelled().await;
    assert!(leased.is_lost());
    is_lost(leased.note(&1));
    is_lost(leased.progress(&1).await);
    is_lost(leased.accept(AcceptStrength::Strong).await);
    is_lost(leased.step::<i32, Error, _>("draft", &1, || async { Ok(1) }).await);
    is_lost(leased.command(Intent::new("mail", "bob", json!({})), |_| async { unreachable!() }).await);
    is_lost(leased.wait([NewWait::new(WaitKind::User, "colour")]).await);
    is_lost(leased.fail(Failure::new(ErrorClass::Transport, "cut")).await);
    is_lost(leased.release("later").await);
    is_lost(leased.close_out(End::new(State::Failed)).await);
    is_lost(leased.succeed(&1).await);
    assert_eq!(tenure.work(&id).await.unwrap().state, State::Quarantined);
    tenure.close().await.unwrap();
}

async fn a_pause_has_no_holder_and_its_answer_comes_with_the_next_lease(place: Place) {
    let tenure = Tenure::open(&place.db).await.unwrap();
    let mut leased = hold(&tenure, "a").await;
    let id = leased.id().clone();
    let Attempt::Waiting(waiting) = leased.wait([NewWait::new(WaitKind::User, "colour")]).await.unwrap()
    else {
        panic!("nobody has answered")
    };
    assert_eq!(waiting.work.state, State::WaitingUser);
    is_lost(leased.progress(&1).await);
    let answer = tenure_embed::wire::ResolveWait {
        token: Some(waiting.waits[0].token.clone()),
        seal: None,
        payload: json!("blue"),
        claim: None,
    };
    tenure.resolve_wait(&waiting.waits[0].id, &answer).await.unwrap();
    let this = ClaimOptions { work: Some(id), ..ClaimOptions::default() };
    let mut leased = tenure.holder("bridge").claim(this).await.unwrap().unwrap();
    assert_eq!(leased.answer::<String>("colour").unwrap().as_deref(), Some("blue"));
    leased.succeed(&"painted").await.unwrap();
    tenure.close().await.unwrap();
}

on_both_databases!(
    a_held_work_is_renewed_over_many_leases,
    dropped_work_is_claimed_by_another_worker,
    a_lost_lease_refuses_every_verb,
    a_pause_has_no_holder_and_its_answer_comes_with_the_next_lease,
);
