//! A ledger with every kind of row, and edits of its tables behind its back: `verify` detects each of them,
//! on both databases.

use std::sync::Arc;

use serde_json::json;
use tenure_store::{
    Anchor, Caller, Clock, LeaseRef, Ledger, ManualClock, NewCredential, NewWait, NewWork, Options,
    Principal, PrincipalKind, Sweeper,
    core::{
        Actor,
        action::{Claimant, CloseOut, Failure, Kinds, Tenants},
        command::{
            Arguments, Effect, Evaluation, Intent, PolicyDecision, Proof, ToolFacts,
            budget::{Limit, Per, Unit},
        },
        model::{Disposition, ErrorClass, WaitKind, Worker},
        payload::{Digest, Payload},
    },
};

const HOUR: i64 = 3_600_000;

pub fn options(clock: &Arc<ManualClock>) -> Options {
    Options { clock: Some(clock.clone()), sweep: false, lanes: 1, ..Options::default() }
}

/// A command with a cost.
async fn spend(caller: &Caller, lease: &LeaseRef) {
    let limits =
        vec![Limit { per: Per::Tenant, unit: Unit::Calls, period: String::new(), max: 9, only: None }];
    let evaluation = Evaluation {
        limits,
        ..Evaluation::new(PolicyDecision::new(Effect::Allow, "p"), ToolFacts::default())
    };
    let arguments = Arguments::whole(Payload::new(&json!({})).unwrap());
    let new = Intent::new("mail", "bob", arguments, evaluation.clone());
    let id = caller.reserve(lease, new).await.unwrap().command.id;
    caller.dispatch(lease, id, evaluation, None).await.unwrap();
    caller.receipt(lease, id, Proof::provider("m-1")).await.unwrap();
}

fn job(id: &str) -> NewWork {
    let claim = Some(Claimant::new(Worker::new("w", "1"), id));
    NewWork { claim, ..NewWork::new("manual", id, "job", Disposition::Rerunnable, json!(1)) }
}

fn credential(name: &str, kind: PrincipalKind, expires_at: Option<i64>) -> NewCredential {
    NewCredential {
        name: name.to_owned(),
        principal: Principal::new(kind, name),
        hash: Digest::of(name),
        scopes: vec!["view".to_owned()],
        tenants: Tenants::Only(vec!["default".to_owned()]),
        kinds: Kinds::All,
        worker: None,
        expires_at,
        created_by: Actor::person("root"),
    }
}

/// One work item that waited, made a step, sent a command and has ended; one that waits; one that failed; one
/// that may be pruned; a kept answer; a valid and a revoked credential. All of it anchored. Spent amounts are
/// not fully checked once something was pruned.
pub async fn populate(ledger: &Ledger, clock: &Arc<ManualClock>, pruned: bool) {
    let caller = ledger.caller(Actor::worker("w"));
    let done = || CloseOut::succeeded(Payload::new(&json!("done")).unwrap());
    let old = caller.ingest(job("old")).await.unwrap().lease.unwrap();
    caller.close_out(&old.lease, done()).await.unwrap();
    clock.advance(3 * HOUR);
    for id in ["ended", "waits"] {
        let held = caller.ingest(job(id)).await.unwrap().lease.unwrap();
        caller.begin_step(&held.lease, "s", &json!(1), false).await.unwrap();
        caller.complete_step(&held.lease, "s", &json!(1), &json!(2)).await.unwrap();
        if id == "ended" {
            spend(&caller, &held.lease).await;
        }
        clock.advance(1);
        caller.wait(&held.lease, vec![NewWait::new(WaitKind::User, id)], None).await.unwrap();
        clock.advance(1);
        if id == "ended" {
            caller.resolve("default", id, &json!(3), None).await.unwrap();
            let claimant = Claimant::new(Worker::new("w", "1"), "again");
            let held = caller.claim_ids(claimant, vec![held.work.id]).await.unwrap().remove(0);
            clock.advance(1);
            caller.close_out(&held.lease, done()).await.unwrap();
        }
    }
    let failed = caller.ingest(job("failed")).await.unwrap().lease.unwrap();
    caller.fail(&failed.lease, Failure::new(ErrorClass::Timeout, "it took too long")).await.unwrap();
    caller.resolve("default", "early", &json!("yes"), None).await.unwrap();

    let root = Actor::person("root");
    let until = Some(clock.wall() + HOUR);
    ledger.add_credential(&credential("agent", PrincipalKind::Machine, until)).await.unwrap();
    let lost = credential("lost", PrincipalKind::Person, None);
    let lost = ledger.add_credential(&lost).await.unwrap();
    ledger.revoke_credential(lost.id, &root, "lost", None).await.unwrap();

    let report = ledger.verify().await.unwrap();
    assert_eq!(report.faults, []);
    if pruned {
        let pruned = ledger.prune(&root, "too old", clock.wall() - 2 * HOUR, 10).await.unwrap();
        assert_eq!(pruned.works, 1);
    }
    // An event is not anchored while another transaction may still come before it.
    while ledger.anchor().await.unwrap().events < report.events {
        Sweeper::new(clock.clone()).run_once(ledger).await.unwrap();
    }
    assert_eq!(ledger.anchor().await.unwrap(), ledger.extend_anchor(Anchor::default()).await.unwrap());
    assert_eq!(ledger.verify().await.unwrap().faults, []);
}

