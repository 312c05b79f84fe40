//! Effects: each provider call has its own committed dispatch, and each further dispatch has a permission.

use std::collections::{HashMap, HashSet};

use tenure_api::wire::{Event, Timestamp};

use super::{Judge, Rule, index::Index};
use crate::run::Run;

pub fn check(run: &Run, index: &Index, judge: &mut Judge) {
    intents(run, index, judge);
    for (command, log) in &index.told {
        check_repeats(command, log, judge);
    }
}

/// The dispatch that a caller names is in the log, and exactly one call is made for it.
fn intents(run: &Run, index: &Index, judge: &mut Judge) {
    let mut used: HashSet<(&str, u64, Timestamp)> = HashSet::new();
    let mut known: HashMap<&str, &str> = HashMap::new();
    for effect in &run.effects {
        let id = effect.command.as_str();
        let dispatch = index.told(id).iter().find(|event| {
            event.kind == "command_dispatched"
                && event.at == effect.dispatched_at
                && under(event, effect.fence)
        });
        let Some(dispatch) = dispatch else {
            let what = format!(
                "the provider was called for {id} under fence {}, but no such dispatch is stored",
                effect.fence
            );
            judge.lost(Rule::EffectWithoutIntent, what);
            continue;
        };
        if !used.insert((id, effect.fence, effect.dispatched_at)) {
            let what =
                format!("the provider was called twice for the dispatch of {id} by event {}", dispatch.seq);
            judge.broken(Rule::UnlicensedRepeat, what);
        }
        if let Some(other) = known.insert(&effect.key, id)
            && other != id
        {
            let what = format!("{other} and {id} called the provider with one key");
            judge.broken(Rule::UnlicensedRepeat, what);
        }
    }
}

fn under(event: &Event, fence: u64) -> bool {
    event.data["under"].as_u64() == Some(fence)
}

/// A second dispatch needs a permission: proof that nothing was sent, an absence, the same key with a native
/// tool, or a person.
fn check_repeats(command: &str, log: &[&Event], judge: &mut Judge) {
    let mut in_doubt = false;
    for event in log {
        match event.kind.as_str() {
            "command_dispatched" if in_doubt => {
                let what =
                    format!("{command} was dispatched again without permission, by event {}", event.seq);
                judge.broken(Rule::UnlicensedRepeat, what);
            }
            "command_dispatched" => in_doubt = true,
            "command_unsent" | "command_resent" | "command_replayed" => in_doubt = false,
            "command_looked_up" if event.data["now"] != "uncertain" => in_doubt = false,
            _ => {}
        }
    }
}
