//! A replica that is promoted, with and without the last transactions of the server that it replaces.
#![cfg(feature = "postgres")]

use std::{collections::BTreeSet, process::Command, sync::Arc, time::Duration};

use tenure_core::{
    Actor, Code, WorkId,
    action::{ClaimFilter, Claimant},
    model::{Disposition, Worker},
};
use tenure_store::{Caller, Claimed, Error, Ledger, ManualClock, NewWork, Options, Position, fair};
use tenure_testkit::Cluster;

/// A primary and its standby; the ledger's URL names both, the primary first.
struct Pair {
    primary: Cluster,
    standby: Cluster,
    database: String,
}

impl Pair {
    fn start() -> Self {
        // Nobody but the tests takes transaction numbers.
        let primary = Cluster::start_with(&["autovacuum=off"]);
        let standby = primary.standby();
        let url = primary.create_database();
        let database = url.rsplit('/').next().unwrap().to_owned();
        Self { primary, standby, database }
    }

    fn url(&self) -> String {
        let (one, other) = (self.primary.port(), self.standby.port());
        format!("postgres://tenure@127.0.0.1:{one},127.0.0.1:{other}/{}", self.database)
    }

    /// The URL with the standby first: what connects after its promotion finds it, though the old primary still answers.
    fn url_of_the_promoted(&self) -> String {
        let (one, other) = (self.standby.port(), self.primary.port());
        let database = &self.database;
        format!(
            "postgres://tenure@127.0.0.1:{one},127.0.0.1:{other}/{database}?target_session_attrs=read-write"
        )
    }

    async fn open(&self, options: Options) -> Ledger {
        self.open_at(&self.url(), options).await
    }

    async fn open_at(&self, url: &str, options: Options) -> Ledger {
        Ledger::open_postgres(url, Options { lanes: 1, sweep: false, ..options }).await.unwrap()
    }

    fn cut(&self) {
        self.cut_off(&self.standby);
    }

    /// Waits until a standby has everything, and cuts it off: what follows will be lost.
    fn cut_off(&self, standby: &Cluster) {
        let at = self.primary.psql("postgres", "select pg_current_wal_flush_lsn()");
        let has = format!("select pg_last_wal_replay_lsn() >= '{at}'");
        while standby.psql("postgres", &has) != "t" {}
        standby.cut_off();
    }

    fn fail_over(&self) {
        self.primary.stop();
        self.standby.promote();
    }

    /// The number of the transaction that comes next on the promoted server.
    fn next_transaction(&self) -> i64 {
        let sql = "select pg_snapshot_xmax(pg_current_snapshot())::text";
        self.standby.psql(&self.database, sql).parse().unwrap()
    }
}

fn new(id: &str, kind: &str) -> NewWork {
    NewWork::new("manual", id, kind, Disposition::Rerunnable, serde_json::json!({}))
}

fn claimant(worker: &str, request: &str) -> Claimant {
    let worker = Worker { id: worker.into(), incarnation: "1".into(), liveness: Default::default() };
    Claimant { worker, request_id: request.into(), defer_start: false }
}

async fn claim(caller: &Caller, worker: &str, request: &str, work: WorkId) -> Claimed {
    healed(async || caller.claim_ids(claimant(worker, request), vec![work]).await).await.remove(0)
}

