//! Who is asking, and what they may do. Everything is denied that a credential does not allow.
//!
//! A credential is a random secret of 256 bits; the ledger keeps its SHA-256 only. Its scopes say which routes
//! it opens, its tenants what exists for it, and its kind whether it is a person.

mod first_start;
mod scope;
mod secret;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use subtle::ConstantTimeEq;
use tenure_core::{Actor, Code, CredentialId, Millis, Refusal, action::Tenants, payload::Digest};
use tenure_store::{Caller, Credential, CredentialKind, Error, Ledger, NewCredential};

pub use first_start::{AdminToken, FirstStart, FirstStartError};
pub use scope::Scopes;
pub use secret::Secret;
use tenure_api::wire::Scope;

/// A verified token is believed for so long; in this process a revocation counts at once.
const BELIEVED: Duration = Duration::from_secs(1);
/// Tokens that are remembered; strangers cannot make it grow.
const REMEMBERED: usize = 10_000;

/// Why somebody was turned away before anything was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Denied {
    NoToken,
    UnknownToken,
    Expired,
    Revoked,
    /// The credential is genuine and lacks this scope.
    Scope(Scope),
    /// It is bound to some tenants, and what was asked for is about all.
    Tenants,
}

/// A request's credential, with the ledger as its holder may use it.
#[derive(Clone)]
pub struct Session {
    pub id: CredentialId,
    pub name: String,
    pub kind: CredentialKind,
    pub scopes: Scopes,
    pub tenants: Tenants,
    expires_at: Option<Millis>,
    caller: Caller,
}

impl Session {
    fn new(ledger: &Ledger, credential: &Credential) -> Self {
        let actor = match credential.kind {
            CredentialKind::Person => Actor::person(&credential.name),
            CredentialKind::Machine => Actor::worker(&credential.name),
        };
        let scopes: Scopes = credential.scopes.iter().filter_map(|scope| scope.parse().ok()).collect();
        let caller = ledger.caller(actor).who_approves(scopes.has(Scope::Approve));
        Self {
            id: credential.id,
            name: credential.name.clone(),
            kind: credential.kind,
            scopes,
            tenants: credential.tenants.clone(),
            expires_at: credential.expires_at,
            caller: match &credential.tenants {
                Tenants::All => caller,
                Tenants::Only(tenants) => caller.within(tenants.clone()),
            },
        }
    }

    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    pub fn may(&self, scope: Scope) -> bool {
        self.scopes.has(scope)
    }

    pub fn require(&self, scope: Scope) -> Result<(), Denied> {
        if self.may(scope) { Ok(()) } else { Err(Denied::Scope(scope)) }
    }

    /// For what shows or touches every tenant at once.
    pub fn require_everywhere(&self) -> Result<(), Denied> {
        if self.tenants == Tenants::All { Ok(()) } else { Err(Denied::Tenants) }
    }

    /// Whether all of these tenants are this credential's too.
    pub fn covers(&self, tenants: &Tenants) -> bool {
        match (tenants, &self.tenants) {
            (_, Tenants::All) => true,
            (Tenants::All, Tenants::Only(_)) => false,
            (Tenants::Only(asked), own) => asked.iter().all(|tenant| own.allow(tenant)),
        }
    }

    /// The tenant of a request: one of the credential's.
    pub fn tenant(&self, asked: Option<&str>) -> Result<String, Refusal> {
        const DEFAULT: &str = "default";
        match (asked, &self.tenants) {
            (Some(tenant), tenants) if tenants.allow(tenant) => Ok(tenant.to_owned()),
            (Some(tenant), _) => {
                Err(Refusal::new(Code::NotFound, format!("Tenant {tenant} is not one of yours.")))
            }
            (None, Tenants::Only(list)) if list.len() == 1 => Ok(list[0].clone()),
            (None, tenants) if tenants.allow(DEFAULT) => Ok(DEFAULT.to_owned()),
            (None, _) => Err(Refusal::new(
                Code::Invalid,
                "Your credential has several tenants: say in `tenant` which one this is for.",
            )),
        }
    }
}

/// The door: tokens in, sessions out.
pub struct Auth {
    ledger: Ledger,
    /// What was found for a hash, and when; None for strangers.
    known: Mutex<HashMap<Digest, (Option<Known>, Instant)>>,
}

#[derive(Clone)]
struct Known {
    session: Arc<Session>,
    revoked: bool,
}

impl Auth {
    pub fn new(ledger: Ledger) -> Self {
        Self { ledger, known: Mutex::default() }
    }

