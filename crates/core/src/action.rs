//! The inputs of the core: everything that anybody can ask of the ledger.

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
    refusal::{Code, Refusal},
    state::State,
    usage::{self, Usage},
};

/// One action with who asks, for which tenants they may ask, and the randomness it needs.
#[derive(Clone, Debug)]
pub struct Submission {
    pub actor: Actor,
    pub tenants: Tenants,
    pub kinds: Kinds,
    /// The only worker for which the actor may claim, if it is bound to one.
    pub worker: Option<Arc<str>>,
    pub action: Action,
    /// Salts and jitter are derived from it.
    pub seed: [u8; 16],
    /// The digest of the content of a verb that can end an attempt: its repeat is recognised by it.
    pub body_hash: Option<Digest>,
    /// What supports every event that it leads to: the trace of a request, for one. It comes with the way that a
    /// submission took and is no part of what was asked, so a repeat may well have another.
    pub evidence: Vec<Evidence>,
    /// Whether the actor may approve, if it is a person: what its credential says.
    pub approves: bool,
    /// Whether the actor may say that a command happened, if it is a person: what its credential says.
    pub replays: bool,
    /// The last event that the caller has seen of the work: if it moved on since, nothing is done.
    pub if_seq: Option<u64>,
    /// Only what would happen is asked for: nothing is written.
    pub dry_run: bool,
    /// Why it may not add a work. What is there already is answered all the same.
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

    /// Whether it may add a work.
    pub(crate) fn room(&self) -> Result<(), Refusal> {
        self.no_room.clone().map_or(Ok(()), Err)
    }

    /// Whether it can be decided at all, whatever is stored. A token or a licence to act that was never recorded
    /// could be taken for one that was, so that what hands one out has no dry run.
    pub fn check(&self) -> Result<(), Refusal> {
        if self.dry_run && self.action.hands_out() {
            let detail = "What claims or dispatches has no dry run: the lease would be nobody's. \
                          Leave the claim out, or do it and release it.";
            return Err(Refusal::new(Code::Unsupported, detail));
        }
        if let (Some(bound), Some(claimant)) = (self.worker.as_deref(), self.action.claimant())
            && claimant.worker.id != bound
        {
            let detail = format!("This credential claims for worker {bound} only. Give that as `worker.id`.");
            return Err(Refusal::new(Code::Forbidden, detail));
        }
        limits::name("actor.id", &self.actor.id)?;
        self.actor.name.as_deref().map_or(Ok(()), |name| limits::name("actor.name", name))
    }

    /// Whether the actor may touch a work. One that it may not does not exist for it.
    pub fn reaches(&self, spec: &Spec) -> bool {
        self.tenants.allow(&spec.tenant) && self.kinds.allow(&spec.kind)
    }

    /// An agent must never approve its own doing, so only people do.
    pub fn may_approve(&self) -> bool {
        self.actor.kind == ActorKind::Person && self.approves
    }
}

/// Every name, or only these.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Names {
    #[default]
    All,
    Only(Vec<String>),
}

/// The tenants that a caller may touch. What lies outside does not exist for it.
pub type Tenants = Names;

/// The kinds of work that a caller may touch. What lies outside does not exist for it.
pub type Kinds = Names;

impl Names {
    pub fn allow(&self, name: &str) -> bool {
        match self {
            Names::All => true,
            Names::Only(list) => list.iter().any(|own| own == name),
        }
    }

    /// Whether all of the others are among these.
    pub fn cover(&self, others: &Names) -> bool {
        match (self, others) {
            (Names::All, _) => true,
            (Names::Only(_), Names::All) => false,
            (own, Names::Only(list)) => list.iter().all(|name| own.allow(name)),
        }
    }

    /// The same text for the same names, in whatever order they are listed.
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

    /// Those asked for, as far as they are among these; all of these where nothing is asked for.
    pub fn narrowed(&self, asked: Option<&Names>) -> Names {
        match asked {
            None | Some(Names::All) => self.clone(),
            Some(Names::Only(list)) => {
                Names::Only(list.iter().filter(|name| self.allow(name)).cloned().collect())
            }
        }
    }
}

/// The proof that a holder's verb carries. The store has checked the token; the core gets the outcome.
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
    /// The people who asked for it before, besides the actor: those behind a schedule.
    pub asked_by: Vec<Arc<str>>,
    pub claim: Option<Claimant>,
    /// Detached work that is over: recorded, never running. Only for externally owned work.
    pub born: Option<CloseOut>,
}

/// Who claims, and under which request.
#[derive(Clone, Debug, Serialize)]
pub struct Claimant {
    pub worker: Worker,
    pub request_id: String,
    /// Owner-bound work is started by its first verb, not by the claim.
    pub defer_start: bool,
}

impl Claimant {
    pub fn new(worker: Worker, request_id: &str) -> Self {
        Self { worker, request_id: request_id.to_owned(), defer_start: false }
    }

