//! Two versions over one ledger: a newer one recorded events, fields and states that this one does not know. Nothing of it is
//! called damage, and everything that this version does know goes on.
#![cfg(all(feature = "sqlite", feature = "postgres"))]

use std::sync::Arc;

use serde_json::json;
use tenure_store::{
    Error, Ledger, ManualClock, NewWork, Options, Position, Sweeper, WorkFilter,
    core::{
        Actor, Event, Fact, State, WorkId,
        action::{ClaimFilter, Claimant, CloseOut},
        chain,
        model::{Disposition, Worker},
    },
};
use tenure_testkit::shared;

/// The number of a state that only the newer version has.
const UNKNOWN: u8 = State::ALL.len() as u8;

/// Ledgers over one database, and the newer version beside them.
struct Bed {
    ledger: Ledger,
    other: Ledger,
    clock: Arc<ManualClock>,
    folder: tempfile::TempDir,
    /// None on SQLite.
    url: Option<String>,
}

impl Bed {
    async fn sqlite() -> Self {
        Self::open(None).await
    }

    async fn postgres() -> Self {
        Self::open(Some(tokio::task::spawn_blocking(|| shared().create_database()).await.unwrap())).await
    }

    async fn open(url: Option<String>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::new(1_790_000_000_000));
        let open = async || {
            let options = Options { clock: Some(clock.clone()), sweep: false, ..Options::default() };
            match &url {
                Some(url) => Ledger::open_postgres(url, options).await.unwrap(),
                None => Ledger::open_sqlite(&folder.path().join("ledger.db"), options).await.unwrap(),
            }
        };
        let (ledger, other) = (open().await, open().await);
        Self { ledger, other, clock, folder, url }
    }

    async fn sql(&self, sql: String) {
        match self.url.clone() {
            None => {
                let conn = rusqlite::Connection::open(self.folder.path().join("ledger.db")).unwrap();
                conn.busy_timeout(std::time::Duration::from_secs(10)).unwrap();
                conn.execute_batch(&sql).unwrap();
            }
            Some(url) => {
                let psql = move || shared().psql(url.rsplit('/').next().unwrap(), &sql);
                tokio::task::spawn_blocking(psql).await.unwrap();
            }
        }
    }

    fn blob(&self, bytes: &[u8]) -> String {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        if self.url.is_some() { format!("'\\x{hex}'") } else { format!("x'{hex}'") }
    }

    fn id(&self, work: WorkId) -> String {
        if self.url.is_some() { format!("'{}'", work.0) } else { self.blob(work.0.as_bytes()) }
    }

    /// The next event of a work item as a newer version adds it: rightly linked and hashed, of a new type and with new data.
    /// No constraint of this version's schema is in its way, but for the state where that is a new one.
    async fn future_event(&self, work: WorkId, to: Option<u8>) {
        let row = self.ledger.work(work).await.unwrap();
        let data = r#"{"by_whom":{"name":"of tomorrow"},"until_at":1790000000000}"#;
        let mut event = Event {
            work,
            seq: row.seq + 1,
            at: row.updated_at,
            from: Some(row.state),
            to: row.state,
            actor: Actor::person("ada"),
            attempt: row.attempt,
            step: None,
            fence: None,
            fact: Fact::parse("work_postponed", data).unwrap(),
            data: data.to_owned(),
            message: None,
            payload: None,
            evidence: Vec::new(),
            content: None,
            prev_hash: row.head,
            hash: row.head,
        };
        event.hash = chain::hash(&event);
        let (id, seq, from) = (self.id(work), event.seq, row.state.code());
        let to = to.unwrap_or(from);
        let (prev, hash) = (self.blob(&event.prev_hash.0), self.blob(&event.hash.0));
        let at = event.at;
        let attempt = event.attempt;
        let queued = State::Queued.code();
        let sql = if self.url.is_some() {
            format!(
                "BEGIN; \
                 INSERT INTO event (txn, epoch, work, seq, at, type, from_state, to_state, actor_type, actor_id, attempt, \
                 data, prev_hash, hash) SELECT pg_current_xact_id()::text::bigint, max(epoch), {id}, {seq}, {at}, \
                 'work_postponed', {from}, {to}, 'person', 'ada', {attempt}, '{data}', {prev}, {hash} \
                 FROM event WHERE work = {id}; \
                 UPDATE work SET seq = {seq}, head = {hash}, state = {to} WHERE id = {id}; \
                 UPDATE status SET state = {to} WHERE work = {id} AND state <> {to}; \
                 DELETE FROM ready WHERE work = {id} AND {to} <> {queued}; COMMIT"
            )
        } else {
            format!(
                "BEGIN IMMEDIATE; \
                 INSERT INTO event (work, seq, at, type, from_state, to_state, actor_type, actor_id, attempt, data, \
                 prev_hash, hash, previous) SELECT {id}, {seq}, {at}, 'work_postponed', {from}, {to}, 'person', 'ada', \
                 {attempt}, '{data}', {prev}, {hash}, last_event FROM work WHERE id = {id}; \
                 UPDATE work SET seq = {seq}, head = {hash}, state = {to}, last_event = last_insert_rowid() \
                 WHERE id = {id}; COMMIT"
            )
        };
        self.sql(sql).await;
    }

    /// A newer version's migration widens the checks that name the states.
    async fn lift_checks(&self) {
        self.sql(
            "ALTER TABLE work DROP CONSTRAINT work_state; ALTER TABLE event DROP CONSTRAINT event_move"
                .to_owned(),
        )
        .await;
    }

    async fn ingested(&self, id: &str) -> WorkId {
        let new = NewWork::new("manual", id, "job", Disposition::Rerunnable, json!(id));
        self.ledger.caller(Actor::machine("gateway")).ingest(new).await.unwrap().work.id
    }

    async fn close(self) {
        self.ledger.close().await.unwrap();
        self.other.close().await.unwrap();
    }
}

