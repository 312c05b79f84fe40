//! One command of the relay: evaluated, dispatched, called, and its outcome recorded.

use std::{
    sync::PoisonError,
    time::{Duration, Instant, SystemTime},
};

use serde_json::Value;
use tenure_core::{
    Actor, Code, Millis, Payload,
    command::{CallError, Effect, Evaluation},
    model::ErrorClass,
};
use tenure_store::{Due, Error, Sending};

use super::{Shared, gone};
use crate::{
    evaluator::Asked,
    executor::{Call, CallOutcome, Exec, Http},
    tools,
};

/// The pause between two attempts to record an outcome while the ledger is unavailable.
const DELIVER_AGAIN: Duration = Duration::from_millis(500);

/// How one tool's calls are made.
#[derive(Clone)]
pub(super) enum Executor {
    Http(Box<Http>),
    Exec(Exec),
}

/// The result of sending a command.
pub(super) enum Done {
    /// Called, or no call was needed: the ledger's record says when it is due again, if at all.
    Told,
    /// Another relay was faster, or its turn has not come.
    Lost,
    /// The ledger refused it; an early retry would be refused too.
    Refused(String),
    /// The ledger is unavailable.
    Away(String),
}

impl Shared {
    /// The evaluation by policies, budgets and configuration now, with the reserving principal as the actor.
    pub fn evaluation(&self, due: &Due, now: Millis) -> Evaluation {
        let id = due.work.id.to_string();
        let asked = Asked::of(&due.command.body.submitter, &due.work, &id, now);
        let arguments = due.arguments.as_ref().map_or(Value::Null, Payload::value);
        self.evaluator.evaluation(asked, &due.command, &arguments, None)
    }

    /// How long the tool's rate delays it. A denied command takes no token.
    pub fn rate(&self, due: &Due, evaluation: &Evaluation) -> Option<Duration> {
        if evaluation.decision.effect == Effect::Deny {
            return None;
        }
        self.evaluator.take(&due.command.spec.tool).err()
    }

    pub async fn send(&self, due: &Due, evaluation: Evaluation, now: Millis) -> Done {
        let caller = self.ledger.caller(Actor::system("relay"));
        let id = due.command.id;
        let asked = Since::now();
        let dispatched = match caller.relay_dispatch(id, evaluation).await {
            Err(error) if error.refusal().is_some_and(|refusal| refusal.code == Code::PolicyStale) => {
                self.evaluator.current(|| caller.relay_dispatch(id, self.evaluation(due, now))).await
            }
            dispatched => dispatched,
        };
        let sending = match dispatched {
            Ok(sending) => sending,
            Err(Error::NotDispatched(not)) => {
                let due = not.command.due_at.is_some_and(|at| at <= now);
                return match not.refusal.code {
                    Code::AlreadyDispatched | Code::NotDue => Done::Lost,
                    _ if due => Done::Refused(not.refusal.to_string()),
                    _ => Done::Told,
                };
            }
            Err(Error::Refused(refusal)) => return Done::Refused(refusal.to_string()),
            // It may be dispatched. In that case nobody calls, and its deadline makes it uncertain.
            Err(error) => return Done::Away(error.to_string()),
        };
        let outcome = if asked.elapsed() >= self.margin {
            unsent(
                ErrorClass::Timeout,
                "its dispatch was confirmed so late that another process may be sending it",
            )
        } else {
            self.call(due, &sending, now).await
        };
        self.remember(due, &outcome, now);
        self.deliver(&sending, outcome).await
    }

    async fn call(&self, due: &Due, sending: &Sending, now: Millis) -> CallOutcome {
        let spec = &due.command.spec;
        let unsent = |message: String| unsent(ErrorClass::Misconfigured, message);
        if let Some(why) = self.gone().refuses(due, now) {
            return unsent(why);
        }
        let Some(arguments) = sending.arguments.clone() else {
            return unsent("its arguments were erased, so it cannot be sent".to_owned());
        };
        match self.executor(&spec.tool) {
            Some(Executor::Http(http)) => http.call(&call_of(due, arguments), now).await,
            Some(Executor::Exec(exec)) => exec.call(&call_of(due, arguments)).await,
            None => unsent(format!(
                "the configuration no longer declares an executor for `{}`: declare one, then replay",
                spec.tool
            )),
        }
    }

