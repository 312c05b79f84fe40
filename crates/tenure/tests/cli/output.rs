//! Which output is printed where, and the exit codes.

use std::{
    io::{Read, Write},
    os::unix::fs::PermissionsExt,
};

use crate::bed::{Bed, Said, tenure};

#[test]
fn every_failure_has_its_exit_code() {
    let bed = Bed::empty();
    bed.run(&["list"]).ends(0);
    let typo = tenure(bed.folder.path()).args(["--db", "legder.db", "list"]).output().unwrap();
    assert!(Said::of(typo).ends(3).err.contains("no ledger at legder.db"));
    assert!(!bed.folder.path().join("legder.db").exists());
    bed.run(&["lst"]).ends(2);
    bed.run(&["show", "w_00"]).ends(3);
    bed.run(&["show", "nothing-like-an-id"]).ends(3);
    let odd = ["ingest", "fax", "1", "--kind", "k", "--disposition", "rerunnable"];
    let refused = bed.run(&odd).ends(4);
    assert!(refused.err.contains("Known: control, conversation, manual, scheduler"), "{}", refused.err);
    bed.run(&["ingest", "manual", "1", "--kind", "k", "--disposition", "maybe"]).ends(2);
    bed.run(&["events", "--after", "yesterday"]).ends(4);

    let away = tenure(bed.folder.path()).args(["--url", "http://127.0.0.1:9", "list"]).output().unwrap();
    let away = Said::of(away).ends(9);
    assert!(away.err.contains("tenure serve") && away.out.is_empty(), "{}", away.err);
    let url = tenure(bed.folder.path()).args(["--url", "localhost", "list"]).output().unwrap();
    Said::of(url).ends(2);
    let stranger = bed.command(&["list"]).env("TENURE_TOKEN", "nobody-has-this-one").output().unwrap();
    let stranger = Said::of(stranger).ends(4);
    assert!(stranger.err.contains("unauthorized"), "{}", stranger.err);
}

#[test]
fn a_missing_token_error_names_the_searched_places() {
    let bed = Bed::sqlite();
    let url = bed.daemon.as_ref().unwrap().url.clone();
    let with = |name: &str, value: &str| {
        let mut command = tenure(bed.folder.path());
        Said::of(command.args(["list"]).env("TENURE_URL", &url).env(name, value).output().unwrap())
            .ends(4)
            .err
    };
    let nowhere = with("NOTHING", "of ours");
    for word in ["unauthorized", "TENURE_TOKEN ", "there is no /", "/tenure.db.token", "TENURE_TOKEN_FILE="] {
        assert!(nowhere.contains(word), "{word} in {nowhere}");
    }
    let elsewhere = with("TENURE_DB", "other.db");
    assert!(elsewhere.contains("/other.db.token"), "beside the ledger that was named: {elsewhere}");
    let write = |name: &str, text: &str, mode: u32| {
        let path = bed.folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    write("empty", "\n", 0o600);
    let empty = with("TENURE_TOKEN_FILE", "empty");
    assert!(empty.contains("/empty is empty"), "{empty}");
    write("stale", "of-another-ledger\n", 0o600);
    let stale = with("TENURE_TOKEN_FILE", "stale");
    assert!(stale.contains("The token came from /") && stale.contains("/stale"), "{stale}");
    write("wide", "for-everybody\n", 0o644);
    let mut wide = tenure(bed.folder.path());
    let wide =
        Said::of(wide.args(["--url", &url, "list"]).env("TENURE_TOKEN_FILE", "wide").output().unwrap());
    assert!(wide.code != 0 && wide.err.contains("chmod 600 wide"), "{}", wide.err);
    let wrong = with("TENURE_TOKEN", "nobody-has-this-one");
    assert!(wrong.contains("came from --token or TENURE_TOKEN") && !wrong.contains("nobody-has"), "{wrong}");
    let doctor = tenure(bed.folder.path()).args(["--url", &url, "doctor"]).output().unwrap();
    assert!(Said::of(doctor).ends(7).out.contains("TENURE_TOKEN_FILE="));
}

/// A daemon whose clock is far from this machine's: it responds once, on the last day of January 2026.
fn daemon_of_another_day(work: &str) -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let body = format!("{{\"items\":[{work}]}}");
    std::thread::spawn(move || {
        let (mut caller, _) = listener.accept().unwrap();
        let mut asked = Vec::new();
        while !asked.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            caller.read_exact(&mut byte).unwrap();
            asked.extend(byte);
        }
        let head = "HTTP/1.1 200 OK\r\ndate: Sat, 31 Jan 2026 08:15:00 GMT\r\nconnection: close\r\n\
                    content-type: application/json\r\n";
        write!(caller, "{head}content-length: {}\r\n\r\n{body}", body.len()).unwrap();
    });
    url
}

