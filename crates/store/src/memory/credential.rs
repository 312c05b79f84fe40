//! Credentials in memory.

use tenure_core::{CredentialId, Millis, payload::Digest};

use super::Inner;
use crate::{Credential, credential::CREDENTIALS_MAX};

impl Inner {
    pub fn add_credential(&mut self, credential: &Credential) {
        let live = self.credentials.values().filter(|one| one.revoked_at.is_none()).count();
        if live < CREDENTIALS_MAX && self.credential(credential.hash).is_none() {
            self.credentials.insert(credential.id, credential.clone());
        }
    }

    pub fn credential(&self, hash: Digest) -> Option<&Credential> {
        self.credentials.values().find(|credential| credential.hash == hash)
    }

    pub fn credentials(&self, before: Option<CredentialId>, limit: usize) -> Vec<Credential> {
        let newest = self.credentials.values().rev();
        newest.filter(|one| before.is_none_or(|before| one.id < before)).take(limit).cloned().collect()
    }

    pub fn revoke_credential(
        &mut self,
        id: CredentialId,
        at: Millis,
        keeping: Option<&str>,
    ) -> Option<Credential> {
        let opens = |one: &Credential| keeping.is_some_and(|scope| one.opens_everything(scope, at));
        let last = !self.credentials.values().any(|other| other.id != id && opens(other));
        if last && opens(self.credentials.get(&id)?) {
            return None;
        }
        let credential = self.credentials.get_mut(&id)?;
        credential.revoked_at.get_or_insert(at);
        Some(credential.clone())
    }
}
