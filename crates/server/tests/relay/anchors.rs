//! The anchor's exports: a file and a signed webhook.

use std::{fs, sync::Arc};

use serde_json::Value;
use tenure_core::Actor;
use tenure_server::{AnchorExporter, AnchorExports};
use tenure_store::{Ledger, ManualClock, NewWork, Options, core::model::Disposition};
use tenure_testkit::{Provider, Reply};
use tokio::sync::watch;

use crate::{
    bed::{START, live, outbound},
    names::Names,
};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

async fn ledger(clock: &Arc<ManualClock>) -> Ledger {
    let options = Options { clock: Some(clock.clone()), sweep: false, ..Options::default() };
    let ledger = Ledger::open_memory(options).await.unwrap();
    let new = NewWork::new("manual", "a", "job", Disposition::Rerunnable, Value::Null);
    ledger.caller(Actor::worker("w")).ingest(new).await.unwrap();
    ledger
}

#[tokio::test]
async fn the_anchor_is_exported_to_a_file_and_a_signed_webhook() {
    let provider = Provider::start(|call| Reply::status(if call.path == "/up" { 204 } else { 503 }));
    let folder = tempfile::tempdir().unwrap();
    let (file, secret) = (folder.path().join("anchor.json"), folder.path().join("secret"));
    fs::write(&secret, SECRET).unwrap();
    let toml = |path: &str, file: &str| {
        format!(
            "allow_readable_secrets = true\n[anchor]\nevery = \"5m\"\nfile = {file:?}\n\
             webhook = {{ url = {:?}, networks = [\"127.0.0.0/8\"], secret_file = {secret:?} }}",
            provider.url(path)
        )
    };
    let clock = Arc::new(ManualClock::new(START));
    let ledger = ledger(&clock).await;
    let (sender, seen) = watch::channel(Arc::new(live(&toml("/up", file.to_str().unwrap()))));
    let exports = Arc::<AnchorExports>::default();
    let exporter = AnchorExporter::new(ledger.clone(), seen, outbound(Names::new(&[])), exports.clone());
    exporter.run_once().await.unwrap();

    let written: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    assert_eq!((&written["events"], &written["ledger"]), (&1.into(), &ledger.id().into()));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "nothing is left beside it");
    let call = &provider.calls()[0];
    let body: Value = serde_json::from_slice(&call.body).unwrap();
    assert_eq!((&body["type"], &body["data"]), (&"tenure.anchor".into(), &written));
    let id = call.header("webhook-id").unwrap();
    assert_eq!(id, format!("anchor-{}-{START}", ledger.id()));
    let oracle = standardwebhooks::Webhook::new(SECRET).unwrap();
    let expected = oracle.sign(id, START / 1_000, &call.body).unwrap();
    assert_eq!(call.header("webhook-signature"), Some(expected.as_str()));
    assert_eq!(exports.failing(), None);

    // A webhook that fails does not keep the file from being written, and the reverse; both are told.
    clock.advance(1_000);
    sender.send_replace(Arc::new(live(&toml("/down", file.to_str().unwrap()))));
    assert!(exporter.run_once().await.unwrap_err().contains("503"));
    let again: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    assert_ne!(again["at"], written["at"]);
    clock.advance(1_000);
    let nowhere = folder.path().join("nowhere/anchor.json");
    sender.send_replace(Arc::new(live(&toml("/up", nowhere.to_str().unwrap()))));
    assert!(exporter.run_once().await.unwrap_err().contains("nowhere"));
    assert_eq!(provider.calls().len(), 3);
    let failing = exports.failing().unwrap();
    assert_eq!(failing.since, START + 1_000, "since the first failure");
    assert!(failing.why.contains("cannot be written"), "{}", failing.why);
    sender.send_replace(Arc::new(live("")));
    exporter.run_once().await.unwrap();
    assert_eq!((exports.failing(), provider.calls().len()), (None, 3), "switched off");
}

#[tokio::test]
async fn the_anchors_webhook_is_behind_the_egress_guard() {
    let provider = Provider::always(Reply::status(200));
    let clock = Arc::new(ManualClock::new(START));
    let toml = format!("[anchor]\nwebhook = {{ url = {:?} }}", provider.url("/"));
    let (_sender, seen) = watch::channel(Arc::new(live(&toml)));
    let exporter = AnchorExporter::new(ledger(&clock).await, seen, outbound(Names::new(&[])), Arc::default());
    assert!(exporter.run_once().await.unwrap_err().contains("not a public address"));
    assert_eq!(provider.calls().len(), 0);
}
