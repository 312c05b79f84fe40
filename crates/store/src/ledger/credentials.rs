//! Credentials of the ledger: kept, listed, found by the hash of their secret, revoked.

use tenure_core::{Actor, Code, CredentialId, PrincipalId, Refusal, limits, payload::Digest};
use uuid::Uuid;

use super::{Ledger, reads::PAGE_MAX};
use crate::{Credential, Error, Listed, NewCredential, Revocation, credential::CREDENTIALS_MAX};

impl Ledger {
    /// Keeps a credential. The same secret with the same content again returns what is there.
    pub async fn add_credential(&self, new: &NewCredential) -> Result<Credential, Error> {
        let credential = new.settle(self.now().await?)?;
        self.store().add_credential(&credential).await?;
        match self.credential(new.hash).await? {
            Some(stored) if stored.is(new) => Ok(stored),
            Some(stored) => Err(Refusal::new(
                Code::IdempotencyMismatch,
                format!("This secret is already that of {}, with other content. Make a new one.", stored.id),
            )
            .into()),
            None => Err(Refusal::new(
                Code::LimitReached,
                format!("There are {CREDENTIALS_MAX} credentials already. Revoke those that nobody uses."),
            )
            .into()),
        }
    }

    /// The credential whose secret has this hash, revoked and expired ones too.
    pub async fn credential(&self, hash: Digest) -> Result<Option<Credential>, Error> {
        self.store().credential(hash).await
    }

    /// How many are not revoked: of all, or of those that are bound to some tenants and reach this one.
    pub async fn count_credentials(&self, tenant: Option<&str>) -> Result<u64, Error> {
        self.store().count_credentials(tenant).await
    }

    /// Newest first. The next page goes on below the key `next` of this one.
    pub async fn credentials(
        &self,
        before: Option<CredentialId>,
        limit: usize,
    ) -> Result<Listed<Credential, CredentialId>, Error> {
        self.store().credentials(before, limit.min(PAGE_MAX)).await
    }

    pub async fn credential_by_id(&self, id: CredentialId) -> Result<Credential, Error> {
        // The newest id below the next one: this one, if it is there.
        let next = CredentialId(Uuid::from_u128(id.0.as_u128().saturating_add(1)));
        let page = self.credentials(Some(next), 1).await?;
        // Another one that cannot be read is not this one.
        let found = match page.last == Some(id) {
            true => page.whole()?.pop(),
            false => None,
        };
        found.ok_or_else(|| {
            Refusal::new(Code::NotFound, format!("There is no credential {id} here. Check the id.")).into()
        })
    }

    /// Ends a credential; who did it and why stays with it. Done again, the first time counts. `keeping` names scopes
    /// that a person who is bound to nothing must hold afterwards as well: the last such credential stays, whoever
    /// revokes others meanwhile.
    pub async fn revoke_credential(
        &self,
        id: CredentialId,
        by: &Actor,
        reason: &str,
        keeping: Option<&[String]>,
    ) -> Result<Credential, Error> {
        limits::reason(reason)?;
        let revocation = Revocation { at: self.now().await?, by: by.clone(), reason: reason.to_owned() };
        if let Some(revoked) = self.store().revoke_credential(id, &revocation, keeping).await? {
            return Ok(revoked);
        }
        self.credential_by_id(id).await?;
        let scopes = keeping.unwrap_or_default();
        let detail = format!(
            "This is the last valid credential of a person with every scope and every tenant: without it nobody could \
             make another. Make a new one first (`tenure token create NAME --kind person{}`), then revoke this one.",
            scopes.iter().map(|scope| format!(" --scope {scope}")).collect::<String>()
        );
        Err(Refusal::new(Code::IllegalState, detail).into())
    }

    /// Those of these credentials that were revoked, by whatever process.
    pub async fn revoked_among(&self, ids: &[CredentialId]) -> Result<Vec<CredentialId>, Error> {
        self.store().revoked_among(ids).await
    }

    /// The credentials of a principal, newest first, revoked ones too. None where nobody knows it.
    pub async fn credentials_of(&self, principal: PrincipalId) -> Result<Vec<Credential>, Error> {
        self.store().credentials_of(principal, PAGE_MAX).await
    }
}
