//! Creates databases: SQLite files in a folder of the disk, databases of a private PostgreSQL.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use tempfile::TempDir;
use tenure_store::{Ledger, Options};
use tenure_testkit::Cluster;

use crate::{
    Result,
    args::{Common, Store},
};

/// The server's defaults, except for sizes: a checkpoint forced by a full log or by the timer would land in
/// one slice and not in the next, and every page is logged in full once after it. `fsync` and
/// `synchronous_commit` stay on.
const SERVER: [&str; 4] =
    ["shared_buffers=256MB", "max_wal_size=16GB", "min_wal_size=8GB", "checkpoint_timeout=1h"];

/// Log files that a server has before measuring, more than a run fills. A server in service overwrites its
/// old files; a new one creates each on demand, 16 MB of zeros within a commit.
const LOG_FILES: usize = 400;
const LOG_FILES_QUICK: usize = 64;

pub enum Site {
    Sqlite(TempDir),
    Postgres(Cluster),
}

/// One empty database.
#[derive(Clone, Debug)]
pub enum Place {
    Sqlite(PathBuf),
    Postgres(String),
}

impl Site {
    pub fn new(store: Store, args: &Common) -> Result<Site> {
        let folder = args.dir.clone().unwrap_or_else(std::env::temp_dir);
        match store {
            Store::Sqlite => {
                let folder = on_disk(&folder)?;
                let prefix = "tenure-bench-";
                let made = tempfile::Builder::new().prefix(prefix).tempdir_in(&folder);
                Ok(Site::Sqlite(made.map_err(|error| format!("{}: {error}", folder.display()))?))
            }
            Store::Postgres => {
                on_disk(&std::env::temp_dir())?;
                let cluster = Cluster::start_with(&SERVER);
                make_log_files(&cluster, if args.quick { LOG_FILES_QUICK } else { LOG_FILES });
                Ok(Site::Postgres(cluster))
            }
        }
    }

    pub fn empty(&self, name: &str) -> Place {
        match self {
            Site::Sqlite(folder) => Place::Sqlite(folder.path().join(format!("{name}.db"))),
            Site::Postgres(cluster) => Place::Postgres(cluster.create_database()),
        }
    }
}

impl Place {
    /// Opens it as a program would: with defaults, including the sweeper.
    pub async fn ledger(&self) -> Result<Ledger> {
        let options = Options::default();
        Ok(match self {
            Place::Sqlite(path) => Ledger::open_sqlite(path, options).await?,
            Place::Postgres(url) => Ledger::open_postgres(url, options).await?,
        })
    }
}

/// Fills this many files, so that they are overwritten later.
fn make_log_files(cluster: &Cluster, count: usize) {
    let each = "PERFORM pg_logical_emit_message(false, 'bench', ''); PERFORM pg_switch_wal();";
    cluster.psql("postgres", &format!("DO $$ BEGIN FOR i IN 1..{count} LOOP {each} END LOOP; END $$"));
    cluster.psql("postgres", "CHECKPOINT");
}

/// Brings the disk to rest: dirty pages of earlier cases would be written during later slices, and slow down
/// single commits most.
pub fn settle() -> Result<()> {
    let synced = Command::new("sync").status().map_err(|error| format!("`sync` cannot be run: {error}"))?;
    if synced.success() { Ok(()) } else { Err(format!("`sync` ended with {synced}").into()) }
}

/// Refuses folders in memory: nothing is synced there, so every figure would be wrong.
fn on_disk(folder: &Path) -> Result<PathBuf> {
    let folder = folder.canonicalize().map_err(|error| format!("{}: {error}", folder.display()))?;
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap_or_default();
    match filesystem(&mounts, &folder) {
        Some(kind @ ("tmpfs" | "ramfs")) => Err(format!(
            "{} is a {kind}: it lives in memory and syncs nothing. Give --dir (SQLite) or TMPDIR (both) on a disk.",
            folder.display()
        )
        .into()),
        _ => Ok(folder),
    }
}

/// The type of the filesystem of a folder: that of the longest mount point above it.
fn filesystem<'a>(mounts: &'a str, folder: &Path) -> Option<&'a str> {
    let mounts = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        Some((Path::new(words.next()?), words.next()?))
    });
    let above = mounts.filter(|(point, _)| folder.starts_with(point));
    // Of two mounts on one point, the later one is visible.
    above.max_by_key(|(point, _)| point.components().count()).map(|(_, kind)| kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_mount_says_what_a_folder_is_on() {
        let mounts = "/dev/vda / ext4 rw 0 0\ntmpfs /tmp tmpfs rw 0 0\n/dev/vdb /tmp/disk xfs rw 0 0\n";
        let kind = |folder: &str| filesystem(mounts, Path::new(folder));
        assert_eq!(kind("/home/x"), Some("ext4"));
        assert_eq!(kind("/tmp/x"), Some("tmpfs"));
        assert_eq!(kind("/tmp/disk/x"), Some("xfs"));
        assert_eq!(kind("/tmpfile"), Some("ext4"));
    }
}
