//! Writes that the tables themselves refuse: illegal moves, edited or deleted events, changed terminal
//! states, rows that differ from their last event.
#![cfg(feature = "sqlite")]

use std::path::PathBuf;

use rusqlite::{Connection, params};
use serde_json::json;
use tempfile::TempDir;
use tenure_store::{
    Ledger, NewWork, Options,
    core::{
        Actor, Payload, State, WorkId,
        action::{Claimant, CloseOut},
        command::{Arguments, Effect, Evaluation, Intent, PolicyDecision, Proof, ToolFacts},
        liveness::Liveness,
        model::{Disposition, Worker},
    },
};

mod named_states;
use named_states::named;

/// A closed ledger with one work in each of the states queued, running and succeeded.
struct Stored {
    _folder: TempDir,
    file: PathBuf,
    queued: WorkId,
    running: WorkId,
    succeeded: WorkId,
}

fn claimant(request: &str) -> Claimant {
    let worker =
        Worker { id: "w".to_owned(), incarnation: "first".to_owned(), liveness: Liveness::default() };
    Claimant { worker, request_id: request.to_owned(), defer_start: false }
}

async fn stored() -> Stored {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ledger.db");
    let ledger = Ledger::open_sqlite(&file, Options { sweep: false, ..Options::default() }).await.unwrap();
    let caller = ledger.caller(Actor::worker("w"));
    let mut ids = Vec::new();
    for name in ["queued", "running", "succeeded"] {
        let mut new = NewWork::new("manual", name, "job", Disposition::Rerunnable, json!({ "n": 1 }));
        new.session = Some(name.to_owned());
        ids.push(caller.ingest(new).await.unwrap().work.id);
    }
    let claimed = caller.claim_ids(claimant("one"), ids[1..].to_vec()).await.unwrap();
    let close = CloseOut {
        state: State::Succeeded,
        result: Some(Payload::new(&json!("done")).unwrap()),
        result_ref: None,
        no_output: false,
        warnings: Vec::new(),
        error: None,
        evidence: Vec::new(),
        commands: Vec::new(),
        usage: Vec::new(),
    };
    let last = claimed.iter().find(|claimed| claimed.work.id == ids[2]).unwrap();
    caller.close_out(&last.lease, close).await.unwrap();
    ledger.close().await.unwrap();
    Stored { _folder: folder, file, queued: ids[0], running: ids[1], succeeded: ids[2] }
}

impl Stored {
    fn open(&self) -> Connection {
        Connection::open(&self.file).unwrap()
    }

    /// The statement is refused for this reason, and nothing of it stays.
    #[track_caller]
    fn refuses(&self, sql: &str, work: WorkId, why: &str) {
        let conn = self.open();
        let before = everything(&conn);
        let sql = named(sql);
        let error = conn.execute(&sql, [work.0.as_bytes()]).expect_err(&sql).to_string();
        assert!(error.contains(why), "{sql}\n{error}");
        assert!(conn.is_autocommit());
        assert_eq!(everything(&conn), before, "{sql}");
    }
}

fn everything(conn: &Connection) -> Vec<String> {
    let mut statement = conn
        .prepare(
            "SELECT hex(id) || state || seq || hex(head) FROM work UNION ALL \
             SELECT position || hex(work) || seq || to_state || coalesce(payload, '') FROM event",
        )
        .unwrap();
    statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
}

