//! Invented names: one tenant uses more tools and kinds than metrics have labels for, and another's still
//! have theirs.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tenure_store::{
    Caller, Ledger, ManualClock, NewWork, Options,
    core::{
        Actor, Payload,
        action::Claimant,
        command::{Arguments, CallError, Effect, Evaluation, Intent, PolicyDecision, ToolFacts},
        model::{Disposition, ErrorClass, Worker},
    },
};
use tokio::task::JoinSet;

use crate::bed::Bed;

/// More than the number of labels.
const MADE_UP: usize = 1_001;

const TOML: &str =
    "[alerts]\nevery = \"100ms\"\npending_age = \"1m\"\nuncertain_age = \"1m\"\nneeds_person = 1";

struct Ground {
    ledger: Ledger,
    clock: Arc<ManualClock>,
    folder: tempfile::TempDir,
}

impl Ground {
    async fn open(postgres: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::new(1_790_000_000_000));
        let options = Options { clock: Some(clock.clone()), sweep: false, ..Options::default() };
        let ledger = if postgres {
            let made = tokio::task::spawn_blocking(|| tenure_testkit::shared().create_database()).await;
            Ledger::open_postgres(&made.unwrap(), options).await.unwrap()
        } else {
            Ledger::open_sqlite(folder.path().join("ledger.db"), options).await.unwrap()
        };
        Self { ledger, clock, folder }
    }

    /// Does it once for the quiet tenant, a minute and a half ago, and then for each invented name of the
    /// hostile one.
    async fn fill<F: Future<Output = ()> + Send + 'static>(&self, one: impl Fn(Caller, String, String) -> F) {
        let caller = || self.ledger.caller(Actor::worker("w"));
        one(caller(), "quiet".to_owned(), "quiet".to_owned()).await;
        self.clock.advance(90_000);
        let mut all = JoinSet::new();
        for n in 0..MADE_UP {
            all.spawn(one(caller(), "hostile".to_owned(), format!("made-up-{n}")));
        }
        all.join_all().await;
    }

    async fn close(self, bed: Bed) {
        bed.server.close().await.unwrap();
        drop(self.folder);
    }
}

fn work(tenant: String, name: &str) -> NewWork {
    let new = NewWork::new("manual", name, name, Disposition::Rerunnable, json!(name));
    NewWork { tenant, ..new }
}

/// A command that was sent, with an unknown outcome.
async fn doubt(caller: Caller, tenant: String, tool: String) {
    let claim = Some(Claimant::new(Worker::new("w", "1"), &tool));
    let held = caller.ingest(NewWork { claim, ..work(tenant, &tool) }).await.unwrap().lease.unwrap().lease;
    let evaluation = Evaluation::new(PolicyDecision::new(Effect::Allow, "p"), ToolFacts::default());
    let arguments = Arguments::whole(Payload::new(&json!({})).unwrap());
    let new = Intent::new(&tool, "target", arguments, evaluation.clone());
    let id = caller.reserve(&held, new).await.unwrap().command.id;
    caller.dispatch(&held, id, evaluation, None).await.unwrap();
    let lost = CallError { class: ErrorClass::Timeout, message: "no answer".into(), retry_after_ms: None };
    caller.uncertain(&held, id, lost).await.unwrap();
}

async fn queue(caller: Caller, tenant: String, kind: String) {
    caller.ingest(work(tenant, &kind)).await.unwrap();
}

/// The alerts of this name, once there are any.
async fn alerts(bed: &Bed, name: &str) -> Vec<Value> {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let all = bed.admin().get("/v1/alerts").await.expect(200)["items"].take();
        let all = all.as_array().unwrap().iter().filter(|alert| alert["name"] == name);
        let all: Vec<Value> = all.cloned().collect();
        if !all.is_empty() {
            return all;
        }
        assert!(Instant::now() < deadline, "in vain: {name}");
        tokio::task::yield_now().await;
    }
}

async fn made_up_tools_do_not_hide_anothers_doubt(postgres: bool) {
    let ground = Ground::open(postgres).await;
    ground.fill(doubt).await;
    let bed = Bed::over_configured(ground.ledger.clone(), TOML).await;
    let doubts = MADE_UP + 1;
    let left = alerts(&bed, "needs_person").await;
    assert_eq!((left.len(), &left[0]["value"]), (1, &json!(doubts)));
    let age = alerts(&bed, "uncertain_age").await;
    assert_eq!((age.len(), &age[0]["value"]), (1, &json!(90_000)), "the quiet tenant's is the oldest");
    let told = bed.admin().get("/metrics").await.expect(200);
    let line = format!("tenure_commands_need_person {doubts}");
    assert!(told.as_str().unwrap().lines().any(|told| told == line), "{told}");
    ground.close(bed).await;
}

async fn made_up_kinds_do_not_hide_anothers_queue(postgres: bool) {
    let ground = Ground::open(postgres).await;
    ground.fill(queue).await;
    ground.clock.advance(90_000);
    let bed = Bed::over_configured(ground.ledger.clone(), TOML).await;
    let late = alerts(&bed, "pending_age").await;
    assert!(late.len() < 50, "{} alerts for made-up kinds", late.len());
    let quiet = late.iter().find(|alert| alert["source"] == "manual/quiet").expect("it is named");
    assert_eq!(quiet["value"], json!(180_000));
    ground.close(bed).await;
}

macro_rules! on_both_databases {
    ($($name:ident),* $(,)?) => {
        mod sqlite { $(#[tokio::test] async fn $name() { super::$name(false).await; })* }
        mod postgres { $(#[tokio::test] async fn $name() { super::$name(true).await; })* }
    };
}

on_both_databases! {
    made_up_tools_do_not_hide_anothers_doubt,
    made_up_kinds_do_not_hide_anothers_queue,
}
