//! Workers that use the same incarnation name skip each other's work items without a warning.
#![cfg(all(feature = "sqlite", feature = "postgres"))]

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tenure_store::{
    Ledger,
    conformance::{Bed, claim},
};
use tracing::{Event, Level, Metadata, Subscriber, span};

/// Counts what is logged as a warning or worse.
struct Warnings(Arc<AtomicUsize>);

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, _: &Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// The stores log on threads of their own, so that the subscriber is the process's: one test has all stores.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_that_share_an_incarnation_name_make_no_flood_of_warnings() {
    let postgres = tokio::task::spawn_blocking(|| tenure_testkit::shared().create_database()).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let sqlite = folder.path().join("ledger.db");
    let count = Arc::new(AtomicUsize::new(0));
    tracing::subscriber::set_global_default(Warnings(count.clone())).unwrap();
    tracing::warn!("the subscriber listens");
    assert_eq!(count.swap(0, Ordering::Relaxed), 1);
    let claims = async |mut bed: Bed| {
        // What a store has to say of its server's settings it says when it opens.
        count.store(0, Ordering::Relaxed);
        claim::an_incarnation_is_its_workers_own(&mut bed).await;
        bed.close().await;
        assert_eq!(count.load(Ordering::Relaxed), 0);
    };
    claims(Bed::open(async |options| Ledger::open_memory(options).await.unwrap()).await).await;
    claims(Bed::open(async |options| Ledger::open_sqlite(&sqlite, options).await.unwrap()).await).await;
    claims(Bed::open(async |options| Ledger::open_postgres(&postgres, options).await.unwrap()).await).await;
}
