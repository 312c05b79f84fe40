//! The write-ahead log as a file beside the ledger.

use std::{
    ffi::OsString,
    fs::{File, OpenOptions},
    io::{self, ErrorKind},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::settings::explain;
use crate::Error;

/// Bytes that are read and written in one go.
const PIECE: usize = 1024 * 1024;

/// The log beside a ledger's file.
pub(super) fn beside(path: &Path) -> PathBuf {
    ending(path, "-wal")
}

/// The index of the log.
pub(super) fn index_beside(path: &Path) -> PathBuf {
    ending(path, "-shm")
}

fn ending(path: &Path, end: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(end);
    name.into()
}

/// Makes all that the log holds durable, by writing every byte of it again and syncing it.
///
/// After a failed sync the kernel calls the pages clean and keeps them in memory: the next process reads commits that no
/// disk has, and no later sync writes them. A power cut would then take them, and with them every commit behind them,
/// however well those were synced. And a checkpoint may only begin once the log is durable: a cut in the middle of it
/// leaves a file that is whole only together with its log.
pub(super) fn make_durable(conn: &mut Connection) -> Result<(), Error> {
    let Some(path) = conn.path().filter(|path| !path.is_empty()).map(PathBuf::from) else { return Ok(()) };
    // Under the write lock nobody appends to the log or starts it anew.
    let lock =
        Transaction::new(conn, TransactionBehavior::Immediate).map_err(|error| explain(&path, &error))?;
    let written = write_again(&beside(&path)).and_then(|()| sync_folder(&path));
    written.map_err(|error| {
        Error::Unavailable(format!(
            "{}: its log cannot be written ({error}). Look at the disk",
            path.display()
        ))
    })?;
    lock.rollback().map_err(|error| explain(&path, &error))
}

fn write_again(log: &Path) -> io::Result<()> {
    let file = match OpenOptions::new().read(true).write(true).open(log) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        opened => opened?,
    };
    let mut piece = vec![0; PIECE];
    let mut at = 0;
    loop {
        let read = file.read_at(&mut piece, at)?;
        if read == 0 {
            break;
        }
        file.write_all_at(&piece[..read], at)?;
        at += read as u64;
    }
    file.sync_all()
}

/// The names of the file and of its log.
fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}
