//! What recovery does with a held work item if its holder stays silent. Knows no rule of its own: it asks [`decide`]
//! for the Tick that would be due then, over the records as they are now.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::tick::recovery_facts;
use crate::{
    Action, Actor, CommandId, Millis, Records, Submission,
    action::Tenants,
    command::Command,
    decide, due,
    event::{Deadline, Event, Fact},
    liveness::{Grade, Liveness, Sighting},
    model::{Step, Work},
    records::{Change, SessionView, Sought},
    recovery::{self, Verdict},
    span::span,
    state::State,
};

/// The decision that comes next unless the holder renews, reports or comes back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forecast {
    /// When it is decided. None: only news decides it, such as a proof of death, a lookup or a person.
    pub at: Option<Millis>,
    /// None where a deadline or a request to cancel decides instead of recovery.
    pub verdict: Option<Verdict>,
    /// The state that follows.
    pub to: State,
    /// The completed step after which it goes on.
    pub from_step: Option<String>,
    /// The commands of which nobody would know whether they took effect.
    pub in_doubt: Vec<Doubted>,
    /// All of it in one sentence.
    pub sentence: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Doubted {
    pub command: CommandId,
    pub tool: String,
    pub target: String,
}

/// The records that the decision reads, beside the work item.
#[derive(Clone, Copy, Default)]
pub struct Beside<'a> {
    pub steps: &'a [Step],
    /// Its open commands.
    pub commands: &'a [Command],
    pub parent: Option<&'a Work>,
}

/// None for a work item that nobody holds.
pub fn forecast(work: &Work, beside: &Beside<'_>, now: Millis) -> Option<Forecast> {
    if !work.state.holds_session() {
        return None;
    }
    let work = without_evidence(work);
    // The armed date may only ask for a look: then the next date of the row decides.
    let mut dates = [work.due_at, due::next(&work, now)].map(|due| due.map(|due| due.max(now)));
    dates.sort();
    let silent = |at| tick(&work, beside, at, u64::MAX, None);
    let outcome = dates.into_iter().flatten().find_map(|at| Some((at, silent(at)?)));
    let (at, after) = match outcome {
        Some((at, after)) => (Some(at), after),
        None => (None, After::unchanged(&work, beside)),
    };
    let recovered = after.events.iter().rev().find_map(|event| match &event.fact {
        Fact::Recovered(recovered) => Some(recovered),
        _ => None,
    });
    let verdict = match recovered {
        Some(recovered) => Some(recovered.verdict),
        None if after.work.state == State::Stalled => Some(recovery::verdict(&recovery_facts(
            &after.work,
            &after.commands,
            beside.steps,
            Grade::Silent,
            at.unwrap_or(now),
        ))),
        None => None,
    };
    let doubted = |command: &Command| Doubted {
        command: command.id,
        tool: command.spec.tool.clone(),
        target: command.spec.target.clone(),
    };
    let mut forecast = Forecast {
        at,
        verdict,
        to: after.work.state,
        from_step: recovered.and_then(|recovered| recovered.from_step.clone()),
        in_doubt: after.commands.iter().filter(|command| command.is_in_doubt()).map(doubted).collect(),
        sentence: String::new(),
    };
    forecast.sentence = sentence(&work, &forecast, &after, now);
    Some(forecast)
}

/// A holder that stays silent brings no evidence either: only the dates of the row count.
fn without_evidence(work: &Work) -> Work {
    let mut work = work.clone();
    if let Some(holder) = &mut work.body.holder {
        holder.liveness = Liveness::Opaque;
    }
    work
}

/// The work item and its open commands after the decision.
pub(super) struct After {
    pub work: Arc<Work>,
    pub commands: Vec<Command>,
    pub events: Vec<Event>,
}

impl After {
    fn unchanged(work: &Work, beside: &Beside<'_>) -> Self {
        Self { work: Arc::new(work.clone()), commands: beside.commands.to_vec(), events: Vec::new() }
    }

    fn deadline(&self) -> Option<Deadline> {
        self.events.iter().find_map(|event| match &event.fact {
            Fact::TimeoutMarked(marked) => Some(marked.deadline),
            _ => None,
        })
    }
}

/// The Tick at that time of a sweeper that has watched for so long. None where it would change nothing.
pub(super) fn tick(
    work: &Work,
    beside: &Beside<'_>,
    at: Millis,
    watched_ms: u64,
    sighting: Option<&Sighting>,
) -> Option<After> {
    let action = Action::Tick { work: work.id, looked_at: at, watched_ms, sighting: sighting.cloned() };
    let submission = Submission::new(Actor::system("sweeper"), Tenants::All, action, [0; 16]);
    let decision = decide(&records(work, beside), &submission, at).ok()?;
    if decision.events.is_empty() {
        return None;
    }
    let mut after = After::unchanged(work, beside);
    for change in decision.changes {
        match change {
            Change::Work { work: changed, .. } if changed.id == work.id => after.work = changed,
            Change::Command { command, .. } => {
                match after.commands.iter_mut().find(|known| known.id == command.id) {
                    Some(known) => *known = *command,
                    None => after.commands.push(*command),
                }
            }
            _ => {}
        }
    }
    after.events = decision.events;
    Some(after)
}

