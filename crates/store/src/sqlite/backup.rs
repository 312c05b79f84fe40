//! Copies of the file while it is in use.

use std::{io, path::Path};

use rusqlite::{Connection, OpenFlags};

use super::{
    SqliteStore, copied, loss, settings,
    snapshot::{self, Copying},
};
use crate::{
    Error,
    aside::aside,
    store::{BackupStore, StoreFuture},
};

impl BackupStore for SqliteStore {
    fn backup<'a>(&'a self, to: &'a Path) -> StoreFuture<'a, ()> {
        let copying = match self.backup.begin() {
            Ok(copying) => copying,
            Err(error) => return Box::pin(async move { Err(error) }),
        };
        let caller = snapshot::Waiting(copying.clone());
        let (from, to) = (self.path.clone(), to.to_owned());
        Box::pin(async move {
            let _caller = caller;
            let copied = aside("backup", move || copy(&from, &to, &copying)).await;
            copied.map_err(|error| Error::Unavailable(format!("the backup did not finish: {error}")))?
        })
    }
}

/// Copies the file page by page. The copy is one consistent state, although writing goes on.
fn copy(from: &Path, to: &Path, copying: &Copying) -> Result<(), Error> {
    // Some names have a special meaning to SQLite: `:memory:`, `file:…?…`, and the empty name.
    let named = |error: io::Error| Error::Unusable(format!("{}: {error}", to.display()));
    let absolute = std::path::absolute(to).map_err(named)?;
    let (Some(folder), Some(name)) = (absolute.parent(), absolute.file_name()) else {
        return Err(named(io::ErrorKind::IsADirectory.into()));
    };
    let to = &folder.canonicalize().map_err(named)?.join(name);
    let source = settings::reader(from)?;
    // Readable by its owner only from the first byte on. An existing file or link is never overwritten.
    settings::private(to).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => {
            Error::Unusable(format!("{} is there already. A backup goes into a new file", to.display()))
        }
        _ => Error::Unusable(format!("{} cannot be made: {error}", to.display())),
    })?;
    let write = || {
        let failed = |error: rusqlite::Error| settings::explain(to, &error);
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NOFOLLOW;
        let mut target = Connection::open_with_flags(to, flags).map_err(failed)?;
        snapshot::copy(&source, &mut target, copying)?;
        // The copy is one file, complete without a log, and as durable as its source.
        loss::unmark(&target).map_err(failed)?;
        copied::mark(&target).map_err(failed)?;
        target.pragma_update(None, "journal_mode", "DELETE").map_err(failed)?;
        target.close().map_err(|(_, error)| failed(error))
    };
    // An incomplete copy is not a backup. If it cannot be removed either, the first error is still the one to report.
    write().inspect_err(|_| _ = std::fs::remove_file(to))?;
    let synced = std::fs::File::open(to).and_then(|file| file.sync_all());
    synced.map_err(|error| Error::Unavailable(format!("{} was not synced: {error}", to.display())))
}