/// Appends an event of the given shape: its seq is `after` the last one, its states are as given.
fn event(after: i64, from: &str, to: i64) -> String {
    format!(
        "INSERT INTO event (work, seq, at, type, from_state, to_state, actor_type, actor_id, attempt, data, \
         prev_hash, hash, previous) SELECT id, seq + {after}, 1, 'progressed', {from}, {to}, 'worker', 'w', 1, \
         '{{}}', head, head, last_event FROM work WHERE id = ?1"
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_tabled_moves_are_stored() {
    let stored = stored().await;
    // running → cancelled and succeeded → queued are in no table.
    stored.refuses(&event(1, "1", 15), stored.running, "CHECK");
    stored.refuses(&event(1, "11", 0), stored.succeeded, "CHECK");
    stored.refuses(&event(1, "1", 17), stored.running, "CHECK");
    // A birth in the middle of a life.
    stored.refuses(&event(1, "NULL", 0), stored.queued, "CHECK");
    assert_eq!(stored.open().execute(&event(1, "1", 1), [stored.running.0.as_bytes()]).unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_follow_one_another_without_a_gap() {
    let stored = stored().await;
    stored.refuses(&event(2, "1", 1), stored.running, "follow");
    stored.refuses(&event(0, "1", 1), stored.running, "follow");
    stored.refuses(&event(-1, "0", 1), stored.running, "follow");
    // From a state in which the work was not left.
    stored.refuses(&event(1, "0", 1), stored.running, "follow");
    let following = |previous: &str| event(1, "1", 1).replace("last_event", previous);
    for previous in ["NULL", "0", "99999", "(SELECT o.last_event FROM work o WHERE o.id <> work.id)"] {
        stored.refuses(&following(previous), stored.running, "follow");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_is_one_line() {
    let stored = stored().await;
    let conn = stored.open();
    assert_eq!(conn.execute(&event(1, "1", 1), [stored.running.0.as_bytes()]).unwrap(), 1);
    // The row does not know of it yet: a second one would follow the same event.
    stored.refuses(&event(1, "1", 1), stored.running, "follow");
    let born_again = event(1, "NULL", 0).replace("seq + 1", "1").replace("last_event", "NULL");
    stored.refuses(&born_again, stored.running, "follow");
    // Nor does the row stop before it.
    let one_more = event(2, "1", 1).replace("last_event", "(SELECT max(position) FROM event)");
    assert_eq!(conn.execute(&one_more, [stored.running.0.as_bytes()]).unwrap(), 1);
    let stop = "UPDATE work SET (seq, head, last_event) = (SELECT seq, hash, position FROM event \
                WHERE previous = work.last_event) WHERE id = ?1";
    stored.refuses(stop, stored.running, "last event");
}

/// It would delete what is in its way, and no trigger would see it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_replaced() {
    let stored = stored().await;
    let replace = |after: i64, from: &str, to: i64| {
        event(after, from, to).replace("INSERT INTO event (", "INSERT OR REPLACE INTO event (")
    };
    let forged = "(SELECT e.previous FROM event e WHERE e.position = work.last_event)";
    stored.refuses(
        &replace(0, "0", 1).replace("last_event FROM", &format!("{forged} FROM")),
        stored.running,
        "follow",
    );
    let born = replace(1, "NULL", 0).replace("seq + 1", "1").replace("last_event FROM", "NULL FROM");
    stored.refuses(&born, stored.running, "follow");
    // The next event, in the place of an earlier one.
    let elsewhere = replace(1, "1", 1)
        .replace("event (work,", "event (position, work,")
        .replace("SELECT id,", "SELECT (SELECT min(e.position) FROM event e WHERE e.work = work.id), id,");
    stored.refuses(&elsewhere, stored.running, "follow");
    let columns = "tenant, system, source_id, run_id, generation, kind, priority, created_at, attempt, fence, open_waits, \
                   updated_at, children, waiters, body";
    let back = format!(
        "INSERT OR REPLACE INTO work (id, state, seq, head, last_event, {columns}) \
         SELECT w.id, e.to_state, e.seq, e.hash, e.position, {} FROM work w, event e \
         WHERE w.id = ?1 AND e.work = w.id AND e.seq = 1",
        columns.split(", ").map(|column| format!("w.{}", column.trim())).collect::<Vec<_>>().join(", ")
    );
    stored.refuses(&back, stored.succeeded, "last event");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_are_neither_changed_nor_deleted() {
    let stored = stored().await;
    let id = stored.succeeded;
    for edit in [
        "payload = '1'",
        "at = at + 1",
        "actor_id = 'x'",
        "hash = prev_hash",
        "seq = 9",
        "position = 999",
        "previous = 1",
    ] {
        stored.refuses(&format!("UPDATE event SET {edit} WHERE work = ?1"), id, "never changed");
    }
    stored.refuses("DELETE FROM event WHERE work = ?1", id, "never deleted");
    stored.refuses("DELETE FROM work WHERE id = ?1", id, "never deleted");
    let erasure =
        "UPDATE event SET message = NULL, payload = NULL, evidence = NULL, salt = NULL WHERE work = ?1";
    assert_eq!(stored.open().execute(erasure, [id.0.as_bytes()]).unwrap(), 3);
    let ledger = Ledger::open_sqlite(&stored.file, Options::default()).await.unwrap();
    let report = ledger.verify().await.unwrap();
    let told: Vec<&str> = report.faults.iter().map(|fault| fault.what.as_str()).collect();
    let unrecorded = "the content of event 1 was erased, and nobody is recorded to have done so";
    assert_eq!(told, [unrecorded], "an erasure keeps the chain, and is found if the ledger did not do it");
    ledger.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_stands_where_its_last_event_left_it() {
    let stored = stored().await;
    let update = |set: &str| format!("UPDATE work SET {set} WHERE id = ?1");
    stored.refuses(&update("state = {failed}"), stored.succeeded, "last event");
    stored.refuses(&update("state = {queued}"), stored.succeeded, "last event");
    stored.refuses(&update("seq = seq + 1"), stored.running, "last event");
    stored.refuses(&update("seq = seq - 1"), stored.running, "last event");
    stored.refuses(&update("head = zeroblob(32)"), stored.running, "last event");
    stored.refuses(&update("last_event = last_event - 1"), stored.running, "last event");
    // Back to where an earlier event of its own had left it.
    let back = "(seq, state, head, last_event) = (SELECT seq, to_state, hash, position FROM event \
                WHERE work = work.id AND position < work.last_event ORDER BY seq DESC LIMIT 1), \
                lease_fence = NULL, expires_at = NULL, renewed_at = NULL";
    stored.refuses(&update(back), stored.running, "last event");
    stored.refuses(&update("tenant = 'other'"), stored.queued, "never changes");
    stored.refuses(&update("priority = 0"), stored.queued, "never changes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_has_what_its_state_needs() {
    let stored = stored().await;
    let update = |set: &str| format!("UPDATE work SET {set} WHERE id = ?1");
    stored.refuses(&update("lease_fence = NULL"), stored.running, "CHECK");
    stored.refuses(&update("lapsed_at = 1"), stored.running, "CHECK");
    stored.refuses(&update("lease_fence = 1"), stored.queued, "CHECK");
    stored.refuses(&update("lease_fence = 1"), stored.succeeded, "CHECK");
    stored.refuses(&update("open_waits = 1"), stored.running, "CHECK");
    stored.refuses(&update("state = {retry_scheduled}"), stored.queued, "CHECK");
    stored.refuses(&update("state = {waiting_user}"), stored.queued, "CHECK");
    stored.refuses(&update("state = {unknown}"), stored.queued, "CHECK");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_has_one_holder() {
    let stored = stored().await;
    let conn = stored.open();
    let hold = "UPDATE status SET session = 'running', state = {stalled} WHERE work = ?1";
    let error = conn.execute(&named(hold), params![stored.queued.0.as_bytes()]).unwrap_err().to_string();
    assert!(error.contains("UNIQUE"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_keep_to_their_table() {
    let stored = stored().await;
    let ledger =
        Ledger::open_sqlite(&stored.file, Options { sweep: false, ..Options::default() }).await.unwrap();
    let caller = ledger.caller(Actor::worker("w"));
    let mut new = NewWork::new("manual", "commands", "job", Disposition::Rerunnable, json!({}));
    new.claim = Some(claimant("two"));
    let held = caller.ingest(new).await.unwrap().lease.unwrap();
    let evaluation = Evaluation::new(PolicyDecision::new(Effect::Allow, "p"), ToolFacts::default());
    for slot in ["pending", "done"] {
        let mut new = Intent::new(
            "mail",
            "bob",
            Arguments::whole(Payload::new(&json!({})).unwrap()),
            evaluation.clone(),
        );
        new.slot = Some(slot.to_owned());
        let id = caller.reserve(&held.lease, new).await.unwrap().command.id;
        if slot == "done" {
            caller.dispatch(&held.lease, id, evaluation.clone(), None).await.unwrap();
            caller.receipt(&held.lease, id, Proof::provider("x")).await.unwrap();
        }
    }
    caller.progress(&held.lease, &json!(1), None).await.unwrap();
    ledger.close().await.unwrap();
    let update = |set: &str| format!("UPDATE command SET {set} AND work = ?1");
    for (set, why) in [
        ("state = {command cancelled}, seq = seq + 1 WHERE state = {command succeeded}", "is final"),
        ("state = {command cancelled} WHERE state = {command pending}", "only by events"),
        ("state = {command cancelled}, seq = 1 WHERE state = {command pending}", "only by events"),
        // An event, but none of a command.
        (
            "(state, seq, last_event) = (SELECT {command cancelled}, w.seq, w.last_event FROM work w WHERE w.id = command.work) \
             WHERE state = {command pending}",
            "only by events",
        ),
        ("state = {command dispatched}, seq = seq + 1 WHERE state = {command pending}", "CHECK"),
        ("state = {command unknown} WHERE state = {command pending}", "CHECK"),
        ("blocked = 'budget' WHERE state = {command pending}", "CHECK"),
        ("needs_person = 1 WHERE state = {command pending}", "CHECK"),
        ("superseded = 1 WHERE state = {command pending}", "CHECK"),
        ("duty = 1 WHERE state = {command pending}", "CHECK"),
        ("due_at = 1 WHERE state = {command pending}", "CHECK"),
        ("tool = 'bank' WHERE state = {command pending}", "intent never changes"),
        ("slot = 'other' WHERE state = {command pending}", "intent never changes"),
    ] {
        stored.refuses(&update(set), held.work.id, why);
    }
    stored.refuses("DELETE FROM command WHERE work = ?1", held.work.id, "never deleted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_changed_a_schedule_stays() {
    let stored = stored().await;
    let conn = stored.open();
    let row = "INSERT INTO schedule_change (tenant, name, at, actor, act, reason) \
               VALUES ('default', 's', 1, '{}', 'set', 'why')";
    conn.execute(row, []).unwrap();
    for sql in ["UPDATE schedule_change SET reason = 'another'", "DELETE FROM schedule_change"] {
        let error = conn.execute(sql, []).expect_err(sql).to_string();
        assert!(error.contains("changes of schedules stay"), "{sql}: {error}");
    }
}
