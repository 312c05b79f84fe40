//! The SQLite store keeps the contract of every store.
#![cfg(feature = "sqlite")]

use std::{fs, path::Path, thread};

use tenure_store::{Ledger, Options};

async fn open(options: Options) -> Ledger {
    // One folder a case, in the build folder, made anew by each run: the store uses the file to the end.
    let case = thread::current().name().unwrap_or("a case").replace("::", "-");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sqlite_conformance").join(case);
    if folder.exists() {
        fs::remove_dir_all(&folder).expect("the last run's folder can go");
    }
    fs::create_dir_all(&folder).expect("a folder");
    Ledger::open_sqlite(folder.join("ledger.db"), options).await.expect("a new file can be opened")
}

tenure_store::conformance_tests!(open);
