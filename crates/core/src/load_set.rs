//! The records that a store must load before a decision: first those that the action names, then those that
//! the loaded rows name.

use std::sync::Arc;

use crate::{
    action::{Action, ClaimBy, Holder, Ingest, Submission, Target, WaitSpec},
    command::budget::BudgetKey,
    ids::{CommandId, WaitId, WorkId},
    model::{Identity, OnParentClose, RequestKey, WaitState, Work},
    payload::Digest,
    records::{Records, Sought, TargetKey, TenantKey, referenced_command, referenced_work},
    state::State,
};

/// Keys to load. Where rows are locked one by one, the order is: `locks` and `references`, sessions, work
/// items; later rounds need no locks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadSet {
    /// To be locked, with the sessions that they belong to.
    pub works: Vec<WorkId>,
    /// To be read only.
    pub peers: Vec<WorkId>,
    pub identities: Vec<Identity>,
    /// Waits on these references, their work items (locked), all waits of those, and early answers.
    pub references: Vec<TenantKey>,
    /// The same, by the wait's id.
    pub wait_ids: Vec<WaitId>,
    /// References on which waits are about to be opened: to be locked; there is nothing to load yet.
    pub locks: Vec<String>,
    pub sessions: Vec<TenantKey>,
    pub kept: Vec<TenantKey>,
    /// Attempts that these claim requests got, and their work items: locked if the group has anything but
    /// claims.
    pub requests: Vec<RequestKey>,
    pub ends: Vec<(WorkId, u64)>,
    pub steps: Vec<WorkId>,
    pub waits: Vec<WorkId>,
    pub inputs: Vec<WorkId>,
    /// Tenants whose early answers are counted.
    pub kept_counts: Vec<String>,
    /// The work items of these commands, locked.
    pub command_ids: Vec<CommandId>,
    pub commands: Vec<Sought>,
    /// The newest command with a key, among the runs that this work item is a rerun of.
    pub earlier: Vec<(WorkId, Digest)>,
    /// The oldest open ordered command to a target.
    pub heads: Vec<TargetKey>,
    /// To be locked, after the work items and all at once.
    pub budgets: Vec<BudgetKey>,
}

impl LoadSet {
    pub fn is_empty(&self) -> bool {
        *self == LoadSet::default()
    }

    /// Adds the keys that one submission needs first. Lists may contain duplicates; stores sort them anyway.
    pub fn first(&mut self, submission: &Submission) {
        match &submission.action {
            Action::Renew(renewals) => self.works.extend(renewals.iter().map(|r| r.holder.work)),
            Action::Accept { holder, .. }
            | Action::Progress { holder, .. }
            | Action::Release { holder, .. }
            | Action::CloseOut { holder, .. }
            | Action::AbandonOwn { holder, .. } => self.works.push(holder.work),
            Action::Step(step) => self.works.push(step.holder.work),
            Action::Wait(wait) => {
                self.works.push(wait.holder.work);
                wait.waits.iter().for_each(|spec| self.opens(spec));
            }
            Action::Fail(fail) => {
                self.works.push(fail.holder.work);
                fail.wait.iter().for_each(|spec| self.opens(spec));
            }
            Action::Ingest(ingest) => self.ingested(ingest, submission),
            Action::Command(action) => self.first_of_command(action, submission),
            Action::Claim(claim) => {
                self.requests.push(claim.claimant.key(submission));
                match &claim.by {
                    ClaimBy::Filter(_) => {}
                    ClaimBy::Ids(ids) | ClaimBy::Chosen(ids) => self.works.extend(ids),
                }
            }
            Action::Resolve(resolve) => {
                match &resolve.target {
                    Target::Reference { tenant, reference } => {
                        self.references.push((tenant.clone(), reference.clone()));
                        self.kept_counts.push(tenant.clone());
                    }
                    Target::Wait { id, .. } => self.wait_ids.push(*id),
                }
                if let Some(claim) = &resolve.claim {
                    self.requests.push(claim.key(submission));
                }
            }
            Action::Complete { work, .. }
            | Action::Cancel { work, .. }
            | Action::RequestAbandon { work, .. }
            | Action::RequestRelease { work, .. }
            | Action::Erase { work, .. }
            | Action::RetryNow { work, .. }
            | Action::Quarantine { work, .. }
            | Action::Decide { work, .. }
            | Action::RevokeWaits { work, .. }
            | Action::Tick { work, .. } => self.works.push(*work),
            Action::Recover(recover) => self.works.push(recover.work),
            Action::Rerun { of, .. } => self.works.push(*of),
        }
    }

