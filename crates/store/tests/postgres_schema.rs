//! What the database itself refuses, and which databases are no ledger.
#![cfg(feature = "postgres")]

use std::collections::BTreeSet;

use tenure_core::{
    Actor, Payload,
    action::{Claimant, CloseOut},
    command::{Arguments, Effect, Evaluation, Intent, PolicyDecision, Proof, ToolFacts},
    model::{Disposition, Worker},
    state::{BORN, State},
};
use tenure_store::{Error, Ledger, NewWork, Options};
use tenure_testkit::{Cluster, shared};

mod named_states;
use named_states::named;

fn options() -> Options {
    Options { sweep: false, ..Options::default() }
}

/// The database's name, at the end of its URL.
fn name(url: &str) -> &str {
    url.rsplit('/').next().unwrap()
}

/// A ledger with one running work and one that has ended.
async fn ledger() -> (String, Ledger) {
    let url = shared().create_database();
    let ledger = Ledger::open_postgres(&url, options()).await.unwrap();
    let caller = ledger.caller(Actor::worker("w"));
    for (id, ends) in [("open", false), ("ended", true)] {
        let worker = Worker { id: "w".into(), incarnation: "1".into(), liveness: Default::default() };
        let mut new = NewWork::new("manual", id, "k", Disposition::Rerunnable, serde_json::json!({"n": 1}));
        new.claim = Some(Claimant { worker, request_id: id.into(), defer_start: false });
        let lease = caller.ingest(new).await.unwrap().lease.unwrap().lease;
        if ends {
            let close = CloseOut {
                state: State::Succeeded,
                result: None,
                result_ref: None,
                no_output: true,
                warnings: vec![],
                error: None,
                evidence: vec![],
                commands: Vec::new(),
                usage: vec![],
            };
            caller.close_out(&lease, close).await.unwrap();
        } else {
            let evaluation = Evaluation::new(PolicyDecision::new(Effect::Allow, "p"), ToolFacts::default());
            for slot in ["pending", "done"] {
                let mut new = Intent::new(
                    "mail",
                    "bob",
                    Arguments::whole(Payload::new(&serde_json::json!({})).unwrap()),
                    evaluation.clone(),
                );
                new.slot = Some(slot.to_owned());
                let id = caller.reserve(&lease, new).await.unwrap().command.id;
                if slot == "done" {
                    caller.dispatch(&lease, id, evaluation.clone(), None).await.unwrap();
                    caller.receipt(&lease, id, Proof::provider("x")).await.unwrap();
                }
            }
        }
    }
    (url, ledger)
}

const SCHEDULE_CHANGE: &str = "INSERT INTO schedule_change (tenant, name, at, actor, act, reason) \
     VALUES ('default', 's', 1, '{}', 'set', 'why')";

