//! Hints for people: where their token is, that a list continues, that a worker has no leases, the form of
//! ids.

use std::{fs, os::unix::fs::PermissionsExt, process::Command};

use tempfile::TempDir;

use crate::bed::{Bed, Daemon, Said, tenure};

fn ingest(bed: &Bed, id: &str) -> String {
    let work = bed.run(&["ingest", "manual", id, "--kind", "k", "--disposition", "rerunnable"]);
    work.ends(0).out.trim().to_owned()
}

#[test]
fn the_token_of_a_daemon_on_postgresql_is_found_in_its_folder() {
    let folder = TempDir::new().unwrap();
    let db = tenure_testkit::shared().create_database();
    fs::write(folder.path().join("tenure.toml"), format!("db = \"{db}\"\n")).unwrap();
    let daemon = Daemon::plain(folder.path(), &["--config", "tenure.toml"]);
    let list = |folder: &TempDir| {
        Said::of(tenure(folder.path()).args(["--url", &daemon.url, "list"]).output().unwrap())
    };
    list(&folder).ends(0);
    let elsewhere = list(&TempDir::new().unwrap()).ends(4);
    for file in ["/tenure.db.token", "tenure.token"] {
        assert!(elsewhere.err.contains(file), "{file} in {}", elsewhere.err);
    }
}

#[test]
fn a_ledger_that_others_can_read_is_warned_of() {
    let bed = Bed::sqlite();
    let doctor = || bed.run(&["doctor", "-o", "json"]).json();
    let of = |findings: &serde_json::Value, check: &str| {
        findings.as_array().unwrap().iter().find(|finding| finding["check"] == check).cloned().unwrap()
    };
    let found = doctor();
    for check in ["file", "disk"] {
        assert_eq!(of(&found, check)["verdict"], "ok", "{found}");
    }
    let ready = found.as_array().unwrap().iter().filter(|finding| finding["check"] == "ready");
    let ready: Vec<&str> = ready.map(|finding| finding["detail"].as_str().unwrap()).collect();
    assert!(ready.iter().any(|detail| detail.starts_with("sweeper: looked ")), "{ready:?}");
    let file = bed.folder.path().join("ledger.db");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let wide = of(&doctor(), "file");
    assert_eq!(wide["verdict"], "warn");
    assert!(wide["fix"].as_str().unwrap().contains("chmod 600 /"), "{wide}");
}

#[test]
fn a_truncated_list_says_so() {
    let bed = Bed::sqlite();
    let ids = ["a", "b", "c"].map(|id| ingest(&bed, id));
    for list in [&["list"][..], &["events"], &["events", &ids[0]]] {
        let all = bed.run(list).ends(0);
        assert!(!all.err.contains("There are more"), "{}", all.err);
        bed.run(&[list, &["--limit", "0"]].concat()).ends(2);
    }
    for list in [&["list"][..], &["events"]] {
        let some = bed.run(&[list, &["--limit", "2"]].concat()).ends(0);
        assert_eq!(some.out.lines().count(), 3, "{}", some.out);
        assert!(some.err.contains("There are more: --limit 4"), "{}", some.err);
    }
    let one = bed.run(&["events", "--limit", "1"]).ends(0);
    assert!(one.out.contains("WORK") && one.out.contains(&ids[0]), "whose event it is: {}", one.out);
    assert!(!bed.run(&["events", &ids[0]]).ends(0).out.contains("WORK"));
}

#[test]
fn a_drain_without_leases_is_reported() {
    let bed = Bed::sqlite();
    let said = bed.run(&["drain", "nobody", "--reason", "x", "--yes"]).ends(3);
    assert!(said.err.contains("No worker nobody holds anything"), "{}", said.err);
}

#[test]
fn a_reader_that_closes_early_ends_the_output() {
    let script =
        format!("{} completions bash | head -3; exit ${{PIPESTATUS[0]}}", env!("CARGO_BIN_EXE_tenure"));
    let said = Said::of(Command::new("bash").args(["-c", &script]).output().unwrap()).ends(0);
    assert!(said.err.is_empty(), "{}", said.err);
}

#[test]
fn malformed_ids_are_not_found_by_any_verb() {
    let bed = Bed::sqlite();
    for verb in ["show", "events", "explain"] {
        let said = bed.run(&[verb, "nonsense"]).ends(3);
        for word in ["`nonsense`", "w_", "c_", "tenure list"] {
            assert!(said.err.contains(word), "{verb}: {word} in {}", said.err);
        }
    }
    bed.run(&["show", "c_0123"]).ends(3);
    let said = bed.run(&["events", "c_0123"]).ends(3);
    assert!(said.err.contains("tenure show c_0123"), "{}", said.err);
}

