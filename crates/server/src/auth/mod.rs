//! Authentication and authorization: everything is denied that a credential does not allow.
//!
//! A credential is a random secret of 256 bits; the ledger stores only its SHA-256. It belongs to a
//! principal, a person or a machine. Its scopes decide which routes it may call; its tenants and kinds decide
//! which items are visible to it. The process that opened the ledger needs no credential for its own calls.

mod first_start;
mod in_process;
mod mint;
mod open_calls;
mod scope;
mod secret;
mod strangers;

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use subtle::ConstantTimeEq;
use tenure_core::{
    Code, CredentialId, Millis, Refusal,
    action::{Kinds, Tenants},
    payload::Digest,
};
use tenure_store::{Caller, Credential, Error, Ledger, Listed, NewCredential, Principal};

pub use first_start::{AdminToken, FirstStart, FirstStartError};
pub(crate) use in_process::InProcess;
pub use mint::{NewToken, Owner};
pub(crate) use open_calls::{OpenCall, OpenCalls};
pub use scope::Scopes;
pub use secret::Secret;
use strangers::Strangers;
pub(crate) use strangers::network;
use tenure_api::wire::Scope;

/// The tenant of a request that names none.
pub(crate) const DEFAULT_TENANT: &str = "default";

/// How long a verified token is cached; a revocation in this process takes effect at once.
const BELIEVED: Duration = Duration::from_secs(1);
/// The number of genuine tokens in the cache. Wrong ones are not cached: they could evict the others.
const REMEMBERED: usize = 10_000;

/// Why a request was refused before it was handled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Denied {
    NoToken,
    UnknownToken,
    /// The token came from an address that sent too many wrong ones.
    TooManyWrong,
    Expired,
    Revoked,
    /// The credential lacks this scope.
    Scope(Scope),
    /// The credential is bound to some tenants, and the request covers all of them.
    Tenants,
    /// The credential is bound to some kinds of work, and the request cannot be restricted by kind.
    Kinds,
}

/// A request's credential, with the ledger's view for it.
#[derive(Clone)]
pub struct Authenticated {
    pub id: CredentialId,
    pub principal: Principal,
    pub scopes: Scopes,
    pub tenants: Tenants,
    pub kinds: Kinds,
    worker: Option<String>,
    expires_at: Option<Millis>,
    caller: Caller,
}

