//! The effect of an event on a command. Decisions change commands through [`apply`] only, so that a command
//! is always the fold of its events, except for `due_at`, which claiming its lookup may move.

use std::collections::BTreeMap;

use super::{
    event::{LookedUp, Miss, Moved, Reserved},
    model::{Approval, BlockCode, Command, CommandBody, Dispatch},
    state::CommandState,
};
use crate::{
    event::{Event, Fact},
    ids::CommandId,
    limits,
    model::ErrorInfo,
};

/// The commands of a whole log.
pub fn fold<'a>(events: impl IntoIterator<Item = &'a Event>) -> BTreeMap<CommandId, Command> {
    let mut commands = BTreeMap::new();
    for event in events {
        if let Fact::ContentErased(_) = &event.fact {
            commands.values_mut().for_each(erase);
        }
        let Some(moved) = event.fact.command() else { continue };
        if let Some(new) = born(event) {
            commands.insert(new.id, new);
        } else if let Some(command) = commands.get_mut(&moved.command) {
            apply(command, event);
        }
    }
    commands
}

/// Drops the texts that came from erased events.
pub fn erase(command: &mut Command) {
    let body = &mut *command.body;
    body.message = None;
    if let Some(error) = &mut body.error {
        error.message = None;
    }
}

/// Whether a stored command equals the fold of its log. A text that was erased from the log must be erased
/// here as well.
pub fn matches(row: &Command, folded: &Command) -> bool {
    let mut expected = Command { due_at: row.due_at, ..folded.clone() };
    // Rows of older versions do not have all of it.
    if folded.body.earlier.ends_with(&row.body.earlier) {
        expected.body.earlier.clone_from(&row.body.earlier);
    }
    if folded.body.earlier_requests.ends_with(&row.body.earlier_requests) {
        expected.body.earlier_requests.clone_from(&row.body.earlier_requests);
    }
    expected.body.replayed_after_end &= row.body.replayed_after_end;
    *row == expected
}

/// Keeps what is remembered of earlier dispatches within its limit.
fn forget<T>(earlier: &mut Vec<T>) {
    let forgotten = earlier.len().saturating_sub(limits::EARLIER_DISPATCHES);
    earlier.drain(..forgotten);
}

/// The command that a reservation creates.
pub fn born(event: &Event) -> Option<Command> {
    let Fact::CommandReserved(Reserved { moved, spec, tool, decision, blocked, review, estimate, receipt }) =
        &event.fact
    else {
        return None;
    };
    let body = CommandBody {
        submitter: event.actor.clone(),
        fence: event.fence.unwrap_or_default(),
        attempt: event.attempt,
        arguments: event.seq,
        tool: (**tool).clone(),
        decision: (**decision).clone(),
        blocked: *blocked,
        review: *review,
        message: event.message.clone(),
        estimate: estimate.clone(),
        approval: None,
        dispatches: 0,
        first_dispatched_at: None,
        resent: false,
        dispatch: None,
        earlier: Vec::new(),
        earlier_requests: Vec::new(),
        failures: 0,
        error: None,
        next_at: None,
        doubted_at: None,
        unknowns: 0,
        needs_person: false,
        replays: 0,
        replayers: Vec::new(),
        replayed_after_end: false,
        receipt: receipt.as_deref().cloned(),
        cancelled: None,
        superseded_by: None,
    };
    Some(Command {
        id: moved.command,
        work: event.work,
        spec: spec.clone(),
        state: moved.now,
        seq: event.seq,
        created_at: event.at,
        updated_at: event.at,
        due_at: None,
        body: body.into(),
    })
}

