//! The actions on commands. The server has validated the arguments and evaluated policy; the evaluation is
//! part of the action, and the core refuses one that is out of date.

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

/// The evaluator's result for a command at this moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Evaluation {
    pub decision: PolicyDecision,
    pub tool: ToolFacts,
    /// The budgets that apply; used at dispatch only.
    pub limits: Vec<Limit>,
    /// The expected cost of the call. Stored when it is reserved, counted when it is dispatched.
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

/// A side effect to be recorded before it happens: the request, its arguments in canonical form, and the
/// current settings and policy decision for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Intent {
    pub tool: String,
    pub target: String,
    pub step: Option<String>,
    /// Distinguishes several effects of one step on one target.
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

/// The work item in which a command is reserved.
#[derive(Clone, Debug, Serialize)]
pub enum ReserveIn {
    /// An existing one, by its holder.
    Work(Holder),
    /// One of its own, recorded and claimed in the same transaction.
    OwnWork(Box<Ingest>),
}

/// The caller that dispatched the command. The store has checked the token; the core gets the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Sender {
    /// The command's work item.
    pub work: WorkId,
    /// The fence of the dispatch: that of the work item's lease, or the relay's own.
    pub fence: u64,
    /// The number of the dispatch being reported. Without it: the last one under that fence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dispatch: Option<u32>,
    pub genuine: bool,
}

/// The caller that asks to dispatch.
#[derive(Clone, Debug, Serialize)]
pub enum Dispatcher {
    /// The work item's holder.
    Holder(Holder),
    /// The relay: its dispatch is its claim, until its deadline.
    Relay,
}

impl Dispatcher {
    /// Whether it has proven that it holds, or held, the command's work item. The relay is part of the
    /// ledger.
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
    /// A repeat with the same request id is permitted again; any other repeat is not.
    pub request_id: Option<String>,
}

/// Evidence that the effect happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Proof {
    pub kind: EvidenceKind,
    pub external_id: Option<String>,
    pub reference: Option<String>,
    pub response: Option<Payload>,
    /// The actual cost. For a unit that it does not name, `usage` counts; without usage, the estimate.
    pub cost: Option<Cost>,
    /// The usage of the call, by source and model.
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

    /// Evidence by the provider's id.
    pub fn provider(external_id: &str) -> Self {
        Self { external_id: Some(external_id.to_owned()), ..Self::new(EvidenceKind::Provider) }
    }

    /// `bare` is the refusal for missing evidence.
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

    /// Its cost in a unit, as far as it is known.
    pub(crate) fn cost_in(&self, unit: &Unit) -> Option<u64> {
        self.cost.as_ref().and_then(|cost| cost.named(unit)).or_else(|| usage::amount(&self.usage, unit))
    }
}

/// The claim of a command's lookup. The store has checked the token; the core gets the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LookupClaim {
    /// Until when other callers do not get the lookup; it also identifies the claim, because another claim
    /// has another end.
    pub until: Millis,
    pub genuine: bool,
}

/// The outcome of a lookup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Finding {
    Found(Proof),
    /// The effect does not exist. Counts only after the tool's consistency delay.
    Absent,
    Unknown,
}

/// The outcome that a person found out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Recorded {
    Happened(Proof),
    DidNotHappen,
}

/// How many replays people may make.
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
        /// The id that the command gets if it is new. Generated anew for each call, so it is not part of the
        /// content by which a repeat is recognized.
        #[serde(skip)]
        id: CommandId,
        intent: Box<Intent>,
    },
    /// Only by a person. `seal`: of the content that the person was shown. `four_eyes`: the tool's current
    /// setting.
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
    /// The effect did not happen: the provider refused it, or the call was certainly not made (`unsent`).
    Fail {
        command: CommandId,
        sender: Sender,
        error: CallError,
        unsent: bool,
    },
    /// It is unknown whether the effect happened.
    Uncertain {
        command: CommandId,
        sender: Sender,
        error: CallError,
    },
    /// By a person, by the reconciler, or by the worker that claimed the lookup.
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
        /// The minute in which it is counted, as Unix time in minutes.
        minute: i64,
        reason: String,
    },
    /// Only by a person: settles a command when nothing else can.
    Record {
        command: CommandId,
        outcome: Box<Recorded>,
        reason: String,
    },
    /// By an operator, or by the holder of its work item.
    Cancel {
        command: CommandId,
        holder: Option<Holder>,
        reason: String,
    },
    /// Something may be due.
    Tick {
        command: CommandId,
    },
    /// Reserves a lookup for a while: other callers do not get it.
    TakeLookup {
        command: CommandId,
        for_ms: u64,
    },
}

impl CommandAction {
    /// Its work item, if the action names it.
    pub fn work(&self) -> Option<WorkId> {
        match self {
            CommandAction::Receipt { sender, .. }
            | CommandAction::Fail { sender, .. }
            | CommandAction::Uncertain { sender, .. } => Some(sender.work),
            other => other.holder().map(|holder| holder.work),
        }
    }

    /// The holder on whose behalf it is made.
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

    /// The worker that it grants a lease to.
    pub(crate) fn claimant(&self) -> Option<&Claimant> {
        match self {
            CommandAction::Reserve { place: ReserveIn::OwnWork(work), .. } => work.claim.as_ref(),
            _ => None,
        }
    }

    /// Whether it grants the caller a lease or the permission to make a call.
    pub(crate) fn grants(&self) -> bool {
        matches!(
            self,
            CommandAction::Reserve { place: ReserveIn::OwnWork(_), .. }
                | CommandAction::Dispatch(_)
                | CommandAction::TakeLookup { .. }
        )
    }

    /// The command that it names; none if one is about to be recorded.
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
