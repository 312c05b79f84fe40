//! The inputs of the core: every action that callers, sweepers and the relay can submit.

use std::sync::Arc;

use serde::{Serialize, Serializer};

use crate::{
    Millis,
    command::{CommandAction, Intent},
    event::{Actor, ActorKind, Evidence},
    ids::{CommandId, WaitId, WorkId},
    limits,
    liveness::Sighting,
    model::{
        AcceptStrength, Disposition, ErrorClass, OnParentClose, OnTimeout, RequestKey, Source, Spec,
        WaitKind, Worker, Workflow,
    },
    payload::{Digest, Payload},
    policy::WorkPolicy,
    recovery::{Instead, Verdict},
    refusal::{Code, Refusal},
    state::State,
    usage::{self, Usage},
};

/// One action with its actor, the tenants that the actor may access, and the randomness that the decision
/// needs.
#[derive(Clone, Debug)]
pub struct Submission {
    pub actor: Actor,
    pub tenants: Tenants,
    pub kinds: Kinds,
    /// The only worker for which the actor may claim, if its credential is bound to one.
    pub worker: Option<Arc<str>>,
    pub action: Action,
    /// Salts and jitter are derived from it.
    pub seed: [u8; 16],
    /// The digest of the request body of a verb that can end an attempt; a repeat is recognized by it.
    pub body_hash: Option<Digest>,
    /// Evidence for every event that the action causes, for example the trace of the request. It depends on
    /// how the submission arrived and is not part of its content, so a repeat may have different evidence.
    pub evidence: Vec<Evidence>,
    /// Whether the actor's credential allows approvals, if the actor is a person.
    pub approves: bool,
    /// Whether the actor's credential allows recording that a command happened, if the actor is a person.
    pub replays: bool,
    /// The last event of the work item that the caller has seen: the action is refused if there is a later
    /// one.
    pub if_seq: Option<u64>,
    /// A dry run: the decision is made and nothing is written.
    pub dry_run: bool,
    /// Why the actor may not add a work item. An action that adds none, such as a repeat, is still answered.
    pub no_room: Option<Refusal>,
}

impl Submission {
    pub fn new(actor: Actor, tenants: Tenants, action: Action, seed: [u8; 16]) -> Self {
        let body_hash = action.ends_attempt().then(|| {
            let body = serde_json::to_vec(&action).expect("actions are plain structs with string keys");
            Digest::of(body)
        });
        Self {
            actor,
            tenants,
            kinds: Kinds::All,
            worker: None,
            action,
            seed,
            body_hash,
            evidence: Vec::new(),
            approves: true,
            replays: true,
            if_seq: None,
            dry_run: false,
            no_room: None,
        }
    }

    /// Whether it may add a work item.
    pub(crate) fn room(&self) -> Result<(), Refusal> {
        self.no_room.clone().map_or(Ok(()), Err)
    }

    /// Whether it can be decided at all, independently of the stored records. An action that grants something
    /// has no dry run: a token or permission that was never recorded could be mistaken for a real one.
    pub fn check(&self) -> Result<(), Refusal> {
        if self.dry_run && self.action.grants() {
            let detail = "Calls that claim or dispatch cannot be dry-run, because they grant a lease or a \
             permission. Leave the claim out, or run it for real and release it.";
            return Err(Refusal::new(Code::Unsupported, detail));
        }
        if let (Some(bound), Some(claimant)) = (self.worker.as_deref(), self.action.claimant())
            && claimant.worker.id != bound
        {
            let detail =
                format!("This credential may claim only as worker {bound}. Give that as `worker.id`.");
            return Err(Refusal::new(Code::Forbidden, detail));
        }
        limits::name("actor.id", &self.actor.id)?;
        self.actor.name.as_deref().map_or(Ok(()), |name| limits::name("actor.name", name))
    }

    /// Whether the actor may access a work item. If not, it does not exist for the actor.
    pub fn reaches(&self, spec: &Spec) -> bool {
        self.tenants.allow(&spec.tenant) && self.kinds.allow(&spec.kind)
    }

    /// Only people approve: an agent must never approve its own actions.
    pub fn may_approve(&self) -> bool {
        self.actor.kind == ActorKind::Person && self.approves
    }
}

