//! A file of an older version, opened by this one.
#![cfg(feature = "sqlite")]

use std::path::Path;

use rusqlite::Connection;
use serde_json::json;
use tenure_store::{
    CommandFilter, LeaseRef, Ledger, NewWork, Options,
    core::{
        Actor, Command, CommandId, CommandState, Payload,
        action::{Claimant, CloseOut, Tenants},
        command::{
            Arguments, CallError, Duty, Effect, Evaluation, Executor, Idempotency, Intent, PolicyDecision,
            Proof, ToolFacts,
        },
        model::{Disposition, ErrorClass, Worker},
    },
};

/// The tables of commands as migration 9 made them, filled from those of today, and events that an index leads to.
const OLDER: [&str; 6] = [
    "CREATE TEMP TABLE today AS SELECT * FROM command; CREATE TEMP TABLE counter AS SELECT * FROM budget; \
     DROP TABLE command; DROP TABLE budget",
    include_str!("../src/sqlite/migrations/0009_commands.sql"),
    "INSERT INTO budget SELECT * FROM counter; \
     INSERT INTO command SELECT c.id, c.work, c.tenant, c.tool, c.target, c.executor, c.key, c.input_hash, \
     c.created_at, json_extract(e.data, '$.spec'), c.state, c.seq, c.updated_at, c.due_at, c.dispatches, \
     c.superseded, c.blocked, c.needs_person, c.body FROM today c \
     JOIN event e ON e.work = c.work AND e.seq = json_extract(c.body, '$.arguments'); \
     INSERT INTO command_status SELECT id, work, tenant, state, duty, due_at, line FROM today; \
     DELETE FROM migration WHERE number >= 12",
    "DROP TRIGGER event_follows; DROP TRIGGER event_stays; DROP TRIGGER work_born; DROP TRIGGER work_moved; \
     DROP INDEX event_next; DROP INDEX event_mark; DROP INDEX status_tenant; DROP INDEX wait_tenant; \
     DROP TABLE pruning; DROP TABLE credential; DROP TRIGGER tombstone_stays; DELETE FROM meta WHERE key = 'anchor'; \
     ALTER TABLE tombstone DROP COLUMN mac; ALTER TABLE kept DROP COLUMN mac; \
     ALTER TABLE kept ADD COLUMN approves INTEGER NOT NULL DEFAULT 0; \
     ALTER TABLE link DROP COLUMN mac; ALTER TABLE link DROP COLUMN work; \
     CREATE TRIGGER tombstone_stays BEFORE UPDATE ON tombstone BEGIN SELECT raise(ROLLBACK, 'older'); END; \
     ALTER TABLE event DROP COLUMN actor_name; ALTER TABLE event DROP COLUMN previous; \
     ALTER TABLE work DROP COLUMN last_event; \
     CREATE UNIQUE INDEX event_log ON event (work, seq, to_state); \
     CREATE TRIGGER event_follows BEFORE INSERT ON event BEGIN SELECT raise(ROLLBACK, 'older'); END; \
     CREATE TRIGGER event_stays BEFORE UPDATE ON event BEGIN SELECT raise(ROLLBACK, 'older'); END",
    include_str!("../src/sqlite/migrations/0002_credentials.sql"),
    "CREATE TABLE lane (id INTEGER PRIMARY KEY, system TEXT NOT NULL, kind TEXT NOT NULL, UNIQUE (system, kind)) STRICT; \
     INSERT INTO lane (system, kind) SELECT DISTINCT system, kind FROM ready; ALTER TABLE ready RENAME TO queue; \
     CREATE TABLE ready (lane INTEGER NOT NULL, priority INTEGER NOT NULL, created_at INTEGER NOT NULL, work BLOB NOT NULL, \
     tenant TEXT NOT NULL, bound TEXT, PRIMARY KEY (lane, priority, created_at, work)) STRICT, WITHOUT ROWID; \
     INSERT INTO ready SELECT l.id, r.priority, r.created_at, r.work, r.tenant, r.bound FROM queue r \
     JOIN lane l ON l.system = r.system AND l.kind = r.kind; DROP TABLE queue",
];

fn evaluation(effect: Effect, tool: ToolFacts) -> Evaluation {
    Evaluation::new(PolicyDecision::new(effect, "p"), tool)
}

fn lookup() -> ToolFacts {
    ToolFacts { idempotency: Idempotency::Lookup, ..ToolFacts::default() }
}

fn ordered() -> ToolFacts {
    ToolFacts { executor: Executor::Http, ordered: true, ..ToolFacts::default() }
}

fn mail(slot: &str, text: &str, evaluation: Evaluation) -> Intent {
    let arguments = Arguments::whole(Payload::new(&json!({ "text": text })).unwrap());
    let mut new = Intent::new("mail", "bob", arguments, evaluation);
    new.slot = Some(slot.to_owned());
    new
}

async fn open(file: &Path) -> Ledger {
    Ledger::open_sqlite(file, Options { sweep: false, ..Options::default() }).await.unwrap()
}

