//! A program that is killed half-way: its next start goes on from the last checkpoint.

use std::{
    env,
    process::{Command, Stdio},
};

use tenure_embed::prelude::*;

use crate::bed::{LONG, Place, brief, on_both_databases};

/// Names the ledger to the process that is to die over it.
const DB: &str = "TENURE_EMBED_TEST_DB";

/// The first run, in a process of its own: it holds a work, makes a checkpoint, and dies.
#[tokio::test]
async fn first_run() {
    let Ok(db) = env::var(DB) else { return };
    let tenure = Tenure::open(&db).await.unwrap();
    let held = tenure.holder("bridge").ingest(brief("a")).await.unwrap().held.unwrap();
    held.step::<_, Error, _>("think", &1, || async { Ok("thought".to_owned()) }).await.unwrap();
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
    let mut held = tenure.holder("bridge").claim(waiting).await.unwrap().unwrap();
    assert_eq!((held.id(), held.grant.work.attempt), (&work.work.id, 2));
    let again = || async { panic!("it was thought before") };
    let thought = held.step::<String, Error, _>("think", &1, again).await.unwrap();
    assert_eq!(held.succeed(&thought).await.unwrap().state, State::Succeeded);
    tenure.close().await.unwrap();
}

on_both_databases!(the_next_start_goes_on);