/// Applies one later event.
pub fn apply(command: &mut Command, event: &Event) {
    let Some(moved) = event.fact.command() else { return };
    let now = moved.now;
    let body = &mut *command.body;
    body.message.clone_from(&event.message);
    match &event.fact {
        Fact::CommandBlocked(blocked) => {
            body.blocked = Some(blocked.code);
            body.approval = None;
            if let Some(decision) = &blocked.decision {
                body.decision = (**decision).clone();
            }
        }
        Fact::CommandUnblocked(unblocked) => {
            body.blocked = None;
            body.decision = (*unblocked.decision).clone();
        }
        Fact::CommandApproved(approved) => {
            body.blocked = None;
            body.approval = Some(Approval {
                by: event.actor.clone(),
                at: event.at,
                expires_at: approved.expires_at,
                seal: approved.seal,
                used_at: None,
            });
        }
        Fact::CommandCancelled(cancelled) => {
            body.cancelled = Some(cancelled.code);
            body.superseded_by = cancelled.superseded_by;
        }
        Fact::CommandDispatched(dispatched) => {
            if let Some(tool) = &dispatched.tool {
                body.tool = (**tool).clone();
            }
            if let Some(decision) = &dispatched.decision {
                body.decision = (**decision).clone();
            }
            if let Some(approval) = &mut body.approval {
                approval.used_at = Some(event.at);
            }
            body.review = false;
            body.next_at = None;
            body.dispatches += 1;
            body.first_dispatched_at.get_or_insert(event.at);
            let before = body.dispatch.replace(Dispatch {
                at: event.at,
                fence: dispatched.under,
                by: event.actor.clone(),
                request_id: dispatched.request_id.clone(),
                deadline_at: dispatched.deadline_at,
                reserved: dispatched.reserved.clone(),
                given_back: Vec::new(),
            });
            if let Some(before) = before {
                body.earlier.push(before.fence);
                body.earlier_requests.extend(before.request_id.map(|request| (before.fence, request)));
            }
            forget(&mut body.earlier);
            forget(&mut body.earlier_requests);
        }
        Fact::CommandSucceeded(succeeded) => {
            body.receipt = Some((*succeeded.receipt).clone());
            settled(body);
            if let Some(dispatch) = &mut body.dispatch {
                dispatch.given_back.clear();
            }
        }
        Fact::CommandFailed(failed) => {
            body.failures = failed.failures;
            body.error = Some(ErrorInfo { class: failed.class, message: event.message.clone() });
            settled(body);
        }
        Fact::CommandUnsent(unsent) => {
            body.failures = unsent.failures;
            body.error = Some(ErrorInfo { class: unsent.class, message: event.message.clone() });
            settled(body);
            // The next call is the first one: all later reports are about it or later ones.
            body.first_dispatched_at = None;
            body.next_at = Some(unsent.next_at);
            if command.spec.executor.is_relay() {
                // Nothing was sent: the approved effect is still to be executed.
                if let Some(approval) = &mut body.approval {
                    approval.used_at = None;
                }
            } else if body.approval.take().is_some() {
                // Only the worker claims that nothing was sent: a person looks again.
                body.review = true;
            }
        }
        Fact::CommandUncertain(uncertain) => {
            if let Some(class) = uncertain.class {
                body.error = Some(ErrorInfo { class, message: event.message.clone() });
            }
            if uncertain.moved.was != Some(CommandState::Uncertain) {
                body.doubted_at = Some(event.at);
            }
            body.needs_person = uncertain.needs_person;
            body.next_at = uncertain.next_at;
        }
        Fact::CommandLookedUp(looked) => looked_up(body, looked, now),
        Fact::CommandResent(_) => {
            body.unknowns = 0;
            body.next_at = None;
            body.resent = true;
        }
        Fact::CommandReservedAgain(_) => add_requester(body, event),
        Fact::CommandReplayed(replayed) => {
            add_requester(body, event);
            body.replayed_after_end = event.to.is_terminal();
            body.tool = (*replayed.tool).clone();
            body.decision = (*replayed.decision).clone();
            body.replays += 1;
            body.failures = 0;
            body.error = None;
            body.approval = None;
            body.next_at = None;
            // The window of the provider's key starts again: a failed call had no effect.
            body.first_dispatched_at = None;
            ask(body, now);
        }
        _ => {}
    }
    command.state = now;
    command.seq = event.seq;
    command.updated_at = event.at;
}

/// Remembers an actor who replayed the command, or reserved it again: that actor cannot approve it.
fn add_requester(body: &mut CommandBody, event: &Event) {
    if !body.replayers.contains(&event.actor.id) {
        body.replayers.push(event.actor.id.clone());
    }
}

fn looked_up(body: &mut CommandBody, looked: &LookedUp, now: CommandState) {
    body.unknowns = looked.unknowns;
    body.needs_person = looked.needs_person;
    body.next_at = looked.next_at;
    if looked.finding == Miss::Absent {
        settled(body);
        body.approval = None;
        body.first_dispatched_at = None;
        ask(body, now);
    }
}

/// Blocked by the ledger itself: a person must look, even if policy allows it.
fn ask(body: &mut CommandBody, now: CommandState) {
    if now == CommandState::Blocked {
        body.blocked = Some(BlockCode::ApprovalRequired);
        body.review = true;
    }
}

/// The doubt is settled. The reserved amounts have been settled with the budgets.
fn settled(body: &mut CommandBody) {
    body.resent = false;
    body.unknowns = 0;
    body.needs_person = false;
    body.next_at = None;
    if let Some(dispatch) = &mut body.dispatch {
        let reserved = std::mem::take(&mut dispatch.reserved);
        if !reserved.is_empty() {
            dispatch.given_back = reserved;
        }
        dispatch.deadline_at = None;
    }
}

impl Fact {
    /// The part that every fact of a command begins with; None for facts of the work item itself.
    pub fn command(&self) -> Option<&Moved> {
        match self {
            Fact::CommandReserved(data) => Some(&data.moved),
            Fact::CommandBlocked(data) => Some(&data.moved),
            Fact::CommandUnblocked(data) => Some(&data.moved),
            Fact::CommandApproved(data) => Some(&data.moved),
            Fact::CommandCancelled(data) => Some(&data.moved),
            Fact::CommandDispatched(data) => Some(&data.moved),
            Fact::CommandSucceeded(data) => Some(&data.moved),
            Fact::CommandFailed(data) => Some(&data.moved),
            Fact::CommandUnsent(data) => Some(&data.moved),
            Fact::CommandUncertain(data) => Some(&data.moved),
            Fact::CommandLookedUp(data) => Some(&data.moved),
            Fact::CommandResent(data) => Some(&data.moved),
            Fact::CommandReplayed(data) => Some(&data.moved),
            Fact::CommandReservedAgain(data) => Some(&data.moved),
            _ => None,
        }
    }
}
