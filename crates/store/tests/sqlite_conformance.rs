//! The SQLite store keeps the contract of every store.
#![cfg(feature = "sqlite")]

use tenure_store::{Ledger, Options};

async fn open(options: Options) -> Ledger {
    // Kept in the build folder: the store may use the file until the process ends.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary folder").keep();
    Ledger::open_sqlite(folder.join("ledger.db"), options).await.expect("a new file can be opened")
}

tenure_store::conformance_tests!(open);
