//! The guides' `sh` blocks work: they are run, in order, on the built binary.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use tempfile::TempDir;

use crate::bed::{Daemon, Said, tenure};

#[test]
fn quickstart() {
    let said = follow("quickstart.md");
    assert!(said.out.contains("approved") && said.out.contains("close_out"), "{}", said.out);
    assert!(said.out.contains("refused, with exit code 4"), "{}", said.out);
}

#[test]
fn adopting() {
    let said = follow("adopting.md");
    assert_eq!(said.out.matches("\"succeeded\"").count(), 2, "{}", said.out);
}

#[test]
fn running() {
    let said = follow("running.md");
    assert!(said.out.contains("# HELP tenure_in_flight"), "{}", said.out);
    let page = guide("running.md");
    // Metrics without a sample are not shown, so the names are looked up in the source.
    let registered: String = ["mod.rs", "commands.rs"]
        .map(|file| fs::read_to_string(root().join("crates/server/src/metrics").join(file)).unwrap())
        .concat();
    let promised: Vec<&str> = page.split('`').filter_map(|word| word.strip_prefix("tenure_")).collect();
    assert!(promised.len() > 5, "{promised:?}");
    for metric in promised {
        let name = metric.trim_end_matches("_total").trim_end_matches("_seconds");
        assert!(registered.contains(&format!("\"{name}\"")), "tenure_{metric} is no metric");
    }
    let folder = TempDir::new().unwrap();
    let settings = block(&page, "toml").replace("/var/lib/tenure", folder.path().to_str().unwrap());
    fs::write(folder.path().join("tenure.toml"), settings).unwrap();
    Said::of(tenure(folder.path()).args(["config", "check", "tenure.toml"]).output().unwrap()).ends(0);
}

#[test]
fn on_call() {
    let said = follow("on-call.md");
    assert!(said.out.contains("# Recovery plan p_") && said.out.contains("Pay alone"), "{}", said.out);
    assert!(said.out.contains("applied  w_") && said.out.contains("stop_claiming"), "{}", said.out);
    assert!(said.err.contains("Dry run: nothing was written."), "{}", said.err);
}

#[test]
fn parking() {
    let said = follow("states.md");
    assert!(said.out.contains("draft begun") && said.out.contains("running and held by me"), "{}", said.out);
    assert!(
        said.err.contains("instead of running it again") && said.out.contains(r#"{"file":"a.md"}"#),
        "{}",
        said.out
    );
    assert!(said.out.contains("waiting_user") && said.out.contains(" succeeded"), "{}", said.out);
}

#[test]
fn risky_tool() {
    let said = follow("risky-tool.md");
    assert!(said.out.contains("refused, and nobody was charged again"), "{}", said.out);
    assert!(said.out.contains("ch_found"), "{}", said.out);
}

#[test]
fn schedules() {
    let said = follow("schedules.md");
    assert!(said.out.contains("hourly-report") && said.out.contains("digest deleted"), "{}", said.out);
    assert_eq!(said.out.matches("Next:").count(), 5, "{}", said.out);
}

fn guide(name: &str) -> String {
    fs::read_to_string(root().join("docs").join(name)).unwrap()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All blocks of a language, as one text.
fn block(page: &str, language: &str) -> String {
    let mut text = String::new();
    // The indentation of the block, which may be part of a numbered list.
    let mut inside = None;
    for line in page.lines() {
        let indent = line.len() - line.trim_start().len();
        match (line.trim_start().strip_prefix("```"), inside) {
            (Some(fence), _) => inside = (fence == language).then_some(indent),
            (None, Some(indent)) => text.push_str(&format!("{}\n", line.get(indent..).unwrap_or_default())),
            (None, None) => {}
        }
    }
    assert!(!text.is_empty(), "it has no {language} block");
    text
}

/// Runs a guide in a shell beside a daemon, as its reader would; the first error ends it.
fn follow(name: &str) -> Said {
    let folder = TempDir::new().unwrap();
    fs::create_dir(folder.path().join("backups")).unwrap();
    let daemon = Daemon::plain(folder.path(), &["--backups", "backups"]);
    if guide(name).contains("```python") {
        fs::write(folder.path().join("pay.py"), block(&guide(name), "python")).unwrap();
    }
    let binary = PathBuf::from(env!("CARGO_BIN_EXE_tenure"));
    let path = format!("{}:{}", binary.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let script = format!("set -e\n{}", block(&guide(name), "sh"));
    let mut shell = Command::new("bash");
    shell.args(["-c", &script]).current_dir(folder.path()).env_clear();
    shell.env("PATH", path).env("TENURE_URL", &daemon.url);
    let said = Said::of(shell.output().unwrap());
    assert_eq!(said.code, 0, "{name}:\n{}\n{}", said.out, said.err);
    said
}
