//! A user of the ledger: an actor with the tenants and kinds it may access. One method for each verb.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use serde_json::Value;
use tenure_core::{
    Ack, Action, Actor, ActorKind, Code, Evidence, Payload, Refusal, Reply, Step, Submission, Usage, Wait,
    WaitId, WorkId,
    action::{
        Claim, ClaimBy, ClaimFilter, Claimant, CloseOut, Decide, Fail, Failure, Judged, Kinds, Renew,
        Resolve, StepAction, StepVerb, Target, Tenants, TokenCheck, WaitAction, WaitSpec,
    },
    limits,
    model::{AcceptStrength, WaitState},
    payload::Digest,
    quota::Added,
    reply::{Renewal, ResolvedWait},
    state::State,
    work::step::same_result,
};
use uuid::Uuid;

use super::{Claimed, Ingested, LeaseRef, Ledger, LedgerReply, NewWait, NewWork, schema, seed};
use crate::{Error, WaitFilter};

/// The result of a wait call.
#[derive(Clone, Debug)]
pub struct Waiting {
    /// The state after the wait was opened.
    pub ack: Ack,
    /// The opened waits with their wait tokens, in the order of the request.
    pub waits: Vec<(WaitId, String)>,
    /// Answers that existed already. If every wait has one, the lease continues.
    pub answers: Vec<(Wait, Option<Payload>)>,
}

/// The result of an answer.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// Each wait that it concerned, with the first answer, which counts.
    pub answers: Vec<(ResolvedWait, Option<Payload>)>,
    /// No wait is open yet: the answer is kept for one that is opened later.
    pub kept: bool,
    /// The lease, if one was granted with the answer.
    pub lease: Option<Claimed>,
}

/// The ledger as one actor uses it. Each method submits one action or reads.
#[derive(Clone)]
pub struct Caller {
    pub(super) ledger: Ledger,
    pub(super) actor: Actor,
    pub(super) tenants: Tenants,
    pub(super) kinds: Kinds,
    worker: Option<Arc<str>>,
    /// The usage that is reported by verbs that end an attempt.
    usage: Vec<Usage>,
    /// Evidence that is added to every event, for example the trace of a request.
    evidence: Vec<Evidence>,
    approves: bool,
    replays: bool,
    if_seq: Option<u64>,
    pub(super) dry_run: bool,
}

impl Caller {
    pub(super) fn new(ledger: Ledger, actor: Actor, tenants: Tenants) -> Self {
        Self {
            ledger,
            actor,
            tenants,
            kinds: Kinds::All,
            worker: None,
            usage: Vec::new(),
            evidence: Vec::new(),
            approves: true,
            replays: true,
            if_seq: None,
            dry_run: false,
        }
    }

    /// The same caller, restricted to these tenants. Everything else does not exist for it.
    pub fn within(self, tenants: Vec<String>) -> Self {
        Self { tenants: Tenants::Only(tenants), ..self }
    }

    /// The same caller, further restricted to these kinds of work items. Everything else does not exist for
    /// it.
    pub fn of_kinds(self, kinds: Kinds) -> Self {
        Self { kinds, ..self }
    }

    /// The same caller, but it claims only for this worker.
    pub fn only_for(self, worker: Option<&str>) -> Self {
        Self { worker: worker.map(Arc::from), ..self }
    }

    /// The same caller; every event that it causes carries this evidence as well.
    pub fn with_evidence(self, evidence: Vec<Evidence>) -> Self {
        Self { evidence, ..self }
    }

    /// The same caller; its `fail`, `wait`, `release` and `abandon_own` report this usage. A close-out has
    /// its own field for it.
    pub fn having_used(self, usage: Vec<Usage>) -> Self {
        Self { usage, ..self }
    }

    /// The same caller, with whether it may approve, if it is a person.
    pub fn who_approves(self, approves: bool) -> Self {
        Self { approves, ..self }
    }

    /// The same caller, with whether it may record that a command happened, if it is a person.
    pub fn who_replays(self, replays: bool) -> Self {
        Self { replays, ..self }
    }

    /// The same caller; its verbs on a work item do nothing if the work item has changed since this event.
    pub fn having_seen(self, if_seq: Option<u64>) -> Self {
        Self { if_seq, ..self }
    }

