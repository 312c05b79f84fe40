//! kill -9 in the middle of load: acknowledged writes survive.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use serde_json::json;
use tenure_api::{
    Client,
    wire::{Claim, CloseOut, Disposition, End, Ingest, Liveness, Source, State, Worker},
};

use crate::bed::{ADMIN, Daemon, Home};

const CLIENTS: usize = 16;
const ACKNOWLEDGED: usize = 300;
const CRASHES: usize = 3;

/// Work items that were acknowledged, and whether their end was.
type Told = Arc<Mutex<Vec<(String, bool)>>>;

#[test]
fn on_sqlite() {
    crashes(&Home::sqlite());
}

#[test]
fn on_postgres() {
    crashes(&Home::postgres());
}

fn crashes(home: &Home) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let told: Told = Arc::default();
    for crash in 0..CRASHES {
        let daemon = home.serve();
        let clients: Vec<_> = (0..CLIENTS)
            .map(|n| runtime.spawn(load(&daemon, format!("{crash}-{n}"), told.clone())))
            .collect();
        let enough = (crash + 1) * ACKNOWLEDGED;
        runtime.block_on(async {
            let mut looks = tokio::time::interval(Duration::from_millis(5));
            while told.lock().unwrap().len() < enough {
                looks.tick().await;
            }
        });
        daemon.kill();
        for client in clients {
            runtime.block_on(client).unwrap();
        }
    }
    let daemon = home.serve();
    runtime.block_on(kept(&daemon.client(), &told.lock().unwrap()));
    daemon.signal("TERM");
    assert_eq!(daemon.ended().0, Some(0));
    let verified = home.embedded(&["verify"]);
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stderr));
}

/// Ingests and, every second time, closes out; until the daemon does not respond any more.
fn load(daemon: &Daemon, name: String, told: Told) -> impl Future<Output = ()> + use<> {
    let client = Client::http(&daemon.url, Some(ADMIN)).unwrap().without_retries();
    async move {
        for n in 0.. {
            let source = Source { system: "manual".into(), id: format!("{name}-{n}"), run_id: String::new() };
            let new = Ingest::new(source, "job", Disposition::Rerunnable, json!({ "n": n }));
            let Ok(ingested) = client.ingest(&new).await else { return };
            let id = ingested.work.id;
            let mut ended = false;
            if n % 2 == 0 {
                let worker = Worker { id: name.clone(), incarnation: "1".into(), liveness: Liveness::Opaque };
                let claim = Claim { ids: vec![id.clone()], ..Claim::new(worker, &format!("{name}-{n}")) };
                let Ok(grants) = client.claim(&claim).await else { return };
                let lease = &grants.leases[0];
                let end = End { result: Some(json!(n)), ..End::new(State::Succeeded) };
                let close = CloseOut::new(lease.fence, &lease.token, end);
                ended = client.close_out(&id, &close).await.is_ok();
            }
            told.lock().unwrap().push((id.to_string(), ended));
        }
    }
}

async fn kept(client: &Client, told: &[(String, bool)]) {
    for (id, ended) in told {
        let work = client.work(&id.as_str().into()).await.unwrap();
        assert!(!ended || work.state == State::Succeeded, "{id} was acknowledged as ended: {}", work.state);
    }
    let report = client.verify().await.unwrap();
    assert_eq!(report.faults, vec![]);
    assert!(report.works as usize >= told.len());
}
