//! The replay plan: what a rerun would do with each command of the earlier runs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Command, CommandState, Effect};
use crate::{ids::CommandId, payload::Digest};

/// How a rerun treats an effect of an earlier run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Planned {
    /// It happened: its receipt is reused.
    ReuseReceipt,
    /// It did not happen: it is executed when the rerun reaches it.
    Execute,
    NeedsApproval,
    /// It may have happened, or is still to be sent: settle it first, or decide to execute it.
    Blocked,
}

/// One line of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan<'a> {
    pub command: &'a Command,
    pub planned: Planned,
}

/// The plan over the commands of all earlier runs, newest run last. `effect` is the current policy decision
/// on each; `execute` lists the keys that a person decided to execute again.
pub fn plan<'a>(
    commands: impl IntoIterator<Item = &'a Command>,
    execute: &[Digest],
    effect: impl Fn(&Command) -> Effect,
) -> Vec<Plan<'a>> {
    let mut newest: BTreeMap<Digest, &Command> = BTreeMap::new();
    let mut order: Vec<(CommandId, Digest)> = Vec::new();
    for command in commands.into_iter().filter(|command| command.is_current()) {
        // A command that was never sent says nothing about an earlier run.
        let concerns = command.concerns_reruns();
        match newest.get(&command.spec.key) {
            Some(_) if !concerns => continue,
            Some(_) => {}
            None => order.push((command.id, command.spec.key)),
        }
        newest.insert(command.spec.key, command);
    }
    let line = |key: &Digest| {
        let command = newest[key];
        let run = || match effect(command) {
            Effect::Allow => Planned::Execute,
            Effect::NeedsApproval => Planned::NeedsApproval,
            Effect::Deny => Planned::Blocked,
        };
        let planned = match command.state {
            _ if execute.contains(key) => run(),
            CommandState::Succeeded => Planned::ReuseReceipt,
            CommandState::Dispatched | CommandState::Uncertain => Planned::Blocked,
            CommandState::Pending | CommandState::Blocked | CommandState::Approved
                if !command.is_worker() =>
            {
                Planned::Blocked
            }
            CommandState::Pending
            | CommandState::Blocked
            | CommandState::Approved
            | CommandState::Failed
            | CommandState::Cancelled => run(),
        };
        Plan { command, planned }
    };
    order.iter().map(|(_, key)| line(key)).collect()
}
