//! The PostgreSQL store keeps the contract of every store.
#![cfg(feature = "postgres")]

use tenure_store::{Ledger, Options};

async fn open(options: Options) -> Ledger {
    // Made by a blocking `psql`; the first one also starts the server.
    let made = tokio::task::spawn_blocking(|| tenure_testkit::shared().create_database()).await;
    Ledger::open_postgres(&made.expect("a new database"), options).await.expect("it can be opened")
}

tenure_store::conformance_tests!(open);
