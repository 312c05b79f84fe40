//! The actors: workers that crash, and a person who reports the truth.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU64, Ordering},
};

use tenure_core::{
    Actor, Code, Command, CommandId, CommandState, State, WorkId,
    action::{Claimant, CloseOut, Decide},
    command::{BlockCode, CallError, Evaluation, Intent, Proof, Recorded},
    model::ErrorClass,
};
use tenure_store::{Caller, DispatchRef, Error, LeaseRef, Ledger, new_worker};

use super::{
    dice::Dice,
    truth::{Fate, Truth},
};

/// A response to a client about a command.
#[derive(Clone, Debug)]
pub struct Told {
    pub command: CommandId,
    pub state: CommandState,
    pub external_id: Option<String>,
}

impl Told {
    pub fn of(command: &Command) -> Self {
        let receipt = command.body.receipt.as_ref();
        let external_id = receipt.and_then(|receipt| receipt.external_id.clone());
        Self { command: command.id, state: command.state, external_id }
    }
}

/// State shared by all actors.
pub struct Stage {
    pub ledger: Ledger,
    pub truth: Arc<Truth>,
    pub told: Mutex<Vec<Told>>,
    pub requests: AtomicU64,
}

impl Stage {
    pub fn tell(&self, command: &Command) {
        self.told.lock().unwrap().push(Told::of(command));
    }

    fn request(&self) -> String {
        format!("r{}", self.requests.fetch_add(1, Ordering::SeqCst))
    }
}

/// One scenario: one command's life.
pub struct Scenario {
    pub work: WorkId,
    pub command: Option<CommandId>,
    /// The intent of its worker; None if the relay sends it.
    pub wanted: Option<Intent>,
    pub lease: Option<LeaseRef>,
    /// The last report of a call without effect. A copy of it may arrive at any time.
    pub copy: Option<(DispatchRef, CallError)>,
    pub dice: Dice,
    /// Its outcome is never recorded: it stays with a person.
    pub left_to_a_person: bool,
    pub evaluation: Evaluation,
}

impl Scenario {
    /// A worker continues its work, and may stop at any point.
    pub async fn step(&mut self, stage: &Stage, chaos: bool) {
        let Some(wanted) = self.wanted.clone() else { return };
        let worker = stage.ledger.caller(Actor::worker("w"));
        if self.lease.is_none() {
            let claimant = Claimant::new(new_worker("w"), &stage.request());
            let Ok(mut claimed) = worker.claim_ids(claimant, vec![self.work]).await else { return };
            self.lease = claimed.pop().map(|claimed| claimed.lease);
        }
        let Some(lease) = self.lease.clone() else { return };
        if self.go(stage, &worker, &lease, wanted, chaos).await.is_none() {
            // It crashed or lost its lease, so it has forgotten everything.
            self.lease = None;
        }
    }

    async fn go(
        &mut self,
        stage: &Stage,
        worker: &Caller,
        lease: &LeaseRef,
        wanted: Intent,
        chaos: bool,
    ) -> Option<()> {
        let evaluation = wanted.evaluation.clone();
        let command = worker.reserve(lease, wanted).await.ok()?.command;
        self.command = Some(command.id);
        stage.tell(&command);
        self.crash(chaos)?;
        match command.state {
            CommandState::Pending | CommandState::Approved | CommandState::Uncertain => {
                self.effect(stage, worker, lease, &command, evaluation, chaos).await
            }
            CommandState::Succeeded => {
                let close = CloseOut { no_output: true, ..CloseOut::new(State::Succeeded) };
                worker.close_out(lease, close).await.ok().map(drop)
            }
            CommandState::Failed if !chaos || self.dice.one_in(2) => {
                let close = CloseOut::failed(ErrorClass::Validation, "refused");
                worker.close_out(lease, close).await.ok().map(drop)
            }
            CommandState::Cancelled => {
                let close = CloseOut { no_output: true, ..CloseOut::new(State::Succeeded) };
                worker.close_out(lease, close).await.ok().map(drop)
            }
            CommandState::Failed | CommandState::Blocked | CommandState::Dispatched => Some(()),
        }
    }