/// A work whose commands stand in every state, one of them superseded, and two in a line of the outbox. Answers with who
/// holds the work and which command is dispatched.
async fn populate(ledger: &Ledger) -> (LeaseRef, CommandId) {
    let worker = ledger.caller(Actor::worker("w"));
    let person = ledger.caller(Actor::person("ann"));
    let allow = || evaluation(Effect::Allow, lookup());
    let mut new = NewWork::new("manual", "one", "job", Disposition::Rerunnable, json!(1));
    new.claim = Some(Claimant::new(Worker::new("w", "1"), "first"));
    let held = worker.ingest(new).await.unwrap().lease.unwrap();
    worker.reserve(&held.lease, mail("reworded", "Hello", allow())).await.unwrap();
    worker.release(&held.lease, None).await.unwrap();
    let again = Claimant::new(Worker::new("w", "1"), "second");
    let held = worker.claim_ids(again, vec![held.work.id]).await.unwrap().remove(0);
    let lease = &held.lease;
    worker.reserve(lease, mail("reworded", "Hi", allow())).await.unwrap();
    let ask = || evaluation(Effect::NeedsApproval, lookup());
    worker.reserve(lease, mail("blocked", "Hi", ask())).await.unwrap();
    let approved = worker.reserve(lease, mail("approved", "Hi", ask())).await.unwrap().command;
    person.approve(approved.id, approved.seal(), false, "yes").await.unwrap();
    let mut sent = Vec::new();
    for slot in ["dispatched", "uncertain", "succeeded", "failed"] {
        let id = worker.reserve(lease, mail(slot, "Hi", allow())).await.unwrap().command.id;
        worker.dispatch(lease, id, allow(), None).await.unwrap();
        sent.push(id);
    }
    let error = |class| CallError { class, message: "no".to_owned(), retry_after_ms: None };
    worker.uncertain(lease, sent[1], error(ErrorClass::Timeout)).await.unwrap();
    worker.receipt(lease, sent[2], Proof::provider("m-1")).await.unwrap();
    worker.fail_command(lease, sent[3], error(ErrorClass::Validation), false).await.unwrap();
    for id in ["two", "three"] {
        outbox(ledger, id).await;
    }
    (held.lease, sent[0])
}

/// A work that has ended and left a command to the relay.
async fn outbox(ledger: &Ledger, id: &str) {
    let worker = ledger.caller(Actor::worker("w"));
    let mut new = NewWork::new("manual", id, "job", Disposition::Rerunnable, json!(1));
    new.claim = Some(Claimant::new(Worker::new("w", "1"), id));
    let held = worker.ingest(new).await.unwrap().lease.unwrap();
    let mut close = CloseOut::succeeded(Payload::new(&json!("done")).unwrap());
    let out = mail("out", "Hi", evaluation(Effect::Allow, ordered()));
    close.commands = vec![worker.outgoing(held.lease.work, out).await.unwrap()];
    worker.close_out(&held.lease, close).await.unwrap();
}

/// All that is asked of commands, in words. Each list has what its filter means.
async fn told(ledger: &Ledger) -> String {
    let all = ledger.commands(&CommandFilter::default(), None, 100).await.unwrap();
    let ids = |commands: &[Command]| commands.iter().map(|command| command.id).collect::<Vec<_>>();
    let mut states: Vec<Vec<CommandState>> = CommandState::ALL.map(|state| vec![state]).to_vec();
    states.extend([vec![], vec![CommandState::Pending, CommandState::Succeeded], CommandState::ALL.to_vec()]);
    for work in all.iter().map(|command| Some(command.work)).chain([None]) {
        for states in &states {
            let filter = CommandFilter { work, states: states.clone(), ..CommandFilter::default() };
            let expected: Vec<Command> = all.iter().filter(|one| filter.matches(one)).cloned().collect();
            let (first, rest) = expected.split_at(expected.len().min(1));
            assert_eq!(ids(&ledger.commands(&filter, None, 1).await.unwrap()), ids(first), "{filter:?}");
            let before = first.first().map(|command| command.id);
            assert_eq!(ids(&ledger.commands(&filter, before, 99).await.unwrap()), ids(rest), "{filter:?}");
        }
    }
    let mut told = format!("{all:#?}\n{:?}\n", ledger.command_counts(&Tenants::All).await.unwrap());
    for duty in Duty::ALL {
        let due = ids(&ledger.due_commands(duty, 100).await.unwrap());
        told += &format!("{duty:?}: {due:?}, next {:?}\n", ledger.next_due_command(duty).await.unwrap());
    }
    told
}

fn schema(file: &Path) -> Vec<(String, Option<String>)> {
    let conn = Connection::open(file).unwrap();
    let mut all = conn.prepare("SELECT name, sql FROM sqlite_schema ORDER BY name").unwrap();
    all.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap().map(Result::unwrap).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_file_becomes_one_of_today() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ledger.db");
    let ledger = open(&file).await;
    let (lease, dispatched) = populate(&ledger).await;
    let before = told(&ledger).await;
    for part in ["Send: [c_", "Lookup: [c_", "superseded_by: Some", "slot: Some"] {
        assert!(before.contains(part), "{part}: {before}");
    }
    ledger.close().await.unwrap();
    let today = schema(&file);

    let conn = Connection::open(&file).unwrap();
    OLDER.iter().for_each(|sql| conn.execute_batch(sql).unwrap());
    assert_ne!(schema(&file), today);
    drop(conn);

    let ledger = open(&file).await;
    assert_eq!(schema(&file), today);
    assert_eq!(told(&ledger).await, before);
    assert_eq!(ledger.verify().await.unwrap().faults, []);
    assert_eq!(ledger.due_commands(Duty::Send, 100).await.unwrap().len(), 1, "the first of its line");
    let worker = ledger.caller(Actor::worker("w"));
    let done = worker.receipt(&lease, dispatched, Proof::provider("m-2")).await.unwrap();
    assert_eq!(done.state, CommandState::Succeeded);
    assert_eq!(ledger.verify().await.unwrap().faults, []);
    ledger.close().await.unwrap();
}
