//! Which open work items do not progress, and why: one rule over facts. Stores select candidates, and this decides. It
//! changes nothing.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::{
    CommandId, Millis, WaitId, WorkId, activity,
    command::{self, Command, CommandState},
    due,
    model::{Disposition, ReasonCode, Wait, WaitKind, WaitState, Work},
    records::{is_reserved, referenced_command, referenced_work},
    span::span,
    state::State,
};

/// Why a work item does not progress. The first that applies, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// Nobody knows whether one of its commands took effect.
    InDoubt,
    /// Set aside after it lost several holders, or failed several times in the same way.
    Poison,
    /// It waits for a work item that waits for it.
    CircularWait,
    /// It waits for an answer that nobody is expected to give.
    UnansweredWait,
    /// Its lease expired, and nobody else may go on.
    LeaseLost,
    /// Its retry is overdue.
    RetryOverdue,
    /// Its holder renews and shows nothing else.
    Spinning,
    /// No worker claims it.
    NoWorker,
}

impl Cause {
    pub const ALL: [Cause; 8] = [
        Cause::InDoubt,
        Cause::Poison,
        Cause::CircularWait,
        Cause::UnansweredWait,
        Cause::LeaseLost,
        Cause::RetryOverdue,
        Cause::Spinning,
        Cause::NoWorker,
    ];

    /// The safe action, for all of a cause.
    pub fn action(self) -> &'static str {
        match self {
            Cause::InDoubt => {
                "Find out whether each command took effect, and record it; lookups do that by themselves where the tool \
                 has one. Nothing is sent again before."
            }
            Cause::Poison => {
                "Read the errors of its attempts. Requeue it once their cause is repaired; otherwise decide that it failed."
            }
            Cause::CircularWait => "Cancel one of them: those that wait for it go on.",
            Cause::UnansweredWait => {
                "Find out who should answer. Answer it; if nobody will, cancel the work item."
            }
            Cause::LeaseLost => {
                "Look for its holder, which may still go on. Abandon it only once you know that it will not."
            }
            Cause::RetryOverdue => "Check that a sweeper runs; retrying now does no harm.",
            Cause::Spinning => {
                "Look at what its holder repeats. A quarantine takes the lease away from it, and a person decides."
            }
            Cause::NoWorker => "Start a worker that claims this kind, or add the kind to one that runs.",
        }
    }
}

/// How long something may take before it counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// A work item that could be claimed, and a wait without a deadline that nobody is assigned to.
    pub idle_ms: Millis,
    /// A retry that is due.
    pub retry_ms: Millis,
}

/// The workers that may take a queued work item.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capacity {
    /// Its session, if it has one, is free for it.
    pub claimable: bool,
    /// A worker holds a work item of the same tenant, source and kind.
    pub busy: bool,
    /// A claim that admits it waits at this daemon, or did a short time ago.
    pub seen: bool,
}

/// The records around one work item.
#[derive(Clone, Copy)]
pub struct StuckFacts<'a> {
    pub work: &'a Work,
    /// Its open waits.
    pub waits: &'a [Wait],
    /// Its open commands, and those that its waits name.
    pub commands: &'a [Command],
    /// The circle of waits that it is part of, itself first. Empty: none.
    pub circle: &'a [WorkId],
    pub capacity: Capacity,
}

/// A fact that supports the cause, with the ids that it names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proof {
    pub text: String,
    pub works: Vec<WorkId>,
    pub wait: Option<WaitId>,
    pub command: Option<CommandId>,
    pub worker: Option<String>,
}

impl Proof {
    fn new(text: String) -> Self {
        Self { text, ..Self::default() }
    }
}

/// Why a work item does not progress, since when, and what to type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stuck {
    pub cause: Cause,
    pub since: Millis,
    pub evidence: Vec<Proof>,
    /// A complete command line.
    pub next: String,
}

/// None: it progresses, waits as it should, or is over with nothing in doubt.
pub fn classify(facts: &StuckFacts<'_>, patience: &Patience, now: Millis) -> Option<Stuck> {
    let look = Look { facts, work: facts.work, patience, now };
    if let Some(doubt) = look.in_doubt() {
        return Some(doubt);
    }
    match facts.work.state {
        State::Quarantined => look.poison(),
        State::Stalled => Some(look.stalled()),
        State::Running | State::CancelRequested => look.expired().or_else(|| look.spinning()),
        State::RetryScheduled => look.retry(),
        State::Queued => look.no_worker(),
        state if state.is_waiting() => look.circle().or_else(|| look.unanswered()),
        _ => None,
    }
}

