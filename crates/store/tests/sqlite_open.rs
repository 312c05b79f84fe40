//! Opening a file: refusals, their texts, and the data that exists after a close.
#![cfg(feature = "sqlite")]

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use rusqlite::Connection;
use serde_json::json;
use tenure_store::{
    Error, Ledger, ManualClock, NewWork, Options, Sweeper,
    core::{
        Actor, State,
        model::Disposition,
        policy::{PolicyOverrides, Timeouts},
    },
};

async fn open(file: &Path) -> Result<Ledger, Error> {
    Ledger::open_sqlite(file, Options { sweep: false, ..Options::default() }).await
}

/// Why the file cannot be a ledger.
async fn refusal(file: &Path) -> String {
    match open(file).await {
        Err(Error::Unusable(why)) => why,
        Err(other) => panic!("refused for another reason: {other}"),
        Ok(_) => panic!("{} was opened", file.display()),
    }
}

#[tokio::test]
async fn a_missing_folder_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let why = refusal(&folder.path().join("nowhere/ledger.db")).await;
    assert!(why.contains("nowhere") && why.contains("Create it"), "{why}");
}

/// It holds payloads and the key of every token.
#[tokio::test]
async fn a_new_ledger_and_its_copies_are_for_their_owner_only() {
    let folder = tempfile::tempdir().unwrap();
    let mode = |name: &str| fs::metadata(folder.path().join(name)).unwrap().permissions().mode() & 0o777;
    let ledger = open(&folder.path().join("ledger.db")).await.unwrap();
    ledger.backup(&folder.path().join("copy.db")).await.unwrap();
    for name in ["ledger.db", "ledger.db-wal", "ledger.db-shm", "copy.db"] {
        assert_eq!(mode(name), 0o600, "{name}");
    }
    ledger.close().await.unwrap();
    // The wider permissions were set on purpose.
    fs::set_permissions(folder.path().join("ledger.db"), fs::Permissions::from_mode(0o640)).unwrap();
    open(&folder.path().join("ledger.db")).await.unwrap().close().await.unwrap();
    assert_eq!(mode("ledger.db"), 0o640);
}

#[tokio::test]
async fn a_folder_is_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let why = refusal(folder.path()).await;
    assert!(why.contains("is a folder"), "{why}");
}

#[tokio::test]
async fn other_files_are_left_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("letter.txt");
    let text = "Dear all,\n".repeat(1_000);
    fs::write(&file, &text).unwrap();
    let why = refusal(&file).await;
    assert!(why.contains("not an SQLite database"), "{why}");
    assert_eq!(fs::read_to_string(&file).unwrap(), text);
}

#[tokio::test]
async fn other_databases_are_left_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("notes.db");
    Connection::open(&file).unwrap().execute_batch("CREATE TABLE note (text TEXT)").unwrap();
    let before = fs::read(&file).unwrap();
    let why = refusal(&file).await;
    assert!(why.contains("something else"), "{why}");
    assert_eq!(fs::read(&file).unwrap(), before);
}

#[tokio::test]
async fn a_newer_ledger_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ledger.db");
    open(&file).await.unwrap().close().await.unwrap();
    let conn = Connection::open(&file).unwrap();
    conn.execute("INSERT INTO migration VALUES (7000, 'beyond', 1, 0)", []).unwrap();
    drop(conn);
    let why = refusal(&file).await;
    assert!(why.contains("7000") && why.contains("newer version"), "{why}");
}

/// A ledger whose first page is whole and whose others are not.
#[tokio::test]
async fn a_damaged_ledger_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ledger.db");
    open(&file).await.unwrap().close().await.unwrap();
    let mut bytes = fs::read(&file).unwrap();
    bytes[100..].fill(0xff);
    fs::write(&file, bytes).unwrap();
    let why = refusal(&file).await;
    assert!(why.contains("ledger.db is damaged") && why.contains("restore a backup"), "{why}");
}

