//! Credentials in memory.

use tenure_core::{CredentialId, PrincipalId, action::Tenants, payload::Digest};

use super::Memory;
use crate::{
    Credential, Listed, Revocation,
    credential::CREDENTIALS_MAX,
    store::{CredentialStore, StoreFuture},
};

impl CredentialStore for Memory {
    fn add_credential<'a>(&'a self, credential: &'a Credential) -> StoreFuture<'a, ()> {
        self.change(|inner| {
            let live = inner.credentials.values().filter(|one| one.revoked.is_none()).count();
            if live < CREDENTIALS_MAX && !inner.credentials.values().any(|one| one.hash == credential.hash) {
                inner.credentials.insert(credential.id, credential.clone());
            }
        })
    }

    fn credential(&self, hash: Digest) -> StoreFuture<'_, Option<Credential>> {
        self.ready(|inner| inner.credentials.values().find(|one| one.hash == hash).cloned())
    }

    fn credentials(
        &self,
        before: Option<CredentialId>,
        limit: usize,
    ) -> StoreFuture<'_, Listed<Credential, CredentialId>> {
        self.ready(|inner| {
            let newest = inner.credentials.values().rev();
            let below = newest.filter(|one| before.is_none_or(|before| one.id < before));
            Listed::of(below.take(limit).cloned().collect(), limit, |one| one.id)
        })
    }

    fn credentials_of(&self, principal: PrincipalId, limit: usize) -> StoreFuture<'_, Vec<Credential>> {
        self.ready(|inner| {
            let newest = inner.credentials.values().rev();
            newest.filter(|one| one.principal.id == principal).take(limit).cloned().collect()
        })
    }

    fn count_credentials<'a>(&'a self, tenant: Option<&'a str>) -> StoreFuture<'a, u64> {
        self.ready(|inner| {
            let reaches = |one: &&Credential| match (&one.tenants, tenant) {
                (_, None) => true,
                (Tenants::Only(own), Some(tenant)) => own.iter().any(|name| name == tenant),
                (Tenants::All, Some(_)) => false,
            };
            inner.credentials.values().filter(|one| one.revoked.is_none()).filter(reaches).count() as u64
        })
    }

    fn revoked_among<'a>(&'a self, ids: &'a [CredentialId]) -> StoreFuture<'a, Vec<CredentialId>> {
        self.ready(|inner| {
            let revoked =
                |id: &CredentialId| inner.credentials.get(id).is_some_and(|one| one.revoked.is_some());
            ids.iter().copied().filter(revoked).collect()
        })
    }

    fn revoke_credential<'a>(
        &'a self,
        id: CredentialId,
        revocation: &'a Revocation,
        keeping: Option<&'a [String]>,
    ) -> StoreFuture<'a, Option<Credential>> {
        self.change(|inner| {
            let at = revocation.at;
            let opens = |one: &Credential| keeping.is_some_and(|scopes| one.opens_everything(scopes, at));
            let last = !inner.credentials.values().any(|other| other.id != id && opens(other));
            if last && opens(inner.credentials.get(&id)?) {
                return None;
            }
            let credential = inner.credentials.get_mut(&id)?;
            credential.revoked.get_or_insert_with(|| revocation.clone());
            Some(credential.clone())
        })
    }
}
