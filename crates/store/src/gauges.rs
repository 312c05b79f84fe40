//! The gauges of a ledger: figures about everything that is open, cheap enough to be read every few seconds
//! regardless of how much has ended.

use std::{cmp::Reverse, collections::BTreeMap};

use tenure_core::{CommandState, Millis, State, command::BlockCode, model::WaitKind};

/// The limit on named sources and kinds, and on named tools: the ones with the most work items or commands,
/// and the sources with the longest waiting times. The others are summed up under [`OTHER`]: every total
/// stays exact, and callers cannot create any number of names.
pub(crate) const SOURCES_MAX: usize = 1_000;

/// The name under which everything is counted that is not named itself.
const OTHER: &str = "other";

/// The open part of a ledger at one moment. Ended work items are not counted; the feed reports them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gauges {
    /// When they were read.
    pub at: Millis,
    /// Every open state that some work item is in.
    pub states: BTreeMap<State, StateGauges>,
    /// By source system and kind.
    pub sources: Vec<SourceGauges>,
    /// Open waits, by kind.
    pub waits: BTreeMap<WaitKind, WaitGauges>,
    /// Of commands.
    pub commands: CommandGauges,
}

/// Commands to which something can still happen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandGauges {
    /// Every open state that some command is in.
    pub states: BTreeMap<CommandState, u64>,
    /// Commands between intent and end (blocked, dispatched or in doubt), most frequent first.
    pub places: Vec<CommandGroupGauges>,
    /// The due time of the earliest command that the relay has not sent.
    pub unsent_since: Option<Millis>,
}

/// The commands of one tool in one state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandGroupGauges {
    /// The tool.
    pub tool: String,
    /// The state.
    pub state: CommandState,
    /// Why they are blocked.
    pub blocked: Option<BlockCode>,
    /// Whether only a person can decide.
    pub needs_person: bool,
    /// How many commands there are.
    pub commands: u64,
    /// When the first of them entered it.
    pub since: Millis,
}

impl CommandGauges {
    pub(crate) fn new(
        states: BTreeMap<CommandState, u64>,
        mut places: Vec<CommandGroupGauges>,
        due: Option<Millis>,
        at: Millis,
    ) -> Self {
        places.sort_by(|one, other| {
            let of = |place: &CommandGroupGauges| {
                (place.tool.clone(), place.state, place.needs_person, place.blocked.map(|code| code as u8))
            };
            other.commands.cmp(&one.commands).then_with(|| of(one).cmp(&of(other)))
        });
        let rest = places.split_off(places.len().min(SOURCES_MAX));
        rest.into_iter().for_each(|place| add_to_other(&mut places, place));
        Self { states, places, unsent_since: due.filter(|due| *due <= at) }
    }

    fn count(&self, of: impl Fn(&CommandGroupGauges) -> bool) -> (u64, Option<Millis>) {
        let there = || self.places.iter().filter(|place| of(place));
        (there().map(|place| place.commands).sum(), there().map(|place| place.since).min())
    }

    /// The number of commands in doubt, and since when the first of them is.
    pub fn uncertain(&self) -> (u64, Option<Millis>) {
        self.count(|place| place.state == CommandState::Uncertain)
    }

    /// The number of them that only a person can resolve.
    pub fn needs_person(&self) -> (u64, Option<Millis>) {
        self.count(|place| place.needs_person)
    }

    /// The number of commands that wait for a person's approval.
    pub fn approvals(&self) -> (u64, Option<Millis>) {
        self.count(|place| place.blocked == Some(BlockCode::ApprovalRequired))
    }
}

/// Adds a place that is not named to that of the other tools in the same state.
fn add_to_other(places: &mut Vec<CommandGroupGauges>, mut place: CommandGroupGauges) {
    place.tool = OTHER.to_owned();
    let same = |known: &&mut CommandGroupGauges| {
        known.tool == OTHER
            && (known.state, known.blocked, known.needs_person)
                == (place.state, place.blocked, place.needs_person)
    };
    match places.iter_mut().find(same) {
        Some(other) => {
            other.commands += place.commands;
            other.since = other.since.min(place.since);
        }
        None => places.push(place),
    }
}

/// Open work items in one state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateGauges {
    /// How many work items there are.
    pub works: u64,
    /// When the oldest of them was ingested.
    pub oldest: Millis,
}

/// Open work items of one source system and kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceGauges {
    /// The source system.
    pub system: String,
    /// The kind of the work items.
    pub kind: String,
    /// The number that can be claimed, and when the oldest of them was ingested.
    pub ready: u64,
    /// When the oldest of these was recorded.
    pub oldest_ready: Option<Millis>,
    /// Work items that are running.
    pub running: u64,
    /// Work items that were asked to stop.
    pub cancel_requested: u64,
    /// Work items that are stalled.
    pub stalled: u64,
    /// Leases that have expired and whose lapse is not recorded yet.
    pub expired: u64,
}

