//! The replies to accepted actions.

use serde::{Deserialize, Serialize};

use crate::{
    Millis,
    command::Command,
    ids::{WaitId, WorkId},
    model::{Step, Wait, Work},
    refusal::Refusal,
    state::State,
};

/// The short reply of most verbs. It is stored on the attempt that the verb ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ack {
    pub work: WorkId,
    pub state: State,
    pub seq: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_retry_at: Option<Millis>,
    /// The waits that this call opened, in the order of the request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits: Vec<WaitId>,
}

/// A granted lease. The ledger adds the token, and the payloads that the holder may see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    pub work: Work,
    pub steps: Vec<Step>,
    /// Waits that have ended, with the positions of their answers.
    pub answers: Vec<Wait>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renewal {
    pub work: WorkId,
    pub outcome: Result<Renewed, Refusal>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renewed {
    pub expires_at: Millis,
    pub cancel_requested: bool,
    /// The holder is asked to stop and release the work item.
    pub release_requested: bool,
}

/// A wait that was answered before, or by this call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedWait {
    pub wait: WaitId,
    pub work: WorkId,
    /// The event of `work` whose payload is the answer.
    pub seq: Option<u64>,
    /// False if an earlier answer is returned.
    pub first: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Ack(Ack),
    Ingested {
        work: Box<Work>,
        /// False if the work item existed already.
        created: bool,
        grant: Option<Box<Grant>>,
    },
    Claimed(Vec<Grant>),
    Renewed(Vec<Renewal>),
    /// The step as it is now; the result of a completed one is to be reused.
    Step {
        step: Step,
        reused: bool,
    },
    /// The waits are open, or every answer existed already and the lease stays valid.
    Waiting {
        ack: Ack,
        answers: Vec<Wait>,
    },
    Resolved {
        answers: Vec<ResolvedWait>,
        /// No wait is open yet: the answer is stored for it.
        kept: bool,
        grant: Option<Box<Grant>>,
    },
    Ticked(Ticked),
    /// The command after the call.
    Command {
        command: Box<Command>,
        /// False if the call changed nothing.
        fresh: bool,
        /// The lease of the work item that was recorded for it.
        grant: Option<Box<Grant>>,
    },
    /// Whether to make the call of a command now.
    Dispatch {
        /// The command after the call.
        command: Box<Command>,
        /// Why the call must not be made. None: make it now.
        refused: Option<Refusal>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ticked {
    /// Something was due, and was done.
    Acted,
    /// Nothing was due; the due date was set again if necessary.
    Nothing,
    /// Due, but this sweeper has not watched for long enough to judge.
    NotYet,
}
