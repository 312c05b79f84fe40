//! Opens the file: the settings that make commits durable, and messages for a file that cannot be opened.

use std::{
    fs::OpenOptions,
    io,
    os::unix::fs::OpenOptionsExt,
    path::Path,
    time::{Duration, Instant},
};

use rusqlite::{Connection, ErrorCode, MAIN_DB, OpenFlags, config::DbConfig, ffi};

use super::{loss, migrate};
use crate::{Error, diagnosis::Setting};

/// Earlier versions could corrupt a file when its WAL was reset under load.
const OLDEST: i32 = 3_051_003;

/// How long a writer waits for another process to release the file.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// The pause between two attempts for a lock that SQLite does not wait for itself.
const AGAIN: Duration = Duration::from_millis(5);

/// The size of the WAL, in pages, at which the writer makes a checkpoint itself. It is reached only if the checkpoint
/// thread is far behind.
const LARGE_WAL: i64 = 8_000;

/// The size to which the WAL is cut when it restarts. During a backup, which reads one state, it can grow far larger.
const KEPT_WAL: i64 = 64 * 1024 * 1024;

/// The writer's page cache, in KiB and negative, as SQLite expects it. A larger one is not faster: a commit that
/// rebalances a tree reads through all of it.
const CACHE: i64 = -8_192;

/// Prepared statements that are cached in addition to those of the hot path.
const STATEMENTS: usize = 64;

/// Opens the writer's connection, and checks and sets its settings.
pub(super) fn writer(path: &Path, allow_weak: bool) -> Result<Connection, Error> {
    if rusqlite::version_number() < OLDEST {
        return Err(Error::Unusable(format!(
            "SQLite {} can corrupt a file that is written and read at once; build with a newer one",
            rusqlite::version()
        )));
    }
    let place = path.display();
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty() && !folder.is_dir()) {
        return Err(Error::Unusable(format!(
            "{place} cannot be made: there is no folder {}. Create it first",
            folder.display()
        )));
    }
    if path.is_dir() {
        return Err(Error::Unusable(format!("{place} is a folder. Give the path of a file in it")));
    }
    // SQLite would read such a name as a URI.
    if !path.as_os_str().as_encoded_bytes().starts_with(b"file:") {
        // If this fails, opening the file fails with a better message.
        let _ = private(path);
    }
    let flags =
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags).map_err(|error| explain(path, &error))?;
    if conn.is_readonly(MAIN_DB).map_err(|error| explain(path, &error))? {
        return Err(read_only(path));
    }
    conn.busy_timeout(BUSY_TIMEOUT).map_err(|error| explain(path, &error))?;
    recognise(path, &conn)?;
    set(&conn).map_err(|error| explain(path, &error))?;
    let settings = durability(&conn).map_err(|error| explain(path, &error))?;
    match Setting::weakness(&settings) {
        Some(weak) if allow_weak => {
            tracing::warn!(path = %place, weak, "commits may be lost: weak settings were allowed");
        }
        Some(weak) => {
            return Err(Error::WeakSettings(format!(
                "{place}: {weak}. Put the file on a local disk, or allow weak settings for throw-away data"
            )));
        }
        None => {}
    }
    keep_log(&conn, true).map_err(|error| explain(path, &error))?;
    Ok(conn)
}

/// Whether the WAL is kept when the last connection closes. Only a clean close moves it into the file; after a failed
/// write it stays, and the next open recovers it.
pub(super) fn keep_log(conn: &Connection, keep: bool) -> rusqlite::Result<()> {
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, keep).map(drop)
}

/// Creates a new file that only its owner can read, because it will contain payloads and the key of all tokens. SQLite
/// gives the WAL and its index the same mode. An existing file stays as it is.
pub(super) fn private(path: &Path) -> io::Result<()> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map(drop)
}

fn recognise(path: &Path, conn: &Connection) -> Result<(), Error> {
    conn.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))
        .map_err(|error| explain(path, &error))?;
    migrate::recognise(conn)
}

/// How much of the deleted content a write overwrites.
#[derive(Clone, Copy)]
pub(super) enum Overwrite {
    /// Content within pages that are written anyway. It costs next to nothing.
    WithinPages,
    /// Pages that become free as well.
    Everything,
}