    /// The key under which a repeat of this request is found. A repeat returns leases with their tokens, so it must
    /// come from the same actor within the same tenants: anybody may send another's worker and request ids.
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
    /// All of these or none.
    Ids(Vec<WorkId>),
    /// What the store selected for a filter: each is taken if it is still claimable.
    Chosen(Vec<WorkId>),
}

/// Which works a claimer wants. Empty lists do not restrict.
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
    /// Made anew by each call, so no part of the content by which a repeat is recognised.
    #[serde(skip)]
    pub id: WaitId,
    pub kind: WaitKind,
    pub reference: String,
    pub prompt: Option<String>,
    pub assignee: Option<String>,
    /// None: the kind's default, unless `endless`.
    pub timeout_ms: Option<u64>,
    pub endless: bool,
    pub on_timeout: OnTimeout,
    pub default: Option<Payload>,
    pub schema: Option<Payload>,
    /// A dispatched command that is handed to the wait: the answer is its receipt.
    pub command: Option<CommandId>,
    /// What the door found of the answer that is kept for it. No part of what was asked.
    #[serde(skip)]
    pub judged: Option<Judged>,
}

/// An early answer, held against the schema of the wait that is to be opened.
#[derive(Clone, Debug)]
pub struct Judged {
    pub answer: Digest,
    /// Why it does not fit.
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

/// Which wait an answer is for.
#[derive(Clone, Debug, Serialize)]
pub enum Target {
    /// Every open wait of this tenant with this reference.
    Reference { tenant: String, reference: String },
    /// One wait, by a person or by its token. An approval needs the seal of what was shown.
    Wait { id: WaitId, token: TokenCheck, seal: Option<Digest> },
}

/// What the store found of the token that came with an answer.
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
    /// An `auth` failure may ask to wait for a reconnect instead of counting as a failure.
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
    /// The outbox: what the relay does once this end is committed, each under the id that it gets if it is new. The ids
    /// are made anew by each call, so they are not part of the content by which a repeat is recognised.
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
    /// The owner of owner-bound work gives it up: nobody can know how it ended.
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
    /// Asks the holder to hand the work back, so that another worker goes on with it.
    RequestRelease {
        work: WorkId,
        reason: String,
    },
    RequestAbandon {
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
        /// The keys of commands that are to be executed again.
        execute: Vec<Digest>,
        reason: String,
    },
    /// Ends a work's open waits without an answer; its worker goes on and sees them cancelled.
    RevokeWaits {
        work: WorkId,
        reason: String,
    },

    Tick {
        work: WorkId,
        /// The store's time when the sweeper looked: leases are judged as they stood then.
        looked_at: Millis,
        watched_ms: u64,
        sighting: Option<Sighting>,
    },

    Command(Box<CommandAction>),
}

impl Action {
    /// Whether whoever asks may be given a lease, or told to go ahead.
    fn hands_out(&self) -> bool {
        match self {
            Action::Claim(_) => true,
            Action::Ingest(ingest) => ingest.claim.is_some(),
            Action::Resolve(resolve) => resolve.claim.is_some(),
            Action::Command(action) => action.hands_out(),
            _ => false,
        }
    }

    /// Who is given a lease by it.
    fn claimant(&self) -> Option<&Claimant> {
        match self {
            Action::Claim(claim) => Some(&claim.claimant),
            Action::Ingest(ingest) => ingest.claim.as_ref(),
            Action::Resolve(resolve) => resolve.claim.as_ref(),
            Action::Command(action) => action.claimant(),
            _ => None,
        }
    }

    /// The waits that it is about to open: the door looks at what is kept for them.
    pub fn opens_mut(&mut self) -> &mut [WaitSpec] {
        match self {
            Action::Wait(wait) => &mut wait.waits,
            Action::Fail(fail) => fail.wait.as_mut_slice(),
            _ => &mut [],
        }
    }

    /// Whether it is a holder's verb after which its attempt may be over.
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
            | Action::RetryNow { .. }
            | Action::Quarantine { .. }
            | Action::Decide { .. }
            | Action::Rerun { .. }
            | Action::RevokeWaits { .. }
            | Action::Tick { .. }
            | Action::Command(_) => false,
        }
    }
}

impl CloseOut {
    /// An end that says nothing yet but how; a success needs its proof as well.
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

    /// A success, with its result as the proof.
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
                "`commands` go with the close-out of a work's holder only. Leave them out.",
            ));
        }
        self.check()
    }

    pub fn check(&self) -> Result<(), Refusal> {
        if !self.state.is_terminal() {
            return Err(Refusal::new(
                Code::Invalid,
                format!(
                    "`{}` is not an end. Close out as succeeded, completed_with_warnings, failed, timed_out, \
                     cancelled or abandoned; to pause, use `wait`.",
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
                "Give one of `result`, `result_ref` and `no_output`, not several.",
            ));
        }
        if self.state.is_success() && outputs == 0 {
            return Err(Refusal::new(
                Code::ResultMissing,
                "A success needs proof: give `result` or `result_ref`, or say `no_output: true`.",
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
                "A cancelled work sends nothing. Leave `commands` out, or close out with the state that it has reached.",
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
