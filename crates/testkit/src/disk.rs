//! The content of a disk after a power cut, from the writes and syncs that `strace` recorded.
//!
//! Two copies of each file are kept: the kernel's memory, and the disk. A sync copies the pages written since
//! the last one from memory to disk; a failed sync marks them clean and copies nothing, as Linux does. A
//! power cut leaves the second copy, and any of the pages that were not synced yet.

use std::{
    collections::{BTreeSet, HashMap},
    fs,
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

const PAGE: usize = 4_096;

/// One call that changes a file or the disk, with the moment of its entry in microseconds since the Unix epoch.
#[derive(Clone, Debug)]
pub struct FileCall {
    pub at_us: u64,
    pub file: PathBuf,
    pub change: Change,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    Write { data: Vec<u8>, at: usize },
    Truncate(usize),
    Sync,
    FailedSync,
    Unlink,
}

impl FileCall {
    /// Arguments of `strace` that record what [`FileCall::read`] reads.
    pub const STRACE: &[&str] = &[
        "-f",
        "-y",
        "-xx",
        "-ttt",
        "-s",
        "10000000",
        "-e",
        "trace=pwrite64,write,ftruncate,fsync,fdatasync,unlink",
    ];

    /// The recorded calls on an SQLite database of this name, or on its write-ahead log.
    ///
    /// # Panics
    /// If the recording cannot be read, or holds a write without a place.
    pub fn read(recording: &Path, database: &str) -> Vec<FileCall> {
        let text = fs::read_to_string(recording).expect("strace has recorded");
        let calls = text.lines().filter_map(FileCall::parse);
        calls
            .filter(|call| {
                let name = call.file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
                // The index of the log is rebuilt from the log.
                name.starts_with(database) && !name.ends_with("-shm")
            })
            .inspect(|call| {
                let placed = !matches!(&call.change, Change::Write { at, .. } if *at == usize::MAX);
                assert!(placed, "a write without a place to {}", call.file.display());
            })
            .collect()
    }

    /// A line like `12 1700000000.123456 pwrite64(7</tmp/…/ledger.db-wal>, "\x37…", 32, 0) = 32`, with or
    /// without its end.
    fn parse(line: &str) -> Option<Self> {
        let (_, line) = line.split_once(' ')?;
        let (at, line) = line.trim_start().split_once(' ')?;
        let (seconds, micros) = at.split_once('.')?;
        let at_us = seconds.parse::<u64>().ok()? * 1_000_000 + micros.parse::<u64>().ok()?;
        let (name, rest) = line.trim_start().split_once('(')?;
        let failed = line.contains("= -1 ");
        let is_sync = matches!(name, "fsync" | "fdatasync");
        if failed && !is_sync {
            return None;
        }
        if name == "unlink" {
            let file = path(&bytes(rest.split('"').nth(1)?));
            return Some(FileCall { at_us, file, change: Change::Unlink });
        }
        let (_, rest) = rest.split_once('<')?;
        let (file, rest) = rest.split_once('>')?;
        // With `-xx`, paths are hexadecimal too.
        let file = if file.starts_with("\\x") { path(&bytes(file)) } else { PathBuf::from(file) };
        let change = match name {
            "pwrite64" => {
                let mut parts = rest.split('"');
                let data = bytes(parts.nth(1)?);
                Change::Write { data, at: *numbers(parts.next()?).get(1)? }
            }
            "write" => Change::Write { data: Vec::new(), at: usize::MAX },
            "ftruncate" => Change::Truncate(*numbers(rest).first()?),
            _ if failed => Change::FailedSync,
            _ if is_sync => Change::Sync,
            _ => return None,
        };
        Some(FileCall { at_us, file, change })
    }
}

fn numbers(text: &str) -> Vec<usize> {
    let digits = text.split(|c: char| !c.is_ascii_digit());
    digits.filter_map(|piece| piece.parse().ok()).collect()
}

fn bytes(hex: &str) -> Vec<u8> {
    hex.split("\\x").skip(1).filter_map(|byte| u8::from_str_radix(byte, 16).ok()).collect()
}

fn path(bytes: &[u8]) -> PathBuf {
    PathBuf::from(String::from_utf8_lossy(bytes).into_owned())
}

/// A file in memory, and on the disk.
#[derive(Clone, Default)]
struct Copies {
    cached: Vec<u8>,
    dirty: BTreeSet<usize>,
    stored: Vec<u8>,
}

impl Copies {
    fn write(&mut self, data: &[u8], at: usize) {
        if data.is_empty() {
            return;
        }
        let end = at + data.len();
        self.cached.resize(self.cached.len().max(end), 0);
        self.cached[at..end].copy_from_slice(data);
        self.dirty.extend(at / PAGE..=(end - 1) / PAGE);
    }

    fn truncate(&mut self, length: usize) {
        self.cached.resize(length, 0);
        self.dirty.retain(|page| page * PAGE < length);
    }

    fn sync(&mut self) {
        self.stored.resize(self.cached.len(), 0);
        for page in std::mem::take(&mut self.dirty) {
            self.store(page);
        }
    }

    fn store(&mut self, page: usize) {
        let (from, to) = (page * PAGE, ((page + 1) * PAGE).min(self.cached.len()));
        if from < to {
            self.stored.resize(self.stored.len().max(to), 0);
            self.stored[from..to].copy_from_slice(&self.cached[from..to]);
        }
    }
}

/// The written files, in memory and on the disk.
#[derive(Clone, Default)]
pub struct Disk {
    files: HashMap<PathBuf, Copies>,
}

impl Disk {
    /// Applies a file call to the model.
    pub fn play(&mut self, call: &FileCall) {
        if call.change == Change::Unlink {
            self.files.remove(&call.file);
            return;
        }
        let file = self.files.entry(call.file.clone()).or_default();
        match &call.change {
            Change::Write { data, at } => file.write(data, *at),
            Change::Truncate(length) => file.truncate(*length),
            Change::Sync => file.sync(),
            Change::FailedSync => file.dirty.clear(),
            Change::Unlink => {}
        }
    }

    /// The content of every file in memory, which a test compares with the real files.
    pub fn cached(&self) -> impl Iterator<Item = (&Path, &[u8])> {
        self.files.iter().map(|(file, copies)| (file.as_path(), copies.cached.as_slice()))
    }

    /// Writes the files after a power cut into a folder. Of the pages that were not synced, only those for
    /// which `survives` is true are kept.
    pub fn cut(&self, folder: &Path, mut survives: impl FnMut() -> bool) -> std::io::Result<()> {
        for (file, copies) in &self.files {
            let mut copies = copies.clone();
            for page in std::mem::take(&mut copies.dirty) {
                if survives() {
                    copies.store(page);
                }
            }
            // As private as a ledger is.
            let mut target = fs::OpenOptions::new();
            target.write(true).create(true).truncate(true).mode(0o600);
            let mut target = target.open(folder.join(file.file_name().unwrap_or_default()))?;
            target.write_all(&copies.stored)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(calls: &[&str], survives: bool) -> String {
        let folder = std::env::temp_dir().join(format!("tenure-disk-{}-{survives}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let mut disk = Disk::default();
        let lines = calls.iter().map(|call| format!("7 1700000000.000001 {call}"));
        lines.filter_map(|line| FileCall::parse(&line)).for_each(|call| disk.play(&call));
        disk.cut(&folder, || survives).unwrap();
        let kept = fs::read_to_string(folder.join("l.db")).unwrap();
        fs::remove_dir_all(folder).unwrap();
        kept.trim_end_matches('\0').to_owned()
    }

    #[test]
    fn a_power_cut_keeps_what_was_synced() {
        let write = r#"pwrite64(7</x/l.db>, "\x61\x62", 2, 0) = 2"#;
        let more = r#"pwrite64(7</x/l.db>, "\x63", 1, 2 <unfinished ...>"#;
        let (sync, failed) = ("fdatasync(7</x/l.db>) = 0", "fdatasync(7</x/l.db>) = -1 EIO (INJECTED)");
        assert_eq!(kept(&[write, sync, more], false), "ab");
        assert_eq!(kept(&[write, sync, more], true), "abc");
        assert_eq!(kept(&[write, failed, sync], true), "", "the kernel calls the page clean");
        assert_eq!(kept(&[write, failed, more, sync], true), "abc", "it was written again");
    }
}
