//! What verify finds in a file that somebody edited behind the ledger's back.
#![cfg(feature = "sqlite")]

use std::path::Path;

use rusqlite::Connection;
use serde_json::json;
use tenure_store::{
    Caller, LeaseRef, Ledger, NewCommand, NewWait, NewWork, Options, Sweeper, SystemClock,
    core::{
        Actor,
        action::{Claimant, CloseOut},
        command::{
            Arguments, Effect, Gate, Proof, ToolFacts, Verdict,
            budget::{Limit, Per, Unit},
        },
        model::{Disposition, WaitKind, Worker},
        payload::Payload,
    },
};

async fn open(file: &Path) -> Ledger {
    Ledger::open_sqlite(file, Options { sweep: false, ..Options::default() }).await.unwrap()
}

/// A command that cost something.
async fn spend(caller: &Caller, lease: &LeaseRef) {
    let limits =
        vec![Limit { per: Per::Tenant, unit: Unit::Calls, period: String::new(), max: 9, only: None }];
    let gate = Gate { limits, ..Gate::new(Verdict::new(Effect::Allow, "p"), ToolFacts::default()) };
    let arguments = Arguments::whole(Payload::new(&json!({})).unwrap());
    let new = NewCommand::new("mail", "bob", arguments, gate.clone());
    let id = caller.reserve(lease, new).await.unwrap().command.id;
    caller.dispatch(lease, id, gate, None).await.unwrap();
    caller.receipt(lease, id, Proof::provider("m-1")).await.unwrap();
}

/// One work that waited, made a step and has ended, and one that waits; all of it anchored.
async fn populate(file: &Path) {
    let ledger = open(file).await;
    let caller = ledger.caller(Actor::worker("w"));
    for id in ["ended", "waits"] {
        let claim = Some(Claimant::new(Worker::new("w", "1"), id));
        let new = NewWork::new("manual", id, "job", Disposition::Rerunnable, json!(1));
        let held = caller.ingest(NewWork { claim, ..new }).await.unwrap().lease.unwrap();
        caller.begin_step(&held.lease, "s", &json!(1), false).await.unwrap();
        caller.complete_step(&held.lease, "s", &json!(1), &json!(2)).await.unwrap();
        if id == "ended" {
            spend(&caller, &held.lease).await;
        }
        caller.wait(&held.lease, vec![NewWait::new(WaitKind::User, id)], None).await.unwrap();
        if id == "ended" {
            caller.resolve("default", id, &json!(3), None).await.unwrap();
            let claimant = Claimant::new(Worker::new("w", "1"), "again");
            let held = caller.claim_ids(claimant, vec![held.work.id]).await.unwrap().remove(0);
            let close = CloseOut::succeeded(Payload::new(&json!("done")).unwrap());
            caller.close_out(&held.lease, close).await.unwrap();
        }
    }
    Sweeper::new(std::sync::Arc::new(SystemClock::default())).run_once(&ledger).await.unwrap();
    assert!(ledger.anchor().await.unwrap().events > 0);
    assert_eq!(ledger.verify().await.unwrap().faults, []);
    ledger.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_record_is_held_against_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let whole = folder.path().join("whole.db");
    populate(&whole).await;
    for (number, (sql, told)) in [
        ("UPDATE attempt SET worker = 'somebody' WHERE number = 2", "attempt 2 is not what its log says"),
        ("UPDATE attempt SET ended_at = ended_at + 1 WHERE number = 2", "attempt 2 is not"),
        ("UPDATE attempt SET ended_at = NULL WHERE number = 2", "attempt 2 is not"),
        ("UPDATE attempt SET usage = '[{\"calls\":1}]' WHERE number = 1", "attempt 1 is not"),
        ("DELETE FROM attempt WHERE number = 2", "claimed 2 times and has 1"),
        ("UPDATE budget SET spent = 2", "2 calls spent and 0 calls set aside, and the logs tell of 1 call and 0 calls"),
        ("UPDATE budget SET reserved = 5", "1 call spent and 5 calls set aside"),
        ("DELETE FROM budget", "0 calls spent"),
        ("DROP TRIGGER command_stays; UPDATE command SET target = 'eve'", "is not what its log says"),
        ("DROP TRIGGER command_stays; UPDATE command SET slot = 'other'", "is not what its log says"),
        ("UPDATE step SET result_seq = 1", "step `s` is not what its log says"),
        ("UPDATE step SET voided = 1", "step `s` is not"),
        ("DELETE FROM step", "1 steps, and 0 are stored"),
        ("UPDATE wait SET answer_seq = 1 WHERE state = 'answered'", "is not what its log says"),
        ("UPDATE wait SET deadline_at = deadline_at + 1", "is not what its log says"),
        ("UPDATE wait SET reference = 'other' WHERE state = 'open'", "is not what its log says"),
        ("UPDATE wait SET state = 'cancelled' WHERE state = 'open'", "is not what its log says"),
        (
            "INSERT INTO kept SELECT tenant, reference, '1', '{}', '[]', opened_at, 0 FROM wait WHERE state = 'open'",
            "waits for an answer that is kept",
        ),
        (
            "DROP TRIGGER event_kept; DELETE FROM event WHERE seq = (SELECT max(seq) FROM event)",
            "the anchor covers",
        ),
        (
            "DROP TRIGGER event_kept; DELETE FROM event WHERE seq = 2",
            "has an event that follows none of its own",
        ),
        (
            "DROP TRIGGER work_moved; UPDATE work SET last_event = last_event - 1",
            "does not stand where its last event left it",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let file = folder.path().join(format!("{number}.db"));
        std::fs::copy(&whole, &file).unwrap();
        Connection::open(&file).unwrap().execute_batch(sql).unwrap();
        let ledger = open(&file).await;
        let faults = ledger.verify().await.unwrap().faults;
        assert!(faults.iter().any(|fault| fault.what.contains(told)), "{sql}: {faults:#?}");
        ledger.close().await.unwrap();
    }
}