    /// The session of a bearer token.
    pub async fn identify(&self, token: &str) -> Result<Result<Arc<Session>, Denied>, Error> {
        let hash = Secret::hash_of(token);
        let known = match self.recall(&hash) {
            Some(known) => known,
            None => self.look_up(hash).await?,
        };
        Ok(match known {
            None => Err(Denied::UnknownToken),
            Some(known) if known.revoked => Err(Denied::Revoked),
            Some(known) if known.session.expires_at.is_some_and(|at| at <= wall_clock()) => {
                Err(Denied::Expired)
            }
            Some(known) => Ok(known.session),
        })
    }

    fn recall(&self, hash: &Digest) -> Option<Option<Known>> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(hash).filter(|(_, at)| at.elapsed() < BELIEVED).map(|(known, _)| known.clone())
    }

    async fn look_up(&self, hash: Digest) -> Result<Option<Known>, Error> {
        let found = self.ledger.credential(hash).await?;
        let genuine = found.filter(|found| bool::from(found.hash.0.ct_eq(&hash.0)));
        let known = genuine.map(|credential| Known {
            session: Arc::new(Session::new(&self.ledger, &credential)),
            revoked: credential.revoked_at.is_some(),
        });
        let mut memory = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if memory.len() >= REMEMBERED {
            memory.clear();
        }
        memory.insert(hash, (known.clone(), Instant::now()));
        Ok(known)
    }

    /// Makes a credential. The secret is in the answer and nowhere else.
    pub async fn create(&self, by: &Session, new: NewToken) -> Result<(Credential, Secret), Error> {
        new.check(by)?;
        let secret = Secret::generate()?;
        let credential = self
            .ledger
            .add_credential(&NewCredential {
                name: new.name,
                kind: new.kind,
                hash: secret.hash(),
                scopes: new.scopes.names(),
                tenants: new.tenants,
                expires_at: new.expires_at,
                created_by: by.name.clone(),
            })
            .await?;
        self.known.lock().unwrap_or_else(PoisonError::into_inner).remove(&secret.hash());
        Ok((credential, secret))
    }

    /// The credentials that reach no further than this one, newest first, and where to go on.
    pub async fn list(
        &self,
        by: &Session,
        before: Option<CredentialId>,
        limit: usize,
    ) -> Result<(Vec<Credential>, Option<CredentialId>), Error> {
        let mut page = self.ledger.credentials(before, limit).await?;
        let next = page.last().filter(|_| page.len() == limit).map(|last| last.id);
        page.retain(|credential| by.covers(&credential.tenants));
        Ok((page, next))
    }

    /// Ends a credential that reaches no further than this one; in this process at once.
    pub async fn revoke(&self, by: &Session, id: CredentialId) -> Result<Credential, Error> {
        let known = self.ledger.credential_by_id(id).await?;
        if !by.covers(&known.tenants) {
            let detail = format!("There is no credential {id} here. Check the id.");
            return Err(Refusal::new(Code::NotFound, detail).into());
        }
        let credential = self.ledger.revoke_credential(id, Some(Scope::Admin.as_str())).await?;
        self.known.lock().unwrap_or_else(PoisonError::into_inner).remove(&credential.hash);
        Ok(credential)
    }
}

/// A credential that somebody asks for.
#[derive(Clone, Debug)]
pub struct NewToken {
    pub name: String,
    pub kind: CredentialKind,
    pub scopes: Scopes,
    pub tenants: Tenants,
    pub expires_at: Option<Millis>,
}

impl NewToken {
    /// Nobody gives what only people may have to a machine, nor more tenants than its own, nor makes itself
    /// a person.
    fn check(&self, by: &Session) -> Result<(), Refusal> {
        let refuse = |code, detail: String| Err(Refusal::new(code, detail));
        if self.kind == CredentialKind::Person && by.kind == CredentialKind::Machine {
            return refuse(
                Code::PersonRequired,
                "Only a person's credential makes a person's credential. Use one of yours.".into(),
            );
        }
        if let Some(scope) = self.scopes.persons_only()
            && self.kind == CredentialKind::Machine
        {
            return refuse(
                Code::PersonRequired,
                format!(
                    "A machine can never hold the scope `{}`. Leave it out, or make it a person's.",
                    scope.as_str()
                ),
            );
        }
        if self.scopes.is_empty() {
            return refuse(
                Code::Invalid,
                "A credential without scopes opens nothing: name at least one.".into(),
            );
        }
        if !by.covers(&self.tenants) {
            return refuse(
                Code::Invalid,
                "A credential reaches no further than the one that makes it: name tenants of yours.".into(),
            );
        }
        if self.tenants == Tenants::Only(Vec::new()) {
            return refuse(
                Code::Invalid,
                "A credential without tenants reaches nothing: name at least one.".into(),
            );
        }
        Ok(())
    }
}

/// Expiry of credentials is for people's calendars: the process's clock is good enough.
fn wall_clock() -> Millis {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Millis::try_from(since.as_millis()).unwrap_or(Millis::MAX)
}

#[cfg(test)]
mod tests;
