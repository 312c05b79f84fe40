//! Writing that has stopped and cannot recover by itself: a supervisor sees it, with the reason.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use tenure_store::{Clock, Ledger, Options, SystemClock};

use crate::{
    bed::{Bed, work},
    metrics::until,
};

/// Stands for any bug in a store's own task: it panics when the writer reads the time.
#[derive(Default)]
struct Bomb {
    clock: SystemClock,
    armed: AtomicBool,
}

impl Clock for Bomb {
    fn wall(&self) -> i64 {
        let thread = std::thread::current();
        let writes = thread.name() == Some("ledger-writer");
        assert!(!(writes && self.armed.swap(false, Ordering::SeqCst)), "as planned");
        self.clock.wall()
    }

    fn monotonic(&self) -> i64 {
        self.clock.monotonic()
    }
}

#[tokio::test]
async fn healthz_fails_where_only_a_restart_helps() {
    let folder = tempfile::tempdir().unwrap();
    let bomb = Arc::new(Bomb::default());
    let options = Options { clock: Some(bomb.clone()), sweep: false, ..Options::default() };
    let ledger = Ledger::open_sqlite(folder.path().join("ledger.db"), options).await.unwrap();
    let bed = Bed::over(ledger).await;
    let client = bed.admin();
    client.post("/v1/work", work("before")).await.expect(201);
    assert_eq!(client.get("/healthz").await.expect(200)["status"], "ok");
    bomb.armed.store(true, Ordering::SeqCst);
    client.post("/v1/work", work("hit")).await.problem(503, "outcome_unknown");
    // The caller gets its response while the writer's thread ends.
    let told = until("healthz reports the stop", async || {
        let reply = client.get("/healthz").await;
        (reply.status == 503).then_some(reply.body)
    });
    let told = told.await;
    let detail = told["detail"].as_str().unwrap();
    assert!(detail.contains("the writer panicked") && detail.contains("Restart"), "{detail}");
    let refused = client.post("/v1/work", work("after")).await.expect(503);
    assert_eq!(refused["retryable"], true, "{refused}");
    let ready = client.get("/readyz").await.expect(503);
    assert!(ready["checks"][0]["detail"].as_str().unwrap().contains("the writer panicked"), "{ready}");
}
