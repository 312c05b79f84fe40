//! Side effects of a handler: recorded as commands before they happen, and reported until the ledger knows
//! their outcome.
//!
//! From the dispatch on, the effect may have happened. If the call is cut off then, by a panic, a lost lease
//! or a drain, the command is left in doubt, never recorded as unsent.

use std::future::Future;

use serde_json::Value;
use tokio::runtime::Handle;
use uuid::Uuid;

use super::{Job, Outcome, deliver::until_answered};
use crate::{
    Client, Error,
    wire::{
        CallFailure, Code, Command, CommandId, CommandState, Cost, DeliverReceipt, DispatchCommand,
        ErrorClass, EvidenceKind, FailCommand, Failure, Intent, NewWait, Proof, Reserve, UncertainCommand,
        Usage, WaitKind, WaitReason,
    },
};

/// Evidence that the effect happened. Requires at least one of `external_id`, `reference` and `response`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Evidence {
    /// The provider's id for the effect.
    pub external_id: Option<String>,
    /// A pointer to the effect, for example a URL.
    pub reference: Option<String>,
    /// The provider's response.
    pub response: Option<Value>,
    /// The actual cost; default: the estimate.
    pub cost: Option<Cost>,
    /// The usage of the call.
    pub usage: Vec<Usage>,
}

impl Evidence {
    /// Evidence by the provider's id.
    pub fn id(external_id: impl Into<String>) -> Self {
        Self { external_id: Some(external_id.into()), ..Self::default() }
    }
}

/// Why there is no evidence.
#[derive(Clone, Debug, PartialEq)]
pub enum Trouble {
    /// The provider refused: the effect did not happen.
    Refused(CallFailure),
    /// It is proven that the call was not made: it is tried again later.
    Unsent(CallFailure),
    /// The effect may have happened.
    Unknown(CallFailure),
}

/// The outcome of an effect.
#[derive(Clone, Debug, PartialEq)]
pub enum Fate {
    /// The effect happened, now or earlier: `receipt` is the evidence.
    Happened(Box<Command>),
    /// Stopped by policy, a missing approval or a budget: `reason` says which. The call was not made.
    Blocked(Box<Command>),
    /// The effect did not happen and will not without help.
    DidNotHappen(Box<Command>),
    /// The effect has not happened yet and is not to be tried before `next_at`.
    Later(Box<Command>),
    /// It is unknown whether the effect happened. A lookup, the provider's idempotency key or a person will
    /// settle it.
    InDoubt(Box<Command>),
}

impl Job {
    /// Records a side effect, asks for permission to make its call now, runs `call`, and reports its outcome.
    /// `call` runs at most once, and only after its dispatch was committed; it must send the command's
    /// `idempotency_key` to the provider.
    pub async fn command<F>(&self, intent: Intent, call: impl FnOnce(Command) -> F) -> Result<Fate, Error>
    where
        F: Future<Output = Result<Evidence, Trouble>>,
    {
        let (fence, token) = (self.grant.fence, self.grant.token.clone());
        let reserved = self.client.reserve(self.id(), &Reserve::new(fence, &token, intent)).await?;
        // It happened before.
        if reserved.receipt.is_some() {
            return Ok(Fate::of(reserved));
        }
        let request_id = Some(Uuid::now_v7().simple().to_string());
        let ask = DispatchCommand { fence, token, request_id, estimate: None };
        let command = match self.client.dispatch(&reserved.id, &ask).await {
            Ok(command) => command,
            Err(error) => return Fate::not_dispatched(error),
        };
        let sent = Sent {
            client: self.client.clone(),
            id: command.id.clone(),
            fence,
            token: ask.token,
            dispatch: command.dispatch.as_ref().map(|dispatch| dispatch.number),
        };
        let guard = CutOff(Some(sent));
        let outcome = call(command).await;
        // A separate task: a known outcome is reported even if the caller of this function is cancelled.
        let reported = tokio::spawn(guard.over().report(outcome)).await;
        reported.unwrap_or_else(|broken| std::panic::resume_unwind(broken.into_panic())).map(Fate::of)
    }
}

/// A dispatched call, with the lease that authorizes reporting its outcome.
#[derive(Clone)]
struct Sent {
    client: Client,
    id: CommandId,
    fence: u64,
    token: String,
    dispatch: Option<u32>,
}

impl Sent {
    async fn report(self, outcome: Result<Evidence, Trouble>) -> Result<Command, Error> {
        let Self { client, id, fence, token, dispatch } = self;
        match outcome {
            Ok(evidence) => {
                let Evidence { external_id, reference, response, cost, usage } = evidence;
                let evidence = Some(Proof { kind: EvidenceKind::Provider, reference });
                let receipt =
                    DeliverReceipt { fence, token, dispatch, external_id, response, evidence, cost, usage };
                until_answered(|| client.receipt(&id, &receipt)).await
            }
            Err(Trouble::Refused(error)) => {
                let fail = FailCommand { fence, token, dispatch, error, unsent: false };
                until_answered(|| client.fail_command(&id, &fail)).await
            }
            Err(Trouble::Unsent(error)) => {
                let fail = FailCommand { fence, token, dispatch, error, unsent: true };
                until_answered(|| client.fail_command(&id, &fail)).await
            }
            Err(Trouble::Unknown(error)) => {
                let uncertain = UncertainCommand { fence, token, dispatch, error };
                until_answered(|| client.uncertain(&id, &uncertain)).await
            }
        }
    }
}

