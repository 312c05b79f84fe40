//! Figures of what is open, counted out.

use std::collections::BTreeMap;

use tenure_core::{CommandState, Millis, State, claimable, command::Duty, model::WaitState, model::Worker};

use super::{Inner, Memory};
use crate::{
    CommandGauges, CommandGroupGauges, Gauges,
    gauges::{Sources, StateGauges},
    store::{GaugeStore, StoreFuture},
};

impl Inner {
    fn command_facts(&self, at: Millis) -> CommandGauges {
        let (mut states, mut places) = (BTreeMap::new(), BTreeMap::<_, CommandGroupGauges>::new());
        for command in self.records.commands.values().flatten().filter(|command| command.state.is_open()) {
            *states.entry(command.state).or_default() += 1;
            if matches!(command.state, CommandState::Pending | CommandState::Approved) {
                continue;
            }
            let (state, needs_person) = (command.state, command.body.needs_person);
            let blocked = command.body.blocked.filter(|_| state == CommandState::Blocked);
            let tool = command.spec.tool.clone();
            let key = (tool.clone(), state, needs_person, blocked.map(|code| code as u8));
            let since = command.updated_at;
            let fresh = CommandGroupGauges { tool, state, blocked, needs_person, commands: 0, since };
            let place = places.entry(key).or_insert(fresh);
            place.commands += 1;
            place.since = place.since.min(since);
        }
        let due = self.next_due_command(Duty::Send);
        CommandGauges::new(states, places.into_values().collect(), due, at)
    }

    /// Whether some worker could claim it: the one that it is bound to, or anybody.
    fn is_ready(&self, work: &tenure_core::Work) -> bool {
        let view = work.spec.session_key().map(|key| self.view(&key)).unwrap_or_default();
        let (worker, actor) = work.starter().map_or((Worker::new("anybody", "first"), ""), |starter| {
            let actor = starter.by.as_deref().unwrap_or_default();
            (Worker::new(&starter.worker, &starter.incarnation), actor)
        });
        claimable(work, &worker, actor, view).is_ok()
    }
}

impl GaugeStore for Memory {
    fn gauges(&self, at: Millis) -> StoreFuture<'_, Gauges> {
        self.ready(|inner| {
            let mut gauges = Gauges { at, ..Gauges::default() };
            let mut sources = Sources::default();
            for work in inner.records.works.values().filter(|work| !work.state.is_terminal()) {
                let came = work.spec.created_at;
                let state = gauges.states.entry(work.state).or_insert(StateGauges { works: 0, oldest: came });
                state.works += 1;
                state.oldest = state.oldest.min(came);
                let (system, kind) = (work.spec.source.system.clone(), work.spec.kind.clone());
                if work.state.holds_session() {
                    let expired = work.held_lease().is_some_and(|lease| lease.expires_at < at);
                    sources.held(system, kind, work.state, 1, u64::from(expired));
                } else if work.state == State::Queued && inner.is_ready(work) {
                    sources.ready(system, kind, 1, Some(came));
                }
            }
            gauges.sources = sources.most();
            let open = inner.records.waits.values().flatten().filter(|wait| wait.state == WaitState::Open);
            for wait in open {
                let kind = gauges.waits.entry(wait.kind).or_default();
                kind.open += 1;
                kind.nearest_deadline = kind.nearest_deadline.into_iter().chain(wait.deadline_at).min();
            }
            gauges.commands = inner.command_facts(at);
            gauges
        })
    }
}
