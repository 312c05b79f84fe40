//! Detects a lost or damaged write-ahead log. SQLite treats such a log as an empty one: the ledger would silently lose
//! its last commits.
//!
//! The ledger's file contains a mark while a process has it open: it is written into the file before the first reply,
//! and a clean close removes it before the log is emptied. If the mark is there, the log must exist. If a log has valid
//! commits after an invalid frame, that frame was valid once, so the log is damaged. A log that was cut or overwritten
//! at its end looks as if its last commits had never been made, except for SQLite's index of it (`-shm`), which records
//! after each synced commit where the log ends. The index is not synced itself: after a power cut it may name an
//! earlier end, never a later one.

use std::{
    fs::{self, File},
    io::{self, BufReader, Read},
    path::Path,
    thread,
    time::Duration,
};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use rusqlite::{Connection, OpenFlags};

use super::{checkpoint, settings::explain, wal};
use crate::Error;

const MARK: &str = "INSERT INTO meta (key, value) VALUES ('in_use', x'01') ON CONFLICT (key) DO NOTHING";
/// The value changes, because SQLite does not write a page that stays the same.
const MARK_AGAIN: &str =
    "UPDATE meta SET value = CASE value WHEN x'01' THEN x'02' ELSE x'01' END WHERE key = 'in_use'";
const UNMARK: &str = "DELETE FROM meta WHERE key = 'in_use'";
const MARKED: &str = "SELECT 1 FROM meta WHERE key = 'in_use'";

/// The time between two checks of a log that seems to be lost, and the maximum number of checks.
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);
const LOOKS: usize = 20;

const HEADER: usize = 32;
const INDEX: usize = 100;
const FRAME: usize = 24;

/// Marks the file as in use. False: it was marked already, and nothing was written. The mark is written to the log
/// first, so a lost log also loses the mark.
pub(super) fn mark(conn: &Connection) -> rusqlite::Result<bool> {
    Ok(conn.prepare_cached(MARK)?.execute([])? > 0)
}

/// At open: moves the mark, and everything else, from the log into the file.
pub(super) fn mark_in_file(path: &Path, conn: &Connection) -> Result<(), Error> {
    checkpoint::passive(conn).map(drop).map_err(|error| explain(path, &error))
}

/// After the log was emptied: another process may have marked the file meanwhile, and its mark was moved into the file.
/// An empty log would then look like a lost one, so the mark is written once more. True: that was the case.
pub(super) fn leave_to_others(conn: &Connection) -> rusqlite::Result<bool> {
    Ok(conn.execute(MARK_AGAIN, [])? > 0)
}

/// For a clean close and for copies: they are complete without a log.
pub(super) fn unmark(conn: &Connection) -> rusqlite::Result<()> {
    conn.execute(UNMARK, []).map(drop)
}

/// Refuses a ledger whose log has lost commits, before SQLite opens either file.
pub(super) fn refuse(path: &Path) -> Result<(), Error> {
    let log = wal::beside(path);
    // SQLite's own message says better why a file cannot be read.
    let Some(what) = confirmed(|| look(path, &log).unwrap_or(None)) else { return Ok(()) };
    Err(Error::Unusable(format!(
        "{what}, so commits that were acknowledged may be lost. Put back {log} as it was beside {path}; or restore a backup \
         (`tenure restore`); or open what is left with --accept-loss. Keep a copy of both files first",
        log = log.display(),
        path = path.display(),
    )))
}

/// A result that two checks in a row agree on. A process that writes, restarts its log, or closes may be seen in
/// between; a real loss does not change.
fn confirmed(mut look: impl FnMut() -> Option<String>) -> Option<String> {
    let mut before = look()?;
    for _ in 1..LOOKS {
        thread::sleep(BETWEEN_LOOKS);
        let now = look()?;
        if now == before {
            return Some(now);
        }
        before = now;
    }
    // The result changes, so another process is writing the log.
    None
}

