//! What can be asked of a command. The door has validated the arguments and evaluated policy: its outcome
//! rides in the action, and the core refuses one that is out of date.

use serde::Serialize;

use super::{
    budget::{Cost, Limit, Unit},
    identity::command_key,
    model::{Arguments, CallError, CommandKind, EvidenceKind, PolicyDecision, ToolFacts},
};
use crate::{
    Millis,
    action::{Claimant, Holder, Ingest},
    event::Evidence,
    ids::{CommandId, WorkId},
    limits,
    payload::{Digest, Payload},
    refusal::{Code, Refusal},
    usage::{self, Usage},
};

/// What the door says of a command at this moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Evaluation {
    pub decision: PolicyDecision,
    pub tool: ToolFacts,
    /// Budgets that apply: asked at dispatch only.
    pub limits: Vec<Limit>,
    /// What the call is expected to cost. Kept when it is reserved, counted when it is dispatched.
    pub estimate: Cost,
}

impl Evaluation {
    pub fn new(decision: PolicyDecision, tool: ToolFacts) -> Self {
        Self { decision, tool, limits: Vec::new(), estimate: Cost::default() }
    }

    pub(crate) fn check(&self) -> Result<(), Refusal> {
        limits::name("policy_version", &self.decision.policy_version)?;
        limits::count("reasons", self.decision.reasons.len(), limits::WARNINGS)?;
        self.decision.reasons.iter().try_for_each(|reason| limits::text("reasons", reason))?;
        limits::duration("native_window_ms", self.tool.native_window_ms)?;
        limits::duration("consistency_delay_ms", self.tool.consistency_delay_ms)?;
        limits::duration("lookup_interval_ms", self.tool.lookup_interval_ms)?;
        limits::duration("timeout_ms", self.tool.timeout_ms)?;
        limits::duration("approval_ms", self.tool.approval_ms)?;
        self.tool.retry.check()?;
        limits::count("limits", self.limits.len(), limits::LIMITS)?;
        self.limits.iter().try_for_each(Limit::check)?;
        self.estimate.check()
    }
}

/// A side effect to be recorded before it happens: what the caller asked for, with its arguments in canonical form and what
/// policy and configuration say of it now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Intent {
    pub tool: String,
    pub target: String,
    pub step: Option<String>,
    /// Tells apart several effects of one step on one target.
    pub slot: Option<String>,
    pub kind: CommandKind,
    pub arguments: Arguments,
    #[serde(skip)]
    pub evaluation: Evaluation,
}

impl Intent {
    pub fn new(tool: &str, target: &str, arguments: Arguments, evaluation: Evaluation) -> Self {
        Self {
            tool: tool.to_owned(),
            target: target.to_owned(),
            step: None,
            slot: None,
            kind: CommandKind::default(),
            arguments,
            evaluation,
        }
    }

    pub fn key(&self) -> Digest {
        command_key(self.step.as_deref(), &self.tool, &self.target, self.slot.as_deref())
    }

    pub(crate) fn check(&self) -> Result<(), Refusal> {
        limits::name("tool", &self.tool)?;
        limits::reference("target", &self.target)?;
        for (field, name) in [("step", &self.step), ("slot", &self.slot)] {
            name.iter().try_for_each(|name| limits::name(field, name))?;
        }
        self.evaluation.check()
    }
}

/// Where a command is reserved.
#[derive(Clone, Debug, Serialize)]
pub enum ReserveIn {
    /// In a work, by its holder.
    Work(Holder),
    /// In a work of its own, recorded and claimed in the same act.
    OwnWork(Box<Ingest>),
}

/// Who was told to do it. The store has checked the token; the core gets the outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Sender {
    /// The command's work.
    pub work: WorkId,
    /// The fence of the dispatch: the work's lease's, or the relay's own.
    pub fence: u64,
    /// The number of the dispatch that is spoken of. Without it: the last one under that fence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dispatch: Option<u32>,
    pub genuine: bool,
}

