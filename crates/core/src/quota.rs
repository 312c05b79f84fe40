//! The quota of one tenant: how many open work items it may have, how many bytes of input it may add in a
//! minute, and the most urgent priority that it may use. It applies to callers that are bound to tenants. The
//! ledger counts a tenant's work items outside of decisions; a repeat of a known ingest is answered even when
//! the quota is reached.

use crate::{
    action::Action,
    command::{CommandAction, ReserveIn},
    ids::WorkId,
    refusal::{Code, Refusal},
};

/// Unlimited by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Work items that have not ended.
    pub open_works: u64,
    /// Bytes of the inputs of new work items, in a minute.
    pub input_bytes: u64,
    /// The lowest number, which is the most urgent, that a work item may have.
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
            "Priorities below {} are reserved for the operator. Use that or a higher number, or have \
             `quotas.priority` changed.",
            self.priority
        );
        Err(Refusal::new(Code::Forbidden, detail))
    }

    pub fn no_more_works(&self, tenant: &str) -> Refusal {
        let detail = format!(
            "Tenant {tenant} has {} open work items, which is its quota. Let some end, or have \
             `quotas.open_works` raised.",
            self.open_works
        );
        Refusal::new(Code::QuotaReached, detail)
    }

    pub fn no_more_bytes(&self, tenant: &str) -> Refusal {
        let detail = format!(
            "Tenant {tenant} has sent {} bytes of input for new work items within a minute, which is its \
             quota. Repeat the request later, or have `quotas.input_bytes` raised.",
            self.input_bytes
        );
        Refusal::new(Code::QuotaReached, detail)
    }
}

/// A work item that an action adds, unless it exists already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added<'a> {
    New {
        tenant: &'a str,
        priority: i16,
        bytes: u64,
    },
    /// A rerun of this work item.
    Rerun(WorkId),
}

impl Action {
    /// The work item that it adds.
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