/// When dropped before the call has returned, reports that the outcome is unknown.
struct CutOff(Option<Sent>);

impl CutOff {
    fn over(mut self) -> Sent {
        self.0.take().expect("taken once, here")
    }
}

impl Drop for CutOff {
    fn drop(&mut self) {
        let Some(sent) = self.0.take() else { return };
        let why = if std::thread::panicking() { "its call panicked" } else { "its call was cut off" };
        let trouble = Trouble::Unknown(CallFailure::new(ErrorClass::Unknown, why));
        // Without a runtime the process is ending: the lease expires, and the ledger marks the command as
        // uncertain.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move {
                if let Err(error) = sent.report(Err(trouble)).await {
                    tracing::warn!(%error, "a call was cut off, and that could not be reported to the ledger");
                }
            });
        }
    }
}

impl Fate {
    /// Turns a refused dispatch into the outcome of the command. A refusal about the lease, the rate limit or
    /// another call in progress is an error.
    fn not_dispatched(error: Error) -> Result<Self, Error> {
        let Some(command) = error.command() else { return Err(error) };
        let of_the_command = match error.code() {
            Some(
                Code::ApprovalRequired
                | Code::PolicyDenied
                | Code::Budget
                | Code::AlreadySucceeded
                | Code::Superseded
                | Code::InDoubt
                | Code::NotDue,
            ) => true,
            // It failed or was cancelled before.
            Some(Code::IllegalState) => {
                matches!(command.state.known(), Some(CommandState::Failed | CommandState::Cancelled))
            }
            _ => false,
        };
        if of_the_command { Ok(Self::of(command.clone())) } else { Err(error) }
    }

    fn of(command: Command) -> Self {
        let command = Box::new(command);
        match command.state.known() {
            Some(CommandState::Succeeded) => Fate::Happened(command),
            Some(CommandState::Blocked) => Fate::Blocked(command),
            Some(CommandState::Failed | CommandState::Cancelled) => Fate::DidNotHappen(command),
            Some(CommandState::Pending | CommandState::Approved) => Fate::Later(command),
            Some(CommandState::Dispatched | CommandState::Uncertain) | None => Fate::InDoubt(command),
        }
    }

    /// The command if the effect happened; otherwise the handler's outcome: it waits for the approval, or
    /// fails with the reason. A work item that fails with a command in doubt continues once that is settled.
    pub fn or_end(self) -> Result<Command, Outcome> {
        match self {
            Fate::Happened(command) => Ok(*command),
            Fate::Blocked(command) => Err(blocked(&command)),
            Fate::DidNotHappen(command) => {
                let class = command.error.as_ref().and_then(|error| error.class.known());
                let why = said(&command).unwrap_or("it was cancelled").to_owned();
                Err(failed(
                    &command,
                    class.unwrap_or(ErrorClass::PolicyDenied),
                    &format!("did not happen: {why}"),
                ))
            }
            Fate::Later(command) => {
                Err(failed(&command, ErrorClass::Unavailable, "is to be tried again later"))
            }
            Fate::InDoubt(command) => Err(failed(
                &command,
                ErrorClass::Unavailable,
                "is in doubt: it is unknown whether it happened",
            )),
        }
    }
}

fn said(command: &Command) -> Option<&str> {
    let error = command.error.as_ref().and_then(|error| error.message.as_deref());
    error.or_else(|| command.reason.as_ref()?.message.as_deref())
}

fn failed(command: &Command, class: ErrorClass, why: &str) -> Outcome {
    Outcome::Err(Failure::new(class, format!("{} to {} {why}", command.tool, command.target)))
}

fn blocked(command: &Command) -> Outcome {
    let why = said(command).unwrap_or("no reason is given").to_owned();
    match command.reason.as_ref().map(|reason| reason.code.as_str()) {
        Some("policy_denied") => failed(command, ErrorClass::PolicyDenied, &format!("is denied: {why}")),
        Some("budget") => failed(command, ErrorClass::Quota, &format!("is stopped: {why}")),
        _ => {
            let wait = NewWait {
                prompt: Some(format!("{} to {}?", command.tool, command.target)),
                ..NewWait::new(WaitKind::Approval, &format!("command:{}", command.id))
            };
            Outcome::Wait(vec![wait], WaitReason { tool: Some(command.tool.clone()), message: Some(why) })
        }
    }
}
