//! Exports of the anchor: a signed copy to a file or a webhook outside the database, again and again.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use serde::Serialize;
use tenure_api::wire as w;
use tenure_core::Millis;
use tenure_store::{Ledger, aside};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    config::Live,
    executor::{Http, HttpAnswer, HttpTarget, Message, Outbound, Trouble, excerpt},
    wire,
};

/// The longest time until a failed export is tried again.
const AGAIN: Duration = Duration::from_secs(60);

/// Since when exports have failed, and why the last one did.
#[derive(Clone, Debug, PartialEq)]
pub struct Failing {
    pub since: Millis,
    pub why: String,
}

/// How the exports go, for alerts.
#[derive(Default)]
pub struct AnchorExports(Mutex<Option<Failing>>);

impl AnchorExports {
    pub fn failing(&self) -> Option<Failing> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn record(&self, at: Millis, outcome: &Result<(), String>) {
        let mut failing = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let since = failing.as_ref().map_or(at, |failing| failing.since);
        *failing = outcome.as_ref().err().map(|why| Failing { since, why: why.clone() });
    }
}

/// Exports the anchor as configured.
pub struct AnchorExporter {
    ledger: Ledger,
    live: watch::Receiver<Arc<Live>>,
    outbound: Outbound,
    exports: Arc<AnchorExports>,
}

#[derive(Serialize)]
struct Event<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    data: &'a w::Anchor,
}

impl AnchorExporter {
    pub fn new(
        ledger: Ledger,
        live: watch::Receiver<Arc<Live>>,
        outbound: Outbound,
        exports: Arc<AnchorExports>,
    ) -> Self {
        Self { ledger, live, outbound, exports }
    }

    /// Exports once, if it is configured. An unavailable file does not keep the webhook from being called, nor the reverse.
    pub async fn run_once(&self) -> Result<(), String> {
        let Some(export) = self.live.borrow().anchor.clone() else {
            self.exports.record(0, &Ok(()));
            return Ok(());
        };
        let signed = match self.ledger.signed_anchor().await {
            Ok(signed) => signed,
            Err(error) => {
                let at = self.ledger.now().await.unwrap_or_default();
                let outcome = Err(error.to_string());
                self.exports.record(at, &outcome);
                return outcome;
            }
        };
        let anchor = wire::anchor(&signed);
        let mut wrong = Vec::new();
        if let Some(path) = export.file {
            let shown = path.display().to_string();
            let bytes = file_of(&anchor);
            let written =
                aside("anchor", move || replace_file(&path, &bytes)).await.and_then(|written| written);
            wrong.extend(written.err().map(|error| format!("{shown} cannot be written: {error}")));
        }
        if let Some(target) = export.webhook {
            wrong.extend(self.send(target, &anchor).await.err());
        }
        let outcome = if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ")) };
        self.exports.record(signed.at, &outcome);
        outcome
    }

    async fn send(&self, target: Arc<HttpTarget>, anchor: &w::Anchor) -> Result<(), String> {
        let body = serde_json::to_vec(&Event { kind: "tenure.anchor", data: anchor });
        let id = format!("anchor-{}-{}", anchor.ledger, anchor.at.0);
        let message = Message { id: &id, target: "", body: body.expect("wire types are plain JSON").into() };
        match Http::new(&self.outbound, target).send(&message, anchor.at.0).await {
            Ok(HttpAnswer { status, .. }) if status.is_success() => Ok(()),
            Ok(HttpAnswer { status, .. }) => Err(format!("the webhook responded with {status}")),
            Err(Trouble::Refused(why) | Trouble::Unreachable(why)) => {
                Err(format!("the webhook was not called: {}", excerpt(&why, 500)))
            }
            Err(Trouble::Lost(why)) => {
                Err(format!("the webhook's response was lost: {}", excerpt(&why, 500)))
            }
            Err(Trouble::TimedOut(after)) => Err(format!("the webhook did not respond within {after:?}")),
        }
    }

    /// Runs until shutdown. A changed configuration exports at once.
    pub async fn run(mut self, stopping: CancellationToken) {
        loop {
            let exported = self.run_once().await;
            let every = self.live.borrow_and_update().anchor.as_ref().map(|export| export.every);
            let pause = match (&exported, every) {
                (Err(why), every) => {
                    tracing::error!(why, "the anchor was not exported");
                    every.unwrap_or(AGAIN).min(AGAIN)
                }
                (Ok(()), every) => every.unwrap_or(Duration::MAX),
            };
            tokio::select! {
                () = stopping.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
                changed = self.live.changed() => if changed.is_err() { return },
            }
        }
    }
}

/// The content of an anchor's file: one JSON object.
fn file_of(anchor: &w::Anchor) -> Vec<u8> {
    let mut bytes = serde_json::to_vec(anchor).expect("wire types are plain JSON");
    bytes.push(b'\n');
    bytes
}

/// Replaces a file as a whole, and syncs it: a reader sees the old content or the new one.
pub fn replace_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let wrong = || io::Error::new(io::ErrorKind::InvalidInput, "it is not the path of a file");
    let name = path.file_name().ok_or_else(wrong)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut beside = name.to_os_string();
    beside.push(format!(".{}.new", std::process::id()));
    let beside = folder.join(beside);
    let replaced = write_new(&beside, bytes).and_then(|()| fs::rename(&beside, path));
    if replaced.is_err() {
        _ = fs::remove_file(&beside);
    }
    replaced?;
    File::open(folder)?.sync_all()
}

/// A file that a crash left behind is removed; a link in its place is never followed.
fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    _ = fs::remove_file(path);
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}