    /// Dispatches once, twice or concurrently with another; calls once; reports, or does not.
    async fn effect(
        &mut self,
        stage: &Stage,
        worker: &Caller,
        lease: &LeaseRef,
        command: &Command,
        evaluation: Evaluation,
        chaos: bool,
    ) -> Option<()> {
        let (id, request) = (command.id, stage.request());
        let mut answer = worker.dispatch(lease, id, evaluation.clone(), Some(&request)).await;
        if chaos && self.dice.one_in(4) {
            // The response was lost, and the request is repeated.
            answer = worker.dispatch(lease, id, evaluation.clone(), Some(&request)).await;
        }
        if chaos && self.dice.one_in(4) {
            let other = worker.dispatch(lease, id, evaluation, Some(&stage.request())).await;
            assert!(other.is_err() || answer.is_err(), "two dispatches were granted");
        }
        let go = match answer {
            Ok(go) => go,
            Err(Error::NotDispatched(not)) => {
                stage.tell(&not.command);
                let goes_on = matches!(
                    not.refusal.code,
                    Code::ApprovalRequired | Code::PolicyDenied | Code::Budget | Code::AlreadySucceeded
                );
                return goes_on.then_some(());
            }
            Err(_) => return None,
        };
        stage.tell(&go);
        self.crash(chaos)?;
        let key = go.idempotency_key();
        let committed = stage.ledger.command(id).await.ok()?.body.dispatches;
        let fate = stage.truth.call(&key, id, committed, go.spec.tool.contains("native"));
        self.crash(chaos)?;
        let error = |class| CallError { class, message: format!("{fate:?}"), retry_after_ms: None };
        let proof = &DispatchRef::new(lease.clone(), go.body.dispatches);
        if chaos && let Some((before, error)) = self.copy.take() {
            // The outcome of the previous call, reported again: it says nothing about this one.
            drop(worker.fail_command(&before, id, error, true).await);
        }
        let told = match fate {
            Fate::Done | Fate::DoneTwiceAnswered => worker.receipt(proof, id, Proof::provider(&key)).await,
            Fate::Gone | Fate::Refused => {
                worker.fail_command(proof, id, error(ErrorClass::Validation), false).await
            }
            Fate::Busy => {
                self.copy = Some((proof.clone(), error(ErrorClass::RateLimited)));
                worker.fail_command(proof, id, error(ErrorClass::RateLimited), false).await
            }
            Fate::DoneAndLost
            | Fate::Lost
            | Fate::DoneAndBroken
            | Fate::Broken
            | Fate::DoneCutShort
            | Fate::DoneAndSilent => worker.uncertain(proof, id, error(ErrorClass::Transport)).await,
        };
        stage.tell(&told.ok()?);
        Some(())
    }

    fn crash(&mut self, chaos: bool) -> Option<()> {
        (!(chaos && self.dice.one_in(7))).then_some(())
    }

    /// A person makes the decisions that only a person can.
    pub async fn person(&mut self, stage: &Stage, chaos: bool) {
        let Some(id) = self.command else { return };
        let person = stage.ledger.caller(Actor::person("ada"));
        let Ok(command) = stage.ledger.command(id).await else { return };
        let now = !chaos || self.dice.one_in(3);
        let done = match (command.state, command.body.blocked) {
            (CommandState::Uncertain, _) if command.body.needs_person && now && !self.left_to_a_person => {
                let key = command.idempotency_key();
                let outcome = match stage.truth.effects(&key) {
                    0 => Recorded::DidNotHappen,
                    _ => Recorded::Happened(Proof::provider(&key)),
                };
                person.record_outcome(id, outcome, "asked the provider").await
            }
            (CommandState::Blocked, Some(BlockCode::ApprovalRequired)) if now => {
                if self.dice.one_in(4) {
                    person.reject(id, "no").await
                } else {
                    person.approve(id, command.seal(), false, "yes").await
                }
            }
            (CommandState::Failed, _) if chaos && self.dice.one_in(4) => {
                person.replay(id, self.evaluation.clone(), Default::default(), "again").await
            }
            (CommandState::Pending, _) if chaos && self.dice.one_in(60) => {
                person.cancel_command(id, None, "not wanted").await
            }
            _ => return,
        };
        if let Ok(command) = done {
            stage.tell(&command);
        }
    }

    /// A quarantined work item is abandoned; its unfinished commands end with it.
    pub async fn give_up(&self, stage: &Stage) {
        let Ok(work) = stage.ledger.work(self.work).await else { return };
        if work.state == State::Quarantined {
            let person = stage.ledger.caller(Actor::person("ada"));
            let end = Decide::Close(Box::new(CloseOut::failed(ErrorClass::Unknown, "given up")));
            drop(person.decide(self.work, "given up", end).await);
        }
    }
}
