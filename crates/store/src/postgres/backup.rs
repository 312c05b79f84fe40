//! Backups of the ledger are made with PostgreSQL's own tools.

use std::path::Path;

use tenure_core::{Code, Refusal};

use super::Postgres;
use crate::store::{BackupStore, StoreFuture};

impl BackupStore for Postgres {
    fn backup<'a>(&'a self, to: &'a Path) -> StoreFuture<'a, ()> {
        let detail = format!(
            "A PostgreSQL ledger is copied by PostgreSQL's own tools. Type: pg_dump --format=custom \
             --file={} \"$DATABASE_URL\"",
            shell_word(&to.display().to_string())
        );
        Box::pin(std::future::ready(Err(Refusal::new(Code::Invalid, detail).into())))
    }
}

/// Quotes a text as one word for a shell.
fn shell_word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}