/// Open waits of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitGauges {
    /// How many waits are open.
    pub open: u64,
    /// The deadline that comes first.
    pub nearest_deadline: Option<Millis>,
}

impl Gauges {
    /// The number of work items in this state.
    pub fn works(&self, state: State) -> u64 {
        self.states.get(&state).map_or(0, |facts| facts.works)
    }

    /// The number of leases that are past their expiry and not yet found lapsed.
    pub fn expired_leases(&self) -> u64 {
        self.sources.iter().map(|source| source.expired).sum()
    }

    /// When the oldest open work item was ingested.
    pub fn oldest_open(&self) -> Option<Millis> {
        self.states.values().map(|facts| facts.oldest).min()
    }
}

/// Collects the figures of the sources.
#[derive(Default)]
pub(crate) struct Sources(BTreeMap<(String, String), SourceGauges>);

impl Sources {
    fn of(&mut self, system: String, kind: String) -> &mut SourceGauges {
        let fresh = SourceGauges { system: system.clone(), kind: kind.clone(), ..SourceGauges::default() };
        self.0.entry((system, kind)).or_insert(fresh)
    }

    pub fn ready(&mut self, system: String, kind: String, works: u64, oldest: Option<Millis>) {
        let source = self.of(system, kind);
        source.ready += works;
        source.oldest_ready = source.oldest_ready.into_iter().chain(oldest).min();
    }

    /// The work items in the states that occupy a session.
    pub fn held(&mut self, system: String, kind: String, state: State, works: u64, expired: u64) {
        let source = self.of(system, kind);
        match state {
            State::CancelRequested => source.cancel_requested += works,
            State::Stalled => source.stalled += works,
            _ => source.running += works,
        }
        source.expired += expired;
    }

    pub fn most(self) -> Vec<SourceGauges> {
        let mut sources: Vec<SourceGauges> = self.0.into_values().collect();
        let works = |s: &SourceGauges| s.ready + s.running + s.cancel_requested + s.stalled;
        sources.sort_by_key(|source| Reverse(works(source)));
        let mut late = sources.split_off(sources.len().min(SOURCES_MAX / 2));
        late.sort_by_key(|source| source.oldest_ready.unwrap_or(Millis::MAX));
        let rest = late.split_off(late.len().min(SOURCES_MAX / 2));
        sources.extend(late);
        sources.sort_by_key(|source| Reverse(works(source)));
        if !rest.is_empty() {
            sources.push(rest.into_iter().fold(SourceGauges::other(), SourceGauges::and));
        }
        sources
    }
}

impl SourceGauges {
    fn other() -> Self {
        Self { system: OTHER.to_owned(), kind: OTHER.to_owned(), ..Self::default() }
    }

    /// Adds the figures of another source, under the name of this one.
    fn and(self, more: Self) -> Self {
        Self {
            ready: self.ready + more.ready,
            oldest_ready: self.oldest_ready.into_iter().chain(more.oldest_ready).min(),
            running: self.running + more.running,
            cancel_requested: self.cancel_requested + more.cancel_requested,
            stalled: self.stalled + more.stalled,
            expired: self.expired + more.expired,
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uncertain(tool: &str, commands: u64, since: Millis) -> CommandGroupGauges {
        let state = CommandState::Uncertain;
        CommandGroupGauges {
            tool: tool.to_owned(),
            state,
            blocked: None,
            needs_person: true,
            commands,
            since,
        }
    }

    #[test]
    fn made_up_tools_do_not_hide_anothers_doubts() {
        let mut places: Vec<_> =
            (0..=SOURCES_MAX).map(|n| uncertain(&format!("made-up-{n}"), 2, 500)).collect();
        places.push(uncertain("mail", 1, 100));
        let facts = CommandGauges::new(BTreeMap::new(), places, None, 1_000);
        let all = 2 * (SOURCES_MAX as u64 + 1) + 1;
        assert_eq!(facts.uncertain(), (all, Some(100)));
        assert_eq!(facts.needs_person(), (all, Some(100)));
        assert_eq!(facts.places.len(), SOURCES_MAX + 1, "names are bounded");
        assert_eq!(facts.places.last().map(|place| place.tool.as_str()), Some(OTHER));
    }

    #[test]
    fn made_up_kinds_do_not_hide_anothers_queue_or_expired_leases() {
        let mut sources = Sources::default();
        for n in 0..=SOURCES_MAX {
            sources.ready("manual".into(), format!("made-up-{n}"), 2, Some(500));
        }
        sources.ready("manual".into(), "job".into(), 1, Some(100));
        sources.held("manual".into(), "job".into(), State::Stalled, 0, 1);
        let facts = Gauges { sources: sources.most(), ..Gauges::default() };
        assert_eq!(facts.expired_leases(), 1);
        let job = facts.sources.iter().find(|source| source.kind == "job").unwrap();
        assert_eq!(job.oldest_ready, Some(100), "the longest waiting source is named");
        assert_eq!(facts.sources.len(), SOURCES_MAX + 1);
    }
}
