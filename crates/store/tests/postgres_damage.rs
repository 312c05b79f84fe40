//! A page of the database that cannot be read: the work items and commands on it are skipped, and everything
//! else continues.
#![cfg(feature = "postgres")]

use std::{collections::BTreeSet, fs::OpenOptions, os::unix::fs::FileExt, sync::Arc};

use serde_json::json;
use tenure_store::{
    Error, Ledger, ManualClock, NewWork, Options, Sweeper,
    core::{
        Actor, CommandId, Payload, State, WorkId,
        action::{ClaimFilter, Claimant},
        command::{Arguments, Duty, Effect, Evaluation, Executor, Intent, PolicyDecision, ToolFacts},
        model::{Disposition, Worker},
        policy::{PolicyOverrides, Timeouts},
    },
};
use tenure_testkit::Cluster;

async fn ingest(ledger: &Ledger, id: &str) -> WorkId {
    let timeouts = Some(Timeouts { start_ms: Some(1_000), ..Timeouts::default() });
    let policy = PolicyOverrides { timeouts, ..PolicyOverrides::default() };
    let new = NewWork::new("manual", id, "job", Disposition::Rerunnable, json!(id));
    ledger.caller(Actor::machine("test")).ingest(NewWork { policy, ..new }).await.unwrap().work.id
}

async fn claim(ledger: &Ledger, request: &str, max: usize) -> Vec<tenure_store::Claimed> {
    let claimant = Claimant::new(Worker::new("w", "w-1"), request);
    let filter = ClaimFilter { max, ..ClaimFilter::default() };
    ledger.caller(Actor::worker("w")).claim(claimant, filter, None).await.unwrap()
}

const BLOCK: &str = "(ctid::text::point)[0]::bigint";

/// Overwrites the page that contains this work item, and returns the work items on it.
fn damage(cluster: &Cluster, url: &str, work: WorkId) -> BTreeSet<WorkId> {
    let database = name(url);
    let number = cluster.psql(database, &format!("SELECT {BLOCK} FROM work WHERE id = '{}'", work.0));
    let works = cluster.psql(database, &format!("SELECT id FROM work WHERE {BLOCK} = {number}"));
    smash(cluster, &[(url, "work", number.parse().unwrap())]);
    works.lines().map(|id| WorkId(id.parse().unwrap())).collect()
}

/// Overwrites pages: in a database, of a table or an index, by number. The first of an index has no keys.
fn smash(cluster: &Cluster, pages: &[(&str, &str, u64)]) {
    let path = |(url, relation, _): &(&str, &str, u64)| {
        cluster.psql(name(url), &format!("SELECT pg_relation_filepath('{relation}')"))
    };
    let files: Vec<String> = pages.iter().map(path).collect();
    cluster.psql("postgres", "CHECKPOINT");
    cluster.stop();
    for (file, (_, _, number)) in files.iter().zip(pages) {
        let file = OpenOptions::new().write(true).open(cluster.folder().join("data").join(file)).unwrap();
        file.write_all_at(&[0xff; 512], number * 8_192).unwrap();
    }
    cluster.restart();
}

fn name(url: &str) -> &str {
    url.rsplit('/').next().unwrap()
}