/// Every name, or only the listed ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Names {
    #[default]
    All,
    Only(Vec<String>),
}

/// The tenants that a caller may access. Others do not exist for it.
pub type Tenants = Names;

/// The kinds of work that a caller may access. Others do not exist for it.
pub type Kinds = Names;

impl Names {
    pub fn allow(&self, name: &str) -> bool {
        match self {
            Names::All => true,
            Names::Only(list) => list.iter().any(|own| own == name),
        }
    }

    /// Whether it includes all of the others.
    pub fn cover(&self, others: &Names) -> bool {
        match (self, others) {
            (Names::All, _) => true,
            (Names::Only(_), Names::All) => false,
            (own, Names::Only(list)) => list.iter().all(|name| own.allow(name)),
        }
    }

    /// The same text for the same names, in any order.
    fn text(&self) -> String {
        match self {
            Names::All => String::new(),
            Names::Only(list) => {
                let mut names: Vec<&str> = list.iter().map(String::as_str).collect();
                names.sort_unstable();
                format!("{}\u{1}", names.join("\u{1}"))
            }
        }
    }

    /// The requested names, as far as they are included; all of these if none are requested.
    pub fn narrowed(&self, asked: Option<&Names>) -> Names {
        match asked {
            None | Some(Names::All) => self.clone(),
            Some(Names::Only(list)) => {
                Names::Only(list.iter().filter(|name| self.allow(name)).cloned().collect())
            }
        }
    }
}

/// The lease that authorizes a holder's verb. The store has checked the token; the core gets the result.
#[derive(Clone, Debug, Serialize)]
pub struct Holder {
    pub work: WorkId,
    pub fence: u64,
    pub genuine: bool,
}

#[derive(Clone, Debug, Serialize)]
pub struct Ingest {
    pub id: WorkId,
    pub tenant: String,
    pub source: Source,
    pub kind: String,
    /// One line for people.
    pub title: Option<String>,
    pub disposition: Disposition,
    pub input: Payload,
    pub priority: i16,
    pub session: Option<String>,
    pub correlation_id: Option<String>,
    pub workflow: Option<Workflow>,
    pub parent: Option<WorkId>,
    pub on_parent_close: OnParentClose,
    pub policy: WorkPolicy,
    pub evidence: Vec<Evidence>,
    /// The people who requested it, besides the actor: those who set up the schedule.
    pub asked_by: Vec<Arc<str>>,
    pub claim: Option<Claimant>,
    /// Detached work that is over already: recorded, never run. Only for externally owned work.
    pub born: Option<CloseOut>,
}

/// The claiming worker, and its request id.
#[derive(Clone, Debug, Serialize)]
pub struct Claimant {
    pub worker: Worker,
    pub request_id: String,
    /// Owner-bound work is started by the holder's first verb instead of the claim.
    pub defer_start: bool,
}

impl Claimant {
    pub fn new(worker: Worker, request_id: &str) -> Self {
        Self { worker, request_id: request_id.to_owned(), defer_start: false }
    }

    /// The key under which a repeat of this request is found. A repeat returns leases with their tokens, so
    /// it must come from the same actor within the same tenants: any caller may send another's worker and
    /// request ids.
    pub fn key(&self, submission: &Submission) -> RequestKey {
        let Submission { actor, tenants, .. } = submission;
        let Worker { id, incarnation, .. } = &self.worker;
        RequestKey::new(&[&tenants.text(), &actor.id, id, incarnation, &self.request_id])
    }

    pub fn check(&self) -> Result<(), Refusal> {
        limits::name("worker.id", &self.worker.id)?;
        limits::name("worker.incarnation", &self.worker.incarnation)?;
        limits::name("request_id", &self.request_id)?;
        if let crate::liveness::Liveness::LocalProcess { boot_id, .. } = &self.worker.liveness {
            limits::name("worker.liveness.boot_id", boot_id)?;
        }
        Ok(())
    }
}

#[derive(Clone, Debug, Serialize)]
pub struct Claim {
    pub claimant: Claimant,
    pub by: ClaimBy,
}

#[derive(Clone, Debug, Serialize)]
pub enum ClaimBy {
    Filter(ClaimFilter),
    /// All of these work items or none.
    Ids(Vec<WorkId>),
    /// The work items that the store selected for a filter: each is claimed if it is still claimable.
    Chosen(Vec<WorkId>),
}

