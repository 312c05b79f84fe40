//! Waits for commands: on `command:ID` until the command may be dispatched or has ended, or handed over, so
//! that the answer is the receipt.

use super::{
    Command, CommandState, EvidenceKind, Proof, Receipt, event::CommandSucceeded, settle, uncertain::doubtful,
};
use crate::{
    action::WaitSpec,
    decide::Context,
    event::{Fact, WaitResolved},
    ids::CommandId,
    model::{Wait, WaitState},
    payload::Payload,
    records::referenced_command,
    refusal::{Code, Refusal},
    work::{
        draft::{Draft, Said},
        resolve::end_wait,
    },
};

/// The answer to a wait for a command, once there is one.
pub(crate) fn outcome(command: &Command) -> Option<Payload> {
    let answer = match command.state {
        CommandState::Succeeded | CommandState::Failed | CommandState::Cancelled => true,
        // Its worker may continue and dispatch it; for a command of the relay, only the end counts.
        CommandState::Approved | CommandState::Pending => command.is_worker(),
        CommandState::Blocked | CommandState::Dispatched | CommandState::Uncertain => false,
    };
    answer.then(|| {
        let value = serde_json::json!({ "command": command.id, "state": command.state });
        Payload::new(&value).expect("two short strings are a payload")
    })
}

/// Answers the open wait for a command, if there is one and the command has something to answer.
pub(super) fn answer(cx: Context<'_>, draft: &mut Draft, id: CommandId) {
    if draft.work.open_waits == 0 {
        return;
    }
    let Some(answer) = outcome(draft.command(id)) else { return };
    let waits = cx.records.waits.get(&draft.work.id).map_or(&[][..], Vec::as_slice);
    let for_it = |wait: &&Wait| {
        wait.state == WaitState::Open
            && (wait.detail.command == Some(id) || referenced_command(&wait.reference) == Some(id))
    };
    let Some(wait) = waits.iter().find(for_it) else { return };
    let left = end_wait(cx, draft, wait, WaitState::Answered, true);
    let fact = WaitResolved {
        wait: wait.id,
        reference: wait.reference.clone(),
        open: left.open,
        wait_due: left.wait_due,
        early: false,
        bytes: answer.bytes(),
        bound_until: left.bound_until,
    };
    draft.say(left.to, Fact::WaitResolved(fact), Said { payload: Some(&answer), ..Said::default() });
}

/// The commands that the waits to be opened are for: `specs` among all that were `asked` for. A dispatched
/// command of the worker that is handed over to no wait forbids waiting: nobody would be left to report its
/// outcome.
pub(crate) fn check(
    cx: Context<'_>,
    draft: &mut Draft,
    specs: &[&WaitSpec],
    asked: &[WaitSpec],
) -> Result<(), Refusal> {
    let mut named = Vec::new();
    for spec in specs {
        let handed = spec.command;
        let Some(id) = handed.or_else(|| referenced_command(&spec.reference)) else { continue };
        let own = cx.records.commands_of(draft.work.id).iter().find(|command| command.id == id);
        let Some(command) = own else {
            return Err(Refusal::new(
                Code::NotFound,
                format!("This work item has no command {id}. A work item waits only for its own commands."),
            ));
        };
        if named.contains(&id) || (handed.is_some() && referenced_command(&spec.reference).is_some()) {
            return Err(Refusal::new(
                Code::Invalid,
                format!("{id} is named by two waits. Use one wait for each command."),
            ));
        }
        if handed.is_some() && (command.state != CommandState::Dispatched || !command.is_worker()) {
            return Err(Refusal::new(
                Code::IllegalState,
                format!(
                    "{id} is {}: only a dispatched command of the worker can be handed over to a wait. Wait \
                     for `command:{id}` instead.",
                    command.state
                ),
            ));
        }
        named.push(id);
        draft.with(command);
    }
    let handed = |command: &Command| specs.iter().any(|spec| spec.command == Some(command.id));
    let left = draft
        .commands
        .iter()
        .find(|command| command.is_worker() && command.state == CommandState::Dispatched && !handed(command));
    let Some(Command { id, .. }) = left else { return Ok(()) };
    let detail = match asked.iter().find(|spec| spec.command == Some(*id)) {
        Some(WaitSpec { reference, .. }) => format!(
            "The wait on `{reference}` has ended, and its answer is not a receipt of {id}, which is \
             dispatched. Hand it over to a wait with a new `ref`."
        ),
        None => format!(
            "{id} is dispatched, and nobody would be left to report its outcome. Send its receipt first, \
             report it as `uncertain`, or hand it over to a wait with `command`."
        ),
    };
    Err(Refusal::new(Code::CommandsOpen, detail))
}

/// The wait of a handed-over command is answered: the answer is its receipt. The answer's own event comes
/// next.
pub(crate) fn received(cx: Context<'_>, draft: &mut Draft, wait: &Wait, evidence: EvidenceKind) {
    let Some(command) = handed(cx, draft, wait) else { return };
    let proof = Proof::new(evidence);
    let spent = settle::spend(draft, &command, &proof);
    let receipt = Receipt {
        at: cx.now,
        evidence,
        external_id: None,
        reference: Some(wait.id.to_string()),
        response: Some((draft.work.id, draft.next_seq() + 1)),
        reused_from: None,
        usage: Vec::new(),
    };
    draft.change_command(command.id, CommandState::Succeeded, Said::default(), |moved| {
        Fact::CommandSucceeded(CommandSucceeded { moved, receipt: Box::new(receipt), spent })
    });
}

/// The wait of a handed-over command ended without an answer.
pub(crate) fn unanswered(cx: Context<'_>, draft: &mut Draft, wait: &Wait) {
    let Some(command) = handed(cx, draft, wait) else { return };
    doubtful(draft, command.id, None, "nobody answered its wait", cx.random());
}

fn handed(cx: Context<'_>, draft: &mut Draft, wait: &Wait) -> Option<Command> {
    let command = cx.records.command(wait.detail.command?)?;
    draft.with(command);
    let command = draft.command(command.id);
    command.state.is_unsettled().then(|| command.clone()).filter(|c| c.state == CommandState::Dispatched)
}
