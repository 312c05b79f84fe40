//! Calls that stay open: streams and long polls. They end within a second after their credential expires or
//! is revoked, in any process.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tenure_core::{CredentialId, Millis};
use tenure_store::{Error, Ledger};
use tokio_util::sync::CancellationToken;

use super::{Authenticated, Denied, wall_clock};

/// How often the credentials of open calls are checked, all in one query.
const PAUSE: Duration = Duration::from_millis(400);
/// Credentials of one query.
const AT_ONCE: usize = 1_000;

/// The credentials that open calls were authenticated with.
#[derive(Default)]
pub(crate) struct OpenCalls(Mutex<HashMap<CredentialId, Watched>>);

struct Watched {
    calls: usize,
    expires_at: Option<Millis>,
    ended: CancellationToken,
}

/// A call that stays open for as long as its credential is valid.
pub(crate) struct OpenCall {
    calls: Arc<OpenCalls>,
    id: CredentialId,
    expires_at: Option<Millis>,
    ended: CancellationToken,
}

impl OpenCalls {
    pub fn open(self: &Arc<Self>, session: &Authenticated) -> OpenCall {
        let (id, expires_at) = (session.id, session.expires_at);
        let mut watched = self.watched();
        let fresh = || Watched { calls: 0, expires_at, ended: CancellationToken::new() };
        let one = watched.entry(id).or_insert_with(fresh);
        one.calls += 1;
        OpenCall { calls: self.clone(), id, expires_at, ended: one.ended.clone() }
    }

    /// Ends the calls that this credential opened.
    pub fn end(&self, id: CredentialId) {
        if let Some(one) = self.watched().get(&id) {
            one.ended.cancel();
        }
    }

    /// Ends the calls of credentials that are no longer valid.
    pub async fn check(&self, ledger: &Ledger, now: Millis) -> Result<(), Error> {
        let mut asked = Vec::new();
        for (id, one) in self.watched().iter().filter(|(_, one)| !one.ended.is_cancelled()) {
            match one.expires_at {
                Some(at) if at <= now => one.ended.cancel(),
                Some(_) | None => asked.push(*id),
            }
        }
        for some in asked.chunks(AT_ONCE) {
            ledger.revoked_among(some).await?.into_iter().for_each(|id| self.end(id));
        }
        Ok(())
    }

    /// Checks until shutdown.
    pub async fn run(self: Arc<Self>, ledger: Ledger, stopping: CancellationToken) {
        loop {
            tokio::select! {
                () = stopping.cancelled() => return,
                () = tokio::time::sleep(PAUSE) => {}
            }
            if let Err(error) = self.check(&ledger, wall_clock()).await {
                tracing::warn!(%error, "credentials of open calls cannot be checked; retrying");
            }
        }
    }

    fn watched(&self) -> MutexGuard<'_, HashMap<CredentialId, Watched>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenCall {
    /// Resolves when the credential is no longer valid, with why.
    pub async fn ended(&self) -> Denied {
        self.ended.cancelled().await;
        match self.expires_at {
            Some(at) if at <= wall_clock() => Denied::Expired,
            Some(_) | None => Denied::Revoked,
        }
    }

    pub fn is_ended(&self) -> bool {
        self.ended.is_cancelled()
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        let mut watched = self.calls.watched();
        if let Some(one) = watched.get_mut(&self.id) {
            one.calls -= 1;
            if one.calls == 0 {
                watched.remove(&self.id);
            }
        }
    }
}
