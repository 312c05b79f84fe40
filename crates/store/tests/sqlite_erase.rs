//! Erased and pruned content leaves the file and its write-ahead log.
#![cfg(feature = "sqlite")]

use std::{path::Path, sync::Arc};

use serde_json::json;
use tenure_store::{
    Clock, Ledger, ManualClock, NewWait, NewWork, Options, Sweeper,
    core::{
        Actor, WorkId,
        action::{Claimant, CloseOut, Failure},
        model::{Disposition, ErrorClass, WaitKind, Worker},
        payload::Payload,
    },
};

const HOUR: i64 = 3_600_000;

/// How often a text is in the file or its log.
fn count(file: &Path, text: &str) -> usize {
    let log = file.with_extension("db-wal");
    let bytes = [std::fs::read(file).unwrap(), std::fs::read(log).unwrap_or_default()].concat();
    bytes.windows(text.len()).filter(|part| *part == text.as_bytes()).count()
}

/// A work item with a text in its input, progress, error, prompt, answer and result; small and large, in many versions.
async fn tell(ledger: &Ledger, clock: &Arc<ManualClock>, name: &str, text: &str) -> WorkId {
    let caller = ledger.caller(Actor::worker("w"));
    let long = text.repeat(3_000);
    let new =
        NewWork::new("manual", name, "job", Disposition::Rerunnable, json!({ "small": text, "large": long }));
    let claim = |request: &str| Claimant::new(Worker::new("w", "1"), &format!("{name}-{request}"));
    let held = caller.ingest(NewWork { claim: Some(claim("1")), ..new }).await.unwrap().lease.unwrap();
    for n in 0..20 {
        caller.progress(&held.lease, &json!({ "n": n, "said": text.repeat(n) }), None).await.unwrap();
    }
    let id = held.work.id;
    caller.fail(&held.lease, Failure::new(ErrorClass::Transport, text)).await.unwrap();
    clock.advance(60_000);
    Sweeper::new(clock.clone()).run_once(ledger).await.unwrap();
    let held = caller.claim_ids(claim("2"), vec![id]).await.unwrap().remove(0);
    let ask = NewWait { prompt: Some(text.to_owned()), ..NewWait::new(WaitKind::User, name) };
    caller.wait(&held.lease, vec![ask], Some(text)).await.unwrap();
    caller.resolve("default", name, &json!(text), None).await.unwrap();
    let held = caller.claim_ids(claim("3"), vec![id]).await.unwrap().remove(0);
    let result = Payload::new(&json!({ "said": text })).unwrap();
    caller.close_out(&held.lease, CloseOut::succeeded(result)).await.unwrap();
    id
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn erased_and_pruned_content_leaves_the_file_and_its_log() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ledger.db");
    let clock = Arc::new(ManualClock::new(1_790_000_000_000));
    let options = Options { clock: Some(clock.clone()), sweep: false, ..Options::default() };
    let ledger = Ledger::open_sqlite(&file, options).await.unwrap();
    let erased = "canary-that-was-erased";
    let pruned = "canary-that-was-pruned";
    let kept = "canary-that-stays";
    tell(&ledger, &clock, "old", pruned).await;
    clock.advance(3 * HOUR);
    let mut ids = Vec::new();
    for n in 0..5 {
        ids.push(tell(&ledger, &clock, &format!("erased-{n}"), erased).await);
        tell(&ledger, &clock, &format!("kept-{n}"), kept).await;
    }
    for text in [erased, pruned, kept] {
        assert!(count(&file, text) > 100, "{text} is in the file or its log");
    }
    let root = ledger.caller(Actor::person("root"));
    for id in ids {
        root.erase(id, "their wish").await.unwrap();
    }
    let gone = ledger.prune(&Actor::person("root"), "too old", clock.wall() - 2 * HOUR, 10).await.unwrap();
    assert_eq!(gone.works, 1);
    assert!(ledger.overwrite_erased().await.unwrap(), "nobody reads");
    assert_eq!((count(&file, erased), count(&file, pruned)), (0, 0));
    assert!(count(&file, kept) > 100);
    assert_eq!(ledger.verify().await.unwrap().faults, []);
    // The log that was started anew is the ledger's own, also after a crash.
    let copy = folder.path().join("copy.db");
    for end in ["", "-wal", "-shm"] {
        let of = |path: &Path| format!("{}{end}", path.display());
        std::fs::copy(of(&file), of(&copy)).unwrap();
    }
    let crashed = Ledger::open_sqlite(&copy, Options { sweep: false, ..Options::default() }).await.unwrap();
    assert_eq!(crashed.verify().await.unwrap().faults, []);
    crashed.close().await.unwrap();
    ledger.close().await.unwrap();
    assert_eq!((count(&file, erased), count(&file, pruned)), (0, 0));
}
