//! Compares the three ledgers with each other.

use std::collections::HashMap;

use tenure_core::{Command, CommandId, CommandState, Event, Fact, command::BlockCode};

use super::world::World;

/// Every contradiction, a sentence each.
pub async fn check(world: &World) -> Vec<String> {
    let mut faults = Vec::new();
    let mut calls: HashMap<String, u32> = HashMap::new();
    for seen in world.truth.calls() {
        let nth = calls.entry(seen.key.clone()).or_default();
        *nth += 1;
        if seen.dispatches < *nth {
            faults.push(format!(
                "call {nth} for {} was made before its dispatch was committed ({} were)",
                seen.command, seen.dispatches
            ));
        }
    }
    for id in world.commands() {
        let command = world.ledger.command(id).await.unwrap();
        let events = world.ledger.events(command.work, 0, 1_000).await.unwrap();
        let log: Vec<&Event> = events
            .iter()
            .map(|stored| &stored.event)
            .filter(|event| event.fact.command().is_some_and(|moved| moved.command == id))
            .collect();
        let calls = calls.get(&command.idempotency_key()).copied().unwrap_or(0);
        faults.extend(licences(id, &log));
        faults.extend(truth(world, &command, &log, calls));
        faults.extend(views(world, &command, &log));
    }
    faults
}

/// A second dispatch needs a permission: proof that nothing was sent, an absence, the same key with a native
/// tool, or a person.
fn licences(id: CommandId, log: &[&Event]) -> Option<String> {
    let mut in_doubt = false;
    for event in log {
        match &event.fact {
            Fact::CommandDispatched(_) if in_doubt => {
                return Some(format!("{id} was dispatched again without a licence, by event {}", event.seq));
            }
            Fact::CommandDispatched(_) => in_doubt = true,
            Fact::CommandUnsent(_) | Fact::CommandResent(_) | Fact::CommandReplayed(_) => in_doubt = false,
            Fact::CommandLookedUp(looked) if looked.moved.now != CommandState::Uncertain => in_doubt = false,
            _ => {}
        }
    }
    None
}

/// The effects in the log happened, once, and the command has ended or waits for a person.
fn truth(world: &World, command: &Command, log: &[&Event], calls: u32) -> Vec<String> {
    let (id, effects) = (command.id, world.truth.effects(&command.idempotency_key()));
    let mut faults = Vec::new();
    if effects > 1 {
        faults.push(format!("{id} happened {effects} times"));
    }
    let dispatched = log.iter().filter(|event| matches!(event.fact, Fact::CommandDispatched(_))).count();
    if calls as usize > dispatched {
        faults.push(format!("{id} was called {calls} times and dispatched {dispatched} times"));
    }
    let body = &command.body;
    match (command.state, effects) {
        (CommandState::Succeeded, 0) => {
            faults.push(format!("{id} says succeeded, and the provider did nothing"));
        }
        (CommandState::Failed | CommandState::Cancelled, 1..) => {
            faults.push(format!("{id} says {}, and the provider did it", command.state));
        }
        (CommandState::Succeeded | CommandState::Failed | CommandState::Cancelled, _) => {}
        (CommandState::Uncertain, _) if body.needs_person => {}
        (CommandState::Blocked, _) if body.blocked == Some(BlockCode::ApprovalRequired) => {}
        (state, _) => faults.push(format!("{id} is {state} and has not ended")),
    }
    faults
}

/// Every response to a client matches the log.
fn views(world: &World, command: &Command, log: &[&Event]) -> Vec<String> {
    let mut faults = Vec::new();
    for told in world.told(command.id) {
        let there = log.iter().any(|event| {
            event.fact.command().is_some_and(|moved| moved.now == told.state) && event.seq <= command.seq
        });
        let receipt = command.body.receipt.as_ref().and_then(|receipt| receipt.external_id.as_ref());
        let ended = matches!(told.state, CommandState::Succeeded | CommandState::Cancelled);
        // A receipt may come late: the call was made before the cancel.
        let late = told.state == CommandState::Cancelled
            && command.state == CommandState::Succeeded
            && command.body.dispatches > 0;
        let stands = !ended || late || command.state == told.state;
        let same = told.external_id.is_none() || told.external_id.as_ref() == receipt;
        if !there || !stands || !same {
            faults.push(format!(
                "{}: a client was told {told:?}, and the log says {}",
                command.id, command.state
            ));
        }
    }
    faults
}