#[test]
fn ages_are_counted_by_the_servers_clock() {
    let work = serde_json::json!({
        "id": "w_00000000000000000000000000000001", "source": { "system": "manual", "id": "1" }, "kind": "k",
        "tenant": "default", "correlation_id": "c", "generation": 1, "state": "queued", "phase": "pending",
        "seq": 1, "attempt": 0, "failures": 0, "priority": 3, "disposition": "rerunnable", "input_hash": "",
        "timestamps": { "acknowledged": "2026-01-31T08:07:30.000Z", "updated": "2026-01-31T08:07:30.000Z" },
    });
    let url = daemon_of_another_day(&work.to_string());
    let folder = tempfile::TempDir::new().unwrap();
    let list = tenure(folder.path()).args(["--url", &url, "--token", "t", "list"]).output().unwrap();
    let shown = Said::of(list).ends(0).out;
    assert!(shown.contains(" 7m "), "{shown}");
}

#[test]
fn an_ambiguous_prefix_is_reported() {
    let bed = Bed::embedded();
    for id in ["1", "2"] {
        bed.run(&["ingest", "manual", id, "--kind", "k", "--disposition", "rerunnable"]).ends(0);
    }
    let said = bed.run(&["show", "w_0"]).ends(2);
    assert!(said.err.contains("ambiguous"), "{}", said.err);
}

#[test]
fn nothing_that_a_terminal_obeys_is_printed() {
    let bed = Bed::embedded();
    let evil = "\u{1b}]0;owned\u{7}\u{202e}txt";
    let input = serde_json::json!({ "text": evil }).to_string();
    let args = ["ingest", "manual", "1", "--kind", "k", "--disposition", "rerunnable", "--input", &input];
    let id = bed.run(&args).ends(0).out.trim().to_owned();
    bed.run(&["cancel", &id, "--reason", evil, "--yes"]).ends(0);
    for verb in [&["show", &id][..], &["events", &id], &["explain", &id], &["show", &id, "-o", "json"]] {
        let said = bed.run(verb).ends(0);
        assert!(said.out.contains("owned"), "{}", said.out);
        for forbidden in ['\u{1b}', '\u{7}', '\u{202e}'] {
            assert!(!said.out.contains(forbidden), "{verb:?}: {:?}", said.out);
        }
    }
    let read = bed.run(&["show", &id, "-o", "json"]).json();
    assert_eq!(read["input"]["text"], evil, "the document still says the same");
}

#[test]
fn plain_where_the_terminal_is_plain() {
    let bed = Bed::embedded();
    bed.run(&["ingest", "manual", "1", "--kind", "k", "--disposition", "rerunnable"]).ends(0);
    let ascii = bed.run(&["list"]).ends(0).out;
    assert!(ascii.is_ascii() && ascii.contains("o queued"), "{ascii}");
    let glyphs = bed.command(&["list"]).env("LC_ALL", "C.UTF-8").output().unwrap();
    assert!(Said::of(glyphs).out.contains("○ queued"));
}

#[test]
fn documents_are_never_mixed_with_prose() {
    let bed = Bed::empty();
    let empty = bed.run(&["list", "-o", "json"]);
    assert_eq!(empty.out, "[]\n");
    assert_eq!(bed.run(&["list", "-o", "jsonl"]).ends(0).out, "");
    let ingest = ["ingest", "manual", "1", "--kind", "k", "--disposition", "rerunnable", "-o", "json"];
    assert_eq!(bed.run(&ingest).json()["created"], true);
    let again = bed.run(&ingest);
    assert!(again.err.contains("existed already"), "{}", again.err);
    assert_eq!(again.json()["created"], false);
    for verb in ["ps", "workers", "alerts", "events", "list"] {
        assert!(bed.run(&[verb, "-o", "json"]).json().is_array(), "{verb}");
    }
    let doctor = bed.run(&["doctor", "-o", "json"]).json();
    let checks: Vec<_> = doctor.as_array().unwrap().iter().map(|it| it["check"].as_str().unwrap()).collect();
    for check in
        ["daemon", "ready", "database", "schema", "setting", "token", "leases", "clock", "wal", "disk"]
    {
        assert!(checks.contains(&check), "{check} in {checks:?}");
    }
    assert!(checks.contains(&"fsync") && checks.contains(&"hooks"), "{checks:?}");
}