/// The work items that a claimer accepts. Empty lists do not restrict.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize)]
pub struct ClaimFilter {
    pub sources: Vec<String>,
    pub kinds: Vec<String>,
    pub tenants: Vec<String>,
    pub max: usize,
}

#[derive(Clone, Debug, Serialize)]
pub struct Renew {
    pub holder: Holder,
    pub progress: Option<Payload>,
}

#[derive(Clone, Debug, Serialize)]
pub enum StepVerb {
    Begin {
        /// Voids this step and every later one.
        restart: bool,
    },
    Complete {
        result: Payload,
    },
}

#[derive(Clone, Debug, Serialize)]
pub struct StepAction {
    pub holder: Holder,
    pub step: String,
    pub input_hash: Digest,
    pub verb: StepVerb,
}

#[derive(Clone, Debug, Serialize)]
pub struct WaitSpec {
    /// Generated anew for each call, so not part of the content by which a repeat is recognized.
    #[serde(skip)]
    pub id: WaitId,
    pub kind: WaitKind,
    pub reference: String,
    pub prompt: Option<String>,
    pub assignee: Option<String>,
    /// None: the default of the kind, unless `endless`.
    pub timeout_ms: Option<u64>,
    pub endless: bool,
    pub on_timeout: OnTimeout,
    pub default: Option<Payload>,
    pub schema: Option<Payload>,
    /// A dispatched command that is handed over to the wait: the answer is its receipt.
    pub command: Option<CommandId>,
    /// The server's check of the early answer, if one is stored. Not part of the request.
    #[serde(skip)]
    pub judged: Option<Judged>,
}

/// An early answer, checked against the schema of the wait that is to be opened.
#[derive(Clone, Debug)]
pub struct Judged {
    pub answer: Digest,
    /// Why it does not match.
    pub fault: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
pub struct WaitAction {
    pub holder: Holder,
    pub waits: Vec<WaitSpec>,
    pub message: Option<String>,
    pub tool: Option<String>,
    pub usage: Vec<Usage>,
}

/// The wait that an answer is for.
#[derive(Clone, Debug, Serialize)]
pub enum Target {
    /// Every open wait of this tenant with this reference.
    Reference { tenant: String, reference: String },
    /// One wait, by a person or by its token. An approval must carry the seal of what the person was shown.
    Wait { id: WaitId, token: TokenCheck, seal: Option<Digest> },
}

/// The store's check of the token that came with an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum TokenCheck {
    Absent,
    Genuine,
    Wrong,
}

#[derive(Clone, Debug, Serialize)]
pub struct Resolve {
    pub target: Target,
    pub payload: Payload,
    pub claim: Option<Claimant>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Failure {
    pub class: ErrorClass,
    pub message: String,
    pub retry_after_ms: Option<u64>,
    pub fingerprint: Option<String>,
}

impl Failure {
    pub fn new(class: ErrorClass, message: &str) -> Self {
        Self { class, message: message.to_owned(), retry_after_ms: None, fingerprint: None }
    }
}

#[derive(Clone, Debug, Serialize)]
pub struct Fail {
    pub holder: Holder,
    pub error: Failure,
    /// For an `auth` failure: wait for the account to be reconnected instead of counting a failure.
    pub wait: Option<WaitSpec>,
    pub usage: Vec<Usage>,
}

/// A declared end.
#[derive(Clone, Debug, Serialize)]
pub struct CloseOut {
    pub state: State,
    pub result: Option<Payload>,
    pub result_ref: Option<String>,
    pub no_output: bool,
    pub warnings: Vec<String>,
    pub error: Option<(ErrorClass, String)>,
    pub evidence: Vec<Evidence>,
    /// The outbox: side effects that the relay executes once this end is committed, each with the id that it
    /// gets if it is new. The ids are generated anew for each call, so they are not part of the content by
    /// which a repeat is recognized.
    #[serde(serialize_with = "intents")]
    pub commands: Vec<(CommandId, Intent)>,
    pub usage: Vec<Usage>,
}

fn intents<S: Serializer>(commands: &[(CommandId, Intent)], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(commands.iter().map(|(_, intent)| intent))
}

#[derive(Clone, Debug, Serialize)]
pub enum Decide {
    Requeue,
    Close(Box<CloseOut>),
}

/// One row of a recovery plan that a person has carried out: exactly what the plan says, or nothing.
#[derive(Clone, Debug, Serialize)]
pub struct Recover {
    pub work: WorkId,
    /// The plan.
    pub plan: String,
    /// The row of the plan: the last event of the work item, the verdict, and the state that follows.
    pub seq: u64,
    pub verdict: Option<Verdict>,
    pub to: State,
    /// The action that replaces the verdict.
    pub instead: Option<Instead>,
    pub sighting: Option<Sighting>,
    pub reason: String,
}

/// Every action. The first group is the holder's, the second everybody's, the third the operators'.
#[derive(Clone, Debug, Serialize)]
pub enum Action {
    Renew(Vec<Renew>),
    Accept {
        holder: Holder,
        strength: AcceptStrength,
    },
    Progress {
        holder: Holder,
        progress: Payload,
        request_id: Option<String>,
    },
    Step(StepAction),
    Wait(WaitAction),
    Fail(Fail),
    Release {
        holder: Holder,
        message: Option<String>,
        usage: Vec<Usage>,
    },
    CloseOut {
        holder: Holder,
        close: CloseOut,
    },
    /// The owner of owner-bound work gives it up: its outcome cannot be known.
    AbandonOwn {
        holder: Holder,
        reason: String,
        usage: Vec<Usage>,
    },

