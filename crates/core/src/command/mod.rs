//! Commands (recorded side effects): intended effects that are recorded before they happen. One verb a file;
//! each reads the records, refuses, or drafts events on the log of the command's work item.

pub mod action;
mod approve;
pub mod budget;
pub(crate) mod cancel;
mod dispatch;
pub mod due;
pub mod event;
mod explain;
mod fail;
pub mod fold;
pub mod identity;
mod load_set;
pub mod model;
pub mod plan;
pub(crate) mod receipt;
mod reconcile;
mod record;
mod replay;
pub(crate) mod reserve;
mod settle;
pub mod state;
mod tick;
pub(crate) mod uncertain;
pub(crate) mod waits;

pub use action::{
    CommandAction, DispatchAction, Dispatcher, Evaluation, Finding, Intent, LookupClaim, Proof, Recorded,
    ReplayLimits, ReserveIn, Sender,
};
pub use due::Duty;
pub use explain::{explain, explain_behind};
pub use model::{
    Approval, Arguments, BlockCode, CallError, CancelCode, Command, CommandKind, CommandSpec, Dispatch,
    Effect, EvidenceKind, Executor, Idempotency, PolicyDecision, Receipt, Risk, Tally, ToolFacts,
};
pub use plan::Planned;
pub use state::CommandState;

use crate::{
    Millis,
    action::Holder,
    decide::{Context, Decision},
    event::ActorKind,
    ids::CommandId,
    model::{ErrorInfo, Work},
    recovery::Doubt,
    refusal::{Code, Refusal},
    reply::Reply,
    state::State,
    work::{HolderCheck, IfLapsed, draft::Draft, hold},
};

pub(crate) fn decide(cx: Context<'_>, action: &CommandAction) -> Result<Decision, Refusal> {
    // Commands of another work item do not exist for this holder.
    if let (Some(work), Some(id)) = (action.work(), action.command())
        && cx.records.command(id).is_some_and(|command| command.work != work)
    {
        return Err(unknown(id));
    }
    match action {
        CommandAction::Reserve { place, id, intent } => reserve::decide(cx, place, *id, intent),
        CommandAction::Approve { command, seal, four_eyes, reason } => {
            approve::approve(cx, *command, *seal, *four_eyes, reason)
        }
        CommandAction::Reject { command, reason } => approve::reject(cx, *command, reason),
        CommandAction::Dispatch(dispatch) => dispatch::decide(cx, dispatch),
        CommandAction::Receipt { command, sender, proof } => receipt::decide(cx, *command, *sender, proof),
        CommandAction::Fail { command, sender, error, unsent } => {
            fail::decide(cx, *command, *sender, error, *unsent)
        }
        CommandAction::Uncertain { command, sender, error } => {
            uncertain::decide(cx, *command, *sender, error)
        }
        CommandAction::Reconcile { command, claim, finding, message } => {
            reconcile::decide(cx, *command, *claim, finding, message.as_deref())
        }
        CommandAction::Replay { command, evaluation, limits, minute, reason } => {
            replay::decide(cx, *command, evaluation, *limits, *minute, reason)
        }
        CommandAction::Record { command, outcome, reason } => record::decide(cx, *command, outcome, reason),
        CommandAction::Cancel { command, holder, reason } => {
            cancel::decide(cx, *command, holder.as_ref(), reason)
        }
        CommandAction::Tick { command } => tick::decide(cx, *command),
        CommandAction::TakeLookup { command, for_ms } => tick::take_lookup(cx, *command, *for_ms),
    }
}

/// A command that the caller may see, with its work item. Commands of other tenants do not exist for it.
fn found(cx: Context<'_>, id: CommandId) -> Result<(&Work, &Command), Refusal> {
    let command = cx.records.command(id).ok_or_else(|| unknown(id))?;
    match cx.work(command.work) {
        Ok(work) => Ok((work, command)),
        Err(refusal) if refusal.code == Code::NotFound => Err(unknown(id)),
        Err(refusal) => Err(refusal),
    }
}

fn unknown(id: CommandId) -> Refusal {
    Refusal::new(Code::NotFound, format!("There is no command {id}. Check the id."))
}

/// A draft over a command's work item, with the command in it.
fn draft(cx: Context<'_>, work: &Work, command: &Command) -> Draft {
    let mut draft = Draft::new(cx, work);
    draft.with(command);
    draft
}

/// The command unchanged: nothing to write.
fn again(command: &Command) -> Decision {
    Decision::unchanged(Reply::Command { command: Box::new(command.clone()), fresh: false, grant: None })
}

/// Completes a decision about one command: waits for the command are answered first.
fn finish(cx: Context<'_>, mut draft: Draft, id: CommandId) -> Result<Decision, Refusal> {
    waits::answer(cx, &mut draft, id);
    uncertain::set_aside(cx, &mut draft);
    crate::work::resolve::set_aside(cx, &mut draft);
    // The work item may have been stalled because of a command that is now settled.
    if draft.work.state == State::Stalled {
        draft.work.due_at = Some(cx.now);
    }
    draft.finish(|draft| Reply::Command {
        command: Box::new(draft.command(id).clone()),
        fresh: true,
        grant: None,
    })
}

/// Checks an action that only the present holder may take on the commands of its work item.
fn held(cx: Context<'_>, holder: &Holder) -> Result<Draft, Refusal> {
    match hold(cx, holder, IfLapsed::Refuse)? {
        HolderCheck::Current(draft) => Ok(*draft),
        HolderCheck::Repeat(_) => Err(Refusal::new(
            Code::LeaseLost,
            "This attempt has ended. Claim the work item again to continue.",
        )),
    }
}

