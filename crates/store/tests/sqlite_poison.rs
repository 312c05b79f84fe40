//! Invariant 11 on a file in which one row was damaged: sweep, claims and verify continue without it.
#![cfg(feature = "sqlite")]

use std::{fs, os::unix::fs::FileExt, path::Path, sync::Arc};

use serde_json::json;
use tenure_store::{
    Ledger, ManualClock, NewSchedule, NewWork, Options, Scheduler, Sweeper,
    core::{
        Actor, Payload, State, WorkId,
        action::{ClaimFilter, Claimant},
        command::{Arguments, Duty, Effect, Evaluation, Executor, Intent, PolicyDecision, ToolFacts},
        model::{Disposition, Worker},
        policy::{PolicyOverrides, Timeouts},
        schedule::{Overlap, Plan, Template, Timing},
    },
};

async fn ingest(ledger: &Ledger, id: &str) -> WorkId {
    let timeouts = Some(Timeouts { start_ms: Some(1_000), ..Timeouts::default() });
    let policy = PolicyOverrides { timeouts, ..PolicyOverrides::default() };
    let new = NewWork::new("manual", id, "job", Disposition::Rerunnable, json!(id));
    ledger.caller(Actor::machine("test")).ingest(NewWork { policy, ..new }).await.unwrap().work.id
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_row_is_in_nobodys_way() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ledger.db");
    let clock = Arc::new(ManualClock::new(1_790_000_000_000));
    let options = Options { clock: Some(clock.clone()), sweep: false, ..Options::default() };
    let ledger = Ledger::open_sqlite(&file, options).await.unwrap();
    let before = ingest(&ledger, "before").await;
    let damaged = ingest(&ledger, "damaged").await;
    let after = ingest(&ledger, "after").await;
    let changed = rusqlite::Connection::open(&file)
        .unwrap()
        .execute("UPDATE work SET body = '{' WHERE source_id = 'damaged'", [])
        .unwrap();
    assert_eq!(changed, 1);
    assert!(ledger.work(damaged).await.is_err(), "it cannot be read");

    let worker = Claimant::new(Worker::new("w", "w-1"), "all");
    let filter = ClaimFilter { max: 3, ..ClaimFilter::default() };
    let claimed = ledger.caller(Actor::worker("w")).claim(worker, filter, None).await.unwrap();
    assert_eq!(claimed.iter().map(|one| one.work.id).collect::<Vec<_>>(), [before, after]);
    for one in claimed {
        ledger.caller(Actor::worker("w")).release(&one.lease, None).await.unwrap();
    }
    let (before, after) = (ingest(&ledger, "one more").await, ingest(&ledger, "another").await);

    let mut sweeper = Sweeper::new(clock.clone());
    clock.advance(2_000);
    let sweep = sweeper.run_once(&ledger).await.expect("the sweep goes on");
    assert_eq!((sweep.acted, sweep.failed), (2, 1));
    for id in [before, after] {
        assert_eq!(ledger.work(id).await.unwrap().state, State::TimedOut);
    }
    let report = ledger.verify().await.expect("verify goes on as well");
    assert_eq!(report.works, 5);
    assert_eq!(report.faults.iter().filter_map(|fault| fault.work).collect::<Vec<_>>(), [damaged]);

    let again = sweeper.run_once(&ledger).await.unwrap();
    assert_eq!((again.ticked, again.failed), (0, 0), "it is passed over for a while");
    ledger.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_schedule_or_run_is_in_nobodys_way() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ledger.db");
    let clock = Arc::new(ManualClock::new(1_790_000_000_000));
    let options = Options { clock: Some(clock.clone()), sweep: false, ..Options::default() };
    let ledger = Ledger::open_sqlite(&file, options).await.unwrap();
    for name in ["unreadable", "its work is", "well"] {
        let template = Template {
            kind: "job".to_owned(),
            title: None,
            disposition: Disposition::Rerunnable,
            input: json!(name),
            priority: 3,
            session: None,
            correlation_id: None,
            workflow: None,
            policy: PolicyOverrides::default(),
        };
        let plan = Plan { timing: Timing::EveryMs(1_000), template, overlap: Overlap::Skip, catch_up_ms: 0 };
        let new = NewSchedule { tenant: "default".to_owned(), name: name.to_owned(), plan, paused: None };
        ledger.caller(Actor::person("ada")).set_schedule(new, "a test").await.unwrap();
    }
    clock.advance(1_000);
    assert_eq!(Scheduler.run_once(&ledger).await.unwrap().fired, 3);
    let well = ledger.caller(Actor::person("ada")).schedule("default", "well").await.unwrap();
    ledger.caller(Actor::person("ada")).cancel(well.last_work().unwrap(), "over", None).await.unwrap();
    let conn = rusqlite::Connection::open(&file).unwrap();
    conn.execute("UPDATE schedule SET body = '{' WHERE name = 'unreadable'", []).unwrap();
    conn.execute("UPDATE work SET body = '{' WHERE source_id = 'its work is'", []).unwrap();
    clock.advance(1_000);
    let fired = Scheduler.run_once(&ledger).await.expect("the look goes on");
    assert_eq!((fired.fired, fired.skipped), (1, 1), "what cannot be read counts as open");
}

