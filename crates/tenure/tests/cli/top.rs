//! `tenure top` in a terminal that `script` provides.

use std::{
    io::{Read, Write},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use crate::bed::Bed;

#[test]
fn it_shows_what_runs_and_leaves_the_terminal_as_it_was() {
    let bed = Bed::sqlite();
    let id = bed.run(&["ingest", "manual", "1", "--kind", "k", "--disposition", "rerunnable"]).ends(0).out;
    bed.run(&["claim", "--worker", "me"]).ends(0);
    let top = format!("stty rows 24 cols 80; exec {} top", env!("CARGO_BIN_EXE_tenure"));
    let mut script = Command::new("script");
    script.args(["-qec", &top, "/dev/null"]).current_dir(bed.folder.path()).env_clear();
    script.env("PATH", std::env::var_os("PATH").unwrap()).env("TERM", "xterm").env("LANG", "C.UTF-8");
    script.env("TENURE_URL", &bed.daemon.as_ref().unwrap().url).env("TENURE_TOKEN_FILE", "token");
    let mut child = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut shown = Vec::new();
    let mut stdout = child.stdout.take().unwrap();
    let contains = |shown: &[u8], text: &str| String::from_utf8_lossy(shown).contains(text);
    let begun = Instant::now();
    while !contains(&shown, &id[..16]) {
        let mut part = [0; 4096];
        let read = stdout.read(&mut part).unwrap();
        // It draws every second, so this condition is checked.
        let waiting = read > 0 && begun.elapsed() < Duration::from_secs(60);
        assert!(waiting, "{}", String::from_utf8_lossy(&shown));
        shown.extend_from_slice(&part[..read]);
    }
    let mut keys = child.stdin.take().unwrap();
    keys.write_all(b"q").unwrap();
    stdout.read_to_end(&mut shown).unwrap();
    assert!(child.wait().unwrap().success(), "{}", String::from_utf8_lossy(&shown));
    for part in ["live", "alive 1", "● running", "\x1b[?1049h", "\x1b[?1049l"] {
        assert!(contains(&shown, part), "{part:?} in {}", String::from_utf8_lossy(&shown));
    }
}

#[test]
fn without_a_terminal_it_says_what_to_use_instead() {
    let bed = Bed::sqlite();
    let said = bed.run(&["top"]).ends(2);
    assert!(said.err.contains("tenure ps --watch") && said.out.is_empty(), "{}", said.err);
}

#[test]
fn a_daemon_that_is_not_there_is_said_as_by_every_verb() {
    let bed = Bed::embedded();
    let top = format!("exec {} top --url http://127.0.0.1:9", env!("CARGO_BIN_EXE_tenure"));
    let mut script = Command::new("script");
    script.args(["-qec", &top, "/dev/null"]).current_dir(bed.folder.path());
    let said = script.stdin(Stdio::null()).output().unwrap();
    assert_eq!(said.status.code(), Some(9), "{}", String::from_utf8_lossy(&said.stdout));
}