/// Who is about to do it.
#[derive(Clone, Debug, Serialize)]
pub enum Dispatcher {
    /// The work's holder.
    Holder(Holder),
    /// The relay: its dispatch is its claim, until its deadline.
    Relay,
}

impl Dispatcher {
    /// Whether it has shown that it holds, or held, the command's work. The relay is the ledger's own.
    pub(crate) fn is_genuine(&self) -> bool {
        match self {
            Dispatcher::Holder(holder) => holder.genuine,
            Dispatcher::Relay => true,
        }
    }
}

#[derive(Clone, Debug, Serialize)]
pub struct DispatchAction {
    pub command: CommandId,
    pub by: Dispatcher,
    pub evaluation: Evaluation,
    /// The same request again is told to go on; another one is not.
    pub request_id: Option<String>,
}

/// Evidence that it happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Proof {
    pub kind: EvidenceKind,
    pub external_id: Option<String>,
    pub reference: Option<String>,
    pub response: Option<Payload>,
    /// The real cost. In a unit that it does not name, `usage` counts; without usage, the estimate.
    pub cost: Option<Cost>,
    /// What the call used, by source and model.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub usage: Vec<Usage>,
    pub evidence: Vec<Evidence>,
}

impl Proof {
    pub fn new(kind: EvidenceKind) -> Self {
        Self {
            kind,
            external_id: None,
            reference: None,
            response: None,
            cost: None,
            usage: Vec::new(),
            evidence: Vec::new(),
        }
    }

    /// By the id that the provider gave it.
    pub fn provider(external_id: &str) -> Self {
        Self { external_id: Some(external_id.to_owned()), ..Self::new(EvidenceKind::Provider) }
    }

    /// `bare` says what to do where there is nothing to show.
    pub(crate) fn check(&self, bare: &str) -> Result<(), Refusal> {
        for (field, text) in [("external_id", &self.external_id), ("evidence.ref", &self.reference)] {
            text.iter().try_for_each(|text| limits::reference(field, text))?;
        }
        if let Some(cost) = &self.cost {
            cost.check()?;
        }
        usage::check(&self.usage)?;
        crate::action::check_evidence(&self.evidence)?;
        if self.external_id.is_none() && self.reference.is_none() && self.response.is_none() {
            return Err(Refusal::new(Code::EvidenceMissing, bare));
        }
        Ok(())
    }

    /// What it cost in a unit, as far as anybody says.
    pub(crate) fn cost_in(&self, unit: &Unit) -> Option<u64> {
        self.cost.as_ref().and_then(|cost| cost.named(unit)).or_else(|| usage::amount(&self.usage, unit))
    }
}

/// Somebody took the lookup of a command. The store has checked the token; the core gets the outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LookupClaim {
    /// Until when others pass it over: another claim has another end.
    pub until: Millis,
    pub genuine: bool,
}

/// What a lookup says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Finding {
    Found(Proof),
    /// It is not there. Counts only after the tool's consistency delay.
    Absent,
    Unknown,
}

/// What a person found out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Recorded {
    Happened(Proof),
    DidNotHappen,
}

/// How often people may replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ReplayLimits {
    pub per_command: u32,
    pub per_work: u32,
    pub per_minute: u32,
}

impl Default for ReplayLimits {
    fn default() -> Self {
        Self { per_command: 3, per_work: 20, per_minute: 60 }
    }
}