/// One edit, in the SQL of each database, and everything that `verify` must report about it. Triggers are off
/// meanwhile.
pub struct Edit {
    pub sqlite: String,
    pub postgres: String,
    pub told: &'static [&'static str],
}

fn each(sqlite: &str, postgres: &str, told: &'static [&'static str]) -> Edit {
    Edit { sqlite: sqlite.to_owned(), postgres: postgres.to_owned(), told }
}

fn both(sql: &str, told: &'static [&'static str]) -> Edit {
    let sqlite = sql.replace("{attempt}", "attempt").replace("{true}", "1").replace("{x}", "x");
    let postgres = sql.replace("{attempt}", "attempt_end").replace("{true}", "true").replace("{x}", "\\x");
    Edit { sqlite, postgres, told }
}

/// Rows that are recomputed from the log.
pub fn records() -> Vec<Edit> {
    const ONE: &[&str] = &["attempt 1 differs from its log"];
    const TWO: &[&str] = &["attempt 2 differs from its log"];
    vec![
        each("UPDATE attempt SET worker = 'somebody' WHERE number = 2", "", TWO),
        each("UPDATE attempt SET ended_at = NULL WHERE number = 2", "", TWO),
        each("DELETE FROM attempt WHERE number = 2", "", &["claimed 2 times and has 1"]),
        each("", "DELETE FROM attempt_end WHERE outcome = 'closed_out'", TWO),
        both("UPDATE {attempt} SET ended_at = ended_at + 1 WHERE outcome = 'closed_out'", TWO),
        both("UPDATE {attempt} SET usage = '[{\"calls\":1}]' WHERE outcome = 'waited'", ONE),
        both("UPDATE {attempt} SET outcome = 'failed' WHERE outcome = 'closed_out'", TWO),
        both("UPDATE {attempt} SET outcome = 'released' WHERE outcome = 'closed_out'", TWO),
        both("UPDATE {attempt} SET outcome = 'closed_out' WHERE outcome = 'failed'", ONE),
        both("UPDATE {attempt} SET outcome = 'closed_out' WHERE outcome = 'waited'", ONE),
        both(
            "UPDATE {attempt} SET outcome = 'superseded', ack = NULL, body_hash = NULL WHERE outcome = 'waited'",
            ONE,
        ),
        both(
            "UPDATE {attempt} SET outcome = 'superseded', ack = NULL, body_hash = NULL \
             WHERE outcome = 'closed_out'",
            TWO,
        ),
        both("UPDATE {attempt} SET error = replace(error, 'long', 'little') WHERE outcome = 'failed'", ONE),
        both("UPDATE {attempt} SET error = replace(error, 'timeout', 'auth') WHERE outcome = 'failed'", ONE),
        both("UPDATE {attempt} SET error = NULL WHERE outcome = 'failed'", ONE),
        both(
            "UPDATE {attempt} SET error = (SELECT b.error FROM {attempt} b WHERE b.outcome = 'failed') \
             WHERE outcome = 'closed_out'",
            TWO,
        ),
        both("UPDATE {attempt} SET ack = NULL WHERE outcome = 'closed_out'", TWO),
        both(
            "UPDATE {attempt} SET ack = (SELECT b.ack FROM {attempt} b WHERE b.outcome = 'failed') \
             WHERE outcome = 'closed_out'",
            TWO,
        ),
        both(
            "UPDATE {attempt} SET ack = replace(ack, 'succeeded', 'failed') WHERE outcome = 'closed_out'",
            TWO,
        ),
        both(
            "UPDATE budget SET spent = 2",
            &["2 calls spent and 0 calls reserved, but the logs have 1 call and 0 calls"],
        ),
        both("UPDATE budget SET reserved = 5", &["1 call spent and 5 calls reserved"]),
        both("DELETE FROM budget", &["0 calls spent"]),
        each("UPDATE command SET target = 'eve'", "", &["differs from its log"]),
        each("", "UPDATE command SET target = 'eve'", &["is not what it was reserved as"]),
        each("UPDATE command SET slot = 'other'", "", &["differs from its log"]),
        both("UPDATE step SET result_seq = 1", &["step `s` differs from its log"]),
        both("UPDATE step SET voided = {true}", &["step `s` differs"]),
        both("DELETE FROM step", &["1 steps, and 0 are stored"]),
        both("UPDATE wait SET answer_seq = 1 WHERE state = 'answered'", &["differs from its log"]),
        both("UPDATE wait SET deadline_at = deadline_at + 1", &["differs from its log"]),
        both("UPDATE wait SET reference = 'other' WHERE state = 'open'", &["differs from its log"]),
        both(
            "UPDATE wait SET state = 'cancelled', ended_at = opened_at WHERE state = 'open'",
            &["differs from its log"],
        ),
        both("DELETE FROM event WHERE seq = (SELECT max(seq) FROM event)", &["does not match the anchor"]),
        each("DELETE FROM event WHERE seq = 2", "", &["has an event without a predecessor"]),
        each("", "DELETE FROM event WHERE seq = 2", &["event 2 is missing"]),
        each("UPDATE work SET last_event = last_event - 1", "", &["does not match its last event"]),
    ]
}