    /// The same caller; with `dry_run` its verbs are decided and answered as usual, but nothing is written.
    /// New ids in such a reply do not exist.
    pub fn trying(self, dry_run: bool) -> Self {
        Self { dry_run, ..self }
    }

    /// Submits an action as this actor.
    pub async fn submit(&self, action: Action) -> Result<LedgerReply, Error> {
        self.ledger.submit(self.submission(action)?).await
    }

    pub(super) fn submission(&self, action: Action) -> Result<Submission, Error> {
        let mut submission = Submission::new(self.actor.clone(), self.tenants.clone(), action, seed()?);
        submission.kinds.clone_from(&self.kinds);
        submission.worker.clone_from(&self.worker);
        submission.evidence.clone_from(&self.evidence);
        submission.approves = self.approves;
        submission.replays = self.replays;
        submission.if_seq = self.if_seq;
        submission.dry_run = self.dry_run;
        if let Some(Added::New { priority, .. }) = submission.action.adds() {
            submission.no_room = self.urgency(priority).err();
        }
        Ok(submission)
    }

    /// Whether it may submit work items with this priority.
    pub(super) fn urgency(&self, priority: i16) -> Result<(), Refusal> {
        match self.tenants {
            Tenants::All => Ok(()),
            Tenants::Only(_) => self.ledger.settings().quota().urgency(priority),
        }
    }

    /// Whom events name.
    pub fn actor(&self) -> &Actor {
        &self.actor
    }

    pub(super) async fn ack(&self, action: Action) -> Result<Ack, Error> {
        ack_of(self.submit(action).await?)
    }

    /// Records a work item. Idempotent: the same identity and content returns the existing one.
    pub async fn ingest(&self, new: NewWork) -> Result<Ingested, Error> {
        let ingest = new.settle(&self.ledger.settings())?;
        self.ingested(Action::Ingest(Box::new(ingest))).await
    }

    /// Runs an ended work item again, as a new work item linked to it. Idempotent.
    pub async fn rerun(&self, of: WorkId, from_step: Option<&str>, reason: &str) -> Result<Ingested, Error> {
        self.rerun_executing(of, from_step, Vec::new(), reason).await
    }

    /// The same, and executes the commands with these keys again: no other command of earlier runs is
    /// repeated.
    pub async fn rerun_executing(
        &self,
        of: WorkId,
        from_step: Option<&str>,
        execute: Vec<Digest>,
        reason: &str,
    ) -> Result<Ingested, Error> {
        let id = WorkId(Uuid::now_v7());
        let from_step = from_step.map(str::to_owned);
        let action = Action::Rerun { of, id, from_step, execute, reason: reason.to_owned() };
        self.ingested(action).await
    }

    async fn ingested(&self, action: Action) -> Result<Ingested, Error> {
        let mut outcome = self.submit(action).await?;
        match outcome.reply {
            Reply::Ingested { work, created, grant } => {
                let ends_by_token = work.state == State::WaitingExternal && work.open_waits == 0;
                let is_its_owner = ends_by_token && (created || self.recorded(work.id).await?);
                Ok(Ingested {
                    lease: grant.map(|grant| self.ledger.claimed(*grant, &mut outcome.payloads)),
                    completion_token: is_its_owner.then(|| self.ledger.completion_token(work.id)),
                    work: *work,
                    created,
                })
            }
            other => Err(unexpected(&other)),
        }
    }

    /// Whether this principal recorded the work item.
    async fn recorded(&self, work: WorkId) -> Result<bool, Error> {
        let first = self.ledger.events(work, 0, 1).await?;
        Ok(first.rows.first().is_some_and(|stored| stored.event.actor == self.actor))
    }