fn claimant(request: &str) -> Claimant {
    Claimant::new(Worker::new("w", "1"), request)
}

fn done() -> CloseOut {
    CloseOut {
        state: State::Succeeded,
        result: None,
        result_ref: None,
        no_output: true,
        warnings: Vec::new(),
        error: None,
        evidence: Vec::new(),
        commands: Vec::new(),
        usage: Vec::new(),
    }
}

/// An event of an unknown type that does not move its work stops nobody: not that work, and no other.
async fn an_unknown_event_is_shown_and_the_work_goes_on(bed: Bed) {
    let (first, second) = (bed.ingested("first").await, bed.ingested("second").await);
    bed.future_event(first, None).await;
    // A field that this version does not know, in what it rewrites with every event.
    let body = "UPDATE work SET body = replace(body, '{', '{\"of_tomorrow\":{\"n\":[1,2]},') WHERE source_id = 'first'";
    bed.sql(body.to_owned()).await;
    for ledger in [&bed.ledger, &bed.other] {
        let events = ledger.events(first, 0, 10).await.unwrap();
        assert_eq!(events.unreadable, []);
        let planted = &events[1].event;
        assert_eq!((planted.fact.kind(), planted.fact.is_unknown()), ("work_postponed", true));
        assert!(planted.data.contains("of tomorrow"), "as it is stored");
        let feed = ledger.feed(Position::default(), 10).await.unwrap();
        let kinds: Vec<&str> = feed.events.iter().map(|stored| stored.event.fact.kind()).collect();
        assert_eq!(kinds, ["work_created", "work_created", "work_postponed"]);
        assert_eq!(feed.unreadable, []);
        let list = ledger.list(&WorkFilter::default(), None, 10).await.unwrap();
        assert_eq!((list.len(), list.unreadable.len()), (2, 0));
        let report = ledger.verify().await.unwrap();
        assert_eq!((report.faults, report.newer, report.works, report.events), (vec![], 1, 2, 3));
    }

    let worker = bed.other.caller(Actor::worker("w"));
    let filter = || ClaimFilter { max: 5, ..ClaimFilter::default() };
    let claimed = worker.claim(claimant("one"), filter(), None).await.unwrap();
    assert_eq!(claimed.iter().map(|one| one.work.id).collect::<Vec<_>>(), [first, second]);
    assert_eq!(claimed[0].work.seq, 3);
    bed.future_event(first, None).await;
    let running = bed.ledger.work(first).await.unwrap();
    assert_eq!((running.state, running.seq), (State::Running, 4));
    worker.renew(&[(claimed[0].lease.clone(), None)]).await.unwrap();
    worker.close_out(&claimed[0].lease, done()).await.unwrap();
    // The other one's lease lapses, and is judged.
    let mut sweeper = Sweeper::new(bed.clock.clone());
    for _ in 0..30 {
        bed.clock.advance(5_000);
        let sweep = sweeper.run_once(&bed.ledger).await.unwrap();
        assert_eq!(sweep.failed, 0);
    }
    assert_ne!(bed.other.work(second).await.unwrap().state, State::Running);
    let ended = bed.other.work(first).await.unwrap();
    assert_eq!(ended.state, State::Succeeded);
    assert!(ended.body.text().contains(r#""of_tomorrow":{"n":[1,2]}"#), "{}", ended.body.text());
    assert_eq!(bed.ledger.damaged(), []);
    let report = bed.ledger.verify().await.unwrap();
    assert_eq!((report.faults, report.newer), (vec![], 1));

    // An unknown event is hashed as every other one is.
    let edit = if bed.url.is_some() {
        "SET session_replication_role = replica; "
    } else {
        "DROP TRIGGER event_stays; "
    };
    bed.sql(format!(
        "{edit}UPDATE event SET type = 'work_delayed' WHERE seq = 2 AND type = 'work_postponed'"
    ))
    .await;
    let report = bed.ledger.verify().await.unwrap();
    let told =
        |what: &str| report.faults.iter().any(|fault| fault.work == Some(first) && fault.what.contains(what));
    assert!(told("event 2 was changed after it was written"), "{:?}", report.faults);
    bed.close().await;
}

/// A state that this version does not know is refused for that work alone, and named for what it is.
async fn an_unknown_state_is_refused_for_that_work_alone(bed: Bed) {
    let (first, second) = (bed.ingested("first").await, bed.ingested("second").await);
    if bed.url.is_some() {
        bed.lift_checks().await;
        bed.future_event(first, Some(UNKNOWN)).await;
    } else {
        // SQLite has no way to drop a CHECK: a newer version makes the table anew.
        let conn = rusqlite::Connection::open(bed.folder.path().join("ledger.db")).unwrap();
        let lifted = format!(
            "PRAGMA ignore_check_constraints = ON; DROP TRIGGER event_stays; \
             UPDATE event SET to_state = {UNKNOWN} WHERE work = (SELECT id FROM work WHERE source_id = 'first') AND seq = 2;"
        );
        let trigger = "SELECT sql FROM sqlite_schema WHERE name = 'event_stays'";
        let trigger: String = conn.query_row(trigger, [], |row| row.get(0)).unwrap();
        bed.future_event(first, None).await;
        conn.execute_batch(&lifted).unwrap();
        conn.execute_batch(&format!("UPDATE work SET state = {UNKNOWN} WHERE source_id = 'first'")).unwrap();
        conn.execute_batch(&trigger).unwrap();
    }
    let state = format!("state {UNKNOWN}");
    let newer = |error: &Error| matches!(error, Error::Newer(why) if why.contains(&state));
    for ledger in [&bed.ledger, &bed.other] {
        let refused = ledger.work(first).await.unwrap_err();
        assert!(newer(&refused), "{refused}");
        let text = refused.to_string();
        assert!(
            text.starts_with("written by a newer version of Tenure") && !text.contains("contradict"),
            "{text}"
        );
        let list = ledger.list(&WorkFilter::default(), None, 10).await.unwrap();
        assert_eq!((list.len(), list.unreadable.len()), (1, 1));
        assert!(list.unreadable[0].newer && list.unreadable[0].work == Some(first));
        let feed = ledger.feed(Position::default(), 10).await.unwrap();
        assert_eq!((feed.events.len(), feed.unreadable.len()), (2, 1));
        assert!(feed.unreadable[0].newer);
        let report = ledger.verify().await.unwrap();
        assert_eq!(report.newer, 1);
        assert!(report.faults.iter().all(|fault| fault.work.is_none()), "{:?}", report.faults);
    }
    let person = bed.other.caller(Actor::person("ada"));
    let refused = person.cancel(first, "not wanted", None).await.unwrap_err();
    assert!(newer(&refused), "{refused}");
    let worker = bed.other.caller(Actor::worker("w"));
    let claimed =
        worker.claim(claimant("one"), ClaimFilter { max: 5, ..ClaimFilter::default() }, None).await.unwrap();
    assert_eq!(claimed.iter().map(|one| one.work.id).collect::<Vec<_>>(), [second]);
    worker.close_out(&claimed[0].lease, done()).await.unwrap();
    let sweep = Sweeper::new(bed.clock.clone()).run_once(&bed.ledger).await.unwrap();
    assert!(bed.ledger.damaged().iter().all(|one| one.newer), "{sweep:?}");
    bed.close().await;
}

/// A row that says what only a newer version knows, beside a log that does not, was changed by somebody.
async fn a_row_that_knows_more_than_its_log_is_a_fault(bed: Bed) {
    let work = bed.ingested("first").await;
    let body = "UPDATE work SET body = '{\"reason\":{\"code\":\"of_tomorrow\"}}' WHERE source_id = 'first'";
    bed.sql(body.to_owned()).await;
    let refused = bed.other.work(work).await.unwrap_err();
    assert!(matches!(refused, Error::Newer(_)), "{refused}");
    let report = bed.other.verify().await.unwrap();
    assert!(report.faults.iter().any(|fault| fault.work == Some(work)), "{report:?}");
    bed.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_event_is_shown_and_the_work_goes_on_on_sqlite() {
    an_unknown_event_is_shown_and_the_work_goes_on(Bed::sqlite().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_event_is_shown_and_the_work_goes_on_on_postgres() {
    an_unknown_event_is_shown_and_the_work_goes_on(Bed::postgres().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_state_is_refused_for_that_work_alone_on_sqlite() {
    an_unknown_state_is_refused_for_that_work_alone(Bed::sqlite().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_state_is_refused_for_that_work_alone_on_postgres() {
    an_unknown_state_is_refused_for_that_work_alone(Bed::postgres().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_knows_more_than_its_log_is_a_fault_on_sqlite() {
    a_row_that_knows_more_than_its_log_is_a_fault(Bed::sqlite().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_knows_more_than_its_log_is_a_fault_on_postgres() {
    a_row_that_knows_more_than_its_log_is_a_fault(Bed::postgres().await).await;
}
