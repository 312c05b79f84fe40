//! Whether the log beside a ledger is the one that it was left with. SQLite takes a missing or damaged log for an empty
//! one: the ledger would come back smaller, and nobody would be told.
//!
//! The ledger's file holds a mark while somebody has it open: it is in the file before the first answer, and a clean
//! close takes it out before the log is emptied. With the mark, there must be a log. A log that is there is read: where
//! commits follow on a frame that is not valid, that frame was valid once. A log that was cut or overwritten at its end
//! looks like one whose last commits were never made, but for SQLite's index of it (`-shm`): it says after each synced
//! commit how far the log goes. It is not synced itself, so after a power cut it may say less, and never more.

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
/// Another value: SQLite writes no page that stays as it is.
const MARK_AGAIN: &str =
    "UPDATE meta SET value = CASE value WHEN x'01' THEN x'02' ELSE x'01' END WHERE key = 'in_use'";
const UNMARK: &str = "DELETE FROM meta WHERE key = 'in_use'";
const MARKED: &str = "SELECT 1 FROM meta WHERE key = 'in_use'";

/// Between two looks at a log that seems to be lost, and how many at most.
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);
const LOOKS: usize = 20;

const HEADER: usize = 32;
const INDEX: usize = 100;
const FRAME: usize = 24;

/// Says that the file is in use. False: it said so already, and nothing was written. What is written is in the log: as
/// long as it is only there, a lost log takes the mark with it.
pub(super) fn mark(conn: &Connection) -> rusqlite::Result<bool> {
    Ok(conn.prepare_cached(MARK)?.execute([])? > 0)
}

/// At open: moves the mark, and all else, from the log into the file.
pub(super) fn mark_in_file(path: &Path, conn: &Connection) -> Result<(), Error> {
    checkpoint::passive(conn).map(drop).map_err(|error| explain(path, &error))
}

/// After the log was emptied: another process may have marked the file meanwhile, and its mark has gone into the file.
/// An empty log would then look like a lost one, so it is not left empty. True: it was so.
pub(super) fn leave_to_others(conn: &Connection) -> rusqlite::Result<bool> {
    Ok(conn.execute(MARK_AGAIN, [])? > 0)
}

/// For a clean close, and for copies: they are complete without a log.
pub(super) fn unmark(conn: &Connection) -> rusqlite::Result<()> {
    conn.execute(UNMARK, []).map(drop)
}

/// Refuses a ledger whose log has lost commits, before SQLite has touched either.
pub(super) fn refuse(path: &Path) -> Result<(), Error> {
    let log = wal::beside(path);
    // SQLite tells better why a file cannot be read.
    let Some(what) = confirmed(|| look(path, &log).unwrap_or(None)) else { return Ok(()) };
    Err(Error::Unusable(format!(
        "{what}, so commits that were acknowledged may be lost. Put back {log} as it was beside {path}; or restore a backup \
         (`tenure restore --help`); or open what is left with --accept-loss. Keep a copy of both files first",
        log = log.display(),
        path = path.display(),
    )))
}

/// What two looks in a row say. A process that writes, starts its log anew, or closes may be seen halfway: a loss stays as
/// it is.
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
    // It changes from look to look: somebody is writing it.
    None
}

/// What is wrong with the log, in a clause. None: nothing that can be seen.
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
    // Before the log, which only grows unless it is started anew.
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

/// Whether the file alone, without its log, says that it is in use.
pub(super) fn marked(path: &Path) -> bool {
    const ESCAPED: AsciiSet = NON_ALPHANUMERIC.remove(b'/').remove(b'.').remove(b'-').remove(b'_');
    let Ok(path) = std::path::absolute(path) else { return false };
    let address = percent_encode(path.as_os_str().as_encoded_bytes(), &ESCAPED);
    let flags =
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(format!("file:{address}?immutable=1"), flags);
    conn.and_then(|conn| conn.query_row(MARKED, [], |_| Ok(()))).is_ok()
}

/// What a log holds, as far as it matters here. The format: https://sqlite.org/walformat.html
struct Log {
    /// Commits in one unbroken line behind the first frame that is not valid. A last commit that was cut short leaves one
    /// at most, for nothing is written behind a commit that was not synced.
    commits_after_damage: usize,
    /// The first frame that is not valid.
    damaged_at: usize,
    /// The frame that ends the last commit before it.
    committed: usize,
    /// No frame follows on its header. When a log is started anew, those from before stay until they are written over.
    is_bare: bool,
    salts: [u8; 8],
}

/// What SQLite's index of the log says. The format: https://sqlite.org/walformat.html#the_wal_index_file_format
struct Index {
    salts: [u8; 8],
    /// The frame that ends the last commit.
    committed: usize,
    /// How many frames a checkpoint has moved into the file.
    moved: usize,
}

impl Index {
    /// None: there is none, or it is half written.
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
    /// None: it does not begin as a log does.
    fn read(path: &Path) -> io::Result<Option<Self>> {
        loop {
            let header = start(path, HEADER)?;
            let read = Self::behind(&header, path)?;
            // Another process may have started the log anew meanwhile.
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

    /// Step by step as the two processes may come: whoever closes empties the log behind the other's commit.
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
        // The daemon is killed: nothing of its was lost, and its restart is not refused.
        drop(daemon);
        refuse(&path).unwrap();
        // Nobody else: nothing is written into the empty log.
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
