//! The location of PostgreSQL's programs, and the user that runs them.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Debian has one folder for each major version here, none of them on the PATH.
const DEBIAN: &str = "/usr/lib/postgresql";

/// The folder that holds initdb, postgres and pg_isready: from the PATH, else Debian's newest.
pub fn server() -> PathBuf {
    on_path("postgres")
        .and_then(|postgres| Some(postgres.canonicalize().ok()?.parent()?.to_owned()))
        .filter(|folder| is_server(folder))
        .or_else(newest_of_debian)
        .expect("PostgreSQL's server programs were not found: apt-get install postgresql")
}

/// `psql`, which is part of every server; for an external server the client package is enough.
pub fn psql() -> PathBuf {
    on_path("psql")
        .or_else(|| newest_of_debian().map(|folder| folder.join("psql")))
        .expect("psql was not found: apt-get install postgresql-client")
}

/// A command that runs `program` as a user that PostgreSQL accepts, since it refuses root.
pub fn unprivileged(program: &str) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--init-groups", "--", program]);
    command
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output().expect("`id -u` runs");
    id.stdout.trim_ascii() == b"0"
}

fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

fn is_server(folder: &Path) -> bool {
    ["initdb", "postgres", "pg_isready"].iter().all(|program| folder.join(program).is_file())
}

fn newest_of_debian() -> Option<PathBuf> {
    let versions = std::fs::read_dir(DEBIAN).ok()?;
    versions
        .filter_map(|entry| {
            let version = entry.ok()?.path();
            let major: u32 = version.file_name()?.to_str()?.parse().ok()?;
            let folder = version.join("bin");
            is_server(&folder).then_some((major, folder))
        })
        .max()
        .map(|(_, folder)| folder)
}
