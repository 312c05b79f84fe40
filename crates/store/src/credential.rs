//! Credentials: who may talk to a ledger, about which tenants, and for what.
//!
//! They are no part of the event-sourced state: no decision reads them, no event tells of them, and `verify`
//! does not refold them. They lie beside it because whoever serves a ledger must find them wherever it is
//! served. What a scope permits, the server knows; here it is a name.

use serde::{Deserialize, Serialize};
use tenure_core::{Code, CredentialId, Millis, Refusal, action::Tenants, limits, payload::Digest};
use uuid::Uuid;

/// Credentials that are not revoked; nobody needs more.
pub(crate) const CREDENTIALS_MAX: usize = 10_000;
const SCOPES_MAX: usize = 50;
const TENANTS_MAX: usize = 1_000;

/// Whose it is. Some decisions are a person's alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CredentialKind {
    Person,
    Machine,
}

/// A credential to be kept.
#[derive(Clone, Debug)]
pub struct NewCredential {
    pub name: String,
    pub kind: CredentialKind,
    /// SHA-256 of the secret. The secret itself is shown once, by whoever made it, and kept nowhere.
    pub hash: Digest,
    pub scopes: Vec<String>,
    pub tenants: Tenants,
    pub expires_at: Option<Millis>,
    pub created_by: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credential {
    pub id: CredentialId,
    pub name: String,
    pub kind: CredentialKind,
    pub hash: Digest,
    pub scopes: Vec<String>,
    pub tenants: Tenants,
    pub created_at: Millis,
    pub expires_at: Option<Millis>,
    pub revoked_at: Option<Millis>,
    pub created_by: String,
}

impl Credential {
    /// Neither revoked nor expired.
    pub fn is_valid(&self, now: Millis) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|at| now < at)
    }

    /// A person's, in all tenants, with this scope, and valid.
    pub(crate) fn opens_everything(&self, scope: &str, now: Millis) -> bool {
        self.kind == CredentialKind::Person
            && self.tenants == Tenants::All
            && self.scopes.iter().any(|own| own == scope)
            && self.is_valid(now)
    }

    /// Whether it is what was asked for: the same secret may not come to mean something else.
    pub(crate) fn is(&self, new: &NewCredential) -> bool {
        (&self.name, self.kind, &self.scopes, &self.tenants, self.expires_at)
            == (&new.name, new.kind, &new.scopes, &new.tenants, new.expires_at)
    }
}

impl NewCredential {
    pub(crate) fn settle(&self, now: Millis) -> Result<Credential, Refusal> {
        self.check(now)?;
        Ok(Credential {
            id: CredentialId(Uuid::now_v7()),
            name: self.name.clone(),
            kind: self.kind,
            hash: self.hash,
            scopes: self.scopes.clone(),
            tenants: self.tenants.clone(),
            created_at: now,
            expires_at: self.expires_at,
            revoked_at: None,
            created_by: self.created_by.clone(),
        })
    }

    fn check(&self, now: Millis) -> Result<(), Refusal> {
        limits::name("name", &self.name)?;
        limits::name("created_by", &self.created_by)?;
        limits::count("scopes", self.scopes.len(), SCOPES_MAX)?;
        self.scopes.iter().try_for_each(|scope| limits::name("scopes", scope))?;
        if let Tenants::Only(list) = &self.tenants {
            limits::count("tenants", list.len(), TENANTS_MAX)?;
            list.iter().try_for_each(|tenant| limits::name("tenants", tenant))?;
        }
        if self.expires_at.is_some_and(|at| at <= now) {
            let detail = "`expires_at` is past. Give a later moment, or leave it out for none.";
            return Err(Refusal::new(Code::Invalid, detail));
        }
        Ok(())
    }
}