/// Rows that no log covers.
pub fn unlogged() -> Vec<Edit> {
    const CREDENTIAL: &[&str] = &["credential cr_", "was added or changed"];
    const KEPT: &[&str] = &["the answer kept for `early` of tenant `default` was added or changed"];
    const ANCHOR: &[&str] = &["the anchor was deleted"];
    const PRUNING: &[&str] = &["the record of the pruning at"];
    vec![
        each(
            "INSERT INTO credential (id, name, principal, principal_name, kind, hash, scopes, created_at, created_by, \
             mac) SELECT randomblob(16), 'eve', randomblob(16), 'eve', 'person', randomblob(32), '[\"admin\"]', \
             created_at, created_by, mac FROM credential WHERE name = 'agent'",
            "INSERT INTO credential (id, name, principal, principal_name, kind, hash, scopes, created_at, created_by, \
             mac) SELECT gen_random_uuid(), 'eve', gen_random_uuid(), 'eve', 'person', sha256('eve'), '[\"admin\"]', \
             created_at, created_by, mac FROM credential WHERE name = 'agent'",
            CREDENTIAL,
        ),
        both("UPDATE credential SET scopes = '[\"view\",\"admin\"]' WHERE name = 'agent'", CREDENTIAL),
        both("UPDATE credential SET tenants = NULL WHERE name = 'agent'", CREDENTIAL),
        both("UPDATE credential SET kind = 'person' WHERE name = 'agent'", CREDENTIAL),
        both("UPDATE credential SET expires_at = NULL WHERE name = 'agent'", CREDENTIAL),
        both("UPDATE credential SET expires_at = expires_at + 1 WHERE name = 'agent'", CREDENTIAL),
        both("UPDATE credential SET principal = id WHERE name = 'agent'", CREDENTIAL),
        both("UPDATE credential SET mac = NULL WHERE name = 'agent'", CREDENTIAL),
        both(
            "UPDATE credential SET revoked_at = NULL, revoked_by = NULL, revoked_reason = NULL \
             WHERE name = 'lost'",
            CREDENTIAL,
        ),
        both("UPDATE credential SET revoked_reason = 'a mistake' WHERE name = 'lost'", CREDENTIAL),
        both("UPDATE kept SET payload = '\"no\"'", KEPT),
        both("UPDATE kept SET actor = '{\"type\":\"person\",\"id\":\"ada\"}'", KEPT),
        both("UPDATE kept SET actor = '{'", &["a row of `kept` cannot be read"]),
        both(
            "INSERT INTO kept (tenant, reference, payload, actor, evidence, kept_at, mac) \
             SELECT tenant, 'waits', payload, actor, evidence, kept_at, mac FROM kept",
            &["waits for an answer that is kept", "the answer kept for `waits` of tenant `default`"],
        ),
        both("DELETE FROM meta WHERE key = 'anchor'", ANCHOR),
        both(
            "DELETE FROM meta WHERE key = 'anchor'; DELETE FROM event WHERE seq = (SELECT max(seq) FROM event)",
            ANCHOR,
        ),
        each(
            "UPDATE meta SET value = CAST(json_set(CAST(value AS TEXT), '$.anchor', json('{\"position\":\"0-0-0\",\
             \"events\":0,\"digest\":\"' || hex(zeroblob(32)) || '\"}')) AS BLOB) WHERE key = 'anchor'",
            "UPDATE meta SET value = jsonb_set(value::jsonb, '{anchor}', ('{\"position\":\"0-0-0\",\"events\":0,\
             \"digest\":\"' || repeat('00', 32) || '\"}')::jsonb)::text WHERE key = 'anchor'",
            &["the anchor was added or changed"],
        ),
        each(
            "UPDATE meta SET value = zeroblob(32) WHERE key = 'key'",
            "UPDATE meta SET value = repeat('00', 32) WHERE key = 'key'",
            &["the anchor was added or changed", "credential cr_", "the tombstone of w_"],
        ),
        both("UPDATE pruning SET reason = 'none of your business'", PRUNING),
        both("UPDATE pruning SET actor = '{\"type\":\"person\",\"id\":\"ada\"}'", PRUNING),
        both("DELETE FROM pruning", &["nobody is recorded to have done so"]),
        both("DELETE FROM tombstone", &["was pruned and has no tombstone"]),
        both("UPDATE tombstone SET source_id = 'other'", &["the tombstone of w_"]),
        both(
            &[
                "INSERT INTO tombstone (work, tenant, system, source_id, run_id, generation, pruned_at, mac{gone}) \
                 SELECT w.id, w.tenant, w.system, w.source_id, w.run_id, w.generation, t.pruned_at, t.mac{true} \
                 FROM work w CROSS JOIN tombstone t WHERE w.source_id = 'ended'",
                "INSERT INTO link ({position}, hash, work, mac) SELECT {event}, e.hash, e.work, l.mac \
                 FROM event e JOIN work w ON w.id = e.work JOIN link l ON {first} WHERE w.source_id = 'ended'",
                "DELETE FROM event WHERE work = (SELECT id FROM work WHERE source_id = 'ended')",
                "DELETE FROM {attempt} WHERE work = (SELECT id FROM work WHERE source_id = 'ended')",
                "DELETE FROM step WHERE work = (SELECT id FROM work WHERE source_id = 'ended')",
                "DELETE FROM wait WHERE work = (SELECT id FROM work WHERE source_id = 'ended')",
                "DELETE FROM command",
                "DELETE FROM status WHERE work = (SELECT id FROM work WHERE source_id = 'ended')",
                "DELETE FROM work WHERE source_id = 'ended'",
            ]
            .join(";"),
            &["the tombstone of w_", "the link of the pruned event"],
        )
        .placed(),
    ]
}