/// Asks again while the server is away.
async fn healed<T>(ask: impl AsyncFn() -> Result<T, Error>) -> T {
    let asking = async {
        loop {
            match ask().await {
                Ok(answer) => return answer,
                Err(Error::Unavailable(_) | Error::OutcomeUnknown(_)) => {}
                Err(other) => panic!("{other}"),
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(30), asking).await.expect("it heals")
}

/// How many connections of the ledger listen for hints on this server.
fn listeners(server: &Cluster) -> String {
    let sql = "select count(*) from pg_stat_activity where application_name = 'tenure' \
               and query in ('SELECT pg_backend_pid()', 'NOTIFY tenure_ready')";
    server.psql("postgres", sql)
}

/// A partition: the old primary answers on every connection that it has.
#[tokio::test(flavor = "multi_thread")]
async fn reads_and_hints_leave_an_old_primary_that_still_answers() {
    let pair = Pair::start();
    let ledger = pair.open_at(&pair.url_of_the_promoted(), Options::default()).await;
    let caller = ledger.caller(Actor::machine("m"));
    let read = async |work: WorkId| fair::on_behalf_of(Arc::from("t"), ledger.work(work)).await;
    let before = caller.ingest(new("before", "k")).await.unwrap().work.id;
    read(before).await.unwrap();
    let until = async |what: &str, told: &dyn Fn() -> bool| {
        let looking = async {
            while !told() {
                tokio::task::yield_now().await
            }
        };
        tokio::time::timeout(Duration::from_secs(30), looking).await.expect(what);
    };
    until("it listens", &|| listeners(&pair.primary) == "1").await;
    pair.cut();
    pair.standby.promote();
    assert_eq!(ledger.stats().server_changed, None);

    // Only the lane's connection is lost.
    let lane = "select count(pg_terminate_backend(pid)) from pg_stat_activity where query = 'COMMIT'";
    assert_eq!(pair.primary.psql("postgres", lane), "1");
    let after = healed(async || caller.ingest(new("after", "k")).await).await.work.id;
    assert_eq!(read(after).await.unwrap().id, after, "it is read where it was written");
    until("it listens to the promoted server", &|| listeners(&pair.standby) == "1").await;
    assert_eq!(listeners(&pair.primary), "0");
    let stats = ledger.stats();
    assert!(stats.server_changes == 1 && stats.server_changed.is_some(), "{stats:?}");
}

/// A process that starts during the failover has seen none of the lost fences.
#[tokio::test(flavor = "multi_thread")]
async fn a_fresh_process_that_came_first_grants_no_lower_fences_once_a_survivor_has_come() {
    let pair = Pair::start();
    let clock = Arc::new(ManualClock::new(1_700_000_000_000));
    let options = || Options { clock: Some(clock.clone()), ..Options::default() };
    let survivor = pair.open(options()).await;
    let caller = survivor.caller(Actor::machine("m"));
    let work = caller.ingest(new("w", "k")).await.unwrap().work.id;
    pair.cut();
    let lost = claim(&caller, "a", "1", work).await;
    pair.fail_over();
    clock.jump(-60_000);
    let fresh = pair.open(options()).await;
    let first = fresh.caller(Actor::machine("m"));
    first.ingest(new("joins", "k")).await.unwrap();
    assert_eq!(fresh.stats().server_changes, 1, "the database tells it of the change");
    healed(async || caller.ingest(new("joins, too", "k")).await).await;
    let granted = claim(&first, "b", "2", work).await;
    assert!(granted.lease.fence > lost.lease.fence, "{} after {}", granted.lease.fence, lost.lease.fence);
}

/// The promoted server gives out the numbers of lost transactions once more. A row that another process wrote there
/// under the number that this process remembers is still another row.
#[tokio::test(flavor = "multi_thread")]
async fn a_holder_whose_claim_was_lost_is_not_served_from_memory() {
    let pair = Pair::start();
    let ledger = pair.open(Options::default()).await;
    let caller = ledger.caller(Actor::machine("m"));
    let work = caller.ingest(new("held", "k")).await.unwrap().work.id;
    let kept = claim(&caller, "true-holder", "1", work).await;
    pair.cut();

    // Lost: the holder gives it back, and somebody else has it.
    caller.release(&kept.lease, None).await.unwrap();
    (0..20).for_each(|_| drop(pair.primary.psql("postgres", "select pg_current_xact_id()")));
    let lost = claim(&caller, "lost-holder", "2", work).await;
    let sql = "select xmin from work";
    let remembered: i64 = pair.primary.psql(&pair.database, sql).parse().unwrap();
    pair.fail_over();

    let other = pair.open(Options::default()).await;
    let renewed = async |ledger: &Ledger, lease: &Claimed| {
        healed(async || ledger.caller(Actor::machine("m")).renew(&[(lease.lease.clone(), None)]).await)
            .await
            .remove(0)
            .outcome
    };
    renewed(&other, &kept).await.expect("on this server the first holder never gave it back");
    while pair.next_transaction() < remembered {
        pair.standby.psql("postgres", "select pg_current_xact_id()");
    }
    renewed(&other, &kept).await.expect("it renews under the very number");
    assert_eq!(
        pair.standby.psql(&pair.database, sql),
        remembered.to_string(),
        "the number was given out again"
    );

    let refused = renewed(&ledger, &lost).await.expect_err("its claim was lost");
    assert_eq!(refused.code, Code::LeaseLost);
    renewed(&ledger, &kept).await.expect("the true holder goes on");
    assert_eq!(ledger.verify().await.unwrap().faults, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_from_lost_seconds_skips_nothing_that_comes_after() {
    let pair = Pair::start();
    let ledger = pair.open(Options::default()).await;
    let caller = ledger.caller(Actor::machine("m"));
    caller.ingest(new("kept", "k")).await.unwrap();
    pair.cut();
    for n in 0..20 {
        caller.ingest(new(&format!("lost-{n}"), "k")).await.unwrap();
    }
    let mut cursor = Position::default();
    let reading = async { while ledger.feed(cursor, 100).await.unwrap().events.len() < 21 {} };
    tokio::time::timeout(Duration::from_secs(30), reading).await.expect("the feed has them");
    cursor = ledger.tail().await.unwrap();
    pair.fail_over();

    let after = healed(async || caller.ingest(new("after", "k")).await).await.work.id;
    let told = async {
        loop {
            let events = healed(async || ledger.feed(cursor, 100).await).await.events;
            if let Some(event) = events.first() {
                return event.event.work;
            }
        }
    };
    assert_eq!(tokio::time::timeout(Duration::from_secs(30), told).await.expect("it is told"), after);
}

/// Reads the feed to its end, whose events are this many.
async fn read_to_end(ledger: &Ledger, events: usize) -> Position {
    let reading =
        async { while ledger.feed(Position::default(), 1_000).await.unwrap().events.len() < events {} };
    tokio::time::timeout(Duration::from_secs(30), reading).await.expect("the feed has them");
    ledger.tail().await.unwrap()
}

/// Waits until a reader that goes on from this place was told of all of these works.
async fn is_told_of(ledger: &Ledger, mut cursor: Position, works: &[WorkId]) {
    let mut missing: BTreeSet<WorkId> = works.iter().copied().collect();
    let told = async {
        while !missing.is_empty() {
            for event in healed(async || ledger.feed(cursor, 100).await).await.events {
                cursor = event.position;
                missing.remove(&event.event.work);
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(30), told).await.expect("it is told of all");
}

/// Epochs are counted in seconds: a process that was not there can only start a higher one in a later second.
fn epoch_is_over(server: &Cluster, database: &str) {
    let over = "select to_timestamp(1767225600 + value::bigint + 1) < clock_timestamp() from meta where key = 'epoch'";
    while server.psql(database, over) != "t" {}
}

/// One replica lags and the other is promoted; then that one dies, and the one that lagged is promoted. Both are on the
/// second timeline of one primary.
#[tokio::test(flavor = "multi_thread")]
async fn a_second_promotion_of_one_primary_is_another_server() {
    let pair = Pair::start();
    let late = pair.primary.standby();
    let url = format!(
        "postgres://tenure@127.0.0.1:{},127.0.0.1:{},127.0.0.1:{}/{}",
        pair.primary.port(),
        pair.standby.port(),
        late.port(),
        pair.database
    );
    let clock = Arc::new(ManualClock::new(1_700_000_000_000));
    let options = || Options { clock: Some(clock.clone()), ..Options::default() };
    let ledger = pair.open_at(&url, options()).await;
    let caller = ledger.caller(Actor::machine("m"));
    caller.ingest(new("on the primary", "k")).await.unwrap();
    pair.cut_off(&late);
    pair.cut();
    pair.fail_over();
    let held = healed(async || caller.ingest(new("held", "k")).await).await.work.id;
    for n in 0..30 {
        caller.ingest(new(&format!("on-a-{n}"), "k")).await.unwrap();
    }
    let lost = claim(&caller, "a", "1", held).await;
    let cursor = read_to_end(&ledger, 33).await;
    assert_eq!(ledger.stats().server_changes, 1);
    epoch_is_over(&pair.standby, &pair.database);
    pair.standby.stop();
    late.promote();
    clock.jump(-60_000);

    // Nobody who lived through it has come to this server yet.
    let fresh = pair.open_at(&url, options()).await;
    let other = fresh.caller(Actor::machine("m"));
    let mut made = vec![healed(async || other.ingest(new("held", "k")).await).await.work.id];
    for n in 0..5 {
        made.push(healed(async || caller.ingest(new(&format!("on-c-{n}"), "k")).await).await.work.id);
        made.push(other.ingest(new(&format!("too-{n}"), "k")).await.unwrap().work.id);
    }
    is_told_of(&ledger, cursor, &made).await;
    is_told_of(&fresh, cursor, &made).await;
    assert_eq!(ledger.stats().server_changes, 2);
    let granted = claim(&other, "b", "2", made[0]).await;
    assert!(granted.lease.fence > lost.lease.fence, "{} after {}", granted.lease.fence, lost.lease.fence);
    assert_eq!(ledger.verify().await.unwrap().faults, []);
}

/// The server's files as they are while it does not run.
struct Snapshot<'a>(&'a Cluster);

impl<'a> Snapshot<'a> {
    fn take(server: &'a Cluster) -> Self {
        server.stop();
        Self::copy(server, "data", "snapshot");
        server.restart();
        Self(server)
    }

    /// Stops the server and starts it with the files as they were.
    fn put_back(&self) {
        self.0.stop();
        Self::copy(self.0, "snapshot", "data");
        self.0.restart();
    }

    fn copy(server: &Cluster, from: &str, to: &str) {
        let folder = server.folder();
        let _none = std::fs::remove_dir_all(folder.join(to));
        let copied = Command::new("cp").arg("-a").args([folder.join(from), folder.join(to)]).status();
        assert!(copied.unwrap().success());
    }
}

/// The same server on the same timeline, but without its last transactions.
#[tokio::test(flavor = "multi_thread")]
async fn files_that_were_put_back_are_another_server() {
    let server = Cluster::start_with(&["autovacuum=off"]);
    let url = server.create_database();
    let open = || async {
        let options = Options { lanes: 1, sweep: false, ..Options::default() };
        Ledger::open_postgres(&url, options).await.unwrap()
    };
    let ledger = open().await;
    let caller = ledger.caller(Actor::machine("m"));
    caller.ingest(new("kept", "k")).await.unwrap();
    let snapshot = Snapshot::take(&server);

    let mut seen = Vec::new();
    for n in 0..30 {
        seen.push(healed(async || caller.ingest(new(&format!("lost-{n}"), "k")).await).await.work.id);
    }
    let cursor = read_to_end(&ledger, 31).await;
    assert_eq!(ledger.stats().server_changes, 0, "a server that is started anew has lost nothing");
    let ingest = async |n: usize| healed(async || caller.ingest(new(&format!("new-{n}"), "k")).await).await;

    snapshot.put_back();
    let mut made = Vec::new();
    for n in 0..5 {
        made.push(ingest(n).await.work.id);
    }
    is_told_of(&ledger, cursor, &made).await;
    assert_eq!(ledger.stats().server_changes, 1);

    // Nor does it matter that no process lived through it.
    let cursor = ledger.tail().await.unwrap();
    ledger.close().await.unwrap();
    epoch_is_over(&server, url.rsplit('/').next().unwrap());
    snapshot.put_back();
    let fresh = open().await;
    let again = fresh.caller(Actor::machine("m")).ingest(new("new-0", "k")).await.unwrap();
    assert!(again.created, "it was lost");
    is_told_of(&fresh, cursor, &[again.work.id]).await;
    assert_eq!(fresh.verify().await.unwrap().faults, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kind_first_seen_in_lost_seconds_is_claimable_by_filter() {
    let pair = Pair::start();
    let ledger = pair.open(Options::default()).await;
    let caller = ledger.caller(Actor::machine("m"));
    caller.ingest(new("kept", "k")).await.unwrap();
    pair.cut();
    caller.ingest(new("lost", "new-kind")).await.unwrap();
    pair.fail_over();

    let again = healed(async || caller.ingest(new("lost", "new-kind")).await).await;
    assert!(again.created, "it was lost, and is there again");
    let filter = ClaimFilter { kinds: vec!["new-kind".into()], max: 1, ..ClaimFilter::default() };
    let given = healed(async || caller.claim(claimant("w", "1"), filter.clone(), None).await).await;
    assert_eq!(given.len(), 1);
}

/// The new server's clock is a minute behind: a fence that was granted and lost is not granted again, nor a lower one.
#[tokio::test(flavor = "multi_thread")]
async fn fences_rise_though_the_promoted_servers_clock_is_behind() {
    let pair = Pair::start();
    let clock = Arc::new(ManualClock::new(1_700_000_000_000));
    let ledger = pair.open(Options { clock: Some(clock.clone()), ..Options::default() }).await;
    let caller = ledger.caller(Actor::machine("m"));
    let work = caller.ingest(new("w", "k")).await.unwrap().work.id;
    pair.cut();
    let lost = claim(&caller, "a", "1", work).await;
    pair.fail_over();
    clock.jump(-60_000);
    let granted = claim(&caller, "b", "2", work).await;
    assert!(granted.lease.fence > lost.lease.fence, "{} after {}", granted.lease.fence, lost.lease.fence);
    // A process that comes later goes by the same floor.
    let other = pair.open(Options { clock: Some(clock), ..Options::default() }).await;
    let caller = other.caller(Actor::machine("m"));
    let work = caller.ingest(new("x", "k")).await.unwrap().work.id;
    assert!(claim(&caller, "c", "3", work).await.lease.fence > lost.lease.fence);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_is_not_used_before_it_is_promoted() {
    let pair = Pair::start();
    let ledger = pair.open(Options::default()).await;
    let caller = ledger.caller(Actor::machine("m"));
    caller.ingest(new("before", "k")).await.unwrap();
    pair.primary.stop();
    let told = async {
        loop {
            match caller.ingest(new("meanwhile", "k")).await {
                Err(error) if error.to_string().contains("is a standby") => break,
                Err(Error::Unavailable(_) | Error::OutcomeUnknown(_)) => {}
                other => panic!("{other:?}"),
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(30), told).await.expect("it is told");
    pair.standby.promote();
    healed(async || caller.ingest(new("after", "k")).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_synchronous_failover_loses_nothing_that_was_answered() {
    let pair = Pair::start();
    pair.primary.psql("postgres", "alter system set synchronous_standby_names = '*'");
    pair.primary.psql("postgres", "select pg_reload_conf()");
    while pair.primary.psql("postgres", "select count(*) from pg_stat_replication where sync_state = 'sync'")
        != "1"
    {}
    let ledger = pair.open(Options::default()).await;
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let (count, mut counted) = tokio::sync::watch::channel(0);
    let writers: Vec<_> = (0..8)
        .map(|writer| {
            let (ledger, stopped, count) = (ledger.clone(), stopped.clone(), count.clone());
            tokio::spawn(async move {
                let caller = ledger.caller(Actor::machine("m"));
                let mut answered = Vec::new();
                for number in 0.. {
                    if *stopped.borrow() {
                        break;
                    }
                    if let Ok(done) = caller.ingest(new(&format!("{writer}-{number}"), "k")).await {
                        answered.push(done.work.id);
                        count.send_modify(|count| *count += 1);
                    }
                }
                answered
            })
        })
        .collect();
    let pair = Arc::new(pair);
    for round in 0..2 {
        let before = *counted.borrow();
        let going = counted.wait_for(|count| *count > before + 100);
        tokio::time::timeout(Duration::from_secs(30), going).await.expect("it heals").unwrap();
        let pair = pair.clone();
        let fail_over = move || {
            if round == 0 {
                pair.fail_over()
            }
        };
        tokio::task::spawn_blocking(fail_over).await.unwrap();
    }
    stop.send(true).unwrap();
    for writer in writers {
        for ids in writer.await.unwrap().chunks(500) {
            assert_eq!(healed(async || ledger.works(ids).await).await.len(), ids.len());
        }
    }
    assert_eq!(ledger.verify().await.unwrap().faults, []);
}
