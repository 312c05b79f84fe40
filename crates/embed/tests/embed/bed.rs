//! Ledgers for tests.

use std::time::Duration;

use tempfile::TempDir;
use tenure_embed::{
    prelude::*,
    wire::{LeaseTimings, RetryPolicy, WorkPolicy},
};

/// The longest that a test waits; most take a moment.
pub const LONG: Duration = Duration::from_secs(60);

/// A ledger's location, deleted when it is dropped.
pub struct Place {
    pub db: String,
    folder: Option<TempDir>,
}

impl Place {
    pub fn sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let db = folder.path().join("ledger.db").to_str().unwrap().to_owned();
        Self { db, folder: Some(folder) }
    }

    pub async fn postgres() -> Self {
        // Created by a blocking `psql`; the first one also starts the server.
        let made = tokio::task::spawn_blocking(|| tenure_testkit::shared().create_database()).await;
        Self { db: made.unwrap(), folder: None }
    }

    /// The files in the directory of an SQLite ledger besides its own.
    pub fn other_files(&self) -> Vec<String> {
        let Some(folder) = &self.folder else { return Vec::new() };
        let names = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
        let names = names.map(|name| name.into_string().unwrap());
        names
            .filter(|name| !["ledger.db", "ledger.db-wal", "ledger.db-shm"].contains(&name.as_str()))
            .collect()
    }
}

/// A work item whose lease lapses soon when it is not renewed, and which is then retried at once.
pub fn brief(id: &str) -> Ingest {
    let lease = LeaseTimings { ttl_ms: 900, renew_ms: 300, grace_ms: 100 };
    let retry = RetryPolicy { initial_ms: Some(1), max_ms: Some(1), ..RetryPolicy::default() };
    let policy = WorkPolicy { lease: Some(lease), retry: Some(retry), ..WorkPolicy::default() };
    let new = Ingest::typed(Source::manual(id), "job", Disposition::Rerunnable, &id).unwrap();
    Ingest { policy: Some(policy), ..new }
}

/// Runs each test on both databases.
macro_rules! on_both_databases {
    ($($name:ident),* $(,)?) => {
        mod sqlite {
            use super::*;
            $(#[tokio::test] async fn $name() { super::$name(Place::sqlite()).await; })*
        }
        mod postgres {
            use super::*;
            $(#[tokio::test] async fn $name() { super::$name(Place::postgres().await).await; })*
        }
    };
}
pub(crate) use on_both_databases;
