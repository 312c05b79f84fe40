//! A world in memory: every record, every event, and a clock that only tests move. Each submission is decided
//! over all records and over its load set alone, and every invariant is checked after it.

mod check;
mod commands;
mod load;

pub use commands::*;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;
use tenure_core::{
    Action, Actor, Decision, Event, Fact, Millis, Payload, Records, Refusal, Reply, State, Submission,
    WaitId, Work, WorkId,
    action::{
        Claim, ClaimBy, Claimant, CloseOut, Decide, Fail, Failure, Holder, Ingest, Renew, Resolve,
        StepAction, StepVerb, Target, Tenants, TokenCheck, WaitAction, WaitSpec,
    },
    decide,
    liveness::{Liveness, Seen, Sighting},
    model::{
        AcceptStrength, Disposition, ErrorClass, OnParentClose, OnTimeout, Source, WaitKind, WaitState,
        Worker,
    },
    payload::Digest,
    policy::{Jitter, RetryPolicy, Timeouts, WorkPolicy},
    records::{Change, SessionView},
    reply::{Ack, Grant, Renewed, Ticked},
};
use uuid::Uuid;

/// The time at which every world begins.
pub const START: Millis = 1_800_000_000_000;
pub const SECOND: Millis = 1_000;
pub const HOUR: Millis = 3_600_000;
/// Default lease: ttl and grace together.
pub const LAPSE: Millis = 75 * SECOND;
pub const TENANT: &str = "acme";

#[derive(Clone)]
pub struct World {
    pub records: Records,
    pub log: BTreeMap<WorkId, Vec<Event>>,
    /// Attempts by work and fence, and whether they have ended.
    pub attempts: BTreeMap<(WorkId, u64), bool>,
    pub now: Millis,
    /// Whether a person's credential allows recording that a command happened.
    pub replays: bool,
    made: u128,
}

/// How a row of a table creates its work item.
pub type Prepare = fn(&mut World) -> WorkId;
pub type Verb = fn(&mut World, &Lease);

/// A lease as a worker remembers it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    pub work: WorkId,
    pub fence: u64,
    pub worker: String,
}

impl Lease {
    pub fn holder(&self) -> Holder {
        Holder { work: self.work, fence: self.fence, genuine: true }
    }
}

impl Default for World {
    fn default() -> Self {
        Self {
            records: Records::default(),
            log: BTreeMap::new(),
            attempts: BTreeMap::new(),
            now: START,
            replays: true,
            made: 0,
        }
    }
}

impl World {
    pub fn pass(&mut self, ms: Millis) {
        self.now += ms;
    }

    fn next(&mut self) -> u128 {
        self.made += 1;
        self.made
    }

    pub fn work_id(&mut self) -> WorkId {
        WorkId(Uuid::from_u128(self.next()))
    }

    pub fn wait_id(&mut self) -> WaitId {
        WaitId(Uuid::from_u128(self.next()))
    }

    /// Submits as `actor`, who may access everything.
    pub fn submit(&mut self, actor: Actor, action: Action) -> Result<Reply, Refusal> {
        self.submit_for(actor, Tenants::All, action)
    }

    pub fn submit_for(&mut self, actor: Actor, tenants: Tenants, action: Action) -> Result<Reply, Refusal> {
        self.look_at_sessions();
        self.look_at_commands();
        let mut submission = Submission::new(actor, tenants, action, self.seed());
        submission.replays = self.replays;
        let outcome = decide(&self.records, &submission, self.now);
        load::load_set_suffices(&self.records, &submission, self.now, &outcome);
        let decision = outcome?;
        self.accept(&decision);
        Ok(decision.reply)
    }

    /// Submits over the records as a batch sees them: nothing is read anew since the last decision.
    pub fn in_batch(&mut self, action: Action) -> Result<Reply, Refusal> {
        let submission = Submission::new(Actor::worker("w1"), Tenants::All, action, self.seed());
        let decision = decide(&self.records, &submission, self.now)?;
        self.accept(&decision);
        Ok(decision.reply)
    }

