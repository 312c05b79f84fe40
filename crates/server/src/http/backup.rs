//! Backups over HTTP: into one configured folder, under a plain file name, and only by a person. A copy
//! contains every tenant's payloads and the key of all tokens, and a caller who chose the path could
//! overwrite a file like `authorized_keys`.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use axum::extract::State;
use tenure_api::wire::{self as w, Code};
use tenure_store::{Error, PrincipalKind};

use super::{App, Body, Json, JsonResult, Problem, Who, error::Problems};

const NAME_MAX: usize = 200;

/// SQLite reads a file with such a name as part of the database beside it.
const COMPANIONS: [&str; 3] = ["-journal", "-shm", "-wal"];

/// Copies the ledger, while it is in use, to a new file in the daemon's backup folder.
#[utoipa::path(post, path = "/v1/admin/backup", tag = "admin", request_body = w::Backup,
    extensions(("x-no-dry-run" = json!(true))), security(("token" = ["admin"])),
    responses((status = 200, description = "The backup's file and size.", body = w::BackupReport), Problems))]
pub(crate) async fn backup(
    State(app): State<Arc<App>>,
    who: Who,
    Body(body): Body<w::Backup>,
) -> JsonResult<w::BackupReport> {
    who.session.require_everywhere()?;
    if who.session.principal.kind != PrincipalKind::Person {
        let detail = "Only a person's credential can make a backup: the copy contains every payload and the key of all tokens. \
                      Use one of yours.";
        return Err(Problem::new(Code::PersonRequired, detail));
    }
    let path = target(app.backups.as_deref(), &body.name).map_err(Problem::invalid)?;
    app.ledger.backup(&path).await.map_err(|error| match error {
        // The caller named a file that cannot be used.
        Error::Unusable(detail) => {
            Problem::invalid(format!("No backup was made: {detail}. Name another file."))
        }
        other => other.into(),
    })?;
    let copy = tokio::fs::metadata(&path).await;
    let copy =
        copy.map_err(|error| Problem::invalid(format!("The backup's file cannot be read: {error}.")))?;
    Ok(Json(w::BackupReport { path: path.to_string_lossy().into_owned(), bytes: copy.len() }))
}

/// The path of a backup with this name, or why it is refused.
fn target(folder: Option<&Path>, name: &str) -> Result<PathBuf, String> {
    if !is_plain(name) {
        return Err("`name` must be a plain file name in the backup folder, like `ledger-2026-01-31.db`: letters, digits, \
                    spaces and -_.:+, not beginning with a dot, and not ending in -wal, -shm or -journal."
            .to_owned());
    }
    let folder = folder.ok_or(
        "This daemon has no backup folder. Start it with `--backups FOLDER`, or copy the file beside it with \
         `tenure backup --db tenure.db copy.db`; copy a ledger on PostgreSQL with `pg_dump`.",
    )?;
    let cannot = |why: &dyn std::fmt::Display| {
        format!("The backup folder {} cannot be used: {why}.", folder.display())
    };
    // The configured path itself may contain links. From here on none is followed.
    let real = folder.canonicalize().map_err(|error| cannot(&error))?;
    let about = fs::metadata(&real).map_err(|error| cannot(&error))?;
    if !about.is_dir() {
        return Err(cannot(&"it is not a folder"));
    }
    let (others_write, sticky) = (0o022, 0o1000);
    let mode = about.permissions().mode();
    if mode & others_write != 0 && mode & sticky == 0 {
        return Err(cannot(&"other users may write there and replace a backup. Run `chmod go-w` on it"));
    }
    Ok(real.join(name))
}

fn is_plain(name: &str) -> bool {
    let fine = |c: char| c.is_alphanumeric() || "-_.:+ ".contains(c);
    (1..=NAME_MAX).contains(&name.len())
        && !name.starts_with('.')
        && name.chars().all(fine)
        && !COMPANIONS.iter().any(|end| name.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backup_has_a_plain_name() {
        for fine in ["a", "ledger-2026-01-31.db", "Ledger 12:00+01.sqlite", "süd.db"] {
            assert!(is_plain(fine), "{fine}");
        }
        let long = "x".repeat(NAME_MAX + 1);
        let wrong = [
            "",
            ".",
            "..",
            ".ssh",
            "a/b",
            "/etc/passwd",
            "../x",
            "a\\b",
            "a\0b",
            "a\nb",
            "a\u{202e}b",
            "x.db-wal",
            "x.db-journal",
            "x-shm",
            "file:x?mode=rw",
            &long,
        ];
        for wrong in wrong {
            assert!(!is_plain(wrong), "{wrong:?}");
        }
    }

    #[test]
    fn a_folder_that_others_may_write_to_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let mode = |mode| fs::set_permissions(folder.path(), fs::Permissions::from_mode(mode)).unwrap();
        for shared in [0o777, 0o770, 0o702] {
            mode(shared);
            assert!(target(Some(folder.path()), "x.db").unwrap_err().contains("chmod"), "{shared:o}");
        }
        mode(0o1777);
        assert!(target(Some(folder.path()), "x.db").is_ok(), "there, nobody replaces another's file");
        mode(0o700);
        let found = target(Some(folder.path()), "x.db").unwrap();
        assert_eq!(found, folder.path().canonicalize().unwrap().join("x.db"));
        assert!(target(Some(&folder.path().join("nowhere")), "x.db").is_err());
        assert!(target(None, "x.db").unwrap_err().contains("--backups"));
    }
}