struct Look<'a> {
    facts: &'a StuckFacts<'a>,
    work: &'a Work,
    patience: &'a Patience,
    now: Millis,
}

impl Look<'_> {
    fn span(&self, since: Millis) -> String {
        span(self.now - since)
    }

    /// Since when it has been in its state.
    fn since(&self) -> Millis {
        self.work.body.state_since.unwrap_or(self.work.updated_at)
    }

    fn stuck(&self, cause: Cause, since: Millis, evidence: Vec<Proof>, next: String) -> Stuck {
        Stuck { cause, since, evidence, next }
    }

    fn type_for(&self, verb: &str, reason: &str) -> String {
        format!("tenure {verb} {} --reason '{reason}'", self.work.id)
    }

    fn show(&self) -> String {
        format!("tenure show {}", self.work.id)
    }

    fn in_doubt(&self) -> Option<Stuck> {
        let doubtful = self.facts.commands.iter();
        let mut doubtful: Vec<&Command> =
            doubtful.filter(|c| c.work == self.work.id && c.state == CommandState::Uncertain).collect();
        doubtful.sort_by_key(|command| (command.updated_at, command.id));
        let since = match doubtful.first() {
            Some(first) => first.updated_at,
            None => return self.doubt_is_over(),
        };
        let proof = |command: &&Command| {
            let how = if command.body.needs_person { "only a person can find out" } else { "lookups go on" };
            let spec = &command.spec;
            Proof {
                command: Some(command.id),
                ..Proof::new(format!(
                    "{} to {} ({}) has been in doubt for {}: {how}",
                    spec.tool,
                    spec.target,
                    command.id,
                    self.span(command.updated_at)
                ))
            }
        };
        let evidence = doubtful.iter().map(proof).collect();
        let first = doubtful.iter().find(|command| command.body.needs_person).unwrap_or(&doubtful[0]);
        Some(self.stuck(Cause::InDoubt, since, evidence, format!("tenure commands show {}", first.id)))
    }

    /// It was set aside because of a doubt, and the doubt is settled: a person decides.
    fn doubt_is_over(&self) -> Option<Stuck> {
        let code = self.work.body.reason.as_ref().map(|reason| reason.code);
        if self.work.state != State::Quarantined
            || code != Some(ReasonCode::InDoubt)
            || self.work.body.commands.unsettled() > 0
        {
            return None;
        }
        let evidence =
            vec![Proof::new("It was set aside in doubt, and nothing is in doubt any more".to_owned())];
        let next = match self.work.spec.disposition {
            Disposition::ExternallyOwned => self.show(),
            Disposition::Rerunnable | Disposition::OwnerBound => {
                self.type_for("requeue", "nothing is in doubt any more")
            }
        };
        Some(self.stuck(Cause::InDoubt, self.since(), evidence, next))
    }

    fn poison(&self) -> Option<Stuck> {
        let body = &self.work.body;
        let why = match body.reason.as_ref()?.code {
            ReasonCode::PoisonLapses => format!("{} holders in a row were lost with it", body.lapses),
            ReasonCode::PoisonFingerprint => match &body.fingerprint {
                Some(same) => format!("It failed {} times in the same way", same.count),
                None => "It failed repeatedly in the same way".to_owned(),
            },
            _ => return None,
        };
        let mut evidence = vec![Proof::new(format!("{why}, in {} attempts", self.work.attempt))];
        if let Some(message) = body.error.as_ref().and_then(|error| error.message.as_deref()) {
            evidence.push(Proof::new(format!("The last error: {message}")));
        }
        let next = format!("tenure events {}", self.work.id);
        Some(self.stuck(Cause::Poison, self.since(), evidence, next))
    }

    fn circle(&self) -> Option<Stuck> {
        let circle = self.facts.circle;
        if circle.is_empty() {
            return None;
        }
        let path: Vec<String> = circle.iter().chain(circle.first()).map(ToString::to_string).collect();
        let evidence = vec![Proof {
            works: circle.to_vec(),
            ..Proof::new(format!("Each waits for the next: {}", path.join(" → ")))
        }];
        let of_circle =
            |wait: &&Wait| referenced_work(&wait.reference).is_some_and(|id| circle.contains(&id));
        let since = self.facts.waits.iter().filter(of_circle).map(|wait| wait.opened_at).min();
        let next = self.type_for("cancel", "it waits for work that waits for it");
        Some(self.stuck(Cause::CircularWait, since.unwrap_or(self.since()), evidence, next))
    }

    fn unanswered(&self) -> Option<Stuck> {
        let waits = self.facts.waits.iter().filter(|wait| wait.state == WaitState::Open);
        let found = waits.filter_map(|wait| Some((wait, self.never_answers(wait)?)));
        let found: Vec<(&Wait, String)> = found.collect();
        let since = found.iter().map(|(wait, _)| wait.opened_at).min()?;
        let evidence = found.iter().map(|(wait, why)| Proof {
            wait: Some(wait.id),
            command: wait.detail.command.or_else(|| referenced_command(&wait.reference)),
            works: referenced_work(&wait.reference).into_iter().collect(),
            ..Proof::new(format!("`{}`, open for {}: {why}", wait.reference, self.span(wait.opened_at)))
        });
        Some(self.stuck(Cause::UnansweredWait, since, evidence.collect(), self.show()))
    }

    /// Why nobody can be expected to answer this wait.
    fn never_answers(&self, wait: &Wait) -> Option<String> {
        if self.now - wait.opened_at < self.patience.idle_ms {
            return None;
        }
        if let Some(id) = wait.detail.command.or_else(|| referenced_command(&wait.reference)) {
            let over = |command: &&Command| command.id == id && command::waits::outcome(command).is_some();
            let command = self.facts.commands.iter().find(over)?;
            return Some(format!("its command {id} is {} already", command.state));
        }
        if is_reserved(&wait.reference) || wait.deadline_at.is_some() {
            return None;
        }
        let open = |command: &Command| command.work == self.work.id && command.state.is_open();
        let any_open = self.facts.commands.iter().any(open);
        if wait.kind == WaitKind::Tool && self.work.body.commands.total > 0 && !any_open {
            return Some(
                "it waits for a tool without a deadline, and every command of the work item has ended".into(),
            );
        }
        wait.detail
            .assignee
            .is_none()
            .then(|| "it has no deadline, and nobody is assigned to answer it".to_owned())
    }

    fn holder(&self) -> Option<String> {
        self.work.body.holder.as_ref().map(|holder| holder.id.clone())
    }

    fn stalled(&self) -> Stuck {
        let work = self.work;
        let mut evidence = Vec::new();
        if let (Some(worker), Some(lease)) = (self.holder(), &work.lease) {
            let text = format!(
                "{worker} renewed last {} ago; its lease {} is over",
                self.span(lease.renewed_at),
                lease.fence
            );
            evidence.push(Proof { worker: Some(worker), ..Proof::new(text) });
        } else if let Some(first) = &work.body.first_started {
            let text = format!("{} started it and did not come back", first.worker);
            evidence.push(Proof { worker: Some(first.worker.clone()), ..Proof::new(text) });
        }
        if work.owner_bound_started() {
            let text =
                "It is owner-bound and has started: only its owner, a proof of death or a person ends it";
            evidence.push(Proof::new(text.to_owned()));
        }
        if work.body.abandon_request.is_some() {
            evidence.push(Proof::new("An abandon is requested: the next sweep acts on it".to_owned()));
        }
        self.stuck(Cause::LeaseLost, self.since(), evidence, self.show())
    }

    /// Its lease expired and no sweeper has judged it yet.
    fn expired(&self) -> Option<Stuck> {
        let lease = self.work.lease.as_ref().filter(|lease| lease.expires_at < self.now)?;
        let worker = self.holder().unwrap_or_else(|| "its holder".to_owned());
        let judged = due::lapse_at(self.work).unwrap_or(self.now);
        let when =
            if judged > self.now { format!("in {}", span(judged - self.now)) } else { "now".to_owned() };
        let text = format!(
            "{worker} renewed last {} ago and its lease {} expired {} ago; a sweeper judges it {when}",
            self.span(lease.renewed_at),
            lease.fence,
            self.span(lease.expires_at)
        );
        let evidence = vec![Proof { worker: self.holder(), ..Proof::new(text) }];
        Some(self.stuck(Cause::LeaseLost, lease.expires_at, evidence, self.show()))
    }

    fn retry(&self) -> Option<Stuck> {
        let due = match self.work.next_retry_at {
            Some(at) if self.now - at < self.patience.retry_ms => return None,
            due => due,
        };
        let text = match due {
            Some(at) => format!("Its retry was due {} ago, and nothing has queued it", self.span(at)),
            None => "It is scheduled for a retry without a time".to_owned(),
        };
        let since = due.unwrap_or_else(|| self.since());
        let next = self.type_for("retry", "its retry is overdue");
        Some(self.stuck(Cause::RetryOverdue, since, vec![Proof::new(text)], next))
    }

    fn spinning(&self) -> Option<Stuck> {
        let since = activity::spinning(self.work, self.now)?;
        let worker = self.holder().unwrap_or_else(|| "its holder".to_owned());
        let step = match &self.work.body.step {
            Some(step) => format!(" in step `{step}`"),
            None => String::new(),
        };
        let renewed = self.work.lease.as_ref().map_or(self.now, |lease| lease.renewed_at);
        let text = format!(
            "{worker} renewed {} ago{step}, but has shown no progress, step, command or receipt for {}",
            self.span(renewed),
            self.span(since)
        );
        let evidence = vec![Proof { worker: self.holder(), ..Proof::new(text) }];
        let harmless = due::harmless_to_cancel(self.work);
        let next = if harmless { self.type_for("quarantine", "its holder is spinning") } else { self.show() };
        Some(self.stuck(Cause::Spinning, since, evidence, next))
    }

    fn no_worker(&self) -> Option<Stuck> {
        let Capacity { claimable, busy, seen } = self.facts.capacity;
        let since = self.since();
        if !claimable || busy || seen || self.now - since < self.patience.idle_ms {
            return None;
        }
        let spec = &self.work.spec;
        let (kind, system) = (&spec.kind, &spec.source.system);
        let text = match self.work.starter() {
            Some(owner) => format!(
                "Only {} (incarnation {}) may claim it, and has not for {}",
                owner.worker,
                owner.incarnation,
                self.span(since)
            ),
            None => format!(
                "It could have been claimed for {}; nobody holds work of kind `{kind}` from `{system}`, and nobody asks for it",
                self.span(since)
            ),
        };
        Some(self.stuck(Cause::NoWorker, since, vec![Proof::new(text)], "tenure workers".to_owned()))
    }
}

