//! Credentials of the ledger: kept, listed, found by the hash of their secret, revoked.

use tenure_core::{Code, CredentialId, Refusal, payload::Digest};
use uuid::Uuid;

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

    pub async fn credential_by_id(&self, id: CredentialId) -> Result<Credential, Error> {
        // The newest id below the next one: this one, if it is there.
        let next = CredentialId(Uuid::from_u128(id.0.as_u128().saturating_add(1)));
        let found = self.credentials(Some(next), 1).await?.pop().filter(|found| found.id == id);
        found.ok_or_else(|| {
            Refusal::new(Code::NotFound, format!("There is no credential {id} here. Check the id.")).into()
        })
    }

    /// Ends a credential. Done again, the first time counts. `keeping` names a scope that a person who is bound to no
    /// tenant must hold afterwards as well: the last such credential stays, whoever revokes others meanwhile.
    pub async fn revoke_credential(
        &self,
        id: CredentialId,
        keeping: Option<&str>,
    ) -> Result<Credential, Error> {
        if let Some(revoked) = self.store().revoke_credential(id, self.now().await?, keeping).await? {
            return Ok(revoked);
        }
        self.credential_by_id(id).await?;
        let scope = keeping.unwrap_or_default();
        let detail = format!(
            "This is the last valid `{scope}` credential of a person: without it nobody could make another. Make a \
             new one first (`tenure token create NAME --kind person --scope {scope}`), then revoke this one."
        );
        Err(Refusal::new(Code::IllegalState, detail).into())
    }
}