    /// Claims by filter. With `wait`, waits up to that long for matching work items.
    pub async fn claim(
        &self,
        claimant: Claimant,
        mut filter: ClaimFilter,
        wait: Option<Duration>,
    ) -> Result<Vec<Claimed>, Error> {
        if let Kinds::Only(own) = &self.kinds {
            if filter.kinds.is_empty() {
                filter.kinds.clone_from(own);
            } else if let Some(other) = filter.kinds.iter().find(|kind| !own.contains(kind)) {
                let detail =
                    format!("Kind `{other}` is not one of yours. Claim the kinds of your credential.");
                return Err(Refusal::new(Code::Forbidden, detail).into());
            }
        }
        let claim = Claim { claimant: claimant.clone(), by: ClaimBy::Filter(filter.clone()) };
        let submission = self.submission(Action::Claim(claim))?;
        // Listed as idle until the answer, or until this call is dropped.
        let waits = wait.map(|_| self.ledger.idle().wait(&claimant, &filter, &self.tenants));
        let claimed = self.claimed(self.ledger.queue(submission, wait, None).await?)?;
        if waits.is_none() && claimed.is_empty() {
            self.ledger.idle().found_nothing(&claimant, &filter, &self.tenants);
        }
        Ok(claimed)
    }

    /// Claims all of these work items or none.
    pub async fn claim_ids(&self, claimant: Claimant, ids: Vec<WorkId>) -> Result<Vec<Claimed>, Error> {
        let outcome = self.submit(Action::Claim(Claim { claimant, by: ClaimBy::Ids(ids) })).await?;
        self.claimed(outcome)
    }

    fn claimed(&self, mut outcome: LedgerReply) -> Result<Vec<Claimed>, Error> {
        match outcome.reply {
            Reply::Claimed(grants) => Ok(grants
                .into_iter()
                .map(|grant| self.ledger.claimed(grant, &mut outcome.payloads))
                .collect()),
            other => Err(unexpected(&other)),
        }
    }

    /// Renews many leases at once; each has its own result.
    pub async fn renew(&self, leases: &[(LeaseRef, Option<Value>)]) -> Result<Vec<Renewal>, Error> {
        let renewals = leases
            .iter()
            .map(|(lease, progress)| {
                let progress = progress.as_ref().map(Payload::new).transpose()?;
                Ok(Renew { holder: self.ledger.holder(lease), progress })
            })
            .collect::<Result<_, Error>>()?;
        match self.submit(Action::Renew(renewals)).await?.reply {
            Reply::Renewed(renewals) => {
                if !self.dry_run {
                    let refused = renewals.iter().filter(|renewal| renewal.outcome.is_err()).count();
                    self.ledger.store().counters().renewals_refused(refused);
                }
                Ok(renewals)
            }
            other => Err(unexpected(&other)),
        }
    }

    /// Says that the work was accepted, and how firmly.
    pub async fn accept(&self, lease: &LeaseRef, strength: AcceptStrength) -> Result<Ack, Error> {
        self.ack(Action::Accept { holder: self.ledger.holder(lease), strength }).await
    }

    /// Records progress.
    pub async fn progress(
        &self,
        lease: &LeaseRef,
        progress: &Value,
        request_id: Option<&str>,
    ) -> Result<Ack, Error> {
        let progress = Payload::new(progress)?;
        let request_id = request_id.map(str::to_owned);
        self.ack(Action::Progress { holder: self.ledger.holder(lease), progress, request_id }).await
    }

    /// Begins a checkpoint. A completed one with the same input is returned with its result, to be reused.
    pub async fn begin_step(
        &self,
        lease: &LeaseRef,
        step: &str,
        input: &Value,
        restart: bool,
    ) -> Result<(Step, Option<Payload>), Error> {
        self.step(lease, step, input, StepVerb::Begin { restart }).await
    }

    /// Stores the result of a step.
    pub async fn complete_step(
        &self,
        lease: &LeaseRef,
        step: &str,
        input: &Value,
        result: &Value,
    ) -> Result<Step, Error> {
        let result = Payload::new(result)?;
        let verb = StepVerb::Complete { result: result.clone() };
        let (done, stored) = self.step(lease, step, input, verb).await?;
        // Only a step that was already complete has a stored result.
        if let Some(stored) = stored {
            same_result(step, &stored, &result)?;
        }
        Ok(done)
    }

    async fn step(
        &self,
        lease: &LeaseRef,
        step: &str,
        input: &Value,
        verb: StepVerb,
    ) -> Result<(Step, Option<Payload>), Error> {
        let input_hash: Digest = Payload::new(input)?.hash();
        let holder = self.ledger.holder(lease);
        let action = StepAction { holder, step: step.to_owned(), input_hash, verb };
        let mut outcome = self.submit(Action::Step(action)).await?;
        match outcome.reply {
            Reply::Step { step, .. } => {
                let result = step.result.and_then(|key| outcome.payloads.remove(&key));
                Ok((step, result))
            }
            other => Err(unexpected(&other)),
        }
    }