impl Authenticated {
    fn new(ledger: &Ledger, credential: &Credential) -> Self {
        let scopes: Scopes = credential.scopes.iter().filter_map(|scope| scope.parse().ok()).collect();
        let caller = ledger
            .caller(credential.principal.actor())
            .who_approves(scopes.has(Scope::Approve))
            .who_replays(scopes.has(Scope::Replay))
            .of_kinds(credential.kinds.clone())
            .only_for(credential.worker.as_deref());
        Self {
            id: credential.id,
            principal: credential.principal.clone(),
            scopes,
            tenants: credential.tenants.clone(),
            kinds: credential.kinds.clone(),
            worker: credential.worker.clone(),
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

    /// For requests that cover every tenant at once.
    pub fn require_everywhere(&self) -> Result<(), Denied> {
        if self.tenants == Tenants::All { Ok(()) } else { Err(Denied::Tenants) }
    }

    /// Whether everything visible to the other credential is visible to this one too.
    pub fn covers(&self, other: &Credential) -> bool {
        self.tenants.cover(&other.tenants) && self.kinds.cover(&other.kinds)
    }

    /// The tenant of a request, which must be one of the credential's.
    pub fn tenant(&self, asked: Option<&str>) -> Result<String, Refusal> {
        match (asked, &self.tenants) {
            (Some(tenant), tenants) if tenants.allow(tenant) => Ok(tenant.to_owned()),
            (Some(tenant), _) => {
                Err(Refusal::new(Code::NotFound, format!("Tenant {tenant} is not one of yours.")))
            }
            (None, Tenants::Only(list)) if list.len() == 1 => Ok(list[0].clone()),
            (None, tenants) if tenants.allow(DEFAULT_TENANT) => Ok(DEFAULT_TENANT.to_owned()),
            (None, _) => Err(Refusal::new(
                Code::Invalid,
                "Your credential has several tenants: name one of them in `tenant`.",
            )),
        }
    }
}

/// Authenticates tokens.
pub struct Auth {
    ledger: Ledger,
    /// The cached result of each hash, and its time.
    known: Mutex<HashMap<Digest, (Known, Instant)>>,
    strangers: Arc<Strangers>,
    open_calls: Arc<OpenCalls>,
}

#[derive(Clone)]
struct Known {
    session: Arc<Authenticated>,
    revoked: bool,
}

impl Auth {
    pub fn new(ledger: Ledger) -> Self {
        Self { ledger, known: Mutex::default(), strangers: Arc::default(), open_calls: Arc::default() }
    }

    /// Authenticates a bearer token. Repeated wrong tokens of one peer are refused with a growing delay.
    pub async fn identify(
        &self,
        token: &str,
        peer: Option<IpAddr>,
    ) -> Result<Result<Arc<Authenticated>, Denied>, Error> {
        let hash = Secret::hash_of(token);
        let known = match self.recall(&hash) {
            Some(known) => Some(known),
            None => self.look_up(hash).await?,
        };
        Ok(match known {
            None => {
                let slowed = match peer {
                    Some(peer) => self.strangers.slow(peer).await,
                    None => Ok(()),
                };
                Err(slowed.map_or(Denied::TooManyWrong, |()| Denied::UnknownToken))
            }
            Some(known) if known.revoked => Err(Denied::Revoked),
            Some(known) if known.session.expires_at.is_some_and(|at| at <= wall_clock()) => {
                Err(Denied::Expired)
            }
            Some(known) => Ok(known.session),
        })
    }

    /// Registers a call that ends with its credential.
    pub(crate) fn open_call(&self, session: &Authenticated) -> OpenCall {
        self.open_calls.open(session)
    }

    pub(crate) fn open_calls(&self) -> &Arc<OpenCalls> {
        &self.open_calls
    }

    fn memory(&self) -> MutexGuard<'_, HashMap<Digest, (Known, Instant)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn recall(&self, hash: &Digest) -> Option<Known> {
        let known = self.memory();
        known.get(hash).filter(|(_, at)| at.elapsed() < BELIEVED).map(|(known, _)| known.clone())
    }

    async fn look_up(&self, hash: Digest) -> Result<Option<Known>, Error> {
        let found = self.ledger.credential(hash).await?;
        let Some(credential) = found.filter(|found| bool::from(found.hash.0.ct_eq(&hash.0))) else {
            return Ok(None);
        };
        let known = Known {
            session: Arc::new(Authenticated::new(&self.ledger, &credential)),
            revoked: credential.revoked.is_some(),
        };
        let mut memory = self.memory();
        if memory.len() >= REMEMBERED {
            memory.clear();
        }
        memory.insert(hash, (known.clone(), Instant::now()));
        Ok(Some(known))
    }

    /// Creates a credential. The secret is in the response and nowhere else.
    pub async fn create(&self, by: &Authenticated, new: NewToken) -> Result<(Credential, Secret), Error> {
        let principal = new.principal(&self.ledger, by).await?;
        new.check(by, &principal)?;
        let secret = Secret::generate()?;
        let credential = self
            .ledger
            .add_credential(&NewCredential {
                name: new.name,
                principal,
                hash: secret.hash(),
                scopes: new.scopes.names(),
                tenants: new.tenants,
                kinds: new.kinds,
                worker: new.worker,
                expires_at: new.expires_at,
                created_by: by.principal.actor(),
            })
            .await?;
        Ok((credential, secret))
    }

    /// The credentials whose rights are within those of this one, newest first.
    pub async fn list(
        &self,
        by: &Authenticated,
        before: Option<CredentialId>,
        limit: usize,
    ) -> Result<Listed<Credential, CredentialId>, Error> {
        let mut page = self.ledger.credentials(before, limit).await?;
        page.rows.retain(|credential| by.covers(credential));
        // The rights of an unreadable credential are unknown.
        page.unreadable.retain(|_| by.tenants == Tenants::All && by.kinds == Kinds::All);
        Ok(page)
    }

    /// Revokes a credential whose rights are within those of this one, and ends the calls that it opened; in
    /// this process at once.
    pub async fn revoke(
        &self,
        by: &Authenticated,
        id: CredentialId,
        reason: &str,
    ) -> Result<Credential, Error> {
        let known = self.ledger.credential_by_id(id).await?;
        if !by.covers(&known) {
            let detail = format!("There is no credential {id}. Check the id.");
            return Err(Refusal::new(Code::NotFound, detail).into());
        }
        let every = Scopes::all().names();
        let actor = by.principal.actor();
        let credential = self.ledger.revoke_credential(id, &actor, reason, Some(&every)).await?;
        self.memory().remove(&credential.hash);
        self.open_calls.end(id);
        Ok(credential)
    }
}

/// The process's clock: credentials expire by calendar time, so it is precise enough.
fn wall_clock() -> Millis {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Millis::try_from(since.as_millis()).unwrap_or(Millis::MAX)
}

#[cfg(test)]
mod tests;