    fn seed(&mut self) -> [u8; 16] {
        self.next().wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835).to_be_bytes()
    }

    fn accept(&mut self, decision: &Decision) {
        let before = self.records.clone();
        decision.changes.iter().cloned().for_each(|change| self.records.absorb(change));
        for event in &decision.events {
            self.log.entry(event.work).or_default().push(event.clone());
            if let Fact::WorkCreated(_) = event.fact {
                self.records.inputs.insert(event.work, event.payload.clone());
            }
        }
        for change in &decision.changes {
            self.note_attempt(change);
        }
        check::decision(self, &before, decision);
    }

    fn note_attempt(&mut self, change: &Change) {
        match change {
            Change::BeginAttempt(attempt) => {
                let twice = self.attempts.insert((attempt.work, attempt.fence), false);
                assert!(twice.is_none(), "5: fence {} was granted twice", attempt.fence);
            }
            Change::EndAttempt { work, fence, .. } => {
                let ended = self.attempts.insert((*work, *fence), true);
                assert_eq!(ended, Some(false), "an attempt ends once, after it began");
            }
            Change::Work { .. }
            | Change::Step(_)
            | Change::Wait(_)
            | Change::Command { .. }
            | Change::Budget { .. }
            | Change::Keep(_)
            | Change::Unkeep { .. }
            | Change::Erase { .. }
            | Change::Wake { .. } => {}
        }
    }

    /// Records that a store reads anew before each batch: the holder of each session, and the next one.
    fn look_at_sessions(&mut self) {
        let keys: BTreeSet<_> = self.records.works.values().filter_map(|w| w.spec.session_key()).collect();
        for key in keys {
            let of_session = |work: &&Work| work.spec.session_key().as_ref() == Some(&key);
            let works = || self.records.works.values().map(std::sync::Arc::as_ref).filter(of_session);
            let holder = works().find(|work| work.state.holds_session()).map(|work| work.id);
            let head = works()
                .filter(|work| work.state.awaits_session())
                .min_by_key(|work| (work.spec.created_at, work.id))
                .map(|work| work.id);
            self.records.sessions.insert(key, SessionView { holder, head, unsure: false });
        }
    }

    pub fn row(&self, id: WorkId) -> &Work {
        &self.records.works[&id]
    }

    pub fn state(&self, id: WorkId) -> State {
        self.row(id).state
    }

    pub fn last(&self, id: WorkId) -> &Event {
        self.log[&id].last().expect("every work has a first event")
    }

    /// The types of a work item's events, in order.
    pub fn story(&self, id: WorkId) -> Vec<&str> {
        self.log[&id].iter().map(|event| event.fact.kind()).collect()
    }

    pub fn events(&self) -> usize {
        self.log.values().map(Vec::len).sum()
    }
}

/// Ingest and claim.
impl World {
    pub fn ingest(&mut self, source_id: &str) -> WorkId {
        self.ingest_with(source_id, |_| {})
    }

    pub fn ingest_with(&mut self, source_id: &str, change: impl FnOnce(&mut Ingest)) -> WorkId {
        match self.try_ingest(source_id, change).expect("an acceptable ingest") {
            Reply::Ingested { work, .. } => work.id,
            other => panic!("{other:?}"),
        }
    }

    pub fn try_ingest(
        &mut self,
        source_id: &str,
        change: impl FnOnce(&mut Ingest),
    ) -> Result<Reply, Refusal> {
        let mut ingest = ingest(self.work_id(), source_id);
        change(&mut ingest);
        self.submit(Actor::machine("gateway"), Action::Ingest(Box::new(ingest)))
    }

    pub fn try_claim(&mut self, id: WorkId, worker: &Worker) -> Result<Vec<Grant>, Refusal> {
        let request = format!("r{}", self.next());
        self.claim_as(&claimant(worker, &request), ClaimBy::Ids(vec![id]))
    }

    pub fn claim_as(&mut self, claimant: &Claimant, by: ClaimBy) -> Result<Vec<Grant>, Refusal> {
        let action = Action::Claim(Claim { claimant: claimant.clone(), by });
        match self.submit(Actor::worker(&claimant.worker.id), action)? {
            Reply::Claimed(grants) => Ok(grants),
            other => panic!("{other:?}"),
        }
    }

    pub fn claim(&mut self, id: WorkId, worker: &Worker) -> Lease {
        let grants = self.try_claim(id, worker).expect("claimable");
        lease(&grants[0])
    }