fn records(work: &Work, beside: &Beside<'_>) -> Records {
    let mut records = Records::default();
    records.works.insert(work.id, Arc::new(work.clone()));
    records.steps.insert(work.id, beside.steps.to_vec());
    records.looked_for.extend([Sought::Open(work.id), Sought::Outgoing(work.id)]);
    beside.commands.iter().cloned().for_each(|command| records.take_in(command));
    if let Some(parent) = work.spec.parent {
        records.peers.insert(parent, beside.parent.cloned());
    }
    if let Some(key) = work.spec.session_key() {
        records.sessions.insert(key, SessionView { holder: Some(work.id), ..SessionView::default() });
    }
    records
}

fn sentence(work: &Work, forecast: &Forecast, after: &After, now: Millis) -> String {
    let holder = work.body.holder.as_ref().map_or("its holder", |holder| holder.id.as_str());
    let doubted: Vec<String> =
        forecast.in_doubt.iter().map(|doubted| format!("`{}` to {}", doubted.tool, doubted.target)).collect();
    let doubted = doubted.join(" and ");
    let then = match (forecast.verdict, forecast.to) {
        (Some(Verdict::Retry), _) => "queued again from its beginning".to_owned(),
        (Some(Verdict::Resume), _) => {
            format!("queued again after step `{}`", forecast.from_step.as_deref().unwrap_or_default())
        }
        (Some(Verdict::Reconcile), _) => format!("stalled until a lookup says whether {doubted} happened"),
        (Some(Verdict::Quarantine), _) if !doubted.is_empty() => {
            return clause(
                work,
                forecast,
                now,
                holder,
                &format!("quarantined: a person must find out whether {doubted} happened"),
            );
        }
        (Some(Verdict::Quarantine), _) => {
            format!("quarantined: {} holders in a row were lost with it", after.work.body.lapses)
        }
        (Some(Verdict::Abandon), _) => match (&work.body.abandon_request, work.state) {
            (Some(request), _) => format!("abandoned, as {} asked", request.requested_by.label()),
            (None, State::CancelRequested) => {
                "abandoned: it was asked to stop, and nobody can know how far it got".to_owned()
            }
            (None, _) => "abandoned: nobody else can know how it ended".to_owned(),
        },
        (Some(Verdict::Leave), _) => {
            "stalled until it comes back, its death is proven, or a person asks to abandon it".to_owned()
        }
        (Some(Verdict::Fail), _) => {
            format!("failed: its {} failures are exhausted", after.work.body.failures)
        }
        (Some(Verdict::TimeOut), _) => "timed out, as it declared for a lost holder".to_owned(),
        (None, State::Cancelled) => "cancelled: stopping it half-way is harmless".to_owned(),
        (None, to) => match after.deadline() {
            Some(Deadline::Overall) => "timed out at its overall deadline".to_owned(),
            Some(Deadline::Execution) if to == State::RetryScheduled => {
                "tried again: the attempt reaches its execution timeout".to_owned()
            }
            Some(Deadline::Execution | Deadline::Start) | None => format!("{to}"),
        },
    };
    let doubt = match forecast.verdict {
        _ if doubted.is_empty() => String::new(),
        Some(Verdict::Reconcile) => String::new(),
        Some(Verdict::Retry | Verdict::Resume) => {
            format!("; {doubted} would be in doubt and may be sent again with the same key")
        }
        _ => format!("; {doubted} would be in doubt"),
    };
    clause(work, forecast, now, holder, &format!("{then}{doubt}"))
}

/// Who is silent and when it is decided, before what follows.
fn clause(work: &Work, forecast: &Forecast, now: Millis, holder: &str, then: &str) -> String {
    match (work.state, forecast.at) {
        (State::Stalled, None) => format!("{holder} is silent; it stays {then}."),
        (State::Stalled, Some(at)) => format!("{holder} is silent; {} it is {then}.", when(at, now)),
        (_, Some(at)) => format!("If {holder} stays silent, {} it is {then}.", when(at, now)),
        (_, None) => format!("If {holder} stays silent, it is {then}."),
    }
}

fn when(at: Millis, now: Millis) -> String {
    if at <= now { "at the next sweep".to_owned() } else { format!("in {}", span(at - now)) }
}