impl Edit {
    /// With what the places of events are called.
    fn placed(self) -> Self {
        let sqlite = [("{position}", "position"), ("{event}", "e.position")];
        let first = ("{first}", "l.position = (SELECT min(position) FROM link)");
        let postgres = [("{position}", "epoch, txn, number"), ("{event}", "e.epoch, e.txn, e.number")];
        let own = ("{first}", "l.number = (SELECT min(number) FROM link)");
        let filled = |sql: &str, names: &[(&str, &str)]| {
            names.iter().fold(sql.to_owned(), |sql, (name, by)| sql.replace(name, by))
        };
        Self {
            sqlite: filled(&self.sqlite, &[sqlite[0], sqlite[1], first, ("{gone}", ""), ("t.mac1", "t.mac")]),
            postgres: filled(
                &self.postgres,
                &[postgres[0], postgres[1], own, ("{gone}", ", gone"), ("t.mactrue", "t.mac, true")],
            ),
            told: self.told,
        }
    }
}

/// The findings of a copy of the anchor, made before the edit: also where the ledger's own anchor was cut to what is left.
pub fn against_a_copy() -> Vec<Edit> {
    const ENDED: &str = "(SELECT id FROM work WHERE source_id = 'ended')";
    let gone = |what: &str| format!("DELETE FROM {what} = {ENDED}");
    let rows = [
        "event WHERE work",
        "{attempt} WHERE work",
        "step WHERE work",
        "wait WHERE work",
        "command WHERE work",
    ];
    let rows = rows.iter().chain(&["status WHERE work"]).map(|what| gone(what));
    let work = rows.chain(["DELETE FROM work WHERE source_id = 'ended'".to_owned()]).collect::<Vec<_>>();
    vec![
        both(
            &work.join(";"),
            &["the feed does not match the anchor of 2026-", "events or whole work items were deleted"],
        ),
        both(
            "DELETE FROM event WHERE work = (SELECT id FROM work WHERE source_id = 'failed') AND seq > 2",
            &["the feed does not match the anchor of 2026-", "its newest events were cut off"],
        ),
        each(
            "UPDATE event SET hash = randomblob(32) WHERE seq = 2",
            "UPDATE event SET hash = sha256('other') WHERE seq = 2",
            &["the feed does not match the anchor of 2026-", "an event was edited or replaced"],
        ),
        each(
            "UPDATE event SET message = 'it was quick' WHERE type = 'attempt_failed'",
            "UPDATE event SET message = 'it was quick' WHERE type = 'attempt_failed'",
            &["event 3"],
        ),
        each(
            "",
            "INSERT INTO link (epoch, txn, number, hash, work, mac) SELECT epoch, txn, number - 1, hash, work, mac \
             FROM link LIMIT 1",
            &["the feed does not match the anchor of 2026-", "events were inserted"],
        ),
    ]
}