    /// The tool's configured executor. Its connections are kept while the configuration stays the same.
    fn executor(&self, tool: &str) -> Option<Executor> {
        let live = self.evaluator.live();
        let how = live.tools.get(tool).relay.as_ref()?;
        let mut known = self.executors.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, executor)) = known.get(tool).filter(|(declared, _)| declared == how) {
            return Some(executor.clone());
        }
        let executor = match how {
            tools::Relay::Http(target) => Executor::Http(Box::new(Http::new(&self.outbound, target.clone()))),
            tools::Relay::Exec(program) => Executor::Exec(Exec(program.clone())),
        };
        known.insert(tool.to_owned(), (how.clone(), executor.clone()));
        Some(executor)
    }

    fn remember(&self, due: &Due, outcome: &CallOutcome, now: Millis) {
        match outcome {
            CallOutcome::Gone(_) => self.gone().close(due, now),
            CallOutcome::Succeeded(_) => self.gone().open(due),
            CallOutcome::Failed { .. } | CallOutcome::Uncertain(_) => {}
        }
    }

    fn gone(&self) -> std::sync::MutexGuard<'_, gone::Gone> {
        self.gone.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a known outcome, however long the ledger is unavailable: recording is idempotent. It is lost
    /// only with the process, and then the deadline makes the command uncertain.
    async fn deliver(&self, sending: &Sending, outcome: CallOutcome) -> Done {
        let caller = self.ledger.caller(Actor::system("relay"));
        let (proof, id) = (&sending.proof, sending.command.id);
        loop {
            let recorded = match outcome.clone() {
                CallOutcome::Succeeded(evidence) => caller.receipt(proof, id, *evidence).await,
                CallOutcome::Failed { error, unsent } => caller.fail_command(proof, id, error, unsent).await,
                CallOutcome::Gone(error) => caller.fail_command(proof, id, error, false).await,
                CallOutcome::Uncertain(error) => caller.uncertain(proof, id, error).await,
            };
            match recorded {
                Ok(_) => return Done::Told,
                // Another process has recorded an outcome meanwhile: a sweeper, a lookup, a person.
                Err(Error::Refused(refusal)) => {
                    if matches!(outcome, CallOutcome::Succeeded(_)) {
                        tracing::error!(command = %id, %refusal, "a call took effect, and the ledger refuses its receipt");
                    } else {
                        tracing::info!(command = %id, %refusal, "the outcome of a call was recorded already");
                    }
                    return Done::Told;
                }
                Err(error @ (Error::Stopped(_) | Error::Corrupt(_) | Error::Newer(_))) => {
                    return Done::Away(error.to_string());
                }
                Err(error) => {
                    tracing::warn!(command = %id, %error, "the outcome of a call cannot be recorded; retrying");
                    tokio::time::sleep(DELIVER_AGAIN).await;
                }
            }
        }
    }
}

fn unsent(class: ErrorClass, message: impl Into<String>) -> CallOutcome {
    let error = CallError { class, message: message.into(), retry_after_ms: None };
    CallOutcome::Failed { error, unsent: true }
}

/// When a dispatch was requested, by two clocks: one stops while the machine sleeps, the other may be set.
struct Since(Instant, SystemTime);

impl Since {
    fn now() -> Self {
        Self(Instant::now(), SystemTime::now())
    }

    /// A dispatch's deadline exceeds the call's timeout by a margin: beyond that margin the call could
    /// outlast the deadline.
    fn elapsed(&self) -> Duration {
        self.0.elapsed().max(self.1.elapsed().unwrap_or_default())
    }
}

/// The command as its executor or its lookup sees it.
pub(crate) fn call_of(due: &Due, arguments: Payload) -> Call {
    let (command, spec) = (&due.command, &due.command.spec);
    Call {
        command: command.id,
        work: command.work,
        tenant: spec.tenant.clone(),
        tool: spec.tool.clone(),
        target: spec.target.clone(),
        arguments,
        input_hash: spec.input_hash,
        idempotency_key: command.idempotency_key(),
        session: due.work.spec.session.clone(),
        correlation_id: Some(due.work.spec.correlation_id.clone()),
    }
}
