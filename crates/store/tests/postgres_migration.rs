//! A database as an earlier version left it becomes one of today, with all that was in it.
#![cfg(feature = "postgres")]

use serde_json::json;
use tenure_core::{
    Actor, Payload,
    action::{Claimant, CloseOut},
    model::{AttemptOutcome, Disposition, Worker},
};
use tenure_store::{Ledger, NewWork, Options};
use tenure_testkit::shared;

/// Back to when an attempt had a row of its own from its claim on.
const OLDER: &str = "
    CREATE TABLE attempt (work uuid NOT NULL, fence bigint NOT NULL, request bigint NOT NULL,
        claimed_at bigint NOT NULL, ended_at bigint, number integer NOT NULL, worker text NOT NULL,
        incarnation text NOT NULL, outcome text, body_hash bytea, ack text, error text, usage text,
        PRIMARY KEY (work, fence), CONSTRAINT attempt_end CHECK ((ended_at IS NULL) = (outcome IS NULL)))
        WITH (fillfactor = 30);
    CREATE INDEX attempt_request ON attempt (request);
    INSERT INTO attempt SELECT e.work, e.fence, e.request, e.at, a.ended_at, e.attempt,
        e.data::json #>> '{worker,id}', e.data::json #>> '{worker,incarnation}', a.outcome, a.body_hash, a.ack,
        a.error, a.usage FROM event e LEFT JOIN attempt_end a ON a.work = e.work AND a.fence = e.fence
        WHERE e.type = 'claimed';
    DROP TABLE attempt_end;
    ALTER TABLE event DROP COLUMN request CASCADE;
    DROP INDEX status_tenant, wait_tenant, command_tenant;
    DROP TABLE pruning;
    DROP TRIGGER tombstone_stays ON tombstone;
    DROP TRIGGER tombstone_kept ON tombstone;
    CREATE TRIGGER tombstone_stays BEFORE UPDATE ON tombstone FOR EACH ROW EXECUTE FUNCTION refuse('older');
    ALTER TABLE tombstone DROP COLUMN mac;
    ALTER TABLE kept DROP COLUMN mac;
    ALTER TABLE kept ADD COLUMN approves boolean NOT NULL DEFAULT false;
    ALTER TABLE link DROP COLUMN mac, DROP COLUMN work;
    DELETE FROM meta WHERE key = 'anchor';
    ALTER TABLE credential DROP COLUMN principal, DROP COLUMN principal_name, DROP COLUMN kinds, DROP COLUMN worker,
        DROP COLUMN revoked_by, DROP COLUMN revoked_reason, DROP COLUMN mac;
    ALTER TABLE event DROP COLUMN actor_name CASCADE;
    CREATE TRIGGER event_unchanged BEFORE UPDATE ON event FOR EACH ROW WHEN (NEW.hash <> OLD.hash)
        EXECUTE FUNCTION refuse('an event changes only by erasure');
    CREATE TABLE lane (id bigserial PRIMARY KEY, system text NOT NULL, kind text NOT NULL, UNIQUE (system, kind));
    INSERT INTO lane (system, kind) SELECT DISTINCT system, kind FROM ready;
    ALTER TABLE ready ADD COLUMN lane bigint;
    UPDATE ready r SET lane = l.id FROM lane l WHERE l.system = r.system AND l.kind = r.kind;
    ALTER TABLE ready DROP COLUMN kind, DROP COLUMN system;
    DROP INDEX command_lookup;
    DELETE FROM migration WHERE number >= 15";

async fn open(url: &str) -> Ledger {
    Ledger::open_postgres(url, Options { sweep: false, ..Options::default() }).await.unwrap()
}

fn claimant(request: &str) -> Claimant {
    Claimant::new(Worker::new("w", "1"), request)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_database_becomes_one_of_today() {
    let url = shared().create_database();
    let psql = |sql: &str| shared().psql(url.rsplit('/').next().unwrap(), sql);
    let ledger = open(&url).await;
    let worker = ledger.caller(Actor::worker("w"));
    let mut new = NewWork::new("manual", "one", "job", Disposition::Rerunnable, json!(1));
    new.claim = Some(claimant("first"));
    let first = worker.ingest(new).await.unwrap().lease.unwrap();
    let one = first.work.id;
    worker.release(&first.lease, None).await.unwrap();
    let second = worker.claim_ids(claimant("second"), vec![one]).await.unwrap().remove(0);
    let mut new = NewWork::new("manual", "two", "job", Disposition::Rerunnable, json!(2));
    new.claim = Some(claimant("third"));
    let third = worker.ingest(new).await.unwrap().lease.unwrap();
    let close = || CloseOut::succeeded(Payload::new(&json!("done")).unwrap());
    let ack = worker.close_out(&third.lease, close()).await.unwrap();

    let before = [ledger.attempts(one).await.unwrap(), ledger.attempts(third.work.id).await.unwrap()];
    let outcomes = |at: usize| -> Vec<Option<AttemptOutcome>> {
        before[at].iter().map(|attempt| attempt.end.as_ref().map(|end| end.outcome)).collect()
    };
    assert_eq!(outcomes(0), [Some(AttemptOutcome::Released), None]);
    assert_eq!(outcomes(1), [Some(AttemptOutcome::ClosedOut)]);
    assert_eq!((before[0][1].worker.as_str(), before[0][1].number), ("w", 2));
    ledger.close().await.unwrap();

    psql(OLDER);
    let ledger = open(&url).await;
    let worker = ledger.caller(Actor::worker("w"));
    assert_eq!(psql("SELECT to_regclass('attempt') IS NULL"), "t");
    let now = [ledger.attempts(one).await.unwrap(), ledger.attempts(third.work.id).await.unwrap()];
    assert_eq!(now, before);
    // Repeats find what they were answered before.
    let again = worker.claim_ids(claimant("second"), vec![one]).await.unwrap();
    assert_eq!((again[0].lease.fence, again[0].work.seq), (second.lease.fence, second.work.seq));
    assert_eq!(worker.close_out(&third.lease, close()).await.unwrap(), ack);
    worker.close_out(&second.lease, close()).await.unwrap();
    assert_eq!(ledger.verify().await.unwrap().faults, []);

    psql("ALTER TABLE event DISABLE TRIGGER event_unchanged; UPDATE event SET request = 7 WHERE attempt = 2");
    psql(
        "INSERT INTO attempt_end (work, fence, ended_at, outcome) SELECT id, 42, 0, 'released' FROM work LIMIT 1",
    );
    let faults = format!("{:?}", ledger.verify().await.unwrap().faults);
    for told in ["is not found by its claim", "the end of an attempt that nobody claimed"] {
        assert!(faults.contains(told), "{faults}");
    }
    ledger.close().await.unwrap();
}