/// Opens an older copy of a ledger that has gone on meanwhile, and looks at it with a copy of the newer one's anchor.
pub async fn an_older_copy_is_found(whole: &Ledger, clock: &Arc<ManualClock>, older: &Ledger) {
    let before = whole.anchor().await.unwrap();
    let caller = whole.caller(Actor::worker("w"));
    caller.ingest(job("newer")).await.unwrap();
    let mut copy = whole.signed_anchor().await.unwrap();
    while copy.anchor.events == before.events {
        copy = whole.signed_anchor().await.unwrap();
    }
    assert_eq!(whole.verify_with(Some(&copy)).await.unwrap().faults, []);
    assert_eq!(older.verify().await.unwrap().faults, [], "nothing in it says that it is old");
    let faults = older.verify_with(Some(&copy)).await.unwrap().faults;
    let told: Vec<&str> = faults.iter().map(|fault| fault.what.as_str()).collect();
    assert!(matches!(told[..], [one] if one.contains("this is an older copy of the ledger")), "{told:?}");
    // It goes on by itself, until it has as many events.
    let caller = older.caller(Actor::worker("w"));
    clock.advance(1);
    caller.ingest(job("other")).await.unwrap();
    while older.signed_anchor().await.unwrap().anchor.events < copy.anchor.events {}
    let faults = older.verify_with(Some(&copy)).await.unwrap().faults;
    assert!(faults.iter().any(|fault| fault.what.contains("an older copy of the ledger")), "{faults:?}");
}

/// Objects that keep others from writing invalid data.
pub fn schema() -> Vec<Edit> {
    vec![
        each("DROP TRIGGER event_stays", "", &["the trigger `event_stays` is missing"]),
        each(
            "",
            "DROP TRIGGER event_unchanged ON event",
            &["the trigger `event_unchanged on event` is missing"],
        ),
        each(
            "DROP TRIGGER work_moved; CREATE TRIGGER work_moved AFTER UPDATE ON work BEGIN SELECT 1; END",
            "",
            &["the trigger `work_moved` was changed"],
        ),
        each(
            "",
            "ALTER TABLE event DISABLE TRIGGER event_unchanged",
            &["the trigger `event_unchanged on event` was changed"],
        ),
        each(
            "",
            "CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$",
            &["the function `refuse` was changed"],
        ),
        each(
            "CREATE TRIGGER quiet AFTER INSERT ON credential BEGIN SELECT 1; END",
            "CREATE TRIGGER quiet BEFORE TRUNCATE ON credential FOR EACH STATEMENT EXECUTE FUNCTION refuse()",
            &["the trigger `quiet", "is not the ledger's"],
        ),
        each(
            "",
            "CREATE RULE quiet AS ON DELETE TO credential DO INSTEAD NOTHING",
            &["the rule `quiet on credential` is not the ledger's"],
        ),
        each(
            "",
            "ALTER TABLE credential ENABLE ROW LEVEL SECURITY; CREATE POLICY quiet ON credential USING (false)",
            &[
                "the table `credential` was changed: kept, row security",
                "the policy `quiet on credential` is not the ledger's",
            ],
        ),
        each(
            "",
            "ALTER TABLE event FORCE ROW LEVEL SECURITY",
            &["the table `event` was changed: kept, forced row security"],
        ),
        each(
            "DROP INDEX status_holder",
            "DROP INDEX status_holder",
            &["the index `status_holder` is missing"],
        ),
        each(
            "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql = \
             replace(sql, 'CHECK (kind = ''person'' OR kind = ''machine'')', '') WHERE name = 'credential'",
            "ALTER TABLE credential DROP CONSTRAINT credential_kind",
            &["credential"],
        ),
        each(
            "INSERT INTO migration VALUES (900, 'more', 0, 1)",
            "INSERT INTO migration VALUES (900, 'more', false, now())",
            &["migration 900"],
        ),
    ]
}
