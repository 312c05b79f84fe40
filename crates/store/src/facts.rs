//! What an operator's dials show of a ledger: figures of everything that is open, cheap enough to be read
//! every few seconds however much has ended.

use std::collections::BTreeMap;

use tenure_core::{Millis, State, model::WaitKind};

/// Sources and kinds that are told at most; those with most works come first.
pub(crate) const SOURCES_MAX: usize = 1_000;

/// The open part of a ledger at one moment. What has ended is not counted here: the feed tells of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    pub at: Millis,
    /// Every open state in which some work stands.
    pub states: BTreeMap<State, StateFacts>,
    pub sources: Vec<SourceFacts>,
    /// Open waits, by kind.
    pub waits: BTreeMap<WaitKind, WaitFacts>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateFacts {
    pub works: u64,
    /// When the one that was ingested first came in.
    pub oldest: Millis,
}

/// Works of one source system and kind, as far as somebody can or does work on them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceFacts {
    pub system: String,
    pub kind: String,
    /// Those that a claim would find, and when the oldest of them came in.
    pub ready: u64,
    pub oldest_ready: Option<Millis>,
    pub running: u64,
    pub cancel_requested: u64,
    pub stalled: u64,
    /// Held under leases that are past their expiry and not yet found lapsed.
    pub expired: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitFacts {
    pub open: u64,
    pub nearest_deadline: Option<Millis>,
}

impl Facts {
    pub fn works(&self, state: State) -> u64 {
        self.states.get(&state).map_or(0, |facts| facts.works)
    }

    pub fn expired_leases(&self) -> u64 {
        self.sources.iter().map(|source| source.expired).sum()
    }

    /// When the oldest work that is still open came in.
    pub fn oldest_open(&self) -> Option<Millis> {
        self.states.values().map(|facts| facts.oldest).min()
    }
}

/// Sources while their figures come in.
#[derive(Default)]
pub(crate) struct Sources(BTreeMap<(String, String), SourceFacts>);

impl Sources {
    fn of(&mut self, system: String, kind: String) -> &mut SourceFacts {
        let fresh = SourceFacts { system: system.clone(), kind: kind.clone(), ..SourceFacts::default() };
        self.0.entry((system, kind)).or_insert(fresh)
    }

    pub fn ready(&mut self, system: String, kind: String, works: u64, oldest: Option<Millis>) {
        let source = self.of(system, kind);
        source.ready += works;
        source.oldest_ready = source.oldest_ready.into_iter().chain(oldest).min();
    }

    /// Works in one of the states in which a session is held.
    pub fn held(&mut self, system: String, kind: String, state: State, works: u64, expired: u64) {
        let source = self.of(system, kind);
        match state {
            State::CancelRequested => source.cancel_requested += works,
            State::Stalled => source.stalled += works,
            _ => source.running += works,
        }
        source.expired += expired;
    }

    pub fn most(self) -> Vec<SourceFacts> {
        let mut sources: Vec<SourceFacts> = self.0.into_values().collect();
        let works = |s: &SourceFacts| s.ready + s.running + s.cancel_requested + s.stalled;
        sources.sort_by_key(|source| std::cmp::Reverse(works(source)));
        sources.truncate(SOURCES_MAX);
        sources
    }
}
