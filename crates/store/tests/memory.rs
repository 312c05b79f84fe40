//! The memory store keeps the contract of every store.

use tenure_store::{Ledger, Options};

async fn open(options: Options) -> Ledger {
    Ledger::open_memory(options).await.expect("memory can be opened")
}

tenure_store::conformance_tests!(open);
