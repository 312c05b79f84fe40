//! The first start of a ledger creates the first person's credential: with every scope, in every tenant.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use tenure_core::{
    Actor,
    action::{Kinds, Tenants},
};
use tenure_store::{Credential, Error, Ledger, NewCredential, Principal, PrincipalKind};

use super::{Scopes, Secret};

/// The minimum length of a chosen token.
const SHORTEST: usize = 16;
/// Credentials read at once.
const PAGE: usize = 1_000;

/// The source of the first token.
#[derive(Clone, Debug)]
pub enum AdminToken {
    /// Chosen by the operator.
    Given(Secret),
    /// Generated here, and written to this file for its owner only.
    File(PathBuf),
    /// No credential is created: the program that embeds the ledger needs none.
    Unmade,
}

/// The result of the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FirstStart {
    /// A person has a credential already, or none was to be created.
    No,
    Given,
    Written(PathBuf),
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FirstStartError {
    #[error(transparent)]
    Ledger(#[from] Error),
    #[error(
        "the admin token cannot be written to {path}: {error}. Make the folder writable, or set token_file"
    )]
    File {
        path: PathBuf,
        #[source]
        error: io::Error,
    },
    #[error("the given token has fewer than {SHORTEST} characters. Take one of `openssl rand -hex 32`")]
    Short,
}

impl AdminToken {
    /// Creates the admin credential if no person has one yet: an embedding program may have created
    /// credentials for machines before. The file is written first: a crash in between leaves a file to be
    /// overwritten, never a ledger that nobody can use.
    pub async fn ensure(self, ledger: &Ledger) -> Result<FirstStart, FirstStartError> {
        let (secret, outcome) = match self {
            AdminToken::Unmade => return Ok(FirstStart::No),
            _ if has_person(ledger).await? => return Ok(FirstStart::No),
            AdminToken::Given(secret) if secret.reveal().len() < SHORTEST => {
                return Err(FirstStartError::Short);
            }
            AdminToken::Given(secret) => (secret, FirstStart::Given),
            AdminToken::File(path) => {
                let secret = Secret::generate()?;
                write_private(&path, &secret)
                    .map_err(|error| FirstStartError::File { path: path.clone(), error })?;
                (secret, FirstStart::Written(path))
            }
        };
        ledger
            .add_credential(&NewCredential {
                name: "admin".to_owned(),
                principal: Principal::new(PrincipalKind::Person, "admin"),
                hash: secret.hash(),
                scopes: Scopes::all().names(),
                tenants: Tenants::All,
                kinds: Kinds::All,
                worker: None,
                expires_at: None,
                created_by: Actor::system("first start"),
            })
            .await?;
        Ok(outcome)
    }
}

/// Whether a person has a credential, even a revoked one. An unreadable credential counts, since it may be a
/// person's.
async fn has_person(ledger: &Ledger) -> Result<bool, Error> {
    let mut before = None;
    loop {
        let page = ledger.credentials(before, PAGE).await?;
        let is_person = |credential: &Credential| credential.principal.kind == PrincipalKind::Person;
        if !page.unreadable.is_empty() || page.rows.iter().any(is_person) {
            return Ok(true);
        }
        let Some(next) = page.next() else { return Ok(false) };
        before = Some(*next);
    }
}

/// Readable by its owner only, from the first byte on.
fn write_private(path: &Path, secret: &Secret) -> io::Result<()> {
    // A symbolic link is not followed: it could make another file be overwritten.
    let no_link = rustix::fs::OFlags::NOFOLLOW.bits() as i32;
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600).custom_flags(no_link);
    let mut file = options.open(path)?;
    file.set_permissions(fs::Permissions::from_mode(0o600))?;
    writeln!(file, "{}", secret.reveal())?;
    file.sync_all()
}
