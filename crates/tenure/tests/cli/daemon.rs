//! `serve`: start, reload and shutdown.

use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::fs::PermissionsExt,
    process::Stdio,
    time::{Duration, Instant},
};

use tempfile::TempDir;

use crate::bed::{Bed, Daemon, Said, tenure};

#[test]
fn the_first_start_leaves_a_token_that_only_its_owner_reads() {
    let bed = Bed::sqlite();
    let file = fs::metadata(bed.folder.path().join("token")).unwrap();
    assert_eq!(file.permissions().mode() & 0o777, 0o600);
    bed.run(&["list"]).ends(0);
}

#[test]
fn a_chosen_token_becomes_the_admin_token() {
    let folder = TempDir::new().unwrap();
    let daemon = Daemon::start(folder.path(), "ledger.db", &["--token", "chosen-by-the-operator"]);
    assert!(!folder.path().join("token").exists());
    let list = |token: &str| {
        let args = ["--url", &daemon.url, "--token", token, "list"];
        Said::of(tenure(folder.path()).args(args).output().unwrap())
    };
    list("chosen-by-the-operator").ends(0);
    list("chosen-by-somebody-else").ends(4);
}

#[test]
fn a_drain_ends_streams_and_long_polls_within_its_deadline() {
    let mut bed = Bed::sqlite();
    let id = bed.run(&["ingest", "manual", "1", "--kind", "k", "--disposition", "rerunnable"]).ends(0).out;
    let events = bed.run(&["events", "-o", "json"]).json();
    let place = events[0]["position"].as_str().unwrap();
    let mut follow = bed.command(&["events", "--follow", "--after", place, "-o", "jsonl"]);
    let mut follow = follow.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut claim = bed.command(&["claim", "--worker", "me", "--kind", "other", "--wait", "5m"]);
    let claim = claim.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    bed.run(&["quarantine", id.trim(), "--reason", "odd", "--yes"]).ends(0);
    let mut line = String::new();
    BufReader::new(follow.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("\"quarantined\""), "it goes on from its place: {line}");

    let begun = Instant::now();
    let (code, said) = bed.daemon.as_mut().unwrap().terminate();
    assert_eq!(code, 0, "{said}");
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    let claimed = claim.wait_with_output().unwrap();
    assert!(claimed.stdout.is_empty(), "nothing was given away");
    follow.kill().unwrap();
    follow.wait().unwrap();
}

#[test]
fn failed_starts_name_the_cause_and_the_fix() {
    let folder = TempDir::new().unwrap();
    let serve = |args: &[&str]| {
        let args = [&["serve", "--listen", "127.0.0.1:0"], args].concat();
        Said::of(tenure(folder.path()).args(args).output().unwrap())
    };
    fs::write(folder.path().join("bad.toml"), "listen = \"127.0.0.1:0\"\nlisten_adress = 1\n").unwrap();
    let said = serve(&["--config", "bad.toml"]).ends(4);
    serve(&["--listen", "nowhere"]).ends(2);
    assert!(said.err.contains("bad.toml:2") || said.err.contains("line 2"), "{}", said.err);
    let check = tenure(folder.path()).args(["config", "check", "bad.toml"]).output().unwrap();
    assert!(Said::of(check).ends(4).err.contains("listen_adress"));
    let nowhere = tenure(folder.path()).args(["config", "check", "nowhere.toml"]).output().unwrap();
    let nowhere = Said::of(nowhere).ends(4).err;
    assert!(nowhere.contains("nowhere.toml") && !nowhere.contains("--config"), "{nowhere}");
    fs::write(folder.path().join("good.toml"), "listen = \"127.0.0.1:0\"\n").unwrap();
    Said::of(tenure(folder.path()).args(["config", "check", "good.toml"]).output().unwrap()).ends(0);

    fs::write(folder.path().join("garbage.db"), "this is no database, however long it may be").unwrap();
    let said = serve(&["--db", "garbage.db"]).ends(1);
    assert!(
        said.err.contains(
            "
tenure: "
        ) && said.err.contains("garbage.db"),
        "{}",
        said.err
    );
    serve(&["--db", "no/such/folder/ledger.db"]).ends(1);

    let daemon = Daemon::start(folder.path(), "ledger.db", &[]);
    let address = daemon.url.strip_prefix("http://").unwrap();
    let args = ["serve", "--listen", address, "--db", "other.db"];
    let taken = Said::of(tenure(folder.path()).args(args).output().unwrap()).ends(1);
    assert!(taken.err.contains(address) && taken.err.contains("--listen"), "{}", taken.err);
}