    /// Ingests a work item and claims it as `w1`.
    pub fn held(&mut self, source_id: &str) -> Lease {
        let id = self.ingest(source_id);
        self.claim(id, &w1())
    }

    pub fn held_with(&mut self, source_id: &str, change: impl FnOnce(&mut Ingest)) -> Lease {
        let id = self.ingest_with(source_id, change);
        self.claim(id, &w1())
    }
}

/// The holder's verbs.
impl World {
    pub fn by(&mut self, lease: &Lease, action: Action) -> Result<Reply, Refusal> {
        self.submit(Actor::worker(&lease.worker), action)
    }

    pub fn renew(&mut self, lease: &Lease) -> Result<Renewed, Refusal> {
        self.renewed(lease, None)
    }

    /// Progress rides on the renewal.
    pub fn renew_with(&mut self, lease: &Lease, progress: Payload) -> Result<Renewed, Refusal> {
        self.renewed(lease, Some(progress))
    }

    fn renewed(&mut self, lease: &Lease, progress: Option<Payload>) -> Result<Renewed, Refusal> {
        let renew = Renew { holder: lease.holder(), progress };
        match self.by(lease, Action::Renew(vec![renew])).expect("each lease has its own result") {
            Reply::Renewed(mut renewals) => renewals.remove(0).outcome,
            other => panic!("{other:?}"),
        }
    }

    pub fn accept_work(&mut self, lease: &Lease, strength: AcceptStrength) -> Result<Ack, Refusal> {
        let action = Action::Accept { holder: lease.holder(), strength };
        self.by(lease, action).map(ack)
    }

    pub fn progress(&mut self, lease: &Lease, request_id: Option<&str>) -> Result<Ack, Refusal> {
        let action = Action::Progress {
            holder: lease.holder(),
            progress: payload("half-way"),
            request_id: request_id.map(str::to_owned),
        };
        self.by(lease, action).map(ack)
    }

    pub fn close(&mut self, lease: &Lease, state: State) -> Result<Ack, Refusal> {
        let action = Action::CloseOut { holder: lease.holder(), close: close(state) };
        self.by(lease, action).map(ack)
    }

    pub fn release(&mut self, lease: &Lease) -> Result<Ack, Refusal> {
        self.by(lease, Action::Release { holder: lease.holder(), message: None, usage: Vec::new() }).map(ack)
    }

    pub fn fail(&mut self, lease: &Lease, class: ErrorClass, message: &str) -> Result<Ack, Refusal> {
        self.by(lease, Action::Fail(failure(lease, class, message))).map(ack)
    }

    pub fn abandon_own(&mut self, lease: &Lease) -> Result<Ack, Refusal> {
        let action =
            Action::AbandonOwn { holder: lease.holder(), reason: "draining".into(), usage: Vec::new() };
        self.by(lease, action).map(ack)
    }

    pub fn begin(&mut self, lease: &Lease, step: &str, input: &str, restart: bool) -> Result<Reply, Refusal> {
        self.step(lease, step, input, StepVerb::Begin { restart })
    }

    pub fn complete_step(&mut self, lease: &Lease, step: &str, input: &str) -> Result<Reply, Refusal> {
        self.step(lease, step, input, StepVerb::Complete { result: payload(step) })
    }

    fn step(&mut self, lease: &Lease, step: &str, input: &str, verb: StepVerb) -> Result<Reply, Refusal> {
        let action =
            StepAction { holder: lease.holder(), step: step.to_owned(), input_hash: Digest::of(input), verb };
        self.by(lease, Action::Step(action))
    }

    /// Waits for a user on `reference`, with the changes that `change` makes to the wait.
    pub fn wait_with(
        &mut self,
        lease: &Lease,
        reference: &str,
        change: impl FnOnce(&mut WaitSpec),
    ) -> Result<Reply, Refusal> {
        let mut spec = self.spec(reference, WaitKind::User);
        change(&mut spec);
        self.wait_for(lease, vec![spec])
    }

    pub fn wait_for(&mut self, lease: &Lease, waits: Vec<WaitSpec>) -> Result<Reply, Refusal> {
        let message = Some("why".into());
        let action = WaitAction { holder: lease.holder(), waits, message, tool: None, usage: Vec::new() };
        self.by(lease, Action::Wait(action))
    }

