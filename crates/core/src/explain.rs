//! Explains in one sentence why a work item is in its state, and what a person can do about it. Derived from
//! the records alone; it decides nothing.

use crate::{
    Millis, activity,
    command::{self, Command},
    due,
    event::{Event, Fact},
    liveness::{self, Grade},
    model::{Disposition, ErrorClass, OnTimeout, ReasonCode, Wait, WaitKind, WaitState, Work},
    next::Next,
    policy::{OnExpiry, OnSpinning},
    records::{referenced_command, referenced_work},
    recovery::POISON,
    span::span,
    state::{State, waiting},
};

mod effects;
mod ended;
mod idle;

pub use idle::Idle;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// Explains who holds it, since when, why it does not go on, and what will happen without help.
    pub sentence: String,
    /// Advice for a person, in words; `nothing: …` if it continues without help.
    pub advice: String,
    /// The commands for it, the most useful first.
    pub next: Vec<Next>,
}

/// The advice, and the commands for it.
type Advice = (String, Vec<Next>);

/// Advice without a command.
fn nothing(because: impl std::fmt::Display) -> Advice {
    (format!("nothing: {because}"), Vec::new())
}

impl Explanation {
    /// The explanation of a work item, extended by that of a command which needs something. If the work item
    /// itself needs nothing, the command's next step is returned.
    pub fn with_command(self, command: Explanation) -> Self {
        let sentence = format!("{} Its command {}", self.sentence, command.sentence);
        if self.advice.starts_with("nothing") {
            return Self { sentence, ..command };
        }
        Self { sentence, ..self }
    }
}

/// The records around a work item.
#[derive(Clone, Copy, Default)]
pub struct Around<'a> {
    pub waits: &'a [Wait],
    /// Its latest events, oldest first.
    pub last: &'a [Event],
    /// Its commands that are not settled.
    pub commands: &'a [Command],
    /// For a queued work item: another one that holds its session, or comes first in it.
    pub ahead: Option<&'a Work>,
    /// For a queued work item: the workers that wait for work, as far as the reader's daemon knows them.
    pub idle: Option<&'a Idle>,
}

/// Explains a work item from its row and the records around it.
pub fn explain(work: &Work, around: &Around<'_>, now: Millis) -> Explanation {
    let Around { waits, last, commands, ahead, idle } = *around;
    let view = View { work, waits, last, commands, ahead, idle, now };
    let (sentence, (advice, next)) = view.with_effects(match work.state {
        State::Queued => view.queued(),
        State::RetryScheduled => view.retrying(),
        State::Running => view.running(),
        waiting!() => view.waiting(),
        State::Stalled => view.stalled(),
        State::CancelRequested => view.cancelling(),
        State::Quarantined => view.quarantined(),
        State::Succeeded => view.succeeded(),
        State::CompletedWithWarnings => view.warned(),
        State::Failed => view.ended_badly("Failed"),
        State::TimedOut => view.ended_badly("Timed out"),
        State::Cancelled => view.cancelled(),
        State::Abandoned => view.abandoned(),
    });
    Explanation { sentence, advice, next }
}

#[derive(Clone, Copy)]
struct View<'a> {
    work: &'a Work,
    waits: &'a [Wait],
    last: &'a [Event],
    commands: &'a [Command],
    ahead: Option<&'a Work>,
    idle: Option<&'a Idle>,
    now: Millis,
}