    Ingest(Box<Ingest>),
    Claim(Claim),
    Resolve(Resolve),
    Complete {
        work: WorkId,
        genuine: bool,
        close: CloseOut,
    },

    Cancel {
        work: WorkId,
        reason: String,
        deadline_ms: Option<u64>,
    },
    /// Asks the holder to release the work item, so that another worker can continue it.
    RequestRelease {
        work: WorkId,
        reason: String,
    },
    RequestAbandon {
        work: WorkId,
        reason: String,
    },
    /// Erases the content of an ended work item.
    Erase {
        work: WorkId,
        reason: String,
    },
    RetryNow {
        work: WorkId,
        reason: String,
    },
    Quarantine {
        work: WorkId,
        reason: String,
    },
    Decide {
        work: WorkId,
        reason: String,
        decision: Decide,
    },
    Rerun {
        of: WorkId,
        id: WorkId,
        from_step: Option<String>,
        /// The keys of the commands to execute again.
        execute: Vec<Digest>,
        reason: String,
    },
    /// Ends the open waits of a work item without an answer; its worker continues and sees them as cancelled.
    RevokeWaits {
        work: WorkId,
        reason: String,
    },

    Recover(Box<Recover>),

    Tick {
        work: WorkId,
        /// The store's time when the sweeper looked: leases are judged as of then.
        looked_at: Millis,
        watched_ms: u64,
        sighting: Option<Sighting>,
    },

    Command(Box<CommandAction>),
}

impl Action {
    /// Whether it grants the caller a lease or the permission to make a call.
    fn grants(&self) -> bool {
        match self {
            Action::Claim(_) => true,
            Action::Ingest(ingest) => ingest.claim.is_some(),
            Action::Resolve(resolve) => resolve.claim.is_some(),
            Action::Command(action) => action.grants(),
            _ => false,
        }
    }

    /// The worker that it grants a lease to.
    fn claimant(&self) -> Option<&Claimant> {
        match self {
            Action::Claim(claim) => Some(&claim.claimant),
            Action::Ingest(ingest) => ingest.claim.as_ref(),
            Action::Resolve(resolve) => resolve.claim.as_ref(),
            Action::Command(action) => action.claimant(),
            _ => None,
        }
    }

    /// The waits that it is about to open: the server checks the early answers for them.
    pub fn opens_mut(&mut self) -> &mut [WaitSpec] {
        match self {
            Action::Wait(wait) => &mut wait.waits,
            Action::Fail(fail) => fail.wait.as_mut_slice(),
            _ => &mut [],
        }
    }

