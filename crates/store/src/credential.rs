//! Credentials: who may use a ledger, for which tenants and kinds of work, and with which scopes.
//!
//! Credentials are not part of the event-sourced state: no decision reads them and no event mentions them.
//! Each row has a MAC by which `verify` finds credentials that were added or changed outside the ledger. They
//! are stored in the ledger's database so that every server of the ledger finds them. The meaning of a scope
//! is the server's; here it is only a name.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use tenure_core::{
    Actor, Code, CredentialId, Millis, PrincipalId, Refusal,
    action::{Kinds, Names, Tenants},
    limits,
    payload::Digest,
};
use uuid::Uuid;

/// The limit on credentials that are not revoked.
pub const CREDENTIALS_MAX: usize = 10_000;
const SCOPES_MAX: usize = 50;
const TENANTS_MAX: usize = 1_000;

/// Some decisions are reserved for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PrincipalKind {
    /// A person.
    Person,
    /// A program, an agent or a worker.
    Machine,
}

/// The owner of a credential, identified by its id. The name is only a label: two principals may share one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// Identifies it; names may change.
    pub id: PrincipalId,
    /// A person or a machine.
    pub kind: PrincipalKind,
    /// What events show.
    pub name: String,
}

impl Principal {
    /// A new principal.
    pub fn new(kind: PrincipalKind, name: &str) -> Self {
        Self { id: PrincipalId(Uuid::now_v7()), kind, name: name.to_owned() }
    }

    /// The actor that events name.
    pub fn actor(&self) -> Actor {
        let id = self.id.to_string();
        let actor = match self.kind {
            PrincipalKind::Person => Actor::person(id),
            PrincipalKind::Machine => Actor::worker(id),
        };
        actor.named(&self.name)
    }
}

/// A credential to be stored.
#[derive(Clone, Debug)]
pub struct NewCredential {
    /// Distinguishes the credentials of one principal.
    pub name: String,
    /// Who calls with it.
    pub principal: Principal,
    /// SHA-256 of the secret. The secret itself is shown once, when it is created, and not stored.
    pub hash: Digest,
    /// The permissions that it gives.
    pub scopes: Vec<String>,
    /// The tenants that exist for it.
    pub tenants: Tenants,
    /// The kinds of work items that it is bound to.
    pub kinds: Kinds,
    /// If set, the credential can claim only for this worker.
    pub worker: Option<String>,
    /// When it expires.
    pub expires_at: Option<Millis>,
    /// Who makes it.
    pub created_by: Actor,
}

/// What an access token gives, and to whom. The token itself is not stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credential {
    /// Identifies it.
    pub id: CredentialId,
    /// A label.
    pub name: String,
    /// Who calls with it.
    pub principal: Principal,
    /// The hash of its access token.
    pub hash: Digest,
    /// The permissions that it gives.
    pub scopes: Vec<String>,
    /// The tenants that exist for it.
    pub tenants: Tenants,
    /// The kinds of work items that it is bound to.
    pub kinds: Kinds,
    /// The one worker id that it may claim as.
    pub worker: Option<String>,
    /// When it was made.
    pub created_at: Millis,
    /// Who made it.
    pub created_by: Actor,
    /// When it expires.
    pub expires_at: Option<Millis>,
    /// Its revocation.
    pub revoked: Option<Revocation>,
}

/// The revocation of a credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revocation {
    /// When it was revoked.
    pub at: Millis,
    /// Who revoked it.
    pub by: Actor,
    /// Why.
    pub reason: String,
}

impl Credential {
    /// Neither revoked nor expired.
    pub fn is_valid(&self, now: Millis) -> bool {
        self.revoked.is_none() && self.expires_at.is_none_or(|at| now < at)
    }

    /// Whether it is a valid, unrestricted credential of a person with all of these scopes.
    pub(crate) fn opens_everything(&self, scopes: &[String], now: Millis) -> bool {
        self.principal.kind == PrincipalKind::Person
            && (&self.tenants, &self.kinds, &self.worker) == (&Tenants::All, &Kinds::All, &None)
            && scopes.iter().all(|scope| self.scopes.contains(scope))
            && self.is_valid(now)
    }

    /// Whether it equals the requested credential: the meaning of a secret must not change. Principal
    /// ids are not compared, because each request may have created its own.
    pub(crate) fn is(&self, new: &NewCredential) -> bool {
        (&self.name, &self.principal.name, self.principal.kind, &self.scopes)
            == (&new.name, &new.principal.name, new.principal.kind, &new.scopes)
            && (&self.tenants, &self.kinds, &self.worker, self.expires_at)
                == (&new.tenants, &new.kinds, &new.worker, new.expires_at)
    }
}

impl NewCredential {
    pub(crate) fn settle(&self, now: Millis) -> Result<Credential, Refusal> {
        self.check(now)?;
        Ok(Credential {
            id: CredentialId(Uuid::now_v7()),
            name: self.name.clone(),
            principal: self.principal.clone(),
            hash: self.hash,
            scopes: self.scopes.clone(),
            tenants: self.tenants.clone(),
            kinds: self.kinds.clone(),
            worker: self.worker.clone(),
            created_at: now,
            created_by: self.created_by.clone(),
            expires_at: self.expires_at,
            revoked: None,
        })
    }

    fn check(&self, now: Millis) -> Result<(), Refusal> {
        limits::name("name", &self.name)?;
        limits::name("principal.name", &self.principal.name)?;
        limits::name("created_by", &self.created_by.id)?;
        limits::count("scopes", self.scopes.len(), SCOPES_MAX)?;
        self.scopes.iter().try_for_each(|scope| limits::name("scopes", scope))?;
        check_names("tenants", &self.tenants, TENANTS_MAX)?;
        // The same limit as for the kinds of a claim.
        check_names("kinds", &self.kinds, limits::CLAIM_MAX)?;
        if let Some(worker) = &self.worker {
            limits::name("worker", worker)?;
        }
        if self.expires_at.is_some_and(|at| at <= now) {
            let detail = "`expires_at` is past. Give a later moment, or leave it out for none.";
            return Err(Refusal::new(Code::Invalid, detail));
        }
        Ok(())
    }
}

fn check_names(field: &str, names: &Names, max: usize) -> Result<(), Refusal> {
    let Names::Only(list) = names else { return Ok(()) };
    limits::count(field, list.len(), max)?;
    list.iter().try_for_each(|name| limits::name(field, name))?;
    let mut named = BTreeSet::new();
    match list.iter().find(|name| !named.insert(*name)) {
        Some(twice) => {
            Err(Refusal::new(Code::Invalid, format!("`{field}` names `{twice}` twice. Name each once.")))
        }
        None => Ok(()),
    }
}