#[test]
fn the_doctor_looks_into_the_daemons_database() {
    for (bed, engine) in [(Bed::sqlite(), "sqlite"), (Bed::postgres(), "postgres")] {
        let said = bed.run(&["doctor"]);
        let is_told = |line: &str| line.split_whitespace().skip(2).take(2).eq(["database", engine]);
        assert!(said.out.lines().any(is_told), "{}", said.out);
        assert!(said.out.contains("migrations known: "), "{}", said.out);
        let setting = if engine == "sqlite" { "synchronous = full" } else { "synchronous_commit = " };
        assert!(said.out.contains(setting), "{}", said.out);
        assert_eq!(said.out.contains("no checkpoint has been due"), engine == "sqlite", "{}", said.out);
        assert!(said.out.contains("not installed Fix: to show terminal agents"), "{}", said.out);
    }
    let bed = Bed::sqlite();
    let made = bed.run(&["token", "create", "eye", "--scope", "view", "-o", "json"]).json();
    let viewer = bed.command(&["doctor"]).env("TENURE_TOKEN", made["secret"].as_str().unwrap()).output();
    let viewer = Said::of(viewer.unwrap()).ends(0);
    assert!(viewer.out.contains("info") && viewer.out.contains("scope `operate`"), "{}", viewer.out);
    std::fs::create_dir(bed.folder.path().join(".claude")).unwrap();
    let hook = r#"{"hooks":{"Stop":[{"hooks":[{"type":"command","command":"tenure close-out w_1"}]}]}}"#;
    std::fs::write(bed.folder.path().join(".claude/settings.json"), hook).unwrap();
    let hooked = bed.run(&["doctor"]).ends(0).out;
    assert!(hooked.contains("installed in /"), "{hooked}");
}

#[test]
fn tokens_are_shown_once_and_can_be_ended() {
    let bed = Bed::empty();
    let made =
        bed.run(&["token", "create", "agent", "--scope", "view", "--tenant", "acme", "-o", "json"]).json();
    let secret = made["secret"].as_str().unwrap();
    let listed = bed.run(&["token", "list"]).ends(0).out;
    assert!(listed.contains("agent") && listed.contains("acme") && !listed.contains(secret), "{listed}");
    let with = |args: &[&str]| Said::of(bed.command(args).env("TENURE_TOKEN", secret).output().unwrap());
    with(&["list"]).ends(0);
    let refused = with(&["verify"]).ends(4);
    assert!(refused.err.contains("forbidden"), "{}", refused.err);
    let revoke = ["token", "revoke", made["token"]["id"].as_str().unwrap()];
    bed.run(&revoke).ends(2);
    let lost = [&revoke[..], &["--reason", "the laptop was lost"]].concat();
    bed.run(&lost).ends(2);
    let tried = bed.run(&[&lost[..], &["--dry-run"]].concat()).ends(0);
    assert!(
        tried.out.contains("would be revoked") && tried.err.contains("nothing was written"),
        "{}",
        tried.err
    );
    let revoked = bed.run(&[&lost[..], &["--yes", "-o", "json"]].concat()).json();
    assert!(revoked["revoked"]["at"].is_string(), "{revoked}");
    bed.run(&["token", "revoke", "cr_nobody", "--reason", "x", "--yes"]).ends(3);
    with(&["list"]).ends(4);
}

#[test]
fn completions_are_there_for_every_shell() {
    for shell in ["bash", "zsh", "fish"] {
        assert!(Bed::embedded().run(&["completions", shell]).ends(0).out.contains("close-out"), "{shell}");
    }
}

#[test]
fn a_backup_is_a_ledger_and_a_prune_leaves_what_is_young() {
    let bed = Bed::embedded();
    let ingest = ["ingest", "manual", "1", "--kind", "k", "--disposition", "rerunnable"];
    let id = bed.run(&ingest).ends(0).out.trim().to_owned();
    bed.run(&["cancel", &id, "--reason", "over", "--yes"]).ends(0);
    bed.run(&["backup", "copy.db"]).ends(0);
    std::fs::create_dir(bed.folder.path().join("elsewhere")).unwrap();
    bed.run(&["backup", "elsewhere/copy 2.db"]).ends(0);
    assert!(bed.folder.path().join("elsewhere/copy 2.db").is_file(), "its own user says where");
    let token = std::fs::read_to_string(bed.folder.path().join("ledger.db.token")).unwrap();
    let copy = ["--db", "copy.db", "--token", token.trim(), "show", &id, "-o", "json"];
    let copy = Said::of(tenure(bed.folder.path()).args(copy).output().unwrap());
    assert_eq!(copy.json()["state"], "cancelled");

    let alone = bed.run(&["prune", "--older-than", "1d", "--reason", "old"]).ends(2);
    assert!(alone.err.contains("--yes"), "{}", alone.err);
    let young = bed.run(&["prune", "--older-than", "1m", "--reason", "old", "--yes"]).ends(4);
    assert!(young.err.contains("an hour"), "{}", young.err);
    for how in ["--yes", "--dry-run"] {
        let pruned = bed.run(&["prune", "--older-than", "1d", "--reason", "old", how, "-o", "json"]).json();
        assert_eq!(pruned["works"], 0);
    }
    bed.run(&["show", &id]).ends(0);
}

#[test]
fn the_allocator_has_its_settings() {
    let bed = Bed::embedded();
    let shown = tenure(bed.folder.path()).arg("--version").env("MALLOC_CONF", "stats_print:true").output();
    let said = Said::of(shown.unwrap()).ends(0);
    for setting in ["opt.narenas: 2", "opt.background_thread: true", "opt.dirty_decay_ms: 300"] {
        assert!(said.err.contains(setting), "{setting}: {}", said.err);
    }
}