pub(super) fn overwrite(conn: &Connection, what: Overwrite) -> rusqlite::Result<()> {
    let value = match what {
        Overwrite::WithinPages => "FAST",
        Overwrite::Everything => "ON",
    };
    conn.pragma_update(None, "secure_delete", value)
}

/// Moves the log into the file, starts it anew and cuts off what is left of it: it may hold earlier versions of pages. False:
/// a reader still needs it. The log is never empty meanwhile: an empty one would look like a lost one.
pub(super) fn restart_log(conn: &Connection) -> rusqlite::Result<bool> {
    // The writer does not wait for readers: everybody in the queue would.
    conn.busy_timeout(Duration::ZERO)?;
    conn.pragma_update(None, "journal_size_limit", 0)?;
    let restarted = conn
        .query_row("PRAGMA wal_checkpoint(RESTART)", [], |row| Ok(row.get::<_, i64>(0)? == 0))
        .and_then(|done| Ok(done && loss::leave_to_others(conn)?));
    conn.pragma_update(None, "journal_size_limit", KEPT_WAL)?;
    conn.busy_timeout(BUSY_TIMEOUT)?;
    restarted
}

/// `busy_timeout` is set first: changing the journal mode needs the lock.
pub(super) fn set(conn: &Connection) -> rusqlite::Result<()> {
    write_ahead(conn)?;
    conn.pragma_update(None, "synchronous", "FULL")?;
    conn.pragma_update(None, "fullfsync", true)?;
    conn.pragma_update(None, "checkpoint_fullfsync", true)?;
    conn.pragma_update(None, "foreign_keys", false)?;
    conn.pragma_update(None, "temp_store", "MEMORY")?;
    conn.pragma_update(None, "cache_size", CACHE)?;
    conn.pragma_update(None, "wal_autocheckpoint", LARGE_WAL)?;
    conn.pragma_update(None, "journal_size_limit", KEPT_WAL)?;
    overwrite(conn, Overwrite::WithinPages)?;
    planned_once(conn)?;
    conn.set_prepared_statement_cache_capacity(STATEMENTS);
    Ok(())
}

/// If several processes create the file at once, each has read it already. SQLite then refuses the lock without
/// waiting, to avoid a deadlock.
fn write_ahead(conn: &Connection) -> rusqlite::Result<()> {
    let until = Instant::now() + BUSY_TIMEOUT;
    loop {
        match conn.pragma_update(None, "journal_mode", "WAL") {
            Err(error)
                if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) && Instant::now() < until =>
            {
                std::thread::sleep(AGAIN);
            }
            set => return set,
        }
    }
}

/// Plans never depend on bound values. Otherwise SQLite would plan some statements again on each run, to see whether a
/// value matches a partial index.
fn planned_once(conn: &Connection) -> rusqlite::Result<()> {
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map(drop)
}

/// The settings that make an acknowledged commit durable, read back from the connection.
pub(super) fn durability(conn: &Connection) -> rusqlite::Result<Vec<Setting>> {
    let journal: String = conn.pragma_query_value(None, "journal_mode", |row| row.get(0))?;
    let synchronous: i64 = conn.pragma_query_value(None, "synchronous", |row| row.get(0))?;
    let synchronous = match synchronous {
        0 => "off",
        1 => "normal",
        2 => "full",
        _ => "extra",
    };
    Ok(vec![
        Setting::new("journal_mode", journal, &["wal"]),
        Setting::new("synchronous", synchronous.to_owned(), &["full", "extra"]),
    ])
}

/// A connection for checkpoints. It syncs the file as the writer's commits sync the WAL.
pub(super) fn checkpointer(path: &Path) -> Result<Connection, Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let open = || {
        let conn = Connection::open_with_flags(path, flags)?;
        conn.busy_timeout(BUSY_TIMEOUT)?;
        conn.pragma_update(None, "synchronous", "FULL")?;
        conn.pragma_update(None, "checkpoint_fullfsync", true)?;
        conn.pragma_update(None, "cache_size", -256)?;
        keep_log(&conn, true)?;
        Ok(conn)
    };
    open().map_err(|error: rusqlite::Error| explain(path, &error))
}

