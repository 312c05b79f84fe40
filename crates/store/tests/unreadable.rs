//! Rows that cannot be read, and rows from before a rule, on both databases: neither ever fails a list.
#![cfg(all(feature = "sqlite", feature = "postgres"))]

use std::sync::Arc;

use serde_json::{Value, json};
use tenure_store::{
    CommandFilter, Ledger, Listed, ManualClock, NewCredential, NewSchedule, NewWait, NewWork, Options,
    Position, Principal, PrincipalKind, Sweeper, WaitFilter, WorkFilter,
    core::{
        Actor, Payload, State, WorkId,
        action::{ClaimFilter, Claimant, Kinds, Tenants},
        command::{Arguments, Effect, Evaluation, Intent, PolicyDecision, ToolFacts},
        model::{Disposition, OnTimeout, WaitKind, Worker},
        payload::Digest,
        policy::PolicyOverrides,
        schedule::{Overlap, Plan, Template, Timing},
    },
};
use tenure_testkit::shared;

/// A ledger, its clock, and direct access to its database.
struct Bed {
    ledger: Ledger,
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
        let options = Options { clock: Some(clock.clone()), sweep: false, ..Options::default() };
        let ledger = match &url {
            Some(url) => Ledger::open_postgres(url, options).await.unwrap(),
            None => Ledger::open_sqlite(&folder.path().join("ledger.db"), options).await.unwrap(),
        };
        Self { ledger, clock, folder, url }
    }

    async fn write_around(&self, sql: &'static str) {
        match self.url.clone() {
            None => {
                let conn = rusqlite::Connection::open(self.folder.path().join("ledger.db")).unwrap();
                let trigger = "SELECT sql FROM sqlite_schema WHERE name = 'event_stays'";
                let trigger: String = conn.query_row(trigger, [], |row| row.get(0)).unwrap();
                conn.execute_batch(&format!("DROP TRIGGER event_stays; {sql}; {trigger}")).unwrap();
            }
            Some(url) => {
                let sql = format!("SET session_replication_role = replica; {sql}");
                let psql = move || shared().psql(url.rsplit('/').next().unwrap(), &sql);
                tokio::task::spawn_blocking(psql).await.unwrap();
            }
        }
    }

    /// A waiting work item with a command.
    async fn waiting(&self, id: &str, wait: NewWait) -> WorkId {
        let worker = self.ledger.caller(Actor::worker("w"));
        let claim = Some(Claimant::new(Worker::new("w", "1"), id));
        let new = NewWork::new("manual", id, "job", Disposition::Rerunnable, json!(id));
        let held = worker.ingest(NewWork { claim, ..new }).await.unwrap().lease.unwrap();
        let evaluation = Evaluation::new(PolicyDecision::new(Effect::Allow, "p"), ToolFacts::default());
        let arguments = Arguments::whole(Payload::new(&json!({})).unwrap());
        worker.reserve(&held.lease, Intent::new("mail", id, arguments, evaluation)).await.unwrap();
        worker.wait(&held.lease, vec![wait], None).await.unwrap();
        held.work.id
    }
}

fn asks(reference: &str) -> NewWait {
    NewWait::new(WaitKind::User, reference)
}

async fn credential(ledger: &Ledger, name: &str) {
    let new = NewCredential {
        name: name.to_owned(),
        principal: Principal::new(PrincipalKind::Machine, name),
        hash: Digest::of(name),
        scopes: vec!["view".to_owned()],
        tenants: Tenants::All,
        kinds: Kinds::All,
        worker: None,
        expires_at: None,
        created_by: Actor::person("ada"),
    };
    ledger.add_credential(&new).await.unwrap();
}

