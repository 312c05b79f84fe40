//! Sessions in memory: they are derived from the work items.

use std::sync::Arc;

use tenure_core::{
    State, Work,
    records::{SessionView, TenantKey},
};

use super::{Inner, Memory};
use crate::store::{SessionStore, StoreFuture};

impl SessionStore for Memory {
    fn session<'a>(&'a self, tenant: &'a str, session: &'a str) -> StoreFuture<'a, SessionView> {
        let key = (tenant.to_owned(), session.to_owned());
        self.ready(move |inner| inner.view(&key))
    }
}

impl Inner {
    pub fn view(&self, key: &TenantKey) -> SessionView {
        let members: Vec<&Work> = self
            .records
            .works
            .values()
            .map(Arc::as_ref)
            .filter(|work| work.spec.session_key().as_ref() == Some(key))
            .collect();
        let pending = |work: &&&Work| matches!(work.state, State::Queued | State::RetryScheduled);
        SessionView {
            holder: members.iter().find(|work| work.state.holds_session()).map(|work| work.id),
            head: members
                .iter()
                .filter(pending)
                .min_by_key(|work| (work.spec.created_at, work.id))
                .map(|work| work.id),
            unsure: false,
        }
    }
}
