//! Credentials in memory.

use tenure_core::{CredentialId, PrincipalId, action::Tenants, payload::Digest};

use super::Inner;
use crate::{Credential, Revocation, credential::CREDENTIALS_MAX};

impl Inner {
    pub fn add_credential(&mut self, credential: &Credential) {
        let live = self.credentials.values().filter(|one| one.revoked.is_none()).count();
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

    pub fn credentials_of(&self, principal: PrincipalId, limit: usize) -> Vec<Credential> {
        let newest = self.credentials.values().rev();
        newest.filter(|one| one.principal.id == principal).take(limit).cloned().collect()
    }

    pub fn count_credentials(&self, tenant: Option<&str>) -> u64 {
        let reaches = |one: &&Credential| match (&one.tenants, tenant) {
            (_, None) => true,
            (Tenants::Only(own), Some(tenant)) => own.iter().any(|name| name == tenant),
            (Tenants::All, Some(_)) => false,
        };
        self.credentials.values().filter(|one| one.revoked.is_none()).filter(reaches).count() as u64
    }

    pub fn revoked_among(&self, ids: &[CredentialId]) -> Vec<CredentialId> {
        let revoked = |id: &CredentialId| self.credentials.get(id).is_some_and(|one| one.revoked.is_some());
        ids.iter().copied().filter(revoked).collect()
    }

    pub fn revoke_credential(
        &mut self,
        id: CredentialId,
        revocation: &Revocation,
        keeping: Option<&[String]>,
    ) -> Option<Credential> {
        let at = revocation.at;
        let opens = |one: &Credential| keeping.is_some_and(|scopes| one.opens_everything(scopes, at));
        let last = !self.credentials.values().any(|other| other.id != id && opens(other));
        if last && opens(self.credentials.get(&id)?) {
            return None;
        }
        let credential = self.credentials.get_mut(&id)?;
        credential.revoked.get_or_insert_with(|| revocation.clone());
        Some(credential.clone())
    }
}
