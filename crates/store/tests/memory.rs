//! The memory store keeps the contract of every store.

use tenure_store::{Ledger, Options};

async fn open(options: Options) -> Ledger {
    Ledger::open_memory(options).await.expect("memory can be opened")
}

tenure_store::conformance_tests!(open);

/// The macro lists the cases by hand: none may be forgotten.
#[test]
fn every_case_is_run() {
    let suite = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/conformance");
    let list = std::fs::read_to_string(suite.join("mod.rs")).expect("the list of cases");
    let mut cases = 0;
    for file in std::fs::read_dir(&suite).expect("the suite's folder") {
        let path = file.expect("a file of the suite").path();
        let text = std::fs::read_to_string(&path).expect("its text");
        for line in text.lines().filter(|line| line.starts_with("pub async fn ")) {
            let case = line["pub async fn ".len()..].split('(').next().unwrap_or_default();
            assert!(list.contains(&format!(" {case},\n")), "{case} of {} is not run", path.display());
            cases += 1;
        }
    }
    assert!(cases > 80, "only {cases} cases were found");
}