#[derive(Clone, Debug, Serialize)]
pub enum CommandAction {
    Reserve {
        place: ReserveIn,
        /// The id that the command gets if it is new. Made anew by each call, so it is not part of the content by which a
        /// repeat is recognised.
        #[serde(skip)]
        id: CommandId,
        intent: Box<Intent>,
    },
    /// Only by a person. `seal`: what that person was shown. `four_eyes`: what is configured for its tool now.
    Approve {
        command: CommandId,
        seal: Digest,
        four_eyes: bool,
        reason: String,
    },
    Reject {
        command: CommandId,
        reason: String,
    },
    Dispatch(Box<DispatchAction>),
    Receipt {
        command: CommandId,
        sender: Sender,
        proof: Box<Proof>,
    },
    /// It did not happen: refused by the provider, or `unsent` for sure.
    Fail {
        command: CommandId,
        sender: Sender,
        error: CallError,
        unsent: bool,
    },
    /// Nobody knows whether it happened.
    Uncertain {
        command: CommandId,
        sender: Sender,
        error: CallError,
    },
    /// By a person, by the reconciler, or by whoever claimed the lookup.
    Reconcile {
        command: CommandId,
        claim: Option<LookupClaim>,
        finding: Box<Finding>,
        message: Option<String>,
    },
    /// Only by a person.
    Replay {
        command: CommandId,
        evaluation: Box<Evaluation>,
        limits: ReplayLimits,
        /// Which minute it counts in: Unix time in minutes.
        minute: i64,
        reason: String,
    },
    /// Only by a person: ends what nothing else can tell.
    Record {
        command: CommandId,
        outcome: Box<Recorded>,
        reason: String,
    },
    /// By an operator, or by the holder of its work.
    Cancel {
        command: CommandId,
        holder: Option<Holder>,
        reason: String,
    },
    /// Something may be due.
    Tick {
        command: CommandId,
    },
    /// Passes over a lookup for a while: somebody is at it.
    TakeLookup {
        command: CommandId,
        for_ms: u64,
    },
}

impl CommandAction {
    /// Its work, where the caller has to know it.
    pub fn work(&self) -> Option<WorkId> {
        match self {
            CommandAction::Receipt { sender, .. }
            | CommandAction::Fail { sender, .. }
            | CommandAction::Uncertain { sender, .. } => Some(sender.work),
            other => other.holder().map(|holder| holder.work),
        }
    }

    /// Who must hold its work for it.
    pub(crate) fn holder(&self) -> Option<&Holder> {
        match self {
            CommandAction::Reserve { place: ReserveIn::Work(holder), .. }
            | CommandAction::Cancel { holder: Some(holder), .. } => Some(holder),
            CommandAction::Dispatch(dispatch) => match &dispatch.by {
                Dispatcher::Holder(holder) => Some(holder),
                Dispatcher::Relay => None,
            },
            CommandAction::Reserve { place: ReserveIn::OwnWork(_), .. }
            | CommandAction::Approve { .. }
            | CommandAction::Reject { .. }
            | CommandAction::Receipt { .. }
            | CommandAction::Fail { .. }
            | CommandAction::Uncertain { .. }
            | CommandAction::Reconcile { .. }
            | CommandAction::Replay { .. }
            | CommandAction::Record { .. }
            | CommandAction::Cancel { holder: None, .. }
            | CommandAction::Tick { .. }
            | CommandAction::TakeLookup { .. } => None,
        }
    }

    /// Who is given a lease by it.
    pub(crate) fn claimant(&self) -> Option<&Claimant> {
        match self {
            CommandAction::Reserve { place: ReserveIn::OwnWork(work), .. } => work.claim.as_ref(),
            _ => None,
        }
    }

    /// Whether whoever asks may be given a lease, or told to go ahead.
    pub(crate) fn hands_out(&self) -> bool {
        matches!(
            self,
            CommandAction::Reserve { place: ReserveIn::OwnWork(_), .. }
                | CommandAction::Dispatch(_)
                | CommandAction::TakeLookup { .. }
        )
    }

    /// The command that is named; none where one is about to be recorded.
    pub fn command(&self) -> Option<CommandId> {
        match self {
            CommandAction::Reserve { .. } => None,
            CommandAction::Dispatch(dispatch) => Some(dispatch.command),
            CommandAction::Approve { command, .. }
            | CommandAction::Reject { command, .. }
            | CommandAction::Receipt { command, .. }
            | CommandAction::Fail { command, .. }
            | CommandAction::Uncertain { command, .. }
            | CommandAction::Reconcile { command, .. }
            | CommandAction::Replay { command, .. }
            | CommandAction::Record { command, .. }
            | CommandAction::Cancel { command, .. }
            | CommandAction::Tick { command }
            | CommandAction::TakeLookup { command, .. } => Some(*command),
        }
    }
}
