//! Several processes on one file: nothing is lost, nothing is done twice, parked claims see what others
//! have queued.
#![cfg(feature = "sqlite")]

use std::{
    collections::BTreeMap,
    env,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use serde_json::json;
use tenure_store::{
    Claimed, Ledger, NewWork, Options,
    core::{
        Actor, State,
        action::{ClaimFilter, Claimant, CloseOut, Tenants},
        liveness::Liveness,
        model::{Disposition, Worker},
    },
};

const PROCESSES: usize = 3;
const OWN: usize = 120;
/// Works that every process ingests: one of them is first.
const SHARED: usize = 40;
const TOTAL: u64 = (PROCESSES * OWN + SHARED) as u64;

const FILE: &str = "TENURE_TEST_LEDGER";
const NAME: &str = "TENURE_TEST_PROCESS";

async fn open(file: &Path) -> Ledger {
    Ledger::open_sqlite(file, Options { sweep: false, ..Options::default() }).await.unwrap()
}

async fn claim(ledger: &Ledger, name: &str, request: usize, max: usize, wait: Duration) -> Vec<Claimed> {
    let worker =
        Worker { id: name.to_owned(), incarnation: "first".to_owned(), liveness: Liveness::default() };
    let claimant = Claimant { worker, request_id: request.to_string(), defer_start: false };
    let filter = ClaimFilter { max, ..ClaimFilter::default() };
    ledger.caller(Actor::worker(name)).claim(claimant, filter, Some(wait)).await.unwrap()
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

/// What each process does; nothing where no test has started one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_process() {
    let (Some(file), Ok(name)) = (env::var_os(FILE).map(PathBuf::from), env::var(NAME)) else { return };
    let ledger = open(&file).await;
    let own = (0..OWN).map(|n| format!("{name}-{n}"));
    let shared = (0..SHARED).map(|n| format!("shared-{n}"));
    let ingests = own.chain(shared).map(|id| {
        let caller = ledger.caller(Actor::machine(&name));
        let mut new = NewWork::new("manual", &id, "job", Disposition::Rerunnable, json!(id));
        // Some share sessions with works of the other processes.
        new.session = id.ends_with('3').then(|| id[id.len() - 2..].to_owned());
        tokio::spawn(async move { caller.ingest(new).await.unwrap().created })
    });
    for ingest in ingests.collect::<Vec<_>>() {
        ingest.await.unwrap();
    }
    let worker = ledger.caller(Actor::worker(&name));
    let mut request = 0;
    let began = std::time::Instant::now();
    while succeeded(&ledger).await < TOTAL {
        assert!(began.elapsed() < Duration::from_secs(60), "the others' works do not come");
        let claimed = claim(&ledger, &name, request, 7, Duration::from_millis(200)).await;
        request += 1;
        for one in claimed {
            worker.close_out(&one.lease, done()).await.unwrap();
            println!("\ndone {}", one.work.spec.source.id);
        }
    }
    ledger.close().await.unwrap();
}

async fn succeeded(ledger: &Ledger) -> u64 {
    ledger.counts(&Tenants::All).await.unwrap().get(&State::Succeeded).copied().unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_share_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ledger.db");
    let children: Vec<_> = (0..PROCESSES)
        .map(|n| {
            Command::new(env::current_exe().unwrap())
                .args(["one_process", "--exact", "--nocapture"])
                .env(FILE, &file)
                .env(NAME, format!("process{n}"))
                .stdout(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    let mut finished: BTreeMap<String, usize> = BTreeMap::new();
    for child in children {
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{text}");
        for id in text.lines().filter_map(|line| line.strip_prefix("done ")) {
            *finished.entry(id.to_owned()).or_default() += 1;
        }
    }
    assert_eq!(finished.len() as u64, TOTAL, "none is lost");
    assert!(finished.values().all(|times| *times == 1), "none is done twice: {finished:?}");
    let ledger = open(&file).await;
    let report = ledger.verify().await.unwrap();
    assert!(report.faults.is_empty(), "{:?}", report.faults);
    assert_eq!((report.works, report.events), (TOTAL, 3 * TOTAL));
    ledger.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_parked_claim_sees_what_another_ledger_queued() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ledger.db");
    let (mine, other) = (open(&file).await, open(&file).await);
    let waiting = {
        let mine = mine.clone();
        tokio::spawn(async move { claim(&mine, "w", 0, 1, Duration::from_secs(60)).await })
    };
    // Whether it was parked before or finds it at once: it gets the work.
    let new = NewWork::new("manual", "one", "job", Disposition::Rerunnable, json!(1));
    let id = other.caller(Actor::machine("gateway")).ingest(new).await.unwrap().work.id;
    let claimed = waiting.await.unwrap();
    assert_eq!(claimed.iter().map(|claimed| claimed.work.id).collect::<Vec<_>>(), [id]);

    // What one ledger remembers of a work is not what another has made of it.
    mine.caller(Actor::person("ada")).cancel(id, "enough", None).await.unwrap();
    let seen = other.caller(Actor::person("ada")).cancel(id, "enough", None).await.unwrap();
    assert_eq!(seen.state, State::CancelRequested);
    mine.caller(Actor::worker("w")).close_out(&claimed[0].lease, done()).await.unwrap();
    assert!(other.caller(Actor::person("ada")).cancel(id, "again", None).await.is_err(), "it has ended");
    for ledger in [mine, other] {
        ledger.close().await.unwrap();
    }
}
