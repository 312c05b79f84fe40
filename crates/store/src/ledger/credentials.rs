//! Credentials of the ledger: kept, listed, found by the hash of their secret, revoked.

use tenure_core::{Code, CredentialId, Refusal, payload::Digest};

use super::{Ledger, reads::PAGE_MAX};
use crate::{Credential, Error, NewCredential, credential::CREDENTIALS_MAX};

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

    /// Newest first. The next page goes on below the last id of this one.
    pub async fn credentials(
        &self,
        before: Option<CredentialId>,
        limit: usize,
    ) -> Result<Vec<Credential>, Error> {
        self.store().credentials(before, limit.min(PAGE_MAX)).await
    }

    /// Ends a credential. Done again, the first time counts.
    pub async fn revoke_credential(&self, id: CredentialId) -> Result<Credential, Error> {
        self.store().revoke_credential(id, self.now().await?).await?.ok_or_else(|| {
            Refusal::new(Code::NotFound, format!("There is no credential {id} here. Check the id.")).into()
        })
    }
}
