//! The write-ahead log as a file.

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

/// The size of one read or write.
const PIECE: usize = 1024 * 1024;

/// The path of a ledger's WAL.
pub(super) fn beside(path: &Path) -> PathBuf {
    ending(path, "-wal")
}

/// The path of the WAL's index.
pub(super) fn index_beside(path: &Path) -> PathBuf {
    ending(path, "-shm")
}

fn ending(path: &Path, end: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(end);
    name.into()
}

/// Makes the content of the WAL durable, by writing every byte again and syncing it.
///
/// After a failed sync the kernel marks the pages clean and keeps them in memory: the next process reads commits that
/// are not on the disk, and no later sync writes them. A power cut would then lose them, together with every later
/// commit, although those were synced. A checkpoint may start only once the WAL is durable: a power cut during a
/// checkpoint leaves a file that is complete only together with its WAL.
pub(super) fn make_durable(conn: &mut Connection) -> Result<(), Error> {
    let Some(path) = conn.path().filter(|path| !path.is_empty()).map(PathBuf::from) else { return Ok(()) };
    // Under the write lock no process appends to the WAL or restarts it.
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

/// Makes the names of the file and of its WAL durable.
fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}