/// A read-only connection.
pub(super) fn reader(path: &Path) -> Result<Connection, Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let open = || {
        let conn = Connection::open_with_flags(path, flags)?;
        conn.busy_timeout(BUSY_TIMEOUT)?;
        conn.pragma_update(None, "query_only", true)?;
        conn.pragma_update(None, "cache_size", -2_048)?;
        planned_once(&conn)?;
        conn.set_prepared_statement_cache_capacity(STATEMENTS);
        Ok(conn)
    };
    open().map_err(|error: rusqlite::Error| explain(path, &error))
}

/// The reason why the file cannot be opened, and what to do.
pub(super) fn explain(path: &Path, error: &rusqlite::Error) -> Error {
    let place = path.display();
    match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => Error::Unusable(format!(
            "{place} is not an SQLite database. Give the path of a ledger, or of a new file"
        )),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Error::Unavailable(format!(
            "{place} is locked by another process. Let it finish, or stop it, and try again"
        )),
        Some(ErrorCode::ReadOnly) => read_only(path),
        Some(ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => Error::Unusable(format!(
            "{place} cannot be opened ({error}). Check that this user may read and write it and its folder"
        )),
        Some(ErrorCode::DatabaseCorrupt) => {
            Error::Unusable(format!("{place} is damaged ({error}). Keep a copy of it, and restore a backup"))
        }
        // On a full disk, SQLite often fails to create the shared memory file beside the ledger.
        Some(ErrorCode::SystemIoFailure) if extended(error) == Some(ffi::SQLITE_IOERR_SHMSIZE) => full(path),
        Some(ErrorCode::DiskFull) => full(path),
        Some(ErrorCode::SystemIoFailure) => {
            Error::Unavailable(format!("{place} cannot be read or written ({error}). Look at the disk"))
        }
        _ => Error::Unusable(format!("{place}: {error}")),
    }
}

const FULL: &str = "the disk is full. Free some space, and open it again";

fn full(path: &Path) -> Error {
    Error::Unavailable(format!("{}: {FULL}", path.display()))
}

/// Whether the file could not be opened because the disk is full.
pub(super) fn is_full(error: &Error) -> bool {
    matches!(error, Error::Unavailable(why) if why.ends_with(FULL))
}

fn extended(error: &rusqlite::Error) -> Option<i32> {
    error.sqlite_error().map(|error| error.extended_code)
}

fn read_only(path: &Path) -> Error {
    Error::Unusable(format!(
        "{} is read-only here. Make the file and its folder writable for this user",
        path.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(code: rusqlite::ffi::ErrorCode) -> rusqlite::Error {
        rusqlite::Error::SqliteFailure(rusqlite::ffi::Error { code, extended_code: 0 }, None)
    }

    #[test]
    fn settings_that_lose_commits_are_seen() {
        let folder = tempfile::tempdir().unwrap();
        let conn = writer(&folder.path().join("ledger.db"), false).unwrap();
        let weakness = |conn: &Connection| Setting::weakness(&durability(conn).unwrap());
        assert_eq!(weakness(&conn), None);
        conn.pragma_update(None, "synchronous", "NORMAL").unwrap();
        assert!(weakness(&conn).is_some_and(|weak| weak.contains("synchronous")));
        conn.pragma_update(None, "synchronous", "FULL").unwrap();
        conn.pragma_update(None, "journal_mode", "DELETE").unwrap();
        assert!(weakness(&conn).is_some_and(|weak| weak.contains("journal_mode")));
    }

    #[test]
    fn a_file_that_cannot_have_a_wal_is_refused_unless_allowed() {
        // A shared in-memory database has no WAL. In this test it represents network folders, where a WAL does not
        // work.
        let path = Path::new("file:weak?mode=memory&cache=shared");
        assert!(matches!(writer(path, false), Err(Error::WeakSettings(_))));
        assert!(writer(path, true).is_ok());
    }

    #[test]
    fn every_reason_says_what_to_do() {
        let path = Path::new("ledger.db");
        for (code, advice) in [
            (ErrorCode::DatabaseBusy, "try again"),
            (ErrorCode::ReadOnly, "writable"),
            (ErrorCode::CannotOpen, "Check"),
            (ErrorCode::DatabaseCorrupt, "restore a backup"),
            (ErrorCode::DiskFull, "Free some space"),
            (ErrorCode::SystemIoFailure, "Look at the disk"),
            (ErrorCode::NotADatabase, "Give the path"),
        ] {
            let text = explain(path, &failure(code)).to_string();
            assert!(text.contains("ledger.db") && text.contains(advice), "{text}");
        }
    }
}