/// The damaged entries other than work items and commands.
fn tables(ledger: &Ledger) -> Vec<String> {
    ledger.damaged().into_iter().map(|one| one.id).filter(|id| id.starts_with("the table")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_page_stops_nobody_else() {
    // A vacuum would make the space on that page available to new rows.
    let cluster = Cluster::start_with(&["autovacuum=off"]);
    let url = cluster.create_database();
    let clock = Arc::new(ManualClock::new(1_790_000_000_000));
    let options = || Options { clock: Some(clock.clone()), sweep: false, lanes: 1, ..Options::default() };
    let ledger = Ledger::open_postgres(&url, options()).await.unwrap();
    let mut works = Vec::new();
    for n in 0..60 {
        works.push(ingest(&ledger, &n.to_string()).await);
    }
    ledger.close().await.unwrap();
    let bad = damage(&cluster, &url, works[0]);
    let good: BTreeSet<WorkId> = works.iter().copied().filter(|id| !bad.contains(id)).collect();
    assert!(!good.is_empty(), "they are not all on one page");

    let ledger = Ledger::open_postgres(&url, options()).await.unwrap();
    let held = claim(&ledger, "some", 10).await;
    assert_eq!(held.len(), 10, "the head of the queue is damaged, and passed over");
    assert!(held.iter().all(|one| good.contains(&one.work.id)));
    let caller = ledger.caller(Actor::worker("w"));
    let person = ledger.caller(Actor::person("ada"));
    let touched = person.cancel(works[0], "why not", None);
    let renewals = [(held[0].lease.clone(), None)];
    let (touched, renewed) = tokio::join!(touched, caller.renew(&renewals));
    assert!(matches!(&touched, Err(Error::Corrupt(why)) if why.contains("page")), "{touched:?}");
    renewed.unwrap().remove(0).outcome.expect("in the same group, and none of its business");
    let late = ingest(&ledger, "late").await;
    let health = ledger.health().await;
    assert_eq!(health.stopped, None);
    let named = health.damaged.iter().filter(|one| bad.iter().any(|id| one.id == id.to_string()));
    assert_eq!(named.count(), bad.len(), "they are named: {:?}", health.damaged);

    clock.advance(2_000);
    let sweep = Sweeper::new(clock.clone()).run_once(&ledger).await.unwrap();
    assert_eq!(sweep.failed, bad.len());
    assert_eq!(ledger.work(late).await.unwrap().state, State::TimedOut, "the sweep went on");
    ledger.close().await.unwrap();
}

struct Bed {
    cluster: Cluster,
    clock: Arc<ManualClock>,
}

impl Bed {
    fn start() -> Self {
        let cluster = Cluster::start_with(&["autovacuum=off"]);
        Self { cluster, clock: Arc::new(ManualClock::new(1_790_000_000_000)) }
    }

    async fn open(&self, url: &str) -> Ledger {
        let clock = Some(self.clock.clone() as _);
        Ledger::open_postgres(url, Options { clock, sweep: false, lanes: 1, ..Options::default() })
            .await
            .unwrap()
    }

    fn psql(&self, url: &str, sql: &str) -> String {
        self.cluster.psql(name(url), sql)
    }
}

/// Does it so many times, in a few groups.
async fn at_once(times: usize, ledger: &Ledger, one: impl AsyncFn(Ledger, usize)) {
    futures_util::future::join_all((0..times).map(|n| one(ledger.clone(), n))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_page_of_the_due_list_or_its_index_does_not_stop_the_sweep() {
    const WORKS: usize = 200;
    let bed = Bed::start();
    let urls = [bed.cluster.create_database(), bed.cluster.create_database()];
    for url in &urls {
        let ledger = bed.open(url).await;
        at_once(WORKS, &ledger, async |ledger, n| {
            ingest(&ledger, &n.to_string()).await;
        })
        .await;
        ledger.close().await.unwrap();
    }
    let lost = bed.psql(&urls[0], &format!("SELECT count(*) FROM status WHERE {BLOCK} = 0"));
    let lost: usize = lost.parse().unwrap();
    smash(&bed.cluster, &[(&urls[0], "status", 0), (&urls[1], "status_due", 1)]);
    bed.clock.advance(2_000);
    for (url, lost, why) in [(&urls[0], lost, "1 of its pages"), (&urls[1], 0, "REINDEX TABLE status")] {
        let ledger = bed.open(url).await;
        let health = ledger.health().await;
        assert_eq!(health.closed(), None, "{why}: ready all the same");
        let mut sweeper = Sweeper::new(bed.clock.clone());
        let sweep = sweeper.run_once(&ledger).await.unwrap();
        assert_eq!((sweep.acted, sweep.failed), (WORKS - lost, 0), "{why}: {sweep:?}");
        let named = ledger.damaged().into_iter().filter(|one| one.why.contains(why)).count();
        assert!(named > 0, "{:?}", ledger.damaged());
        if lost == 0 {
            bed.psql(url, "REINDEX TABLE status");
            sweeper.run_once(&ledger).await.unwrap();
            assert_eq!(ledger.health().await.damaged, [], "repaired");
        }
        ledger.close().await.unwrap();
    }
}

/// A work item with a command to send.
async fn outbox(ledger: &Ledger, id: &str) {
    let caller = ledger.caller(Actor::worker("w"));
    let claim = Some(Claimant::new(Worker::new("w", "1"), id));
    let new = NewWork::new("manual", id, "job", Disposition::Rerunnable, json!(id));
    let held = caller.ingest(NewWork { claim, ..new }).await.unwrap().lease.unwrap();
    let tool = ToolFacts { executor: Executor::Http, ..ToolFacts::default() };
    let evaluation = Evaluation::new(PolicyDecision::new(Effect::Allow, "p"), tool);
    let arguments = Arguments::whole(Payload::new(&json!("x".repeat(1_500))).unwrap());
    caller.reserve(&held.lease, Intent::new("mail", id, arguments, evaluation)).await.unwrap();
}

/// All commands that are due to be sent, read page by page.
async fn due(ledger: &Ledger) -> BTreeSet<CommandId> {
    let (mut ids, mut after) = (BTreeSet::new(), None);
    loop {
        let page = ledger.due_page(Duty::Send, after, &[], 50, |_| false).await.unwrap();
        ids.extend(page.items.iter().map(|due| due.command.id));
        after = page.next;
        if after.is_none() {
            return ids;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_page_under_one_command_does_not_stop_the_others() {
    const COMMANDS: usize = 120;
    let bed = Bed::start();
    let relations = ["event", "command", "work", "command_status", "command_due"];
    let urls = relations.map(|_| bed.cluster.create_database());
    let mut pages = Vec::new();
    for (relation, url) in relations.iter().zip(&urls) {
        let ledger = bed.open(url).await;
        at_once(COMMANDS, &ledger, async |ledger, n| outbox(&ledger, &n.to_string()).await).await;
        assert_eq!(due(&ledger).await.len(), COMMANDS);
        ledger.close().await.unwrap();
        let on = |of: &str| {
            let sql = format!("SELECT min({BLOCK}) FROM {relation} WHERE {of}");
            bed.psql(url, &sql).parse().unwrap()
        };
        pages.push((
            url.as_str(),
            *relation,
            match *relation {
                "command_due" => 1,
                "event" => on("length(payload) > 1000"),
                "work" | "command" => on("true"),
                _ => 0,
            },
        ));
    }
    smash(&bed.cluster, &pages);
    for (relation, url) in relations.iter().zip(&urls) {
        let ledger = bed.open(url).await;
        let read = due(&ledger).await;
        let damaged = ledger.damaged();
        let named = damaged.iter().filter(|one| one.id.starts_with("c_")).count();
        let listed = !tables(&ledger).is_empty();
        assert_eq!(ledger.health().await.closed(), None, "{relation}");
        match *relation {
            "command_due" => assert!(read.len() == COMMANDS && listed, "{}: {damaged:?}", read.len()),
            "command_status" => {
                assert!(!read.is_empty() && read.len() < COMMANDS && listed, "{}: {damaged:?}", read.len());
            }
            _ => {
                assert_eq!(read.len() + named, COMMANDS, "{relation}: {damaged:?}");
                assert!(named > 0 && !read.is_empty(), "{relation}: {damaged:?}");
            }
        }
        ledger.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_page_of_the_queue_is_named_and_stops_only_claims_of_what_is_on_it() {
    let bed = Bed::start();
    let url = bed.cluster.create_database();
    let ledger = bed.open(&url).await;
    let kind = |n: usize| if n < 200 { "bad" } else { "good" };
    for (first, last) in [(0, 200), (200, 220)] {
        at_once(last - first, &ledger, async |ledger, n| {
            let n = first + n;
            let new = NewWork::new("manual", &n.to_string(), kind(n), Disposition::Rerunnable, json!(n));
            ledger.caller(Actor::machine("test")).ingest(new).await.unwrap();
        })
        .await;
    }
    ledger.close().await.unwrap();
    smash(&bed.cluster, &[(&url, "ready", 0)]);
    let ledger = bed.open(&url).await;
    let claim = async |kind: &str| {
        let filter = ClaimFilter { kinds: vec![kind.into()], max: 1, ..ClaimFilter::default() };
        let claimant = Claimant::new(Worker::new("w", "w-1"), kind);
        // A caller that is bound to tenants: for claims of all of them, the first work item of each is read,
        // of any kind.
        let worker = ledger.caller(Actor::worker("w")).within(vec!["default".to_owned()]);
        worker.claim(claimant, filter, None).await
    };
    let refused = claim("bad").await.map(|given| given.len());
    assert!(matches!(&refused, Err(Error::Corrupt(why)) if why.contains("page")), "{refused:?}");
    assert_eq!(claim("good").await.unwrap().len(), 1);
    assert_eq!(tables(&ledger), ["the table ready, read for claims"]);
    ledger.close().await.unwrap();
}