async fn refusal(url: &str, sql: &str) -> String {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    match client.batch_execute(&named(sql)).await {
        Ok(()) => panic!("the database let it happen: {sql}"),
        Err(error) => error.as_db_error().map(|db| db.message().to_owned()).unwrap_or_default(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_database_refuses_what_the_rules_forbid() {
    let (url, ledger) = ledger().await;
    shared().psql(name(&url), SCHEDULE_CHANGE);
    for (sql, why) in [
        ("UPDATE event SET to_state = {waiting_user}", "only by erasure"),
        ("UPDATE event SET payload = '{}' WHERE payload IS NOT NULL", "only by erasure"),
        ("UPDATE event SET at = at + 1", "only by erasure"),
        ("UPDATE event SET request = 7", "only by erasure"),
        ("INSERT INTO attempt_end SELECT * FROM attempt_end", "attempt_end_pkey"),
        ("DELETE FROM event", "never deleted"),
        ("TRUNCATE event", "never deleted"),
        ("UPDATE work SET state = {queued}, seq = seq + 1 WHERE state = {succeeded}", "its last event"),
        ("UPDATE work SET state = {queued} WHERE state = {succeeded}", "its last event"),
        (
            "UPDATE work w SET seq = e.seq, head = e.hash, state = {queued}, lease_fence = NULL, expires_at = NULL, \
             renewed_at = NULL FROM event e WHERE e.work = w.id AND e.seq = 1 AND e.to_state = {queued} AND w.state = {running}",
            "its last event",
        ),
        (
            "UPDATE work SET state = {quarantined}, reason = 'operator', lease_fence = NULL, expires_at = NULL, \
          renewed_at = NULL WHERE state = {running}",
            "its last event",
        ),
        ("UPDATE work SET seq = seq + 1 WHERE state = {running}", "its last event"),
        (
            "UPDATE work SET state = {unknown}, seq = seq + 1, lease_fence = NULL, expires_at = NULL, \
             renewed_at = NULL WHERE state = {running}",
            "work_state",
        ),
        ("UPDATE work SET lease_fence = NULL WHERE state = {running}", "work_lease"),
        ("UPDATE work SET open_waits = 1 WHERE state = {running}", "work_waits"),
        ("UPDATE work SET kind = 'other'", "specification of a work item never changes"),
        ("UPDATE work SET system = 'scheduler'", "work_run"),
        (
            "UPDATE command SET state = {command cancelled}, seq = seq + 1 WHERE state = {command succeeded}",
            "is final",
        ),
        ("UPDATE command SET state = {command cancelled} WHERE state = {command pending}", "only by events"),
        (
            "UPDATE command SET state = {command cancelled}, seq = 1 WHERE state = {command pending}",
            "only by events",
        ),
        (
            "UPDATE command SET state = {command dispatched}, seq = seq + 1 WHERE state = {command pending}",
            "command_sent",
        ),
        ("UPDATE command SET tool = 'bank'", "intent never changes"),
        ("UPDATE command SET needs_person = true", "command_person"),
        ("UPDATE budget SET spent = 0; INSERT INTO budget VALUES ('k', -1, 0)", "budget_amounts"),
        ("DELETE FROM command", "never deleted"),
        ("TRUNCATE command", "never deleted"),
        ("UPDATE schedule_change SET reason = 'another'", "changes of schedules stay"),
        ("DELETE FROM schedule_change", "changes of schedules stay"),
        ("TRUNCATE schedule_change", "changes of schedules stay"),
    ] {
        let told = refusal(&url, sql).await;
        assert!(told.contains(why), "{sql}: {told}");
    }
    let event = |seq: &str, from: &str, to: &str, hash: &str| {
        format!(
            "INSERT INTO event (epoch, txn, work, seq, at, type, from_state, to_state, actor_type, actor_id, \
             attempt, data, prev_hash, hash) SELECT 1, 1, w.id, {seq}, 0, 'progressed', {from}, {to}, \
             'person', 'p', 1, '{{}}', {hash}, w.head FROM work w WHERE w.state = {{running}}"
        )
    };
    for (sql, why) in [
        // A gap, a predecessor in another state, another predecessor, a move outside the table.
        (event("w.seq + 2", "{running}", "{running}", "w.head"), "does not follow"),
        (event("w.seq + 1", "{cancel_requested}", "{cancel_requested}", "w.head"), "does not follow"),
        (event("w.seq + 1", "{running}", "{running}", "decode('00', 'hex')"), "does not follow"),
        (event("w.seq + 1", "{running}", "{cancelled}", "w.head"), "event_move"),
        (event("w.seq + 1", "NULL", "{running}", "w.head"), "event_birth"),
        (event("w.seq", "{running}", "{running}", "w.head"), "event_seq"),
    ] {
        let told = refusal(&url, &sql).await;
        assert!(told.contains(why), "{sql}: {told}");
    }
    // Erasure is no edit.
    shared()
        .psql(name(&url), "UPDATE event SET message = NULL, payload = NULL, evidence = NULL, salt = NULL");
    let faults = ledger.verify().await.unwrap().faults;
    let unrecorded = |fault: &tenure_store::Fault| fault.what.contains("nobody is recorded to have done so");
    assert!(!faults.is_empty() && faults.iter().all(unrecorded), "{faults:?}");
    ledger.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_check_on_moves_is_the_table_of_moves() {
    let (url, ledger) = ledger().await;
    let check = "SELECT trim(leading 'CHECK ' from pg_get_constraintdef(oid)) FROM pg_constraint \
         WHERE conname = 'event_move'";
    let check = shared().psql(name(&url), check);
    let admitted = format!(
        "SELECT concat(from_state, ' ', to_state) FROM generate_series(-20, 80) AS t(to_state), \
         (SELECT generate_series(-20, 80) UNION SELECT NULL) AS f(from_state) WHERE ({check}) IS NOT FALSE"
    );
    let admitted: BTreeSet<String> =
        shared().psql(name(&url), &admitted).lines().map(str::to_owned).collect();
    let mut expected = BTreeSet::new();
    for to in State::ALL {
        for from in State::ALL.into_iter().filter(|from| from.may_become(to)) {
            expected.insert(format!("{} {}", from.code(), to.code()));
        }
    }
    expected.extend(BORN.iter().map(|(born, _)| format!(" {}", born.code())));
    assert_eq!(admitted, expected);
    ledger.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_has_one_holder_whatever_happens() {
    let (url, ledger) = ledger().await;
    let told = refusal(
        &url,
        "INSERT INTO status SELECT gen_random_uuid(), NULL, 0, s, 'default', 'chat' \
         FROM unnest('{{running},{stalled}}'::smallint[]) s",
    )
    .await;
    assert!(told.contains("status_holder"), "{told}");
    ledger.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_ledger_is_left_alone() {
    let url = shared().create_database();
    shared().psql(name(&url), "CREATE TABLE somebody_elses (x int)");
    let Err(Error::Unusable(told)) = Ledger::open_postgres(&url, options()).await else {
        panic!("a foreign database was opened");
    };
    assert!(told.contains("not a ledger's"), "{told}");
    let tables = shared().psql(name(&url), "SELECT count(*) FROM pg_class WHERE relname = 'work'");
    assert_eq!(tables, "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newer_breaking_schema_is_refused_and_another_one_is_not() {
    let (url, ledger) = ledger().await;
    ledger.close().await.unwrap();
    let add = |number: i32, breaking: bool| {
        let sql = format!("INSERT INTO migration VALUES ({number}, 'from_the_future', {breaking})");
        shared().psql(name(&url), &sql);
    };
    add(1_000, false);
    Ledger::open_postgres(&url, options()).await.unwrap().close().await.unwrap();
    add(1_001, true);
    let Err(Error::Unusable(told)) = Ledger::open_postgres(&url, options()).await else {
        panic!("a newer schema was opened");
    };
    assert!(told.contains("1001 (from_the_future)"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_may_open_an_empty_database_at_once() {
    let url = shared().create_database();
    let opens: Vec<_> = (0..8)
        .map(|_| {
            let url = url.clone();
            tokio::spawn(async move { Ledger::open_postgres(&url, options()).await })
        })
        .collect();
    for open in opens {
        open.await.unwrap().unwrap().close().await.unwrap();
    }
    assert_eq!(shared().psql(name(&url), "SELECT count(*) FROM migration WHERE number = 1"), "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn weak_settings_are_refused_unless_allowed() {
    let cluster = Cluster::start_with(&["synchronous_commit=off", "full_page_writes=off"]);
    let url = cluster.create_database();
    let Err(Error::WeakSettings(told)) = Ledger::open_postgres(&url, options()).await else {
        panic!("a ledger was opened that may lose commits");
    };
    assert!(told.contains("synchronous_commit is off") && told.contains("full_page_writes is off"), "{told}");
    let allowed = Options { allow_weak_settings: true, ..options() };
    Ledger::open_postgres(&url, allowed).await.unwrap().close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn another_encoding_than_utf8_is_refused_by_name() {
    for (encoding, allow_weak_settings) in [("SQL_ASCII", false), ("LATIN1", true)] {
        let url = shared().create_database();
        let sql = format!(
            "CREATE DATABASE {0}_other TEMPLATE template0 ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C'",
            name(&url)
        );
        shared().psql("postgres", &sql);
        let other = Options { allow_weak_settings, ..options() };
        let Err(Error::Unusable(told)) = Ledger::open_postgres(&format!("{url}_other"), other).await else {
            panic!("a database with the encoding {encoding} was opened");
        };
        assert!(told.contains(encoding) && told.contains("createdb -E UTF8 -T template0"), "{told}");
        let tables = shared()
            .psql(&format!("{}_other", name(&url)), "SELECT count(*) FROM pg_class WHERE relname = 'work'");
        assert_eq!(tables, "0");
    }
}
