//! Credentials of the ledger: store, list, find by the hash of the secret, revoke.

use tenure_core::{Actor, Code, CredentialId, PrincipalId, Refusal, limits, payload::Digest};
use uuid::Uuid;

use super::{Ledger, reads::PAGE_MAX};
use crate::{Credential, Error, Listed, NewCredential, Revocation, credential::CREDENTIALS_MAX};

impl Ledger {
    /// Stores a credential. Idempotent: the same secret with the same content returns the existing one.
    pub async fn add_credential(&self, new: &NewCredential) -> Result<Credential, Error> {
        let credential = new.settle(self.now().await?)?;
        self.store().add_credential(&credential).await?;
        match self.credential(new.hash).await? {
            Some(stored) if stored.is(new) => Ok(stored),
            Some(stored) => Err(Refusal::new(
                Code::IdempotencyMismatch,
                format!(
                    "This secret already belongs to {}, which differs. Generate a new secret.",
                    stored.id
                ),
            )
            .into()),
            None => Err(Refusal::new(
                Code::LimitReached,
                format!("There are {CREDENTIALS_MAX} credentials already. Revoke the unused ones."),
            )
            .into()),
        }
    }

    /// The credential whose secret has this hash, even if revoked or expired.
    pub async fn credential(&self, hash: Digest) -> Result<Option<Credential>, Error> {
        self.store().credential(hash).await
    }

    /// The number of credentials that are not revoked: of all, or of those restricted to tenants that include
    /// this one.
    pub async fn count_credentials(&self, tenant: Option<&str>) -> Result<u64, Error> {
        self.store().count_credentials(tenant).await
    }

    /// Newest first. Pass the key `next` of a page to read the next one.
    pub async fn credentials(
        &self,
        before: Option<CredentialId>,
        limit: usize,
    ) -> Result<Listed<Credential, CredentialId>, Error> {
        self.store().credentials(before, limit.min(PAGE_MAX)).await
    }

    /// Reads a credential.
    pub async fn credential_by_id(&self, id: CredentialId) -> Result<Credential, Error> {
        // The newest credential below the next id: this one, if it exists.
        let next = CredentialId(Uuid::from_u128(id.0.as_u128().saturating_add(1)));
        let page = self.credentials(Some(next), 1).await?;
        // The unreadable row may be another credential.
        let found = match page.last == Some(id) {
            true => page.whole()?.pop(),
            false => None,
        };
        found.ok_or_else(|| {
            Refusal::new(Code::NotFound, format!("There is no credential {id}. Check the id.")).into()
        })
    }

    /// Revokes a credential, recording who did it and why. Idempotent: the first revocation is kept. With
    /// `keeping`, an unrestricted credential of a person with these scopes must remain: the last one cannot
    /// be revoked, even if others are revoked concurrently.
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
        let detail = format!(
            "This is the last valid credential of a person with every scope and every tenant: without it nobody could \
             make another. Make a new one first, with the scopes {} (`tenure token create --help`), then revoke this one.",
            keeping.unwrap_or_default().join(",")
        );
        Err(Refusal::new(Code::IllegalState, detail).into())
    }

    /// The ones of these credentials that were revoked, by any process.
    pub async fn revoked_among(&self, ids: &[CredentialId]) -> Result<Vec<CredentialId>, Error> {
        self.store().revoked_among(ids).await
    }

    /// The credentials of a principal, newest first, revoked ones too. Empty if the principal is unknown.
    pub async fn credentials_of(&self, principal: PrincipalId) -> Result<Vec<Credential>, Error> {
        self.store().credentials_of(principal, PAGE_MAX).await
    }
}
