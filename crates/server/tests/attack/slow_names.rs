//! Names without a response, as the targets of one tenant: another's reads and calls go on.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use serde_json::{Value, json};
use tenure_server::executor::{Outbound, SystemResolver};
use tenure_testkit::{Provider, Reply};

use crate::bed::{Bed, Client, held, id_of};

const SCOPES: [&str; 4] = ["view", "payload", "submit", "work"];
const HOOK: &str = "[tools.hook]\nrisk = \"low\"\nexecutor = \"http\"\n\
     [tools.hook.http]\nnetworks = [\"127.0.0.0/8\"]\n";

static ASKED: AtomicUsize = AtomicUsize::new(0);
static OVER: (Mutex<bool>, Condvar) = (Mutex::new(false), Condvar::new());

/// `silent…` is answered only at the end of the test; any other name is this machine.
fn look_up(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    if host.starts_with("silent") {
        ASKED.fetch_add(1, Relaxed);
        drop(OVER.1.wait_while(OVER.0.lock().unwrap(), |over| !*over).unwrap());
        return Err(io::ErrorKind::NotFound.into());
    }
    Ok(vec![SocketAddr::new([127, 0, 0, 1].into(), port)])
}

fn outbound() -> Outbound {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    Outbound::with_tls(Arc::new(SystemResolver::with(look_up)), tls)
}

/// Ends a work item with a command to each of these.
async fn send(client: &Client, targets: &[String]) {
    client.ingest("one").await;
    let grant = client.claim("r").await;
    let command = |target: &String| json!({ "tool": "hook", "target": target, "arguments": {} });
    let commands: Vec<Value> = targets.iter().map(command).collect();
    let end = held(&grant, json!({ "state": "succeeded", "no_output": true, "commands": commands }));
    client.post(&format!("/v1/work/{}/close-out", id_of(&grant)), end).await.expect(200);
}

async fn silent_names_of_one_tenant_stop_neither_reads_nor_calls_of_another(mut bed: Bed) {
    let hostile = bed.client("machine", &SCOPES, Some(&["hostile"])).await;
    let quiet = bed.client("machine", &SCOPES, Some(&["quiet"])).await;
    let provider = Provider::always(Reply::status(200));
    bed.server.relay(outbound());
    let silent: Vec<String> = (0..40).map(|n| format!("http://silent-{n}.test/")).collect();
    send(&hostile, &silent).await;
    while ASKED.load(Relaxed) == 0 {
        tokio::task::yield_now().await;
    }
    send(&quiet, &[format!("http://hooks.test:{}/", provider.address().port())]).await;
    while provider.calls().is_empty() {
        let list = quiet.get("/v1/work").await.expect(200);
        assert_eq!(list["items"].as_array().unwrap().len(), 1);
    }
    *OVER.0.lock().unwrap() = true;
    OVER.1.notify_all();
    bed.server.close().await.unwrap();
}

crate::bed::on_both_databases! {
    silent_names_of_one_tenant_stop_neither_reads_nor_calls_of_another: HOOK,
}
