//! What is looked up in memory: sessions and payloads.

use std::sync::Arc;

use tenure_core::{
    Payload, State, Work, WorkId,
    records::{SessionView, TenantKey},
};

use super::Inner;
use crate::job::Payloads;

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

    pub fn payloads(&self, keys: &[(WorkId, u64)]) -> Payloads {
        let find = |(work, seq): &(WorkId, u64)| -> Option<Payload> {
            let index = *self.by_work.get(work)?.get(usize::try_from(*seq).ok()?.checked_sub(1)?)?;
            self.log.get(&index)?.payload.clone()
        };
        keys.iter().filter_map(|key| Some((*key, find(key)?))).collect()
    }
}
