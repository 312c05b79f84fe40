//! The quota of one tenant: how many open work items it may have, how many bytes of input it may add a minute, and how
//! urgent its work may be. It binds callers that are bound to tenants. The ledger counts a tenant's work outside of
//! decisions; a repeat of a known ingest is answered at the quota as well.

use crate::{
    action::Action,
    command::{CommandAction, ReserveIn},
    ids::WorkId,
    refusal::{Code, Refusal},
};

/// None of it is bounded unless told otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Works that have not ended.
    pub open_works: u64,
    /// Bytes of the inputs of new works, in a minute.
    pub input_bytes: u64,
    /// The lowest number, which is the most urgent, that a work may have.
    pub priority: i16,
}

impl Default for Quota {
    fn default() -> Self {
        Self { open_works: u64::MAX, input_bytes: u64::MAX, priority: i16::MIN }
    }
}

impl Quota {
    pub fn urgency(&self, priority: i16) -> Result<(), Refusal> {
        if priority >= self.priority {
            return Ok(());
        }
        let detail = format!(
            "Priorities below {} are the operator's. Give that or a higher number, or have `quotas.priority` changed.",
            self.priority
        );
        Err(Refusal::new(Code::Forbidden, detail))
    }

    pub fn no_more_works(&self, tenant: &str) -> Refusal {
        let detail = format!(
            "Tenant {tenant} has {} open works, and no more are allowed. Let some end, or have `quotas.open_works` \
             raised.",
            self.open_works
        );
        Refusal::new(Code::QuotaReached, detail)
    }

    pub fn no_more_bytes(&self, tenant: &str) -> Refusal {
        let detail = format!(
            "Tenant {tenant} has sent {} bytes of input for new works within a minute, and no more are allowed. Send \
             this again later, or have `quotas.input_bytes` raised.",
            self.input_bytes
        );
        Refusal::new(Code::QuotaReached, detail)
    }
}

/// A work that an action adds, unless it is there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added<'a> {
    New {
        tenant: &'a str,
        priority: i16,
        bytes: u64,
    },
    /// The same as this one, once more.
    Rerun(WorkId),
}

impl Action {
    /// The work that it adds.
    pub fn adds(&self) -> Option<Added<'_>> {
        let ingest = match self {
            Action::Rerun { of, .. } => return Some(Added::Rerun(*of)),
            Action::Ingest(ingest) => ingest,
            Action::Command(action) => match &**action {
                CommandAction::Reserve { place: ReserveIn::OwnWork(ingest), .. } => ingest,
                _ => return None,
            },
            _ => return None,
        };
        let bytes = ingest.input.text().len() as u64;
        Some(Added::New { tenant: &ingest.tenant, priority: ingest.priority, bytes })
    }
}