    /// Pauses the work item durably. The lease ends, unless all answers exist already.
    pub async fn wait(
        &self,
        lease: &LeaseRef,
        waits: Vec<NewWait>,
        message: Option<&str>,
    ) -> Result<Waiting, Error> {
        self.wait_on_tool(lease, waits, message, None).await
    }

    /// The same, naming the tool without which the work item cannot continue.
    pub async fn wait_on_tool(
        &self,
        lease: &LeaseRef,
        waits: Vec<NewWait>,
        message: Option<&str>,
        tool: Option<&str>,
    ) -> Result<Waiting, Error> {
        schema::check_new(&waits).await?;
        let waits = waits.into_iter().map(NewWait::settle).collect::<Result<Vec<_>, _>>()?;
        let holder = self.ledger.holder(lease);
        let (message, tool) = (message.map(str::to_owned), tool.map(str::to_owned));
        let action = Action::Wait(WaitAction { holder, waits, message, tool, usage: self.usage.clone() });
        self.waiting(self.submit_judged(lease.work, action).await?)
    }

    fn waiting(&self, outcome: LedgerReply) -> Result<Waiting, Error> {
        match &outcome.reply {
            // A failure that does not lead to a wait, because a cancel was requested.
            Reply::Ack(ack) => Ok(Waiting { ack: ack.clone(), waits: Vec::new(), answers: Vec::new() }),
            Reply::Waiting { ack, answers } => Ok(Waiting {
                waits: ack.waits.iter().map(|id| (*id, self.ledger.wait_token(*id))).collect(),
                answers: answers
                    .iter()
                    .map(|wait| {
                        let answer = wait.answer_seq.and_then(|seq| outcome.payload(wait.work, seq));
                        (wait.clone(), answer.cloned())
                    })
                    .collect(),
                ack: ack.clone(),
            }),
            other => Err(unexpected(other)),
        }
    }

    /// Opens waits after checking the answers that are kept for them. Repeats the check if another answer
    /// arrives before the decision.
    async fn submit_judged(&self, work: WorkId, mut action: Action) -> Result<LedgerReply, Error> {
        const LOOKS: usize = 3;
        let mut looks = 0;
        loop {
            looks += 1;
            self.judge(work, action.opens_mut()).await?;
            match self.submit(action.clone()).await {
                Err(Error::Refused(Refusal { code: Code::Busy, .. })) if looks < LOOKS => {}
                outcome => return outcome,
            }
        }
    }

    /// Checks early answers against the schemas of the waits to be opened.
    async fn judge(&self, work: WorkId, waits: &mut [WaitSpec]) -> Result<(), Error> {
        if waits.iter().all(|wait| wait.schema.is_none()) {
            return Ok(());
        }
        let tenant = self.work(work).await?.spec.tenant.clone();
        for wait in waits {
            let Some(schema) = &wait.schema else { continue };
            limits::reference("ref", &wait.reference)?;
            let Some(kept) = self.ledger.store().kept(&tenant, &wait.reference).await? else { continue };
            let fault = match schema::check_answer(std::iter::once(schema), || kept.payload.value()).await {
                // A check that did not finish in time says nothing about the answer.
                Err(refusal) if refusal.code == Code::LimitReached => return Err(refusal.into()),
                checked => checked.err().map(|fault| fault.detail),
            };
            wait.judged = Some(Judged { answer: kept.payload.hash(), fault });
        }
        Ok(())
    }

    /// Answers every open wait on a reference in a tenant; the answer is kept if none is open yet.
    pub async fn resolve(
        &self,
        tenant: &str,
        reference: &str,
        payload: &Value,
        claim: Option<Claimant>,
    ) -> Result<Resolved, Error> {
        let filter = WaitFilter {
            tenants: Some(Tenants::Only(vec![tenant.to_owned()])),
            reference: Some(reference.to_owned()),
            ..WaitFilter::default()
        };
        self.check_answer(filter, payload).await?;
        let target = Target::Reference { tenant: tenant.to_owned(), reference: reference.to_owned() };
        self.resolved(target, payload, claim).await
    }