#[test]
fn a_holder_reports_a_failure() {
    let bed = Bed::sqlite();
    let id = ingest(&bed, "a");
    let lease = bed.run(&["claim", "--worker", "me", "-o", "json"]).json()[0].clone();
    let (fence, token) = (lease["fence"].to_string(), lease["token"].as_str().unwrap());
    let fail =
        ["fail", &id, "--fence", &fence, "--lease", token, "--class", "rate_limited", "--message", "429"];
    let tried = bed.run(&[&fail[..], &["--dry-run"]].concat()).ends(0);
    assert!(tried.err.contains("nothing was written"), "{}", tried.err);
    let failed = bed.run(&[&fail[..], &["--retry-after", "1h"]].concat()).ends(0);
    assert_eq!(failed.out, format!("{id} retry_scheduled\n"));
    let shown = bed.run(&["show", &id, "-o", "json"]).json();
    assert_eq!((&shown["failures"], &shown["error"]["message"]), (&1.into(), &"429".into()), "{shown}");
    bed.run(&["fail", &id, "--fence", &fence, "--lease", token]).ends(2);
}

#[test]
fn a_backup_becomes_a_ledger_again_and_nothing_else_does() {
    let bed = Bed::configured("ledger.db", "backups = \".\"");
    let id = ingest(&bed, "a");
    let path = |name: &str| bed.folder.path().join(name).to_str().unwrap().to_owned();
    assert!(bed.run(&["backup", &path("copy.db")]).ends(4).err.contains("plain file name"));
    bed.run(&["backup", "copy.db"]).ends(0);
    let restore = |from: &str, to: &str| {
        Said::of(tenure(bed.folder.path()).args(["restore", from, "--db", to]).output().unwrap())
    };
    assert!(restore("copy.db", "ledger.db").ends(4).err.contains("is not overwritten"));
    restore("nothing.db", "new.db").ends(3);
    assert!(restore("copy.db", "new.db").ends(0).err.contains("new.db has no faults"));
    assert_eq!(fs::metadata(path("new.db")).unwrap().permissions().mode() & 0o777, 0o600);
    let show = ["--db", "new.db", "--token", &bed.token(), "show", &id];
    Said::of(tenure(bed.folder.path()).args(show).output().unwrap()).ends(0);
    fs::write(path("letter.txt"), "this is no ledger").unwrap();
    restore("letter.txt", "letter.db").ends(7);
    assert!(!bed.folder.path().join("letter.db").exists());
    fs::write(path("empty.db"), "").unwrap();
    rusqlite::Connection::open(path("no_tables.db"))
        .unwrap()
        .execute_batch("CREATE TABLE t (x); DROP TABLE t")
        .unwrap();
    for name in ["empty.db", "no_tables.db"] {
        let empty = restore(name, "smaller.db").ends(7).err;
        assert!(empty.contains(&format!("{name} is empty")) && empty.contains("older backup"), "{empty}");
    }
    let other = rusqlite::Connection::open(path("other.db")).unwrap();
    other.execute("CREATE TABLE note (text)", []).unwrap();
    drop(other);
    restore("other.db", "smaller.db").ends(7);
    assert!(!bed.folder.path().join("smaller.db").exists());
    Said::of(tenure(bed.folder.path()).args(["restore", "copy.db"]).output().unwrap()).ends(2);
}

#[test]
fn a_backup_with_a_damaged_row_can_be_restored_on_request() {
    let bed = Bed::configured("ledger.db", "backups = \".\"");
    let (good, damaged) = (ingest(&bed, "good"), ingest(&bed, "damaged"));
    let copy = bed.folder.path().join("copy.db");
    bed.run(&["backup", "copy.db"]).ends(0);
    let conn = rusqlite::Connection::open(&copy).unwrap();
    conn.execute("UPDATE work SET body = '{' WHERE source_id = 'damaged'", []).unwrap();
    drop(conn);
    let run = |args: &[&str]| Said::of(tenure(bed.folder.path()).args(args).output().unwrap());
    let restore = ["restore", "copy.db", "--db", "new.db"];
    assert!(run(&restore).ends(7).err.contains("--accept-faults"));
    let restored = run(&[&restore[..], &["--accept-faults"]].concat()).ends(0);
    assert!(restored.err.contains(&damaged) && restored.err.contains("with 1 faults"), "{}", restored.err);
    let listed = run(&["--db", "new.db", "--token", &bed.token(), "list"]).ends(0);
    assert!(listed.out.contains("good") && !listed.out.contains(&damaged), "{}", listed.out);
    let told = format!("{damaged} is stored but cannot be read");
    assert!(listed.err.contains(&told), "{}", listed.err);
    run(&["--db", "new.db", "--token", &bed.token(), "show", &good]).ends(0);
}

