//! What an accepted action answers.

use serde::{Deserialize, Serialize};

use crate::{
    Millis,
    command::Command,
    ids::{WaitId, WorkId},
    model::{Step, Wait, Work},
    refusal::Refusal,
    state::State,
};

/// The short answer of most verbs. It is kept on the attempt that the verb ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ack {
    pub work: WorkId,
    pub state: State,
    pub seq: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_retry_at: Option<Millis>,
    /// The waits that are open because of this call, in the order given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits: Vec<WaitId>,
}

/// A lease as granted. The ledger adds the token, and the payloads that the holder may see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    pub work: Work,
    pub steps: Vec<Step>,
    /// Waits that have ended, with where their answers are.
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
    /// The holder is asked to stop and to hand the work back.
    pub release_requested: bool,
}

/// A wait that was already answered, or that this call answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedWait {
    pub wait: WaitId,
    pub work: WorkId,
    /// The event of `work` whose payload is the answer.
    pub seq: Option<u64>,
    /// False where an earlier answer is given back.
    pub first: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Ack(Ack),
    Ingested {
        work: Box<Work>,
        /// False where the same work was already there.
        created: bool,
        grant: Option<Box<Grant>>,
    },
    Claimed(Vec<Grant>),
    Renewed(Vec<Renewal>),
    /// The step as it stands; a completed one is to be reused.
    Step {
        step: Step,
        reused: bool,
    },
    /// The wait stands, or every answer was there already and the lease goes on.
    Waiting {
        ack: Ack,
        answers: Vec<Wait>,
    },
    Resolved {
        answers: Vec<ResolvedWait>,
        /// No wait was there yet: the answer is kept for it.
        kept: bool,
        grant: Option<Box<Grant>>,
    },
    Ticked(Ticked),
    /// The command as it stands after the call.
    Command {
        command: Box<Command>,
        /// False where it stood so before.
        fresh: bool,
        /// The lease of a work that was recorded for it.
        grant: Option<Box<Grant>>,
    },
    /// Whether to make the call of a command now.
    Dispatch {
        /// As it stands after the call.
        command: Box<Command>,
        /// Why the call must not be made. None: make it now.
        refused: Option<Refusal>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ticked {
    /// Something was due, and was done.
    Acted,
    /// Nothing was due; the due date was armed anew where it had to be.
    Nothing,
    /// Due, but this sweeper has not watched for long enough to judge.
    NotYet,
}