    /// Answers one wait by its wait token. A person needs no token; to answer an approval, a person needs the
    /// seal of what was shown.
    pub async fn resolve_wait(
        &self,
        id: WaitId,
        token: Option<&str>,
        seal: Option<Digest>,
        payload: &Value,
        claim: Option<Claimant>,
    ) -> Result<Resolved, Error> {
        let token = self.ledger.check_wait(id, token);
        // A caller that may not answer must not learn the schema.
        let may = match token {
            TokenCheck::Genuine => true,
            TokenCheck::Absent => self.actor.kind == ActorKind::Person,
            TokenCheck::Wrong => false,
        };
        if may {
            self.check_answer(WaitFilter { id: Some(id), ..WaitFilter::default() }, payload).await?;
        }
        self.resolved(Target::Wait { id, token, seal }, payload, claim).await
    }

    /// Checks an answer against the schemas of its waits: the open ones; if there are none, those that ended
    /// without an answer for their command.
    async fn check_answer(&self, filter: WaitFilter, answer: &Value) -> Result<(), Error> {
        let mut wanted = WaitFilter { state: Some(WaitState::Open), ..filter };
        let mut any_open = false;
        loop {
            let page = self.waits(&wanted, usize::MAX).await?;
            let next = page.next().copied();
            any_open |= wanted.state == Some(WaitState::Open) && !page.is_empty();
            let waits = page.iter().filter(|wait| any_open || wait.detail.command.is_some());
            let schemas = waits.filter_map(|wait| wait.detail.schema.as_ref());
            schema::check_answer(schemas, || answer.clone()).await?;
            wanted.after = next;
            if next.is_none() {
                wanted.state = match wanted.state {
                    Some(WaitState::Open) if !any_open => Some(WaitState::TimedOut),
                    Some(WaitState::TimedOut) => Some(WaitState::Cancelled),
                    _ => return Ok(()),
                };
            }
        }
    }

    async fn resolved(
        &self,
        target: Target,
        payload: &Value,
        claim: Option<Claimant>,
    ) -> Result<Resolved, Error> {
        let payload = Payload::new(payload)?;
        let action = Resolve { target, payload, claim };
        let mut outcome = self.submit(Action::Resolve(action)).await?;
        match outcome.reply {
            Reply::Resolved { answers, kept, grant } => Ok(Resolved {
                answers: answers
                    .into_iter()
                    .map(|answer| {
                        let payload = answer.seq.and_then(|seq| outcome.payloads.get(&(answer.work, seq)));
                        let payload = payload.cloned();
                        (answer, payload)
                    })
                    .collect(),
                kept,
                lease: grant.map(|grant| self.ledger.claimed(*grant, &mut outcome.payloads)),
            }),
            other => Err(unexpected(&other)),
        }
    }

    /// Ends the attempt with an error; the retry policy decides what follows.
    pub async fn fail(&self, lease: &LeaseRef, error: Failure) -> Result<Ack, Error> {
        let holder = self.ledger.holder(lease);
        self.ack(Action::Fail(Fail { holder, error, wait: None, usage: self.usage.clone() })).await
    }

    /// An `auth` failure that waits for a reconnect instead of counting as a failure.
    pub async fn fail_until(
        &self,
        lease: &LeaseRef,
        error: Failure,
        wait: NewWait,
    ) -> Result<Waiting, Error> {
        schema::check_new(std::slice::from_ref(&wait)).await?;
        let (holder, wait) = (self.ledger.holder(lease), Some(wait.settle()?));
        let action = Action::Fail(Fail { holder, error, wait, usage: self.usage.clone() });
        self.waiting(self.submit_judged(lease.work, action).await?)
    }

    /// Hands the work item back.
    pub async fn release(&self, lease: &LeaseRef, message: Option<&str>) -> Result<Ack, Error> {
        let message = message.map(str::to_owned);
        let holder = self.ledger.holder(lease);
        self.ack(Action::Release { holder, message, usage: self.usage.clone() }).await
    }

    /// Ends the attempt as declared.
    pub async fn close_out(&self, lease: &LeaseRef, close: CloseOut) -> Result<Ack, Error> {
        self.ack(Action::CloseOut { holder: self.ledger.holder(lease), close }).await
    }