    pub fn wait(&mut self, lease: &Lease, reference: &str) -> WaitId {
        match self.wait_with(lease, reference, |_| {}).expect("an acceptable wait") {
            Reply::Waiting { ack, .. } => ack.waits[0],
            other => panic!("{other:?}"),
        }
    }

    pub fn spec(&mut self, reference: &str, kind: WaitKind) -> WaitSpec {
        WaitSpec {
            id: self.wait_id(),
            kind,
            reference: reference.to_owned(),
            prompt: None,
            assignee: None,
            timeout_ms: None,
            endless: false,
            on_timeout: OnTimeout::TimeOut,
            default: None,
            schema: None,
            command: None,
            judged: None,
        }
    }
}

/// Everybody's and the operators' verbs.
impl World {
    pub fn resolve(&mut self, reference: &str, answer: &str) -> Result<Reply, Refusal> {
        self.resolve_as(Actor::machine("webhook"), reference_target(reference), answer, None)
    }

    pub fn resolve_as(
        &mut self,
        actor: Actor,
        target: Target,
        answer: &str,
        claim: Option<Claimant>,
    ) -> Result<Reply, Refusal> {
        let action = Action::Resolve(Resolve { target, payload: payload(answer), claim });
        self.submit(actor, action)
    }

    /// Ana approves the open approval on `reference`, as she is shown it.
    pub fn approve_wait(&mut self, reference: &str) -> Result<Reply, Refusal> {
        let mut waits = self.records.waits.values().flatten();
        let wait = waits.find(|wait| wait.reference == reference && wait.state == WaitState::Open);
        let wait = wait.expect("an open wait").clone();
        let target = Target::Wait { id: wait.id, token: TokenCheck::Absent, seal: Some(wait.seal()) };
        self.resolve_as(Actor::person("ana"), target, "yes", None)
    }

    pub fn person(&mut self, action: Action) -> Result<Ack, Refusal> {
        self.submit(Actor::person("ana"), action).map(ack)
    }

    pub fn cancel(&mut self, work: WorkId) -> Result<Ack, Refusal> {
        self.person(Action::Cancel { work, reason: "no longer needed".into(), deadline_ms: None })
    }

    pub fn abandon(&mut self, work: WorkId) -> Result<Ack, Refusal> {
        self.person(Action::RequestAbandon { work, reason: "the host is gone".into() })
    }

    pub fn quarantine(&mut self, work: WorkId) -> Result<Ack, Refusal> {
        self.person(Action::Quarantine { work, reason: "looks odd".into() })
    }

    pub fn retry_now(&mut self, work: WorkId) -> Result<Ack, Refusal> {
        self.person(Action::RetryNow { work, reason: "it is back up".into() })
    }

    pub fn revoke(&mut self, work: WorkId) -> Result<Ack, Refusal> {
        self.person(Action::RevokeWaits { work, reason: "nobody will answer".into() })
    }

    pub fn decide(&mut self, work: WorkId, decision: Decide) -> Result<Ack, Refusal> {
        self.person(Action::Decide { work, reason: "I looked".into(), decision })
    }

    pub fn rerun(&mut self, of: WorkId, from_step: Option<&str>) -> Result<Work, Refusal> {
        let id = self.work_id();
        let from_step = from_step.map(str::to_owned);
        let action = Action::Rerun { of, id, from_step, execute: Vec::new(), reason: "again".into() };
        match self.submit(Actor::person("ana"), action)? {
            Reply::Ingested { work, .. } => Ok(*work),
            other => panic!("{other:?}"),
        }
    }

    pub fn complete(&mut self, work: WorkId, close: CloseOut) -> Result<Ack, Refusal> {
        self.submit(Actor::machine("owner"), Action::Complete { work, genuine: true, close }).map(ack)
    }

    /// A look by a sweeper that has watched for long enough.
    pub fn tick(&mut self, work: WorkId) -> Ticked {
        self.tick_with(work, u64::MAX, None)
    }

    pub fn tick_seen(&mut self, work: WorkId, seen: Seen) -> Ticked {
        let sighting = Sighting { fence: self.row(work).fence, seen, detail: "pid 4711 on host-a".into() };
        self.tick_with(work, 0, Some(sighting))
    }

