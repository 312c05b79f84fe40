//! Calls from the process that opened the ledger: a machine principal without a credential. A secret would
//! protect nothing, since that process has the ledger itself.

use std::sync::Arc;

use tenure_core::{
    CredentialId, PrincipalId, Refusal,
    action::{Kinds, Tenants},
    limits,
    payload::Digest,
};
use tenure_store::{Ledger, Principal, PrincipalKind};
use uuid::{Builder, Uuid};

use super::{Authenticated, Scopes};

/// Marks a request as this process's own. Nothing that arrives over a socket can carry it.
#[derive(Clone)]
pub(crate) struct InProcess(pub Arc<Authenticated>);

impl InProcess {
    /// A machine called `name`, with every scope that a machine can have, in every tenant. The same name
    /// gives the same principal at every start, since four eyes and policies compare principal ids.
    pub fn new(ledger: &Ledger, name: &str) -> Result<Self, Refusal> {
        limits::name("principal", name)?;
        let id = id_of(name);
        let principal =
            Principal { id: PrincipalId(id), kind: PrincipalKind::Machine, name: name.to_owned() };
        Ok(Self(Arc::new(Authenticated {
            id: CredentialId(id),
            scopes: Scopes::of_machines(),
            tenants: Tenants::All,
            kinds: Kinds::All,
            worker: None,
            expires_at: None,
            caller: ledger.caller(principal.actor()),
            principal,
        })))
    }
}

/// A version 8 id: stored principals have version 7, so the ids never collide.
fn id_of(name: &str) -> Uuid {
    let Digest(digest) = Digest::of(format!("principal in process: {name}"));
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    Builder::from_custom_bytes(bytes).into_uuid()
}