/// The fault of the log, in a clause. None: no fault is visible.
fn look(path: &Path, log: &Path) -> io::Result<Option<String>> {
    let length = |file: &Path| match fs::metadata(file) {
        Ok(file) => Ok(file.len()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(error),
    };
    let (file_length, log_length) = (length(path)?, length(log)?);
    if file_length == 0 {
        return Ok((log_length > 0).then(|| format!("{} is empty, and its log is not", path.display())));
    }
    // Read before the log, which only grows unless it is restarted.
    let index = Index::read(&wal::index_beside(path))?;
    let found = if log_length == 0 { None } else { Log::read(log)? };
    match found {
        Some(found) if found.commits_after_damage >= 2 => Ok(Some(format!(
            "{} is damaged: {} commits follow on frame {}, which is not valid",
            log.display(),
            found.commits_after_damage,
            found.damaged_at
        ))),
        Some(found) if index.as_ref().is_some_and(|index| index.has_more_than(&found)) => Ok(Some(format!(
            "{} is cut or damaged at its end: its commits end at frame {}, and they went further",
            log.display(),
            found.committed
        ))),
        Some(found) if found.is_bare && marked(path) => {
            Ok(Some(format!("{} was not closed, and its log is damaged: no commit is in it", path.display())))
        }
        Some(_) => Ok(None),
        None if !marked(path) => Ok(None),
        None if log_length == 0 => {
            Ok(Some(format!("{} was not closed, and its log is missing or empty", path.display())))
        }
        None => Ok(Some(format!("{} was not closed, and its log is damaged", path.display()))),
    }
}

/// Whether the file alone, without its log, has the mark.
pub(super) fn marked(path: &Path) -> bool {
    const ESCAPED: AsciiSet = NON_ALPHANUMERIC.remove(b'/').remove(b'.').remove(b'-').remove(b'_');
    let Ok(path) = std::path::absolute(path) else { return false };
    let address = percent_encode(path.as_os_str().as_encoded_bytes(), &ESCAPED);
    let flags =
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(format!("file:{address}?immutable=1"), flags);
    conn.and_then(|conn| conn.query_row(MARKED, [], |_| Ok(()))).is_ok()
}

/// The relevant content of a log. The format: https://sqlite.org/walformat.html
struct Log {
    /// The number of commits in sequence after the first invalid frame. A last commit that was cut short leaves at most
    /// one, because nothing is written after a commit that was not synced.
    commits_after_damage: usize,
    /// The first invalid frame.
    damaged_at: usize,
    /// The frame that ends the last commit before it.
    committed: usize,
    /// The header has no valid frame after it. When a log is restarted, older frames stay until they are overwritten.
    is_bare: bool,
    salts: [u8; 8],
}

/// SQLite's index of the log. The format: https://sqlite.org/walformat.html#the_wal_index_file_format
struct Index {
    salts: [u8; 8],
    /// The last frame of the last commit.
    committed: usize,
    /// The number of frames that a checkpoint has moved into the file.
    moved: usize,
}

impl Index {
    /// None: the index does not exist, or is half written.
    fn read(path: &Path) -> io::Result<Option<Self>> {
        let bytes = match start(path, INDEX) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read?,
        };
        if bytes.len() < INDEX || bytes[..48] != bytes[48..96] {
            return Ok(None);
        }
        let native = |at: usize| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        if checksum([0, 0], &bytes[..40], cfg!(target_endian = "big")) != [native(40), native(44)] {
            return Ok(None);
        }
        let mut salts = [0; 8];
        salts.copy_from_slice(&bytes[32..40]);
        Ok(Some(Self { salts, committed: native(16) as usize, moved: native(96) as usize }))
    }

    fn has_more_than(&self, log: &Log) -> bool {
        self.salts == log.salts && self.committed > log.committed.max(self.moved)
    }
}

impl Log {
    /// None: the file does not begin with a log's header.
    fn read(path: &Path) -> io::Result<Option<Self>> {
        loop {
            let header = start(path, HEADER)?;
            let read = Self::behind(&header, path)?;
            // Another process may have restarted the log meanwhile.
            if start(path, HEADER)? == header {
                return Ok(read);
            }
        }
    }