#[test]
fn a_sound_ledger_is_called_sound() {
    let bed = Bed::sqlite();
    ingest(&bed, "a");
    assert!(bed.run(&["verify"]).ends(0).err.contains("No faults"));
}

#[test]
fn a_check_that_the_database_forbids_is_no_contradiction() {
    let url = tenure_testkit::shared().create_database();
    let database = url.rsplit('/').next().unwrap();
    let (port, role) = (tenure_testkit::shared().port(), format!("ledger_{database}"));
    let set_up = format!("CREATE ROLE {role} LOGIN; CREATE SCHEMA tenure AUTHORIZATION {role}");
    tenure_testkit::shared().psql(database, &set_up);
    let db = format!("postgres://{role}@127.0.0.1:{port}/{database}?options=-csearch_path%3Dtenure");
    let bed = Bed::configured(&db, "");
    ingest(&bed, "a");
    let said = bed.run(&["verify"]).ends(0);
    assert!(
        said.out.contains("not checked: the schema") && said.out.contains("GRANT CREATE"),
        "{}",
        said.out
    );
    assert!(said.err.contains("No faults in what was checked"), "{}", said.err);
    assert!(!said.err.contains("every row"), "{}", said.err);
    drop(bed);
    let clean = format!("DROP OWNED BY {role} CASCADE; DROP ROLE {role}");
    tenure_testkit::shared().psql(database, &clean);
}

#[test]
fn a_copy_of_the_anchor_tells_an_older_ledger() {
    let bed = Bed::configured("ledger.db", "backups = \".\"");
    ingest(&bed, "a");
    bed.run(&["backup", "older.db"]).ends(0);
    ingest(&bed, "b");
    let written = bed.run(&["anchor", "--out", "anchor.json"]).ends(0);
    assert!(written.out.is_empty() && written.err.contains("anchor.json: 2 events"), "{}", written.err);
    let file = bed.folder.path().join("anchor.json");
    let copy: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let printed = bed.run(&["anchor"]).ends(0).out;
    let printed: serde_json::Value = serde_json::from_str(&printed).unwrap();
    assert_eq!((&printed["digest"], &printed["ledger"]), (&copy["digest"], &copy["ledger"]));
    let sound = bed.run(&["verify", "--anchor", "anchor.json"]).ends(0);
    assert!(sound.err.contains("still contains the 2 events"), "{}", sound.err);

    let older = ["--db", "older.db", "--token", &bed.token(), "verify", "--anchor", "anchor.json"];
    let run = |args: &[&str]| Said::of(tenure(bed.folder.path()).args(args).output().unwrap());
    run(&older[..5]).ends(0);
    let found = run(&older).ends(7);
    assert!(found.out.contains("this is an older copy of the ledger"), "{}", found.out);

    std::fs::write(&file, copy.to_string().replace("\"events\":2", "\"events\":1")).unwrap();
    assert!(bed.run(&["verify", "--anchor", "anchor.json"]).ends(4).err.contains("MAC"));
    std::fs::write(&file, "{\"format\":1}").unwrap();
    assert!(bed.run(&["verify", "--anchor", "anchor.json"]).ends(2).err.contains("is not an anchor"));
    bed.run(&["verify", "--anchor", "none.json"]).ends(3);
    bed.run(&["anchor", "--out", "nowhere/anchor.json"]).ends(1);
}

#[test]
fn erased_content_is_shown_as_such() {
    let bed = Bed::sqlite();
    let id = ingest(&bed, "a");
    let reason = ["--reason", "their wish", "--yes"];
    assert!(bed.run(&[&["erase", &id], &reason[..]].concat()).ends(4).err.contains("illegal_state"));
    bed.run(&["cancel", &id, "--reason", "no longer", "--yes"]).ends(0);
    bed.run(&["erase", "--reason", "whose"]).ends(2);
    bed.run(&["erase", &id, "--reason", "unconfirmed"]).ends(2);
    let tried = bed.run(&["erase", "--tenant", "default", "--reason", "a look", "--dry-run"]).ends(0);
    assert!(tried.out.starts_with("1 work items erased, 0 kept"), "{}", tried.out);
    assert!(tried.err.contains("nothing was written"), "{}", tried.err);
    // By its source's id.
    bed.run(&[&["erase", "a"], &reason[..]].concat()).ends(0);
    let shown = bed.run(&["show", &id, "-o", "json"]).json();
    assert!(shown["erased_at"].is_string() && shown.get("input").is_none(), "{shown}");
    let text = bed.run(&["show", &id]).ends(0).out;
    assert!(
        text.contains("Erased:") && text.contains("erases its content") && text.contains("their wish"),
        "{text}"
    );
    assert!(bed.run(&["verify"]).ends(0).err.contains("No faults"));
}
