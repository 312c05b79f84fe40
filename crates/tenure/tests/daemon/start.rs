//! Failed starts: the exit code, the cause, and the fix.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, chown},
    path::Path,
    process::{Command, Stdio},
};

use rusqlite::Connection;

use crate::bed::{Home, tenure};

/// The user of tests that must not run as root.
const NOBODY: u32 = 65_534;

/// The daemon's output before it exits with code 1.
fn refused(mut command: Command) -> String {
    let output = command.stderr(Stdio::piped()).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    let last = said.lines().last().unwrap_or_default();
    assert!(last.starts_with("tenure: "), "one sentence, no trace: {said}");
    last.to_owned()
}

fn serve(folder: &Path, db: &str) -> Command {
    let mut command = tenure(folder);
    command.args(["serve", "--listen", "127.0.0.1:0", "--db", db]);
    command
}

#[track_caller]
fn says(said: &str, words: &[&str]) {
    for word in words {
        assert!(said.contains(word), "`{word}` in: {said}");
    }
}

#[test]
fn what_is_no_ledger_is_named_and_left_alone() {
    let home = Home::sqlite();
    let folder = home.folder.path();
    says(&refused(serve(folder, "no/folder/ledger.db")), &["no/folder", "Create it"]);
    says(&refused(serve(folder, ".")), &["is a folder"]);
    fs::write(folder.join("letter.txt"), "Dear all,\n".repeat(1_000)).unwrap();
    says(&refused(serve(folder, "letter.txt")), &["letter.txt", "not an SQLite database"]);
    Connection::open(folder.join("notes.db"))
        .unwrap()
        .execute_batch("CREATE TABLE note (text TEXT)")
        .unwrap();
    says(&refused(serve(folder, "notes.db")), &["something else"]);
    let left: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "no token, no journal: {left:?}");
}

#[test]
fn a_newer_ledger_and_a_locked_one_are_told_apart() {
    let home = Home::sqlite();
    // Closed: another program that opens the file of a crashed daemon empties its write-ahead log, which is
    // refused.
    let daemon = home.serve();
    daemon.signal("TERM");
    assert_eq!(daemon.ended().0, Some(0));
    let file = home.folder.path().join("ledger.db");
    let conn = Connection::open(&file).unwrap();
    conn.execute_batch("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE; DELETE FROM kept").unwrap();
    says(&refused(home.serving()), &["ledger.db is locked", "try again"]);
    conn.execute_batch("COMMIT").unwrap();
    conn.execute("INSERT INTO migration VALUES (7000, 'beyond', 1, 0)", []).unwrap();
    drop(conn);
    says(&refused(home.serving()), &["7000", "newer version"]);
}

#[test]
fn a_ledger_that_may_only_be_read_is_refused() {
    let home = Home::sqlite();
    home.serve().kill();
    let folder = home.folder.path();
    let open = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    let mut command = home.serving();
    if fs::metadata("/proc/self").is_ok_and(|me| std::os::unix::fs::MetadataExt::uid(&me) == 0) {
        // root may write everywhere.
        for entry in fs::read_dir(folder).unwrap() {
            chown(entry.unwrap().path(), Some(NOBODY), Some(NOBODY)).unwrap();
        }
        chown(folder, Some(NOBODY), Some(NOBODY)).unwrap();
        let mut other = Command::new("setpriv");
        other.args([&format!("--reuid={NOBODY}"), &format!("--regid={NOBODY}"), "--clear-groups"]);
        other.arg(command.get_program()).args(command.get_args()).current_dir(folder);
        command = other;
    }
    for entry in fs::read_dir(folder).unwrap() {
        open(&entry.unwrap().path(), 0o444);
    }
    open(folder, 0o555);
    let said = refused(command);
    open(folder, 0o755);
    says(&said, &["ledger.db is read-only", "writable"]);
}

#[test]
fn postgres_with_another_schema_or_a_wrong_name_is_not_waited_for() {
    let cluster = tenure_testkit::shared();
    let url = cluster.create_database();
    let home = Home::at(&url);
    home.serve().kill();
    let database = url.rsplit_once('/').unwrap().1;
    cluster.psql(database, "insert into migration (number, name, breaking) values (7000, 'beyond', true)");
    says(&refused(home.serving()), &["7000", "a newer one"]);
    let missing = Home::at(&cluster.url("no_such_database"));
    says(&refused(missing.serving()), &["no_such_database"]);
}
