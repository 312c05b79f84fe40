//! The files of this repository, as the checks over all of them see it.

#![allow(dead_code, reason = "each of the checks uses a part of this")]

use std::path::{Path, PathBuf};
use std::process::Command;

pub fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Every file that is committed or about to be, relative to the root.
pub fn files() -> Vec<PathBuf> {
    let listed = output(Command::new("git").args(["ls-files", "-co", "--exclude-standard", "-z"]));
    let files = listed.split_terminator('\0').map(PathBuf::from);
    let files: Vec<_> = files.filter(|file| root().join(file).is_file()).collect();
    assert!(!files.is_empty(), "git lists no files under {}", root().display());
    files
}

pub fn read(file: &Path) -> String {
    let text = std::fs::read_to_string(root().join(file));
    text.unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// Runs a command at the root and returns what it printed.
pub fn output(command: &mut Command) -> String {
    let output = command.current_dir(root()).output().expect("the command starts");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {error}");
    String::from_utf8(output.stdout).expect("its output is UTF-8")
}

/// Fails with all findings at once.
pub fn assert_none(rule: &str, findings: &[String]) {
    assert!(findings.is_empty(), "{rule}:\n  {}", findings.join("\n  "));
}
