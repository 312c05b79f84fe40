//! `restore`: turns a sound backup into a ledger in a new file. Existing files are never overwritten.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use crate::{
    args::{Global, Restore},
    connect,
    exit::{Exit, Failure},
    render::say,
};

/// The files of an SQLite database. Leftovers of another ledger would be read as part of this one.
const BESIDE: [&str; 3] = ["", "-wal", "-shm"];

pub async fn restore(global: &Global, args: &Restore) -> Result<Exit, Failure> {
    let Some(db) = global.db.as_deref().filter(|db| !db.contains("://")) else {
        let why =
            "Give the target as --db NEW, a file that does not exist yet. For PostgreSQL, use `pg_restore`.";
        return Err(Failure::usage(why));
    };
    if let Some(there) = files(db).find(|file| file.exists()) {
        let why = format!(
            "{} exists already and is not overwritten. Stop its daemon and move the file away, with its -wal and -shm",
            there.display()
        );
        return Err(Failure::new(Exit::Refused, why));
    }
    if !args.backup.is_file() {
        return Err(Failure::new(Exit::NotFound, format!("there is no file {}", args.backup.display())));
    }
    if is_empty(&args.backup)? {
        let why = format!(
            "nothing was restored: {} is empty. Copy the backup again, or try an older backup",
            args.backup.display()
        );
        return Err(Failure::new(Exit::Unsuccessful, why));
    }
    copy(&args.backup, Path::new(db))?;
    let outcome = connect::faults(db).await;
    let faults = match outcome {
        Ok(faults) if faults.is_empty() => {
            say(&format!("{db} has no faults. Start it with: tenure serve --db {db}"));
            return Ok(Exit::Ok);
        }
        Ok(faults) if args.accept_faults => {
            faults.iter().for_each(|fault| say(fault));
            let count = faults.len();
            say(&format!("{db} was restored with {count} faults. Start it with: tenure serve --db {db}"));
            return Ok(Exit::Ok);
        }
        Ok(faults) => {
            format!("{}. Try an older backup, or keep this one with --accept-faults", faults.join("; "))
        }
        Err(failure) => format!("{}. Try an older backup", failure.message),
    };
    // A faulty ledger must not be served by mistake.
    files(db).for_each(|file| _ = fs::remove_file(file));
    Err(Failure::new(Exit::Unsuccessful, format!("nothing was restored: {faults}")))
}

/// Whether SQLite would take the file for a new database: it has no bytes, or no tables.
fn is_empty(file: &Path) -> io::Result<bool> {
    // The header, and the start of the first page, which lists the tables: page type, first free block and
    // number of cells.
    let mut head = Vec::new();
    File::open(file)?.take(105).read_to_end(&mut head)?;
    let lists_none = head.starts_with(b"SQLite format 3\0") && head.get(103..105) == Some(&[0, 0]);
    Ok(head.is_empty() || lists_none)
}

fn files(db: &str) -> impl Iterator<Item = PathBuf> {
    BESIDE.into_iter().map(move |end| PathBuf::from(format!("{db}{end}")))
}

/// As private as a ledger, and synced before it is opened.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let mut source = File::open(from)?;
    let mut target = OpenOptions::new().write(true).create_new(true).mode(0o600).open(to)?;
    io::copy(&mut source, &mut target)?;
    target.sync_all()
}