/// Overwrites one page of what is stored under this name: a table or an index.
fn smash_a_page(file: &Path, name: &str) {
    let conn = rusqlite::Connection::open(file).unwrap();
    let size: i64 = conn.pragma_query_value(None, "page_size", |row| row.get(0)).unwrap();
    let page: i64 = conn
        .query_row(
            "SELECT pageno FROM dbstat WHERE name = ?1 AND pagetype = 'leaf' ORDER BY pageno LIMIT 1 OFFSET 1",
            [name],
            |row| row.get(0),
        )
        .unwrap();
    drop(conn);
    let file = fs::OpenOptions::new().write(true).open(file).unwrap();
    file.write_all_at(&vec![0xff; size as usize], ((page - 1) * size) as u64).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_damaged_page_does_not_stop_the_sweep() {
    const WORKS: usize = 200;
    for name in ["work", "event", "status", "status_due", "sqlite_autoindex_work_1"] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ledger.db");
        let clock = Arc::new(ManualClock::new(1_790_000_000_000));
        let options = Options { clock: Some(clock.clone()), sweep: false, ..Options::default() };
        let ledger = Ledger::open_sqlite(&file, options.clone()).await.unwrap();
        for number in 0..WORKS {
            ingest(&ledger, &number.to_string()).await;
        }
        ledger.close().await.unwrap();
        drop(ledger);
        smash_a_page(&file, name);

        let ledger = Ledger::open_sqlite(&file, options).await.unwrap();
        let mut sweeper = Sweeper::new(clock.clone());
        clock.advance(2_000);
        let sweep = sweeper.run_once(&ledger).await.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(sweep.acted + sweep.failed, WORKS, "{name}: {sweep:?} {:?}", ledger.damaged());
        // An index page also keeps those beside it from being saved.
        assert!(sweep.acted > 0, "{name}: {sweep:?}");
        let damaged = ledger.damaged();
        let named = damaged.iter().filter(|damaged| damaged.id.starts_with("w_")).count();
        assert_eq!(named, sweep.failed, "{name}: {damaged:?}");
        assert!(!damaged.is_empty(), "{name}: nothing was named");
        assert_eq!(ledger.health().await.closed(), None, "{name}: writing goes on");
        if ["work", "event"].contains(&name) {
            let after = ingest(&ledger, "after").await;
            clock.advance(2_000);
            sweeper.run_once(&ledger).await.unwrap();
            assert_eq!(ledger.work(after).await.unwrap().state, State::TimedOut, "{name}");
        }
        ledger.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repaired_row_is_no_longer_called_damaged() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ledger.db");
    let clock = Arc::new(ManualClock::new(1_790_000_000_000));
    let options = Options { clock: Some(clock.clone()), sweep: false, ..Options::default() };
    let ledger = Ledger::open_sqlite(&file, options).await.unwrap();
    let id = ingest(&ledger, "one").await;
    let conn = rusqlite::Connection::open(&file).unwrap();
    let body: String = conn.query_row("SELECT body FROM work", [], |row| row.get(0)).unwrap();
    conn.execute("UPDATE work SET body = '{'", []).unwrap();
    let mut sweeper = Sweeper::new(clock.clone());
    clock.advance(2_000);
    sweeper.run_once(&ledger).await.unwrap();
    let damaged = ledger.damaged();
    assert_eq!(damaged.iter().map(|one| &one.id).collect::<Vec<_>>(), [&id.to_string()]);
    conn.execute("UPDATE work SET body = ?1", [body]).unwrap();
    for _ in 0..61 {
        clock.advance(1_000);
        sweeper.run_once(&ledger).await.unwrap();
    }
    assert_eq!(ledger.damaged(), []);
    assert_eq!(ledger.work(id).await.unwrap().state, State::TimedOut);
    ledger.close().await.unwrap();
}

/// A work with something to send.
async fn outbox(ledger: &Ledger, id: &str) {
    let caller = ledger.caller(Actor::worker("w"));
    let claim = Some(Claimant::new(Worker::new("w", "1"), id));
    let new = NewWork::new("manual", id, "job", Disposition::Rerunnable, json!(id));
    let held = caller.ingest(NewWork { claim, ..new }).await.unwrap().lease.unwrap();
    let tool = ToolFacts { executor: Executor::Http, ..ToolFacts::default() };
    let evaluation = Evaluation::new(PolicyDecision::new(Effect::Allow, "p"), tool);
    let arguments = Arguments::whole(Payload::new(&json!(id)).unwrap());
    caller.reserve(&held.lease, Intent::new("mail", id, arguments, evaluation)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_page_under_one_command_does_not_stop_the_others() {
    const COMMANDS: usize = 200;
    for name in ["event", "command", "work", "command_due"] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ledger.db");
        let options = Options { sweep: false, ..Options::default() };
        let ledger = Ledger::open_sqlite(&file, options.clone()).await.unwrap();
        for number in 0..COMMANDS {
            outbox(&ledger, &number.to_string()).await;
        }
        ledger.close().await.unwrap();
        drop(ledger);
        smash_a_page(&file, name);

        let ledger = Ledger::open_sqlite(&file, options).await.unwrap();
        let (mut read, mut after) = (0, None);
        loop {
            let page = ledger.due_page(Duty::Send, after, &[], 50, |_| false).await;
            let page = page.unwrap_or_else(|error| panic!("{name}: {error}"));
            read += page.items.len();
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        let damaged = ledger.damaged();
        let named = damaged.iter().filter(|one| one.id.starts_with("c_")).count();
        assert_eq!(read + named, COMMANDS, "{name}: {damaged:?}");
        assert_eq!(named > 0, name != "command_due", "{name}: {damaged:?}");
        assert!(read > 0, "{name}: {damaged:?}");
        assert_eq!(ledger.health().await.closed(), None, "{name}");
        ledger.close().await.unwrap();
    }
}