    fn behind(header: &[u8], path: &Path) -> io::Result<Option<Self>> {
        if header.len() < HEADER {
            return Ok(None);
        }
        let mut file = BufReader::with_capacity(1024 * 1024, File::open(path)?);
        file.seek_relative(HEADER as i64)?;
        let big = match word(header, 0) {
            0x377f_0682 => false,
            0x377f_0683 => true,
            _ => return Ok(None),
        };
        let mut sum = checksum([0, 0], &header[..24], big);
        let size = word(header, 8) as usize;
        if sum != [word(header, 24), word(header, 28)] || !(512..=65_536).contains(&size) {
            return Ok(None);
        }
        let mut salts = [0; 8];
        salts.copy_from_slice(&header[16..24]);
        let (mut damaged, mut line, mut most, mut committed, mut is_bare) = (None, 0, 0, 0, true);
        let mut frame = vec![0; FRAME + size];
        let mut number = 0;
        while file.read_exact(&mut frame).is_ok() {
            number += 1;
            let stored = [word(&frame, 16), word(&frame, 20)];
            let sum_here = checksum(checksum(sum, &frame[..8], big), &frame[FRAME..], big);
            let valid = frame[8..16] == salts && sum_here == stored;
            sum = stored;
            if number == 1 {
                is_bare = frame[8..16] == [0; 8];
            }
            if valid && damaged.is_none() && word(&frame, 4) > 0 {
                committed = number;
            }
            if damaged.is_some() && valid {
                line += usize::from(word(&frame, 4) > 0);
                most = most.max(line);
            } else if !valid {
                damaged.get_or_insert(number);
                line = 0;
            }
        }
        let damaged_at = damaged.unwrap_or(0);
        Ok(Some(Self { commits_after_damage: most, damaged_at, committed, is_bare, salts }))
    }
}

fn start(path: &Path, length: usize) -> io::Result<Vec<u8>> {
    let mut start = Vec::with_capacity(length);
    File::open(path)?.take(length as u64).read_to_end(&mut start)?;
    Ok(start)
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn checksum(mut sum: [u32; 2], bytes: &[u8], big: bool) -> [u32; 2] {
    let word = |four: &[u8]| {
        let four = [four[0], four[1], four[2], four[3]];
        if big { u32::from_be_bytes(four) } else { u32::from_le_bytes(four) }
    };
    for pair in bytes.chunks_exact(8) {
        sum[0] = sum[0].wrapping_add(word(&pair[..4])).wrapping_add(sum[1]);
        sum[1] = sum[1].wrapping_add(word(&pair[4..])).wrapping_add(sum[0]);
    }
    sum
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::sqlite::{migrate, settings};

    fn opened(path: &Path) -> Connection {
        let mut conn = settings::writer(path, false).unwrap();
        migrate::run(&mut conn, migrate::MIGRATIONS, 0).unwrap();
        mark_in_file(path, &conn).unwrap();
        conn
    }

    /// Every interleaving of two processes: the one that closes empties the log after the other's commit.
    #[test]
    fn one_that_closes_beside_a_commit_of_another_leaves_no_ledger_that_seems_to_have_lost_its_log() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger.db");
        let (daemon, verb) = (opened(&path), opened(&path));
        unmark(&verb).unwrap();
        assert!(mark(&daemon).unwrap(), "its next group");
        verb.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
        assert!(refuse(&path).is_err(), "marked, and an empty log: as after a loss");
        assert!(leave_to_others(&verb).unwrap());
        refuse(&path).unwrap();
        drop(verb);
        // The daemon is killed: it lost nothing, and its restart is not refused.
        drop(daemon);
        refuse(&path).unwrap();
        // There is no other process, so nothing is written into the empty log.
        let last = opened(&path);
        unmark(&last).unwrap();
        last.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
        assert!(!leave_to_others(&last).unwrap());
    }

    #[test]
    fn a_loss_that_changes_from_look_to_look_is_none() {
        let looked = |told: &[Option<&str>]| {
            let mut told = told.iter();
            confirmed(|| told.next().expect("no more looks").map(str::to_owned))
        };
        assert_eq!(looked(&[None]), None);
        assert_eq!(looked(&[Some("at 7"), None]), None);
        assert_eq!(looked(&[Some("at 7"), Some("at 9"), None]), None);
        assert_eq!(looked(&[Some("at 7"), Some("at 7")]).as_deref(), Some("at 7"));
    }

    #[test]
    fn a_log_that_is_started_anew_again_and_again_is_not_damaged() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger.db");
        let writer = opened(&path);
        writer.execute_batch("PRAGMA synchronous = OFF; CREATE TABLE t (x)").unwrap();
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let stop = &stop;
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    for _ in 0..30 {
                        writer.execute("INSERT INTO t VALUES (randomblob(20000))", []).unwrap();
                    }
                    writer.execute_batch("DELETE FROM t; PRAGMA wal_checkpoint(RESTART)").unwrap();
                }
            });
            let looks: Vec<_> = (0..150).map(|_| refuse(&path)).collect();
            stop.store(true, Ordering::Relaxed);
            looks.into_iter().for_each(|look| look.unwrap());
        });
    }
}