    /// Abandons started owner-bound work items of this caller.
    pub async fn abandon_own(&self, lease: &LeaseRef, reason: &str) -> Result<Ack, Error> {
        let holder = self.ledger.holder(lease);
        self.ack(Action::AbandonOwn { holder, reason: reason.to_owned(), usage: self.usage.clone() }).await
    }

    /// Reports the end of an externally owned work item.
    pub async fn complete(&self, work: WorkId, token: &str, close: CloseOut) -> Result<Ack, Error> {
        let genuine = self.ledger.completes(work, token);
        self.ack(Action::Complete { work, genuine, close }).await
    }

    /// Asks the holder to stop, until a deadline if there is one.
    pub async fn cancel(&self, work: WorkId, reason: &str, deadline_ms: Option<u64>) -> Result<Ack, Error> {
        self.ack(Action::Cancel { work, reason: reason.to_owned(), deadline_ms }).await
    }

    /// Gives up a work item, or asks its holder to.
    pub async fn request_abandon(&self, work: WorkId, reason: &str) -> Result<Ack, Error> {
        self.ack(Action::RequestAbandon { work, reason: reason.to_owned() }).await
    }

    /// Asks the holder to release the work item.
    pub async fn request_release(&self, work: WorkId, reason: &str) -> Result<Ack, Error> {
        self.ack(Action::RequestRelease { work, reason: reason.to_owned() }).await
    }

    /// Ends the wait before the next attempt.
    pub async fn retry_now(&self, work: WorkId, reason: &str) -> Result<Ack, Error> {
        self.ack(Action::RetryNow { work, reason: reason.to_owned() }).await
    }

    /// Sets a work item apart until a person decides.
    pub async fn quarantine(&self, work: WorkId, reason: &str) -> Result<Ack, Error> {
        self.ack(Action::Quarantine { work, reason: reason.to_owned() }).await
    }

    /// A person's decision on a quarantined work item.
    pub async fn decide(&self, work: WorkId, reason: &str, decision: Decide) -> Result<Ack, Error> {
        self.ack(Action::Decide { work, reason: reason.to_owned(), decision }).await
    }

    /// Cancels the open waits of a work item; it continues without answers.
    pub async fn revoke_waits(&self, work: WorkId, reason: &str) -> Result<Ack, Error> {
        self.ack(Action::RevokeWaits { work, reason: reason.to_owned() }).await
    }

    /// Cancels every open wait of a tenant's session; the work items continue without answers.
    pub async fn revoke_session_waits(
        &self,
        tenant: &str,
        session: &str,
        reason: &str,
    ) -> Result<Vec<Ack>, Error> {
        limits::reason(reason)?;
        if !self.tenants.allow(tenant) {
            return Err(Refusal::new(Code::NotFound, format!("Tenant {tenant} is not one of yours.")).into());
        }
        let filter = WaitFilter {
            tenants: Some(Tenants::Only(vec![tenant.to_owned()])),
            session: Some(session.to_owned()),
            state: Some(WaitState::Open),
            ..WaitFilter::default()
        };
        let mut seen = BTreeSet::new();
        let mut acks = Vec::new();
        // Page by page: revoked waits are no longer open.
        loop {
            let page = self.ledger.waits(&filter, usize::MAX).await?;
            let new: BTreeSet<WorkId> =
                page.into_iter().map(|wait| wait.work).filter(|work| seen.insert(*work)).collect();
            if new.is_empty() {
                return Ok(acks);
            }
            for work in new {
                match self.revoke_waits(work, reason).await {
                    // Answered or ended in the meantime.
                    Err(Error::Refused(Refusal { code: Code::IllegalState | Code::Terminal, .. })) => {}
                    ack => acks.push(ack?),
                }
            }
        }
    }
}

fn ack_of(outcome: LedgerReply) -> Result<Ack, Error> {
    match outcome.reply {
        Reply::Ack(ack) => Ok(ack),
        other => Err(unexpected(&other)),
    }
}

pub(super) fn unexpected(reply: &Reply) -> Error {
    Error::Corrupt(format!("the reply does not match the verb: {reply:?}"))
}