impl View<'_> {
    fn ago(&self, at: Millis) -> String {
        format!("{} ago", span(self.now - at))
    }

    fn until(&self, at: Millis) -> String {
        if at <= self.now { "now".to_owned() } else { format!("in {}", span(at - self.now)) }
    }

    /// The event that brought it into its present state.
    fn arrival(&self) -> Option<&Event> {
        let moved = |event: &&Event| event.to == self.work.state && event.from != Some(event.to);
        self.last.iter().rev().find(moved)
    }

    /// For how long it has been in its present state.
    fn age(&self) -> String {
        span(self.now - self.arrival().map_or(self.work.updated_at, |event| event.at))
    }

    fn holder(&self) -> &str {
        self.work.body.holder.as_ref().map_or("its holder", |holder| holder.id.as_str())
    }

    /// The overall deadline, as a closing clause.
    fn overall(&self) -> String {
        match self.work.spec.overall_at() {
            Some(at) => format!("; its overall deadline ends it {}", self.until(at)),
            None => String::new(),
        }
    }

    fn error(&self) -> String {
        match &self.work.body.error {
            Some(error) => {
                let message = error.message.as_deref().unwrap_or("(no message recorded)");
                format!("{}: {message}", class(error.class))
            }
            None => "no error was given".to_owned(),
        }
    }

    fn queued(&self) -> (String, Advice) {
        let work = self.work;
        let why = match self.arrival().map(|event| &event.fact) {
            Some(Fact::Released(_)) => "its holder released it",
            Some(Fact::RetryDue(_)) => "its retry is due",
            Some(Fact::RetriedNow(_)) => "an operator retried it",
            Some(Fact::Recovered(_)) => "its holder was lost and recovery queued it again",
            Some(Fact::WaitResolved(_) | Fact::WaitTimedOut(_)) => "its last wait is answered",
            Some(Fact::WaitsRevoked(_)) => "its waits were cancelled",
            Some(Fact::Requeued(_)) => "a person decided to run it again",
            Some(_) | None if work.attempt == 0 => "nobody has claimed it yet",
            Some(_) | None => "nobody has claimed it again",
        };
        let bound = work.starter();
        if let Some(owner) = bound {
            let then = match work.body.bound_until {
                Some(at) => format!("; after that it stalls {}", self.until(at)),
                None => String::new(),
            };
            let sentence = format!(
                "Queued {}: {why}; only {} (incarnation {}), which started it, may claim it{then}{}.",
                self.age(),
                owner.worker,
                owner.incarnation,
                self.overall()
            );
            return (sentence, nothing(format_args!("{} claims it, or it stalls", owner.worker)));
        }
        if let Some(ahead) = self.ahead {
            return self.behind(ahead);
        }
        let start = match work.spec.start_at().filter(|_| work.attempt == 0) {
            Some(at) => format!("; unless it is claimed, it times out {}", self.until(at)),
            None => String::new(),
        };
        let (there, advice) = self.capacity();
        let sentence = format!("Queued {}: {why}{there}{start}{}.", self.age(), self.overall());
        (sentence, advice)
    }

    /// One work item of a session is held at a time.
    fn behind(&self, ahead: &Work) -> (String, Advice) {
        let session = self.work.spec.session.as_deref().unwrap_or_default();
        let (id, state) = (ahead.id, ahead.state);
        let (why, until) = if state.holds_session() {
            let holder = ahead.body.holder.as_ref().map_or("nobody", |holder| holder.id.as_str());
            let why = match state {
                State::Stalled => format!("{id} holds its session `{session}` and is stalled"),
                _ => format!("{holder} holds its session `{session}` with {id}, which is {state}"),
            };
            (why, "releases the session")
        } else {
            (format!("{id} is older, {state}, and comes first in its session `{session}`"), "is done")
        };
        let sentence = format!("Queued {}: {why}{}.", self.age(), self.overall());
        (sentence, (format!("nothing: it is claimed once {id} {until}"), vec![Next::Explain(id)]))
    }

    fn retrying(&self) -> (String, Advice) {
        let work = self.work;
        let due = work.next_retry_at.unwrap_or(self.now);
        let sentence = format!(
            "Retry scheduled: attempt {} failed {} ({}), failure {} of {}; it is queued again {}{}.",
            work.attempt,
            self.ago(work.updated_at),
            self.error(),
            work.body.failures,
            work.spec.policy.retry.max_attempts,
            self.until(due),
            self.overall()
        );
        let advice = format!("nothing: it is queued again {}", self.until(due));
        (sentence, (advice, vec![Next::Retry(work.id)]))
    }

    fn running(&self) -> (String, Advice) {
        let work = self.work;
        let spinning = activity::spinning(work, self.now);
        let quiet = match spinning {
            Some(since) => format!(
                ", but has shown no progress, step, command or receipt for {}: it is spinning{}",
                span(self.now - since),
                self.then_if_spinning()
            ),
            None => String::new(),
        };
        let mut sentence = format!(
            "Running {}: {} holds it (attempt {}{}){}{quiet}{}",
            self.age(),
            self.holder(),
            work.attempt,
            step(work),
            self.lease(),
            self.overall()
        );
        if let Some(at) = work.body.execution_at {
            sentence.push_str(&format!("; the attempt may run until its deadline {}", self.until(at)));
        }
        sentence.push('.');
        let next = match &work.body.abandon_request {
            Some(request) => nothing(format_args!(
                "{} asked to abandon it, which acts only if its lease lapses",
                request.requested_by.label()
            )),
            None if spinning.is_some() => (
                "look at what it did last; if it makes no sense, take it away from its holder".to_owned(),
                vec![Next::Events(work.id), Next::Quarantine(work.id)],
            ),
            None => ("nothing: it is being worked on".to_owned(), vec![Next::Cancel(work.id)]),
        };
        (sentence, next)
    }

    fn then_if_spinning(&self) -> &'static str {
        match self.work.spec.policy.spinning.map(|spinning| spinning.then) {
            Some(OnSpinning::StopRenewing) if self.work.body.commands.unsettled() > 0 => {
                ", and keeps its lease while a command of it is in progress"
            }
            Some(OnSpinning::StopRenewing) => ", and its renewals are refused until it sends new progress",
            Some(OnSpinning::Mark | OnSpinning::Alert) | None => "",
        }
    }

    /// The lease's freshness, and the consequence of a lapse.
    fn lease(&self) -> String {
        let Some(lease) = &self.work.lease else { return String::new() };
        let renewed = self.ago(lease.renewed_at);
        let missed = liveness::grade(self.work, None, self.now).map_or(0, |(_, missed)| missed);
        let lapse = due::lapse_at(self.work).unwrap_or(self.now);
        if missed < 2 && self.now < lease.expires_at {
            return format!(", renewed {renewed}");
        }
        let (when, then) = (self.until(lapse), self.verdict());
        format!(
            ", last renewed {renewed}, {missed} renewals missed; if it stays silent, its lease lapses {when} \
             and {then}"
        )
    }

    /// The verdict after a lapse, in words. The rules are those of `recovery::verdict`.
    fn verdict(&self) -> String {
        let work = self.work;
        let body = &work.body;
        if let Some(request) = &body.abandon_request {
            return format!("recovery abandons it, as {} requested", request.requested_by.label());
        }
        if work.owner_bound_started() {
            return match work.spec.policy.on_expiry {
                OnExpiry::Timeout => "recovery times it out, as it declared".to_owned(),
                OnExpiry::Leave => "recovery leaves it until its owner returns or is proven dead".to_owned(),
            };
        }
        let lapse = work.lapse_counts();
        if body.lapses + lapse >= POISON {
            "recovery quarantines it".to_owned()
        } else if body.failures + lapse >= work.spec.policy.retry.max_attempts {
            "recovery fails it, because its attempts are exhausted".to_owned()
        } else {
            "recovery queues it again".to_owned()
        }
    }

    fn waiting(&self) -> (String, Advice) {
        let mut open: Vec<&Wait> = self.waits.iter().filter(|wait| wait.state == WaitState::Open).collect();
        open.sort_by_key(|wait| (wait.kind, wait.deadline_at.unwrap_or(Millis::MAX), wait.id));
        let Some(wait) = open.first() else { return self.outside() };
        let whom = wait.detail.assignee.as_deref().unwrap_or(wait.kind.asked());
        let ask = match &wait.detail.prompt {
            Some(prompt) => format!("{whom} must answer `{}`: {prompt}", wait.reference),
            None => format!("{whom} must answer `{}`", wait.reference),
        };
        let others = match open.len() {
            1 => String::new(),
            more => format!(", and {} more must be answered", more - 1),
        };
        let sentence = format!(
            "Waiting {}: {ask}{others}; {}{}.",
            span(self.now - wait.opened_at),
            self.deadline(wait),
            self.overall()
        );
        let id = self.work.id;
        let advice = match (referenced_work(&wait.reference), referenced_command(&wait.reference)) {
            (Some(target), _) => {
                (format!("nothing: it continues when {target} ends"), vec![Next::Explain(target)])
            }
            (None, Some(command)) if wait.kind == WaitKind::Approval => (
                "approve exactly this command, or reject it".to_owned(),
                vec![Next::ApproveCommand(command), Next::RejectCommand(command)],
            ),
            (None, Some(command)) => {
                (format!("nothing: it continues when {command} is settled"), vec![Next::ShowCommand(command)])
            }
            (None, None) => match wait.kind {
                WaitKind::Approval => {
                    ("approve it, or reject it".to_owned(), vec![Next::Approve(id), Next::Reject(id)])
                }
                WaitKind::Auth => ("connect the account again".to_owned(), vec![Next::Reconnect(id)]),
                WaitKind::User | WaitKind::Tool | WaitKind::External => {
                    ("answer it".to_owned(), vec![Next::answer(wait)])
                }
            },
        };
        (sentence, advice)
    }

    fn deadline(&self, wait: &Wait) -> String {
        let Some(at) = wait.deadline_at else { return "it waits without a deadline".to_owned() };
        let then = match wait.detail.on_timeout {
            OnTimeout::TimeOut => "times out",
            OnTimeout::Fail => "fails",
            OnTimeout::Warn => "completes with a warning",
            OnTimeout::Cancel => "is cancelled",
            OnTimeout::Escalate => "escalates and keeps waiting",
            OnTimeout::Default => "continues with the default answer",
        };
        format!("unanswered, it {then} {}", self.until(at))
    }

    fn outside(&self) -> (String, Advice) {
        let sentence = format!(
            "Waiting {}: it is owned externally, and ends when its owner completes it{}.",
            self.age(),
            self.overall()
        );
        (sentence, ("nothing: its owner completes it".to_owned(), vec![Next::Abandon(self.work.id)]))
    }

    /// Explains who held it, whether its death is proven, whether it had started, what is in doubt, and what recovery
    /// would do.
    fn stalled(&self) -> (String, Advice) {
        let work = self.work;
        let held = match (&work.body.holder, &work.lease, &work.body.first_started) {
            (Some(holder), Some(lease), _) => {
                format!("{} held it and last renewed {}", holder.id, self.ago(lease.renewed_at))
            }
            (_, _, Some(first)) => format!("{} started it and did not come back for it", first.worker),
            (_, _, None) => "nobody holds it".to_owned(),
        };
        let proof = match self.grade() {
            Grade::Dead => "its process is proven gone",
            Grade::Suspended => {
                "its process was stopped when last seen, which does not prove that it is dead"
            }
            Grade::Alive | Grade::Silent => "nothing proves that it is dead",
        };
        let started = if work.started() { "it had started" } else { "it had not started" };
        let plan = self.stalled_plan();
        let sentence = format!(
            "Stalled {}: {held}; {proof}; {started}{}, {}; {plan}{}.",
            self.age(),
            step(work),
            self.doubt(),
            self.overall()
        );
        let next = match &work.body.abandon_request {
            Some(_) => nothing("the next sweep abandons it"),
            None if work.body.commands.unsettled() > 0 && !work.owner_bound_started() => {
                ("nothing: lookups settle it".to_owned(), vec![Next::Commands(work.id)])
            }
            None => (
                "abandon it once you know that its owner will not return; until then nothing: its owner may \
                 still continue"
                    .to_owned(),
                vec![Next::Abandon(work.id)],
            ),
        };
        (sentence, next)
    }

    fn doubt(&self) -> String {
        match self.work.body.commands.unsettled() {
            0 => "nothing is in doubt".to_owned(),
            1 => "a command is in doubt".to_owned(),
            many => format!("{many} commands are in doubt"),
        }
    }

    /// The result of the last check of the holder's process.
    fn grade(&self) -> Grade {
        let graded = self.last.iter().rev().find_map(|event| match &event.fact {
            Fact::LeaseLapsed(lapsed) => Some(lapsed.grade),
            _ => None,
        });
        let dead = self.work.body.reason.as_ref().is_some_and(|reason| reason.code == ReasonCode::HolderDead);
        graded.unwrap_or(if dead { Grade::Dead } else { Grade::Silent })
    }

    fn stalled_plan(&self) -> String {
        let body = &self.work.body;
        match (&body.abandon_request, &body.cancel) {
            (Some(request), _) => {
                format!("recovery abandons it, as {} requested", request.requested_by.label())
            }
            (None, Some(cancel)) => format!(
                "{} requested a cancel {}, and its owner will be notified if it returns",
                cancel.requested_by.label(),
                self.ago(cancel.requested_at)
            ),
            (None, None) if self.work.body.commands.unsettled() > 0 && !self.work.owner_bound_started() => {
                "recovery continues once the commands in doubt are settled".to_owned()
            }
            (None, None) => "recovery leaves it until its owner returns, is proven dead, or somebody \
             requests its end"
                .to_owned(),
        }
    }

    fn cancelling(&self) -> (String, Advice) {
        let Some(cancel) = &self.work.body.cancel else { return self.running() };
        let notified = match cancel.acknowledged_at {
            Some(at) => format!("was notified {}", self.ago(at)),
            None => "has not been notified yet".to_owned(),
        };
        let limit = if self.now < cancel.deadline_at {
            format!("has {} to stop", span(cancel.deadline_at - self.now))
        } else {
            "can no longer renew".to_owned()
        };
        let lapse = due::lapse_at(self.work).unwrap_or(self.now);
        let (end, at) = if due::harmless_to_cancel(self.work) && self.work.body.abandon_request.is_none() {
            ("cancelled", lapse)
        } else {
            ("abandoned", lapse.max(cancel.deadline_at))
        };
        let sentence = format!(
            "Cancel requested {} by {} ({}): {} {notified} and {limit}; if its lease lapses it is {end} {}.",
            self.ago(cancel.requested_at),
            cancel.requested_by.label(),
            cancel.reason.as_deref().unwrap_or("no reason recorded"),
            self.holder(),
            self.until(at)
        );
        (sentence, nothing("its holder stops, or its lease expires"))
    }

    fn quarantined(&self) -> (String, Advice) {
        let reason = self.work.body.reason.as_ref();
        let kept = reason.and_then(|reason| reason.message.as_deref()).unwrap_or("no message recorded");
        let doubtful = self.commands.iter().any(Command::is_in_doubt).then(|| command::report(self.commands));
        let in_doubt = self.work.body.commands.unsettled() > 0;
        let message = match reason.map(|reason| reason.code) {
            // The recorded message describes the doubt at that time.
            Some(ReasonCode::InDoubt) if !in_doubt => "nothing is in doubt any more",
            Some(ReasonCode::InDoubt) => doubtful.as_deref().unwrap_or(kept),
            Some(_) | None => kept,
        };
        let why = match reason.map(|reason| reason.code) {
            Some(ReasonCode::PoisonLapses) => "it has lost one holder after another",
            Some(ReasonCode::PoisonFingerprint) => "it failed repeatedly in the same way",
            Some(ReasonCode::InDoubt) if in_doubt => "a side effect is in doubt",
            Some(ReasonCode::InDoubt) => "a side effect was in doubt",
            Some(ReasonCode::Operator) => "an operator set it aside",
            Some(
                ReasonCode::WaitingForAnswer
                | ReasonCode::ExternalOwner
                | ReasonCode::RetryBackoff
                | ReasonCode::ExecutionTimeout
                | ReasonCode::LeaseLapsed
                | ReasonCode::HolderDead
                | ReasonCode::OwnerAbsent
                | ReasonCode::CancelRequested,
            )
            | None => "it was set aside",
        };
        let sentence =
            format!("Quarantined {}: {why} ({message}); it stays until a person decides.", self.age());
        let id = self.work.id;
        if in_doubt {
            let doubtful = self.commands.iter().find(|command| command.is_in_doubt());
            let record = doubtful.map(|c| [Next::Record(c.id, true), Next::Record(c.id, false)]);
            let next = record.into_iter().flatten().chain([Next::Commands(id)]).collect();
            let advice = "find out what happened, and record it; then decide on the work item".to_owned();
            return (sentence, (advice, next));
        }
        let advice = match self.work.spec.disposition {
            Disposition::ExternallyOwned => (
                "decide how it ended: its owner runs it, not the queue".to_owned(),
                vec![Next::DecideFailed(id)],
            ),
            Disposition::Rerunnable | Disposition::OwnerBound => (
                "decide whether it runs again or has ended".to_owned(),
                vec![Next::Requeue(id), Next::DecideFailed(id)],
            ),
        };
        (sentence, advice)
    }
}

fn step(work: &Work) -> String {
    work.body.step.as_ref().map_or_else(String::new, |step| format!(", step `{step}`"))
}

fn class(class: ErrorClass) -> &'static str {
    match class {
        ErrorClass::Transport => "transport",
        ErrorClass::Timeout => "timeout",
        ErrorClass::RateLimited => "rate limited",
        ErrorClass::Unavailable => "unavailable",
        ErrorClass::Validation => "validation",
        ErrorClass::Auth => "auth",
        ErrorClass::Quota => "quota",
        ErrorClass::PolicyDenied => "policy denied",
        ErrorClass::Misconfigured => "misconfigured",
        ErrorClass::Unsupported => "unsupported",
        ErrorClass::Unknown => "unknown",
    }
}
