//! Creating credentials: nobody can give rights that they do not have.

use tenure_core::{
    Code, Millis, PrincipalId, Refusal,
    action::{Kinds, Names, Tenants},
};
use tenure_store::{Credential, Error, Ledger, Principal, PrincipalKind};

use super::{Authenticated, Scopes};

/// A requested credential.
#[derive(Clone, Debug)]
pub struct NewToken {
    pub name: String,
    pub owner: Owner,
    pub scopes: Scopes,
    pub tenants: Tenants,
    pub kinds: Kinds,
    pub worker: Option<String>,
    pub expires_at: Option<Millis>,
}

/// The principal it is for.
#[derive(Clone, Copy, Debug)]
pub enum Owner {
    /// A new principal with the credential's name.
    New(PrincipalKind),
    /// An existing principal.
    Known(PrincipalId),
}

fn refuse<T>(code: Code, detail: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::new(code, detail.into()))
}

impl NewToken {
    /// The principal it is for.
    pub(super) async fn principal(&self, ledger: &Ledger, by: &Authenticated) -> Result<Principal, Error> {
        match self.owner {
            Owner::New(kind) => Ok(Principal::new(kind, &self.name)),
            Owner::Known(id) if id == by.principal.id => Ok(by.principal.clone()),
            Owner::Known(id) => {
                let theirs = ledger.credentials_of(id).await?;
                // Revoked credentials count too: their rights must not be regained through their owner's id.
                let within = theirs.iter().all(|one| by.exceeds(one));
                match theirs.into_iter().next().filter(|_| within) {
                    Some(credential) => Ok(credential.principal),
                    None => {
                        let detail = format!(
                            "There is no principal {id}, or it has more rights than you. Check the id, or leave \
                             out `principal` to create a new one."
                        );
                        Ok(refuse(Code::NotFound, detail)?)
                    }
                }
            }
        }
    }

    /// Whether the caller may create it: at most their own scopes, tenants, kinds, worker and expiry, no
    /// scope for a machine that only people can have, and no person by a machine.
    pub(super) fn check(&self, by: &Authenticated, principal: &Principal) -> Result<(), Refusal> {
        if principal.kind == PrincipalKind::Person && by.principal.kind == PrincipalKind::Machine {
            return refuse(
                Code::PersonRequired,
                "Only a person's credential can create a credential for a person. Use one of yours.",
            );
        }
        if let Some(scope) = self.scopes.persons_only()
            && principal.kind == PrincipalKind::Machine
        {
            return refuse(
                Code::PersonRequired,
                format!("A machine cannot have the scope `{scope}`. Leave it out, or use `kind` person."),
            );
        }
        if self.scopes.is_empty() {
            return refuse(Code::Invalid, "A credential without scopes allows nothing: name at least one.");
        }
        for (what, names) in [("tenants", &self.tenants), ("kinds", &self.kinds)] {
            if *names == Names::Only(Vec::new()) {
                let detail = format!("A credential without {what} allows nothing: name at least one.");
                return refuse(Code::Invalid, detail);
            }
        }
        self.check_within(by)
    }

    fn check_within(&self, by: &Authenticated) -> Result<(), Refusal> {
        let beyond = |what: &str| {
            let detail = format!("A credential can only give rights that it has itself: {what}.");
            refuse(Code::Forbidden, detail)
        };
        if let Some(scope) = self.scopes.iter().find(|scope| !by.may(*scope)) {
            return beyond(&format!("yours lacks the scope `{scope}`"));
        }
        if !by.tenants.cover(&self.tenants) {
            return beyond("name only tenants that it has");
        }
        if !by.kinds.cover(&self.kinds) {
            return beyond("name only kinds that it has");
        }
        if let Some(worker) = by.worker.as_deref().filter(|own| self.worker.as_deref() != Some(*own)) {
            return beyond(&format!("yours is bound to worker `{worker}`; bind this one to it too"));
        }
        if by.expires_at.is_some_and(|own| self.expires_at.is_none_or(|asked| asked > own)) {
            return beyond("yours expires; this one must not expire later");
        }
        Ok(())
    }
}

impl Authenticated {
    /// Whether the rights of a credential are within those of this one.
    fn exceeds(&self, other: &Credential) -> bool {
        self.covers(other)
            && other.scopes.iter().all(|scope| scope.parse().is_ok_and(|scope| self.may(scope)))
            && (self.worker.is_none() || self.worker == other.worker)
    }
}