#[tokio::test]
async fn a_locked_file_is_worth_another_try() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ledger.db");
    open(&file).await.unwrap().close().await.unwrap();
    let conn = Connection::open(&file).unwrap();
    conn.execute_batch("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE; DELETE FROM kept").unwrap();
    match open(&file).await {
        Err(Error::Unavailable(why)) => {
            assert!(why.contains("ledger.db is locked") && why.contains("try again"), "{why}");
        }
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it was opened"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_committed_is_there_again() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ledger.db");
    let ledger = open(&file).await.unwrap();
    let caller = ledger.caller(Actor::machine("gateway"));
    let new = || NewWork::new("manual", "one", "job", Disposition::ExternallyOwned, json!(1));
    let first = caller.ingest(new()).await.unwrap();
    ledger.close().await.unwrap();
    assert!(caller.ingest(new()).await.is_err(), "a closed ledger takes nothing");
    let wal = fs::metadata(folder.path().join("ledger.db-wal")).map_or(0, |wal| wal.len());
    assert_eq!(wal, 0, "closing moves everything into the file");

    let ledger = open(&file).await.unwrap();
    let again = ledger.caller(Actor::machine("gateway")).ingest(new()).await.unwrap();
    assert_eq!((again.work.id, again.created), (first.work.id, false));
    assert_eq!(again.completion_token, first.completion_token, "the key is the ledger's, not the process's");
    ledger.close().await.unwrap();
}

/// The files of a ledger with ten works, as a crash leaves them: it is in use, and nothing is being written.
async fn crashed(folder: &Path) -> (Ledger, PathBuf) {
    let file = folder.join("in-use.db");
    let ledger = open(&file).await.unwrap();
    for number in 0..10 {
        let new = NewWork::new("manual", &number.to_string(), "job", Disposition::Rerunnable, json!(number));
        ledger.caller(Actor::machine("m")).ingest(new).await.unwrap();
    }
    let copy = folder.join("ledger.db");
    for end in ["", "-wal", "-shm"] {
        fs::copy(beside(&file, end), beside(&copy, end)).unwrap();
    }
    (ledger, copy)
}

fn beside(file: &Path, end: &str) -> PathBuf {
    PathBuf::from(format!("{}{end}", file.display()))
}