    /// Whether it is a holder's verb after which the attempt may be over.
    fn ends_attempt(&self) -> bool {
        match self {
            Action::Wait(_)
            | Action::Fail(_)
            | Action::Release { .. }
            | Action::CloseOut { .. }
            | Action::AbandonOwn { .. } => true,
            Action::Renew(_)
            | Action::Accept { .. }
            | Action::Progress { .. }
            | Action::Step(_)
            | Action::Ingest(_)
            | Action::Claim(_)
            | Action::Resolve(_)
            | Action::Complete { .. }
            | Action::Cancel { .. }
            | Action::RequestAbandon { .. }
            | Action::RequestRelease { .. }
            | Action::Erase { .. }
            | Action::RetryNow { .. }
            | Action::Quarantine { .. }
            | Action::Decide { .. }
            | Action::Rerun { .. }
            | Action::RevokeWaits { .. }
            | Action::Recover(_)
            | Action::Tick { .. }
            | Action::Command(_) => false,
        }
    }
}

impl CloseOut {
    /// An end in this state without further fields; a success also needs its result.
    pub fn new(state: State) -> Self {
        Self {
            state,
            result: None,
            result_ref: None,
            no_output: false,
            warnings: Vec::new(),
            error: None,
            evidence: Vec::new(),
            commands: Vec::new(),
            usage: Vec::new(),
        }
    }

    /// A success with its result.
    pub fn succeeded(result: Payload) -> Self {
        Self { result: Some(result), ..Self::new(State::Succeeded) }
    }

    pub fn failed(class: ErrorClass, message: &str) -> Self {
        Self { error: Some((class, message.to_owned())), ..Self::new(State::Failed) }
    }

    /// Only a holder's close-out has an outbox.
    pub(crate) fn check_without_commands(&self) -> Result<(), Refusal> {
        if !self.commands.is_empty() {
            return Err(Refusal::new(
                Code::Invalid,
                "`commands` are accepted only in the close-out by the holder of the work item. Leave them out.",
            ));
        }
        self.check()
    }

    pub fn check(&self) -> Result<(), Refusal> {
        if !self.state.is_terminal() {
            return Err(Refusal::new(
                Code::Invalid,
                format!(
                    "`{}` is not a terminal state. Close out as succeeded, completed_with_warnings, failed, \
                     timed_out, cancelled or abandoned; to pause, use `wait`.",
                    self.state
                ),
            ));
        }
        let outputs = usize::from(self.result.is_some())
            + usize::from(self.result_ref.is_some())
            + usize::from(self.no_output);
        if outputs > 1 {
            return Err(Refusal::new(
                Code::Invalid,
                "Give only one of `result`, `result_ref` and `no_output`.",
            ));
        }
        if self.state.is_success() && outputs == 0 {
            return Err(Refusal::new(
                Code::ResultMissing,
                "A success needs a result: give `result` or `result_ref`, or set `no_output: true`.",
            ));
        }
        if self.state == State::CompletedWithWarnings && self.warnings.is_empty() {
            return Err(Refusal::new(
                Code::Invalid,
                "`completed_with_warnings` needs at least one entry in `warnings`.",
            ));
        }
        if let Some(reference) = &self.result_ref {
            limits::reference("result_ref", reference)?;
        }
        limits::count("warnings", self.warnings.len(), limits::WARNINGS)?;
        self.warnings.iter().try_for_each(|w| limits::text("warnings", w))?;
        if let Some((_, message)) = &self.error {
            limits::text("error.message", message)?;
        }
        if self.state == State::Cancelled && !self.commands.is_empty() {
            return Err(Refusal::new(
                Code::Invalid,
                "A cancelled work item has no side effects. Leave `commands` out, or close out with the \
                 state that it has reached.",
            ));
        }
        limits::count("commands", self.commands.len(), limits::OUTBOX)?;
        self.commands.iter().try_for_each(|(_, intent)| intent.check())?;
        usage::check(&self.usage)?;
        check_evidence(&self.evidence)
    }
}

pub fn check_evidence(evidence: &[Evidence]) -> Result<(), Refusal> {
    limits::count("evidence", evidence.len(), limits::EVIDENCE)?;
    evidence.iter().try_for_each(|e| {
        limits::name("evidence.kind", &e.kind)?;
        limits::reference("evidence.ref", &e.reference)
    })
}
