//! A program that is killed half-way: its next start continues from the last checkpoint.

use std::{
    env,
    process::{Command, Stdio},
};

use tenure_embed::prelude::*;

use crate::bed::{LONG, Place, brief, on_both_databases};

/// Tells the process that is going to be killed which ledger to use.
const DB: &str = "TENURE_EMBED_TEST_DB";

/// The first run, in a process of its own: it claims a work item, completes a checkpoint, and is killed.
#[tokio::test]
async fn first_run() {
    let Ok(db) = env::var(DB) else { return };
    let tenure = Tenure::open(&db).await.unwrap();
    let leased = tenure.holder("bridge").ingest(brief("a")).await.unwrap().leased.unwrap();
    leased.step::<_, Error, _>("think", &1, || async { Ok("thought".to_owned()) }).await.unwrap();
    std::process::abort();
}

async fn the_next_start_goes_on(place: Place) {
    let this = env::current_exe().unwrap();
    let db = place.db.clone();
    let died = tokio::task::spawn_blocking(move || {
        let mut first = Command::new(this);
        first.args(["--exact", "restart::first_run"]).env(DB, db).stdout(Stdio::null()).stderr(Stdio::null());
        first.status().unwrap()
    });
    assert_eq!(died.await.unwrap().code(), None, "killed by a signal");

    let tenure = Tenure::open(&place.db).await.unwrap();
    let work = tenure.ingest(&brief("a")).await.unwrap();
    assert!(!work.created);
    let waiting = ClaimOptions { wait: LONG, ..ClaimOptions::default() };
    let mut leased = tenure.holder("bridge").claim(waiting).await.unwrap().unwrap();
    assert_eq!((leased.id(), leased.grant.work.attempt), (&work.work.id, 2));
    let again = || async { panic!("the checkpoint is reused") };
    let thought = leased.step::<String, Error, _>("think", &1, again).await.unwrap();
    assert_eq!(leased.succeed(&thought).await.unwrap().state, State::Succeeded);
    tenure.close().await.unwrap();
}

on_both_databases!(the_next_start_goes_on);