fn person(cx: Context<'_>, verb: &str) -> Result<(), Refusal> {
    if cx.submission.actor.kind == ActorKind::Person {
        return Ok(());
    }
    Err(Refusal::new(Code::PersonRequired, format!("Only a person may {verb}. Use a person's credential.")))
}

/// Checks that the actor may decide on an approval.
fn approver(cx: Context<'_>, verb: &str) -> Result<(), Refusal> {
    if cx.submission.may_approve() {
        return Ok(());
    }
    Err(Refusal::new(
        Code::PersonRequired,
        format!("Only a person may {verb}. Use the credential of a person that may approve."),
    ))
}

/// The policy must have been evaluated in the version that this process uses.
fn current_policy(cx: Context<'_>, evaluation: &Evaluation) -> Result<(), Refusal> {
    match &cx.records.policy_version {
        Some(current) if **current != *evaluation.decision.policy_version => Err(Refusal::new(
            Code::PolicyStale,
            format!(
                "Policy version {} was evaluated, but {current} is in force. Repeat the request.",
                evaluation.decision.policy_version
            ),
        )),
        Some(_) | None => Ok(()),
    }
}

/// The dispatch that a report is about. Only the caller that dispatched it may report its outcome, even after
/// its lease is lost.
fn dispatch_of(command: &Command, sender: Sender) -> Result<u32, Refusal> {
    let last = command.body.dispatches;
    let remembered = last.saturating_sub(command.body.earlier.len() as u32)..=last;
    let theirs = |number: &u32| command.fence_of(*number) == Some(sender.fence);
    let number = match sender.dispatch {
        Some(number) => Some(number).filter(theirs),
        None => remembered.rev().find(theirs),
    };
    number.filter(|_| sender.genuine).ok_or_else(|| {
        Refusal::new(
            Code::LeaseLost,
            "This dispatch was not given to you. Only the caller that dispatched a command reports its outcome.",
        )
    })
}

/// A report that an earlier call failed or is uncertain proves nothing about the last one. A repeat of such a
/// report is answered as the first was.
fn of_the_last(command: &Command, number: u32, error: &CallError) -> Result<bool, Refusal> {
    let last = command.body.dispatches;
    if number == last {
        return Ok(true);
    }
    let reported =
        |known: &ErrorInfo| known.class == error.class && known.message.as_ref() == Some(&error.message);
    if command.body.error.as_ref().is_some_and(reported) {
        return Ok(false);
    }
    Err(Refusal::new(
        Code::DispatchSuperseded,
        format!(
            "This report is about dispatch {number}, but {last} has been made since, and its outcome does \
             not follow from yours. If yours took effect, deliver its receipt; if not, there is nothing to \
             do."
        ),
    ))
}

pub(crate) fn wrong_state(state: CommandState, verb: &str) -> Refusal {
    let next = match state {
        CommandState::Pending | CommandState::Approved => "Dispatch it first.",
        CommandState::Blocked => "See its reason: it needs an approval, another policy, or a budget.",
        CommandState::Dispatched => "Wait for its receipt, or report it as `uncertain`.",
        CommandState::Uncertain => "Reconcile it, or have a person record its outcome.",
        CommandState::Succeeded => "It happened: use its receipt.",
        CommandState::Failed => "A person may replay it.",
        CommandState::Cancelled => "Reserve it under another slot if it is still wanted.",
    };
    Refusal::new(Code::IllegalState, format!("The command is {state}: {verb} does not apply. {next}"))
}

/// Why a work item cannot succeed yet.
pub(crate) fn open(commands: &[Command]) -> Refusal {
    let unsettled = commands.iter().find(|command| command.is_worker() && command.state.is_unsettled());
    let which = unsettled.map_or_else(String::new, |command| {
        format!(": {} to {} ({}) is {}", command.spec.tool, command.spec.target, command.id, command.state)
    });
    Refusal::new(
        Code::CommandsOpen,
        format!(
            "It is unknown whether a command took effect{which}. Send its receipt, or reconcile it first."
        ),
    )
}

/// The knowledge about a work item's commands that were sent and have no receipt.
pub(crate) fn doubt(commands: &[Command], now: Millis) -> Doubt {
    let mut unsettled =
        commands.iter().filter(|command| command.is_worker() && command.state.is_unsettled()).peekable();
    if unsettled.peek().is_none() {
        return Doubt::None;
    }
    let all: Vec<&Command> = unsettled.collect();
    let lookup = |command: &&Command| {
        command.body.tool.idempotency == Idempotency::Lookup && !command.body.needs_person
    };
    if all.iter().all(|command| command.may_resend(now)) {
        Doubt::AllNative
    } else if all.iter().all(|command| lookup(command) || command.may_resend(now)) {
        Doubt::AllLookup
    } else {
        Doubt::Some
    }
}

/// A summary of the commands in doubt, for a person.
pub(crate) fn report(commands: &[Command]) -> String {
    let doubtful: Vec<String> = commands
        .iter()
        .filter(|command| command.is_in_doubt())
        .map(|command| {
            let spec = &command.spec;
            let error = command.body.message.as_deref().unwrap_or("no receipt arrived");
            let lookups = match command.body.unknowns {
                0 => String::new(),
                n => format!("; {n} lookups had no result"),
            };
            format!("{} to {} ({}): {error}{lookups}", spec.tool, spec.target, command.id)
        })
        .collect();
    let mut text = format!("it is unknown whether this happened: {}", doubtful.join(" · "));
    if let Some((end, _)) = text.char_indices().nth(2_000) {
        text.truncate(end);
        text.push('…');
    }
    text
}