    pub(crate) fn ingested(&mut self, ingest: &Ingest, submission: &Submission) {
        self.identities.push(Identity { tenant: ingest.tenant.clone(), source: ingest.source.clone() });
        self.works.extend(ingest.parent);
        if let Some(session) = &ingest.session {
            self.sessions.push((ingest.tenant.clone(), session.clone()));
        }
        if let Some(claim) = &ingest.claim {
            self.requests.push(claim.key(submission));
        }
    }

    fn opens(&mut self, spec: &WaitSpec) {
        match referenced_work(&spec.reference) {
            // Locked, because it will be marked as waited for.
            Some(work) => self.works.push(work),
            None if referenced_command(&spec.reference).is_some() => {}
            None => self.locks.push(spec.reference.clone()),
        }
    }

    /// Adds the keys that the loaded rows show to be needed and that are not loaded yet. If it adds none, the
    /// decision can be made.
    pub fn then(&mut self, submission: &Submission, records: &Records) {
        match &submission.action {
            Action::Renew(renewals) => {
                renewals.iter().for_each(|renewal| self.held(&renewal.holder, records));
            }
            Action::Accept { holder, .. } | Action::Progress { holder, .. } => self.held(holder, records),
            Action::Release { holder, .. } => {
                self.held(holder, records);
                self.open_commands_of(holder.work, records);
                self.outgoing_if_cancelling(holder.work, records);
            }
            Action::AbandonOwn { holder, .. } => {
                self.held(holder, records);
                self.open_commands_of(holder.work, records);
                self.outgoing_if_cancelling(holder.work, records);
            }
            Action::CloseOut { holder, close } => {
                self.held(holder, records);
                self.open_commands_of(holder.work, records);
                self.outgoing_if_cancelling(holder.work, records);
                close.commands.iter().for_each(|(_, intent)| self.intent(holder.work, intent, records));
            }
            Action::Step(step) => {
                self.held(&step.holder, records);
                self.steps_of(step.holder.work, records);
            }
            Action::Wait(wait) => self.waiting(&wait.holder, wait.waits.iter(), records),
            Action::Fail(fail) => {
                self.waiting(&fail.holder, fail.wait.iter(), records);
                self.outgoing_if_cancelling(fail.holder.work, records);
            }
            Action::Ingest(ingest) => self.ingested_then(ingest, submission, records),
            Action::Command(action) => self.then_of_command(action, submission, records),
            Action::Claim(claim) => {
                self.granted(claim.claimant.key(submission), records);
                match &claim.by {
                    ClaimBy::Filter(_) => {}
                    ClaimBy::Ids(ids) | ClaimBy::Chosen(ids) => {
                        for id in ids {
                            self.session_of(*id, records);
                            self.grant(*id, records);
                        }
                    }
                }
            }
            Action::Resolve(resolve) => {
                let works: &[WorkId] = match &resolve.target {
                    Target::Reference { tenant, reference } => records
                        .references
                        .get(&(tenant.clone(), reference.clone()))
                        .map_or(&[], Vec::as_slice),
                    Target::Wait { id, .. } => records.wait_ids.get(id).map_or(&[], std::slice::from_ref),
                };
                for id in works {
                    self.waits_of(*id, records);
                    self.handed_of(*id, records, |wait| match &resolve.target {
                        Target::Reference { reference, .. } => wait.reference == *reference,
                        Target::Wait { id, .. } => wait.id == *id,
                    });
                    self.session_if_in_doubt(*id, records);
                    if let Some(claim) = &resolve.claim {
                        self.session_of(*id, records);
                        self.steps_of(*id, records);
                        self.granted(claim.key(submission), records);
                    }
                }
            }
            Action::Complete { work, .. }
            | Action::Cancel { work, .. }
            | Action::RequestAbandon { work, .. }
            | Action::RequestRelease { work, .. }
            | Action::RetryNow { work, .. }
            | Action::Quarantine { work, .. }
            | Action::Decide { work, .. }
            | Action::RevokeWaits { work, .. } => {
                self.open_waits_of(*work, records);
                self.open_commands_of(*work, records);
                self.session_if_in_doubt(*work, records);
                self.outgoing_of(*work, records);
            }
            Action::Erase { work, .. } => {
                self.open_commands_of(*work, records);
                self.outgoing_of(*work, records);
            }
            Action::Recover(recover) => self.ticked(recover.work, records),
            Action::Tick { work, .. } => self.ticked(*work, records),
            Action::Rerun { of, .. } => {
                let Some(work) = records.works.get(of) else { return };
                let identity = work.spec.identity();
                match records.identities.get(&identity) {
                    Some(newest) => newest.iter().for_each(|id| self.peer(*id, records)),
                    None => self.identities.push(identity),
                }
                work.spec.parent.iter().for_each(|parent| self.peer(*parent, records));
                if !records.inputs.contains_key(of) {
                    self.inputs.push(*of);
                }
                self.steps_of(*of, records);
            }
        }
    }