async fn works(ledger: &Ledger) -> usize {
    ledger.list(&Default::default(), None, 100).await.unwrap().len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ledger_that_lost_its_log_is_not_opened_as_a_smaller_one() {
    type Harm = fn(&Path, &Path);
    let harms: [(&str, Harm); 9] = [
        ("missing", |_, log| fs::remove_file(log).unwrap()),
        ("missing or empty", |_, log| fs::write(log, "").unwrap()),
        ("its log is damaged", |_, log| {
            let mut bytes = fs::read(log).unwrap();
            bytes[..32].fill(0);
            fs::write(log, bytes).unwrap();
        }),
        ("commits follow on", |_, log| {
            let mut bytes = fs::read(log).unwrap();
            let middle = bytes.len() / 3;
            bytes[middle..middle + 100].fill(0xff);
            fs::write(log, bytes).unwrap();
        }),
        ("at its end", |_, log| {
            let bytes = fs::read(log).unwrap();
            fs::write(log, &bytes[..bytes.len() / 2]).unwrap();
        }),
        ("at its end", |_, log| {
            let mut bytes = fs::read(log).unwrap();
            let half = bytes.len() / 2;
            bytes[half..].fill(0);
            fs::write(log, bytes).unwrap();
        }),
        ("no commit is in it", |file, log| {
            fs::remove_file(beside(file, "-shm")).unwrap();
            fs::write(log, &fs::read(log).unwrap()[..32]).unwrap();
        }),
        ("no commit is in it", |file, log| {
            fs::remove_file(beside(file, "-shm")).unwrap();
            let mut bytes = fs::read(log).unwrap();
            bytes[32..].fill(0);
            fs::write(log, bytes).unwrap();
        }),
        ("is empty, and its log is not", |file, _| fs::write(file, "").unwrap()),
    ];
    for (told, harm) in harms {
        let folder = tempfile::tempdir().unwrap();
        let (source, file) = crashed(folder.path()).await;
        harm(&file, &beside(&file, "-wal"));
        let before = fs::read(&file).unwrap();
        let why = refusal(&file).await;
        assert!(
            why.contains(told) && why.contains("ledger.db-wal") && why.contains("--accept-loss"),
            "{why}"
        );
        assert_eq!(fs::read(&file).unwrap(), before, "{told}: nothing was touched");
        let accepted = Options { sweep: false, accept_loss: true, ..Options::default() };
        let left = Ledger::open_sqlite(&file, accepted).await.unwrap();
        assert!(works(&left).await < 10, "{told}");
        left.close().await.unwrap();
        // Once it was accepted, it is a ledger like any other.
        drop(left);
        open(&file).await.unwrap().close().await.unwrap();
        source.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_and_a_last_commit_that_was_cut_short_are_no_loss() {
    let folder = tempfile::tempdir().unwrap();
    let (source, file) = crashed(folder.path()).await;
    let ledger = open(&file).await.unwrap();
    assert_eq!(works(&ledger).await, 10);
    ledger.close().await.unwrap();
    drop(ledger);

    let (again, cut) = (folder.path().join("in-use.db"), folder.path().join("cut.db"));
    let log = fs::read(beside(&again, "-wal")).unwrap();
    fs::copy(&again, &cut).unwrap();
    fs::write(beside(&cut, "-wal"), &log[..log.len() - 100]).unwrap();
    let ledger = open(&cut).await.unwrap();
    assert!(works(&ledger).await >= 9);
    ledger.close().await.unwrap();
    source.close().await.unwrap();
    drop(source);
    // After a clean close the file is complete, wherever it is copied to.
    let moved = folder.path().join("moved.db");
    fs::copy(&again, &moved).unwrap();
    let ledger = open(&moved).await.unwrap();
    assert_eq!(works(&ledger).await, 10);
    ledger.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_closes_does_not_hide_the_loss_of_one_that_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ledger.db");
    let (daemon, verb) = (open(&file).await.unwrap(), open(&file).await.unwrap());
    verb.close().await.unwrap();
    drop(verb);
    for number in 0..3 {
        let new = NewWork::new("manual", &number.to_string(), "job", Disposition::Rerunnable, json!(number));
        daemon.caller(Actor::machine("m")).ingest(new).await.unwrap();
    }
    let copy = folder.path().join("copy.db");
    fs::copy(&file, &copy).unwrap();
    let why = refusal(&copy).await;
    assert!(why.contains("log is missing"), "{why}");
    daemon.close().await.unwrap();
}

/// The clock was set forward while the ledger was open: a later process goes on with the ledger's time.
#[tokio::test]
async fn a_jump_of_the_clock_is_remembered_over_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ledger.db");
    let clock = std::sync::Arc::new(tenure_store::ManualClock::new(1_700_000_000_000));
    let options = || Options { sweep: false, clock: Some(clock.clone()), ..Options::default() };
    let new = |id: &str| NewWork::new("manual", id, "k", Disposition::Rerunnable, json!({}));
    let ledger = Ledger::open_sqlite(&file, options()).await.unwrap();
    let caller = ledger.caller(Actor::machine("m"));
    caller.ingest(new("before")).await.unwrap();
    clock.jump(2 * 3_600_000);
    caller.ingest(new("after")).await.unwrap();
    caller.ingest(new("stored with it")).await.unwrap();
    let now = ledger.now().await.unwrap();
    assert_eq!(now, 1_700_000_000_000);
    ledger.close().await.unwrap();
    let ledger = Ledger::open_sqlite(&file, options()).await.unwrap();
    assert_eq!(ledger.now().await.unwrap(), now);
    ledger.close().await.unwrap();
}

/// The verb has no sweeper that looked before the jump: it sees the raw clock, and what the file says of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_jump_that_an_idle_daemon_noticed_ends_nothing_early_in_a_process_that_opens_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ledger.db");
    let clock = std::sync::Arc::new(ManualClock::new(1_700_000_000_000));
    let options = || Options { sweep: false, clock: Some(clock.clone()), ..Options::default() };
    let daemon = Ledger::open_sqlite(&file, options()).await.unwrap();
    let timeouts = Some(Timeouts { start_ms: Some(60_000), ..Timeouts::default() });
    let policy = PolicyOverrides { timeouts, ..PolicyOverrides::default() };
    let new = NewWork { policy, ..NewWork::new("manual", "1", "k", Disposition::Rerunnable, json!({})) };
    let work = daemon.caller(Actor::machine("m")).ingest(new).await.unwrap().work;
    for jump in [2 * 3_600_000, 30 * 24 * 3_600_000] {
        clock.jump(jump);
        // What its sweeper asks for every second. The diagnosis comes behind it through the writer.
        daemon.now().await.unwrap();
        daemon.diagnosis().await.unwrap();
        let verb = Ledger::open_sqlite(&file, options()).await.unwrap();
        let sweep = Sweeper::new(clock.clone()).run_once(&verb).await.unwrap();
        assert_eq!((sweep.acted, verb.work(work.id).await.unwrap().state), (0, State::Queued), "{jump}");
        // It is gone without a goodbye: one that closes says that nobody has the file open.
        std::mem::forget(verb);
    }
    daemon.close().await.unwrap();
}
