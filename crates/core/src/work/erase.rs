//! Erasing the content of an ended work item: inputs, results, arguments, answers and free text. The events stay, with their
//! hashes.

use crate::{
    WorkId,
    command::Command,
    decide::{Context, Decision},
    event::{ActorKind, ContentErased, Fact},
    limits,
    records::Change,
    refusal::{Code, Refusal},
    work::{
        draft::{Draft, Said},
        wrong_state,
    },
};

pub(crate) fn decide(cx: Context<'_>, id: WorkId, reason: &str) -> Result<Decision, Refusal> {
    limits::reason(reason)?;
    if cx.submission.actor.kind != ActorKind::Person {
        return Err(Refusal::new(
            Code::PersonRequired,
            "Only a person may erase content: it cannot be restored. Use a person's credential.",
        ));
    }
    let work = cx.work(id)?;
    if !work.state.is_terminal() {
        return Err(wrong_state(work, "an erasure", "End it first: cancel it, or wait for its end."));
    }
    let mut draft = Draft::new(cx, work);
    // The relay's commands that were sent are not loaded: a ledger looks at them before.
    let needs_arguments = |command: &&Command| {
        if command.is_worker() { command.state.is_open() } else { command.state.is_idle() }
    };
    if let Some(command) = cx.records.commands_of(id).iter().find(needs_arguments) {
        return Err(open(command));
    }
    // Nothing was added since the last erasure.
    if work.body.erased_at == Some(work.updated_at) {
        return draft.done();
    }
    let before = draft.next_seq();
    let said = Said { message: Some(reason), ..Said::default() };
    draft.say(work.state, Fact::ContentErased(ContentErased { before }), said);
    draft.change(Change::Erase { work: id, before });
    draft.done()
}

/// The refusal because of a command that still needs its arguments.
pub fn open(command: &Command) -> Refusal {
    Refusal::new(
        Code::CommandsOpen,
        format!(
            "{} to {} ({}) is {}: its arguments are still needed. Settle or cancel it first.",
            command.spec.tool, command.spec.target, command.id, command.state
        ),
    )
}
