//! Claims in memory: what a filter selects.

use std::sync::Arc;

use tenure_core::{
    Action, State, Submission, WorkId,
    action::{ClaimBy, ClaimFilter},
    claimable, in_turns,
    model::Worker,
};

use super::Inner;

impl Inner {
    /// A claim by filter, with what it selects.
    pub fn selected(&self, submission: &Submission) -> Submission {
        let mut chosen = submission.clone();
        if let Action::Claim(claim) = &mut chosen.action
            && let ClaimBy::Filter(filter) = &claim.by
            && filter.check().is_ok()
        {
            let ids = self.select(filter, submission, &claim.claimant.worker);
            if !ids.is_empty() {
                claim.by = ClaimBy::Chosen(ids);
            }
        }
        chosen
    }

    fn select(&self, filter: &ClaimFilter, submission: &Submission, worker: &Worker) -> Vec<WorkId> {
        let works = self
            .records
            .works
            .values()
            .map(Arc::as_ref)
            .filter(|work| work.state == State::Queued && filter.matches(&work.spec))
            .filter(|work| submission.tenants.allow(&work.spec.tenant))
            .filter(|work| {
                let view = work.spec.session_key().map(|key| self.view(&key)).unwrap_or_default();
                claimable(work, worker, &submission.actor.id, view).is_ok()
            })
            .collect();
        let works = in_turns(works, &submission.seed);
        works.into_iter().take(filter.max).map(|work| work.id).collect()
    }
}
