//! The PostgreSQL store keeps the contract of every store.
#![cfg(feature = "postgres")]

use tenure_store::{Ledger, Options};

async fn open(options: Options) -> Ledger {
    let url = tenure_testkit::shared().create_database();
    Ledger::open_postgres(&url, options).await.expect("an empty database can be opened")
}

tenure_store::conformance_tests!(open);