async fn schedule(ledger: &Ledger, name: &str) {
    let template = Template {
        kind: "job".to_owned(),
        title: None,
        disposition: Disposition::Rerunnable,
        input: Value::Null,
        priority: 3,
        session: None,
        correlation_id: None,
        workflow: None,
        policy: PolicyOverrides::default(),
    };
    let plan = Plan { timing: Timing::EveryMs(60_000), template, overlap: Overlap::Skip, catch_up_ms: 0 };
    let new = NewSchedule { tenant: "default".to_owned(), name: name.to_owned(), plan, paused: None };
    ledger.caller(Actor::person("ada")).set_schedule(new, "a test").await.unwrap();
}

/// As a file has it in which such a value was accepted: as a default, and in a schema.
async fn a_value_from_before_the_rule_is_read(bed: Bed) {
    let asked = NewWait {
        default: Some(json!(7)),
        schema: Some(json!({ "maximum": 7 })),
        on_timeout: OnTimeout::Default,
        timeout_ms: Some(1_000),
        ..asks("old")
    };
    let old = bed.waiting("old", asked).await;
    bed.write_around(
        "UPDATE wait SET detail = replace(replace(detail, '\"default\":7', '\"default\":100000000000000000'), \
         '\"maximum\":7', '\"maximum\":100000000000000000')",
    )
    .await;
    let ledger = &bed.ledger;
    let waits = ledger.waits(&WaitFilter::default(), 10).await.unwrap();
    let detail = &waits[0].detail;
    assert_eq!(detail.default.as_ref().unwrap().text(), "100000000000000000");
    assert_eq!(detail.schema.as_ref().unwrap().text(), r#"{"maximum":100000000000000000}"#);
    assert_eq!(ledger.list(&WorkFilter::default(), None, 10).await.unwrap().len(), 1);
    assert_eq!(ledger.verify().await.unwrap().faults, []);
    if bed.url.is_none() {
        let copy = bed.folder.path().join("copy.db");
        ledger.backup(&copy).await.unwrap();
        let options = Options { sweep: false, ..Options::default() };
        let restored = Ledger::open_sqlite(&copy, options).await.unwrap();
        assert_eq!(restored.verify().await.unwrap().faults, []);
        assert_eq!(restored.waits(&WaitFilter::default(), 10).await.unwrap().len(), 1);
        restored.close().await.unwrap();
    }
    bed.clock.advance(2_000);
    let sweep = Sweeper::new(bed.clock.clone()).run_once(ledger).await.unwrap();
    assert_eq!((sweep.acted, sweep.failed), (1, 0));
    assert_eq!(ledger.work(old).await.unwrap().state, State::Queued, "answered with the default");
    assert_eq!(ledger.verify().await.unwrap().faults, []);
    ledger.close().await.unwrap();
}

fn named<T, K>(page: &Listed<T, K>) -> Vec<&str> {
    page.unreadable.iter().map(|row| row.id.as_str()).collect()
}

async fn one_row_that_cannot_be_read_never_fails_a_list(bed: Bed) {
    let ledger = &bed.ledger;
    let mut ids = Vec::new();
    for id in ["first", "damaged", "last"] {
        ids.push(bed.waiting(id, asks(id)).await);
        credential(ledger, id).await;
        schedule(ledger, id).await;
    }
    let damaged = ids[1];
    let command = CommandFilter { target: Some("damaged".to_owned()), ..CommandFilter::default() };
    let command = ledger.commands(&command, None, 1).await.unwrap()[0].id.to_string();
    let wait = WaitFilter { work: Some(damaged), ..WaitFilter::default() };
    let wait = ledger.waits(&wait, 1).await.unwrap()[0].id.to_string();
    let token = ledger.credential(Digest::of("damaged")).await.unwrap().unwrap().id.to_string();
    bed.write_around(
        "UPDATE work SET body = '{' WHERE source_id = 'damaged'; \
         UPDATE wait SET detail = '{' WHERE reference = 'damaged'; \
         UPDATE command SET body = '{' WHERE work = (SELECT id FROM work WHERE source_id = 'damaged'); \
         UPDATE credential SET scopes = '{' WHERE name = 'damaged'; \
         UPDATE schedule SET body = '{' WHERE name = 'damaged'; \
         UPDATE event SET data = '{' WHERE seq = 2 \
         AND work = (SELECT id FROM work WHERE source_id = 'damaged')",
    )
    .await;
    let event = format!("{damaged} event 2");

    let works = ledger.list(&WorkFilter::default(), None, 10).await.unwrap();
    assert_eq!((works.len(), named(&works)), (2, vec![damaged.to_string().as_str()]));
    assert_eq!(works.unreadable[0].work, Some(damaged));
    let waits = ledger.waits(&WaitFilter::default(), 10).await.unwrap();
    assert_eq!((waits.len(), named(&waits)), (2, vec![wait.as_str()]));
    let commands = ledger.commands(&CommandFilter::default(), None, 10).await.unwrap();
    assert_eq!((commands.len(), named(&commands)), (2, vec![command.as_str()]));
    let credentials = ledger.credentials(None, 10).await.unwrap();
    assert_eq!((credentials.len(), named(&credentials)), (2, vec![token.as_str()]));
    let schedules = ledger.caller(Actor::person("ada")).schedules(None, None, 10).await.unwrap();
    assert_eq!((schedules.len(), named(&schedules)), (2, vec!["default/damaged"]));
    let events = ledger.events(damaged, 0, 10).await.unwrap();
    assert_eq!(named(&events), [event.as_str()]);
    assert_eq!(events.iter().map(|stored| stored.event.seq).collect::<Vec<_>>(), [1, 3, 4]);
    let feed = ledger.feed(Position::default(), 100).await.unwrap();
    assert_eq!((feed.events.len(), feed.unreadable.len()), (11, 1));
    assert_eq!((feed.unreadable[0].id.as_str(), feed.unreadable[0].work), (event.as_str(), Some(damaged)));

    // A page of one row continues after it.
    let (mut seen, mut before) = (Vec::new(), None);
    loop {
        let page = ledger.list(&WorkFilter::default(), before, 1).await.unwrap();
        seen.extend(page.iter().map(|work| work.id));
        seen.extend(page.unreadable.iter().filter_map(|row| row.work));
        before = page.next().copied();
        if before.is_none() {
            break;
        }
    }
    seen.reverse();
    assert_eq!(seen, ids);
    let (mut seen, mut filter) = (0, WaitFilter::default());
    loop {
        let page = ledger.waits(&filter, 1).await.unwrap();
        seen += page.count();
        filter.after = page.next().copied();
        if filter.after.is_none() {
            break;
        }
    }
    assert_eq!(seen, 3);

    // The others continue, and verify names the damaged ones.
    let gateway = ledger.caller(Actor::machine("gateway"));
    gateway.resolve("default", "last", &json!("yes"), None).await.unwrap();
    let claimant = Claimant::new(Worker::new("w", "2"), "again");
    let claimed =
        gateway.claim(claimant, ClaimFilter { max: 3, ..ClaimFilter::default() }, None).await.unwrap();
    assert_eq!(claimed.iter().map(|one| one.work.id).collect::<Vec<_>>(), [ids[2]]);
    let report = ledger.verify().await.unwrap();
    assert!(report.faults.iter().any(|fault| fault.work == Some(damaged)), "{:?}", report.faults);
    ledger.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_from_before_the_rule_is_read_on_sqlite() {
    a_value_from_before_the_rule_is_read(Bed::sqlite().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_from_before_the_rule_is_read_on_postgres() {
    a_value_from_before_the_rule_is_read(Bed::postgres().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_row_that_cannot_be_read_never_fails_a_list_on_sqlite() {
    one_row_that_cannot_be_read_never_fails_a_list(Bed::sqlite().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_row_that_cannot_be_read_never_fails_a_list_on_postgres() {
    one_row_that_cannot_be_read_never_fails_a_list(Bed::postgres().await).await;
}