    pub fn tick_with(&mut self, work: WorkId, watched_ms: u64, sighting: Option<Sighting>) -> Ticked {
        let action = Action::Tick { work, looked_at: self.now, watched_ms, sighting };
        match self.submit(Actor::system("sweeper"), action).expect("a tick of a known work") {
            Reply::Ticked(ticked) => ticked,
            other => panic!("{other:?}"),
        }
    }

    /// Passes `ms` and ticks.
    pub fn after(&mut self, ms: Millis, work: WorkId) -> Ticked {
        self.pass(ms);
        self.tick(work)
    }
}

pub fn ack(reply: Reply) -> Ack {
    match reply {
        Reply::Ack(ack) | Reply::Waiting { ack, .. } => ack,
        other => panic!("no short reply: {other:?}"),
    }
}

pub fn lease(grant: &Grant) -> Lease {
    Lease {
        work: grant.work.id,
        fence: grant.work.fence,
        worker: grant.work.body.holder.as_ref().expect("a grant has a holder").id.clone(),
    }
}

pub fn ingest(id: WorkId, source_id: &str) -> Ingest {
    Ingest {
        id,
        tenant: TENANT.into(),
        source: Source { system: "conversation".into(), id: source_id.into(), run_id: String::new() },
        kind: "reply".into(),
        title: None,
        disposition: Disposition::Rerunnable,
        input: payload("hello"),
        priority: 3,
        session: None,
        correlation_id: None,
        workflow: None,
        parent: None,
        on_parent_close: OnParentClose::Leave,
        policy: policy(),
        evidence: Vec::new(),
        asked_by: Vec::new(),
        claim: None,
        born: None,
    }
}

/// The default policy, without jitter.
pub fn policy() -> WorkPolicy {
    WorkPolicy {
        retry: RetryPolicy { jitter: Jitter::None, ..RetryPolicy::default() },
        ..WorkPolicy::default()
    }
}

pub fn timeouts(execution_ms: Option<u64>, overall_ms: Option<u64>, start_ms: Option<u64>) -> WorkPolicy {
    WorkPolicy { timeouts: Timeouts { execution_ms, overall_ms, start_ms }, ..policy() }
}

pub fn worker(id: &str, incarnation: &str) -> Worker {
    Worker { id: id.into(), incarnation: incarnation.into(), liveness: Liveness::Opaque }
}

pub fn w1() -> Worker {
    worker("w1", "boot-1")
}

pub fn w2() -> Worker {
    worker("w2", "boot-1")
}

/// `w1` with evidence that a sweeper can look up.
pub fn local() -> Worker {
    let liveness =
        Liveness::LocalProcess { boot_id: "b".into(), pid_namespace: 1, pid: 4711, start_time: 99 };
    Worker { liveness, ..w1() }
}

pub fn claimant(worker: &Worker, request_id: &str) -> Claimant {
    Claimant { worker: worker.clone(), request_id: request_id.into(), defer_start: false }
}

pub fn payload(text: &str) -> Payload {
    Payload::new(&json!({ "text": text })).expect("a small payload")
}

pub fn close(state: State) -> CloseOut {
    let failed = matches!(state, State::Failed | State::TimedOut);
    CloseOut {
        state,
        result: state.is_success().then(|| payload("result")),
        result_ref: None,
        no_output: false,
        warnings: if state == State::CompletedWithWarnings { vec!["nearly".into()] } else { Vec::new() },
        error: failed.then(|| (ErrorClass::Validation, "bad input".into())),
        evidence: Vec::new(),
        commands: Vec::new(),
        usage: Vec::new(),
    }
}

pub fn failure(lease: &Lease, class: ErrorClass, message: &str) -> Fail {
    let error = Failure { class, message: message.into(), retry_after_ms: None, fingerprint: None };
    Fail { holder: lease.holder(), error, wait: None, usage: Vec::new() }
}

pub fn reference_target(reference: &str) -> Target {
    Target::Reference { tenant: TENANT.into(), reference: reference.into() }
}

pub fn owner_bound(ingest: &mut Ingest) {
    ingest.disposition = Disposition::OwnerBound;
}

pub fn external(ingest: &mut Ingest) {
    ingest.disposition = Disposition::ExternallyOwned;
}

pub fn in_session(ingest: &mut Ingest) {
    ingest.session = Some("chat".into());
}