/// The circles of waits among `waits`: for each work item that waits for itself, through others, the shortest way round,
/// itself first.
pub fn circles(waits: &[Wait]) -> BTreeMap<WorkId, Vec<WorkId>> {
    let mut edges: BTreeMap<WorkId, BTreeSet<WorkId>> = BTreeMap::new();
    for wait in waits.iter().filter(|wait| wait.state == WaitState::Open) {
        if let Some(target) = referenced_work(&wait.reference) {
            edges.entry(wait.work).or_default().insert(target);
        }
    }
    // A work item that waits for nobody cannot be part of a circle, nor can one that waits only for such.
    loop {
        let there: BTreeSet<WorkId> = edges.keys().copied().collect();
        edges.values_mut().for_each(|targets| targets.retain(|target| there.contains(target)));
        let before = edges.len();
        edges.retain(|_, targets| !targets.is_empty());
        if edges.len() == before {
            break;
        }
    }
    edges.keys().filter_map(|start| Some((*start, way_round(&edges, *start)?))).collect()
}

fn way_round(edges: &BTreeMap<WorkId, BTreeSet<WorkId>>, start: WorkId) -> Option<Vec<WorkId>> {
    let mut came_from: BTreeMap<WorkId, WorkId> = BTreeMap::new();
    let mut queue = VecDeque::from([start]);
    while let Some(at) = queue.pop_front() {
        for next in edges.get(&at).into_iter().flatten() {
            if *next == start {
                let mut way = vec![at];
                while way.last() != Some(&start) {
                    way.push(came_from[way.last().expect("it begins with one")]);
                }
                way.reverse();
                return Some(way);
            }
            if !came_from.contains_key(next) {
                came_from.insert(*next, at);
                queue.push_back(*next);
            }
        }
    }
    None
}
