//! Looks up whether a file was written, by the hash of its content. The arguments contain `path`, the
//! `sha256` of the intended content and, to prove absence, the `before_sha256` of the previous content (null
//! if there was no file).

use std::{
    fs::File,
    io::{self, Read as _},
    path::{Component, Path, PathBuf},
};

use rustix::{
    fs::{Mode, OFlags},
    io::Errno,
};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use tenure_core::{
    command::{EvidenceKind, Finding, Proof},
    payload::{Digest, Payload},
};

use super::{Found, unknown};

/// Larger files are not read.
const READ_MAX: u64 = 256 * 1024 * 1024;

/// The arguments that identify a content.
#[derive(Deserialize)]
struct Edit {
    path: PathBuf,
    sha256: String,
    /// Absent: not given. Null: there was no file.
    #[serde(default, deserialize_with = "said")]
    before_sha256: Option<Option<String>>,
}

fn said<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Option<String>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

/// Checks the file under `root` that the arguments name.
pub(super) fn look(root: &Path, arguments: &Payload) -> Found {
    let edit: Edit = match serde_json::from_value(arguments.value()) {
        Ok(edit) => edit,
        Err(error) => {
            return unknown(&format!("the arguments have no `path` and `sha256`: {error}"));
        }
    };
    let now = match hash(root, &edit.path) {
        Ok(now) => now,
        Err(why) => return unknown(&format!("{}: {why}", edit.path.display())),
    };
    let same = |hash: &str| now.as_deref().is_some_and(|now| now.eq_ignore_ascii_case(hash));
    if same(&edit.sha256) {
        let reference = Some(format!("{} sha256:{}", edit.path.display(), edit.sha256));
        let proof = Proof { reference, ..Proof::new(EvidenceKind::Lookup) };
        return Found { finding: Finding::Found(proof), message: None };
    }
    match edit.before_sha256 {
        Some(Some(before)) if same(&before) => Found { finding: Finding::Absent, message: None },
        Some(None) if now.is_none() => Found { finding: Finding::Absent, message: None },
        _ => unknown("the file has different content: it was changed since, or never written"),
    }
}

/// The hash of the file's content; None if there is no file.
fn hash(root: &Path, path: &Path) -> Result<Option<String>, String> {
    let told = |error: io::Error| format!("it cannot be read: {error}");
    let Some(file) = open_beneath(root, path)? else { return Ok(None) };
    let about = file.metadata().map_err(told)?;
    if !about.is_file() || about.len() > READ_MAX {
        return Err(format!("it is not a regular file of at most {READ_MAX} bytes"));
    }
    let mut file = file.take(READ_MAX);
    let mut hasher = Sha256::new();
    let mut piece = vec![0; 64 * 1024];
    loop {
        match file.read(&mut piece).map_err(told)? {
            0 => break,
            read => hasher.update(&piece[..read]),
        }
    }
    Ok(Some(Digest(hasher.finalize().into()).hex()))
}

/// Opens a file beneath a folder, one path component at a time from the folder's own handle, without
/// following symbolic links: a path that is checked before it is opened could be replaced by a link in
/// between. None if there is no file.
fn open_beneath(root: &Path, path: &Path) -> Result<Option<File>, String> {
    let mut parts = Vec::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => parts.push(name),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                return Err("write it as a path under the folder, without `..`".to_owned());
            }
        }
    }
    let folder = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut opened = rustix::fs::open(root, folder, Mode::empty())
        .map_err(|error| format!("the folder {} cannot be opened: {error}", root.display()))?;
    for (at, name) in parts.iter().enumerate() {
        // Without NONBLOCK, opening a pipe would wait for a writer.
        let file = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let flags = if at + 1 < parts.len() { folder } else { file };
        opened = match rustix::fs::openat(&opened, *name, flags | OFlags::NOFOLLOW, Mode::empty()) {
            Ok(next) => next,
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP | Errno::NOTDIR) => {
                let name = Path::new(name).display();
                return Err(format!("`{name}` is a link or not a folder, and links are not followed"));
            }
            Err(error) => return Err(format!("it cannot be opened: {error}")),
        };
    }
    Ok(Some(opened.into()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const HELLO: &str = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
    const OTHER: &str = "0000000000000000000000000000000000000000000000000000000000000000";

    fn looked(root: &Path, arguments: Value) -> Found {
        look(root, &Payload::new(&arguments).unwrap())
    }

    #[test]
    fn the_content_tells_whether_it_was_written() {
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join("a.txt"), "hello").unwrap();
        let found =
            looked(root.path(), json!({ "path": "a.txt", "sha256": HELLO.to_uppercase(), "mode": "w" }));
        assert!(matches!(&found.finding, Finding::Found(proof) if proof.kind == EvidenceKind::Lookup
            && proof.reference.as_deref().is_some_and(|at| at.starts_with("a.txt sha256:"))));
        let edit = |before: Value| json!({ "path": "a.txt", "sha256": OTHER, "before_sha256": before });
        assert_eq!(looked(root.path(), edit(json!(HELLO))).finding, Finding::Absent, "as it was before");
        assert_eq!(looked(root.path(), edit(json!(null))).finding, Finding::Unknown, "there is a file now");
        assert_eq!(looked(root.path(), edit(json!(OTHER))).finding, Finding::Unknown, "neither nor");
        assert_eq!(
            looked(root.path(), json!({ "path": "a.txt", "sha256": OTHER })).finding,
            Finding::Unknown,
            "the previous content was not given"
        );
        let new = json!({ "path": "new/b.txt", "sha256": HELLO, "before_sha256": null });
        assert_eq!(looked(root.path(), new).finding, Finding::Absent);
    }

    #[test]
    fn unreadable_files_are_unknown_with_the_reason() {
        let root = tempfile::tempdir().unwrap();
        let inner = root.path().join("inner");
        std::fs::create_dir(&inner).unwrap();
        std::fs::write(root.path().join("secret"), "hello").unwrap();
        std::os::unix::fs::symlink(root.path().join("secret"), inner.join("link")).unwrap();
        std::os::unix::fs::symlink(root.path(), inner.join("folder")).unwrap();
        let fifo = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, inner.join("pipe"), fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        for (path, why) in [
            ("../secret", "without `..`"),
            ("../nothing", "without `..`"),
            ("link", "links are not followed"),
            ("folder/secret", "links are not followed"),
            ("link/secret", "links are not followed"),
            (".", "not a regular file"),
            ("pipe", "not a regular file"),
        ] {
            let found = looked(&inner, json!({ "path": path, "sha256": HELLO }));
            assert_eq!(found.finding, Finding::Unknown, "{path}");
            assert!(found.message.as_deref().is_some_and(|told| told.contains(why)), "{path}: {found:?}");
        }
        let absolute = root.path().join("secret");
        assert_eq!(looked(&inner, json!({ "path": absolute, "sha256": HELLO })).finding, Finding::Unknown);
        assert!(looked(&inner, json!({ "file": "x" })).message.is_some_and(|told| told.contains("`path`")));
        let gone =
            looked(&inner.join("nowhere"), json!({ "path": "x", "sha256": HELLO, "before_sha256": null }));
        assert_eq!(gone.finding, Finding::Unknown, "a folder that is not mounted proves nothing");
    }
}
