//! Making credentials: nobody gives more than it has.

use tenure_core::{
    Code, Millis, PrincipalId, Refusal,
    action::{Kinds, Names, Tenants},
};
use tenure_store::{Credential, Error, Ledger, Principal, PrincipalKind};

use super::{Authenticated, Scopes};

/// A credential that somebody asks for.
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

/// Who it is for.
#[derive(Clone, Copy, Debug)]
pub enum Owner {
    /// Somebody new, called as the credential is.
    New(PrincipalKind),
    /// Somebody who has credentials already.
    Known(PrincipalId),
}

fn refuse<T>(code: Code, detail: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::new(code, detail.into()))
}

impl NewToken {
    /// The principal that it is for.
    pub(super) async fn principal(&self, ledger: &Ledger, by: &Authenticated) -> Result<Principal, Error> {
        match self.owner {
            Owner::New(kind) => Ok(Principal::new(kind, &self.name)),
            Owner::Known(id) if id == by.principal.id => Ok(by.principal.clone()),
            Owner::Known(id) => {
                let theirs = ledger.credentials_of(id).await?;
                // Revoked ones as well: what somebody who has left could do is not to be had by their name.
                let within = theirs.iter().all(|one| by.exceeds(one));
                match theirs.into_iter().next().filter(|_| within) {
                    Some(credential) => Ok(credential.principal),
                    None => {
                        let detail = format!(
                            "There is no principal {id} here, or it may more than you. Check the id, or leave \
                             `principal` out to make a new one."
                        );
                        Ok(refuse(Code::NotFound, detail)?)
                    }
                }
            }
        }
    }

    /// Whether this session may make it: at most its own scopes, tenants, kinds, worker and expiry, nothing that only
    /// people may have for a machine, and no person by a machine.
    pub(super) fn check(&self, by: &Authenticated, principal: &Principal) -> Result<(), Refusal> {
        if principal.kind == PrincipalKind::Person && by.principal.kind == PrincipalKind::Machine {
            return refuse(
                Code::PersonRequired,
                "Only a person's credential makes a person's credential. Use one of yours.",
            );
        }
        if let Some(scope) = self.scopes.persons_only()
            && principal.kind == PrincipalKind::Machine
        {
            return refuse(
                Code::PersonRequired,
                format!("A machine can never hold the scope `{scope}`. Leave it out, or make it a person's."),
            );
        }
        if self.scopes.is_empty() {
            return refuse(Code::Invalid, "A credential without scopes opens nothing: name at least one.");
        }
        for (what, names) in [("tenants", &self.tenants), ("kinds", &self.kinds)] {
            if *names == Names::Only(Vec::new()) {
                let detail = format!("A credential without {what} reaches nothing: name at least one.");
                return refuse(Code::Invalid, detail);
            }
        }
        self.check_within(by)
    }

    fn check_within(&self, by: &Authenticated) -> Result<(), Refusal> {
        let beyond = |what: &str| {
            let detail = format!("A credential gives at most what it has itself: {what}.");
            refuse(Code::Forbidden, detail)
        };
        if let Some(scope) = self.scopes.iter().find(|scope| !by.may(*scope)) {
            return beyond(&format!("yours lacks the scope `{scope}`"));
        }
        if !by.tenants.cover(&self.tenants) {
            return beyond("name tenants of yours");
        }
        if !by.kinds.cover(&self.kinds) {
            return beyond("name kinds of yours");
        }
        if let Some(worker) = by.worker.as_deref().filter(|own| self.worker.as_deref() != Some(*own)) {
            return beyond(&format!("yours is bound to worker `{worker}`, bind this one to it as well"));
        }
        if by.expires_at.is_some_and(|own| self.expires_at.is_none_or(|asked| asked > own)) {
            return beyond("yours expires, and this one must expire no later");
        }
        Ok(())
    }
}

impl Authenticated {
    /// Whether a credential may nothing that this one may not.
    fn exceeds(&self, other: &Credential) -> bool {
        self.covers(other)
            && other.scopes.iter().all(|scope| scope.parse().is_ok_and(|scope| self.may(scope)))
            && (self.worker.is_none() || self.worker == other.worker)
    }
}