    pub(crate) fn ingested_then(&mut self, ingest: &Ingest, submission: &Submission, records: &Records) {
        let identity = Identity { tenant: ingest.tenant.clone(), source: ingest.source.clone() };
        if let Some(Some(id)) = records.identities.get(&identity) {
            self.peer(*id, records);
        }
        if let Some(claim) = &ingest.claim {
            self.granted(claim.key(submission), records);
        }
    }

    pub(crate) fn held(&mut self, holder: &Holder, records: &Records) {
        let Some(work) = records.works.get(&holder.work) else { return };
        match &work.lease {
            Some(lease) if lease.fence == holder.fence => {
                if lease.lapsed_at.is_some() {
                    self.session_of(work.id, records);
                }
            }
            // Only the attempt's own holder is told how it ended.
            Some(_) | None => {
                if holder.genuine && !records.ends.contains_key(&(work.id, holder.fence)) {
                    self.ends.push((work.id, holder.fence));
                }
            }
        }
    }

    fn waiting<'a>(&mut self, holder: &Holder, specs: impl Iterator<Item = &'a WaitSpec>, records: &Records) {
        self.held(holder, records);
        self.open_commands_of(holder.work, records);
        let Some(work) = records.works.get(&holder.work) else { return };
        self.waits_of(work.id, records);
        for spec in specs {
            if let Some(id) = spec.command.or_else(|| referenced_command(&spec.reference)) {
                self.sought(Sought::Id(id), records);
                self.set_aside_for(id, records);
            }
            if referenced_work(&spec.reference).is_some() || referenced_command(&spec.reference).is_some() {
                continue;
            }
            let key = (work.spec.tenant.clone(), spec.reference.clone());
            if !records.kept.contains_key(&key) {
                self.kept.push(key);
            }
        }
    }

    fn ticked(&mut self, id: WorkId, records: &Records) {
        let Some(work) = records.works.get(&id) else { return };
        if work.spec.on_parent_close == OnParentClose::Cancel
            && let Some(parent) = work.spec.parent
        {
            self.peer(parent, records);
        }
        if work.body.bound_until.is_some() {
            self.session_of(id, records);
        }
        self.session_if_in_doubt(id, records);
        self.open_waits_of(id, records);
        self.open_commands_of(id, records);
        self.outgoing_of(id, records);
        let waits = records.waits.get(&id).map_or(&[][..], Vec::as_slice);
        for wait in waits.iter().filter(|wait| wait.state == WaitState::Open) {
            if let Some(target) = referenced_work(&wait.reference) {
                self.peer(target, records);
            }
        }
        if work.lease.is_some() || work.state == State::Stalled {
            self.steps_of(id, records);
        }
    }

    pub(crate) fn granted(&mut self, key: RequestKey, records: &Records) {
        for (work, _) in records.requests.get(&key).map_or(&[][..], Vec::as_slice) {
            self.grant(*work, records);
        }
    }

    fn grant(&mut self, id: WorkId, records: &Records) {
        self.steps_of(id, records);
        self.waits_of(id, records);
    }

    fn steps_of(&mut self, id: WorkId, records: &Records) {
        let has = records.works.get(&id).is_some_and(|work| work.body.steps > 0);
        if has && !records.steps.contains_key(&id) {
            self.steps.push(id);
        }
    }

    fn waits_of(&mut self, id: WorkId, records: &Records) {
        self.waits_if(id, records, |work| work.body.waits > 0);
    }

    pub(crate) fn open_waits_of(&mut self, id: WorkId, records: &Records) {
        self.waits_if(id, records, |work| work.open_waits > 0);
    }

    fn waits_if(&mut self, id: WorkId, records: &Records, has: impl Fn(&Work) -> bool) {
        if records.works.get(&id).is_some_and(|work| has(work)) && !records.waits.contains_key(&id) {
            self.waits.push(id);
        }
    }

    /// A waiting work item that is kept from going on by a command in doubt may occupy its session.
    pub(crate) fn session_if_in_doubt(&mut self, id: WorkId, records: &Records) {
        let waits = |work: &Arc<Work>| work.open_waits > 0 && work.body.commands.unsettled() > 0;
        if records.works.get(&id).is_some_and(waits) {
            self.session_of(id, records);
        }
    }

    fn session_of(&mut self, id: WorkId, records: &Records) {
        let key = records.works.get(&id).and_then(|work| work.spec.session_key());
        if let Some(key) = key
            && !records.sessions.contains_key(&key)
        {
            self.sessions.push(key);
        }
    }

    fn peer(&mut self, id: WorkId, records: &Records) {
        if !records.works.contains_key(&id) && !records.peers.contains_key(&id) {
            self.peers.push(id);
        }
    }
}
