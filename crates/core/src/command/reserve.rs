//! Reserve: records the intent durably before the effect. Repeating the same intent returns the same command.

use std::sync::Arc;

use super::{
    CancelCode, Command, CommandSpec, CommandState, Effect, Intent, Receipt, ReserveIn, current_policy,
    event::{CommandCancelled, Moved, Reserved, ReservedAgain},
    model::BlockCode,
};
use crate::{
    action::{Holder, Ingest},
    decide::{Context, Decision},
    event::{ActorKind, Fact},
    ids::CommandId,
    limits,
    refusal::{Code, Refusal},
    reply::{Grant, Reply},
    work::{
        claim::grant,
        draft::{Draft, Said},
        ingest::{self, Prepared},
    },
};

pub(super) fn decide(
    cx: Context<'_>,
    place: &ReserveIn,
    id: CommandId,
    intent: &Intent,
) -> Result<Decision, Refusal> {
    intent.check()?;
    current_policy(cx, &intent.evaluation)?;
    match place {
        ReserveIn::Work(holder) => held(cx, holder, id, intent, None),
        ReserveIn::OwnWork(work) => alone(cx, work, id, intent),
    }
}

fn held(
    cx: Context<'_>,
    holder: &Holder,
    id: CommandId,
    intent: &Intent,
    grant: Option<Box<Grant>>,
) -> Result<Decision, Refusal> {
    let mut draft = super::held(cx, holder)?;
    let before = draft.work.body.commands.total;
    let id = record(cx, &mut draft, id, intent)?;
    let fresh = draft.work.body.commands.total > before;
    let command = Box::new(draft.command(id).clone());
    if draft.is_untouched() {
        return Ok(Decision::unchanged(Reply::Command { command, fresh, grant }));
    }
    draft.finish(|_| Reply::Command { command, fresh, grant })
}

/// A command without a work item gets one of its own, recorded and claimed in the same transaction.
fn alone(cx: Context<'_>, work: &Ingest, id: CommandId, intent: &Intent) -> Result<Decision, Refusal> {
    let nobody = || {
        Refusal::new(
            Code::Busy,
            format!(
                "{} exists already and another worker holds it. Claim it, or send a new source id.",
                work.source.id
            ),
        )
    };
    match ingest::prepare(cx, work)? {
        Prepared::New { granted: false, .. } => Err(nobody()),
        Prepared::New { mut draft, .. } => {
            let id = record(cx, &mut draft, id, intent)?;
            draft.finish(|draft| Reply::Command {
                command: Box::new(draft.command(id).clone()),
                fresh: true,
                grant: Some(Box::new(grant(cx, (*draft.work).clone()))),
            })
        }
        Prepared::Known { grant: None, .. } => Err(nobody()),
        Prepared::Known { work, grant } => {
            let fence = work.held_lease().map_or(0, |lease| lease.fence);
            held(cx, &Holder { work: work.id, fence, genuine: true }, id, intent, grant)
        }
    }
}

/// A command of the outbox: committed with the end of its work item, and sent by the relay.
pub(crate) fn outgoing(
    cx: Context<'_>,
    draft: &mut Draft,
    id: CommandId,
    intent: &Intent,
) -> Result<(), Refusal> {
    current_policy(cx, &intent.evaluation)?;
    if !intent.evaluation.tool.executor.is_relay() {
        return Err(Refusal::new(
            Code::Invalid,
            format!(
                "`{}` is executed by the worker, and a close-out leaves no worker. Execute it before, or \
                 give the tool an http or exec executor.",
                intent.tool
            ),
        ));
    }
    record(cx, draft, id, intent).map(drop)
}

/// Records the intent in the draft under this id, or finds it there under another id; returns the id.
fn record(cx: Context<'_>, draft: &mut Draft, id: CommandId, intent: &Intent) -> Result<CommandId, Refusal> {
    let key = intent.key();
    let known = |command: &&Command| command.spec.key == key && command.is_current();
    let existing = draft
        .commands
        .iter()
        .find(known)
        .or_else(|| cx.records.commands_of(draft.work.id).iter().find(known))
        .cloned();
    if let Some(existing) = existing {
        draft.with(&existing);
        if existing.spec.input_hash == intent.arguments.hash {
            again(cx, draft, &existing);
            return Ok(existing.id);
        }
        supersede(draft, &existing, id, intent)?;
    }
    if draft.work.body.commands.total as usize >= limits::COMMANDS_PER_WORK {
        return Err(Refusal::new(
            Code::LimitReached,
            format!(
                "A work item has at most {} commands. Continue in another work item.",
                limits::COMMANDS_PER_WORK
            ),
        ));
    }
    let fate = fate(cx, draft, intent)?;
    let evaluation = &intent.evaluation;
    let spec = CommandSpec {
        tenant: draft.work.spec.tenant.clone(),
        key,
        tool: intent.tool.clone(),
        target: intent.target.clone(),
        kind: intent.kind,
        executor: evaluation.tool.executor,
        input_hash: intent.arguments.hash,
        step: intent.step.clone(),
        slot: intent.slot.clone(),
    };
    let fact = Reserved {
        moved: Moved { command: id, executor: spec.executor, was: None, now: fate.state },
        spec: Arc::new(spec),
        tool: Box::new(evaluation.tool.clone()),
        decision: Box::new(evaluation.decision.clone()),
        blocked: fate.blocked,
        review: fate.review,
        estimate: evaluation.estimate.clone(),
        receipt: fate.receipt.map(Box::new),
    };
    let said = Said {
        message: fate.message.as_deref(),
        payload: Some(&intent.arguments.kept),
        step: intent.step.as_deref(),
        ..Said::default()
    };
    draft.reserve(Fact::CommandReserved(fact), said);
    Ok(id)
}

/// A person who reserves a command that somebody else reserved also requests it, and cannot approve it.
fn again(cx: Context<'_>, draft: &mut Draft, command: &Command) {
    let actor = &cx.submission.actor;
    let known = command.body.submitter.id == actor.id || command.body.replayers.contains(&actor.id);
    let over = matches!(command.state, CommandState::Succeeded | CommandState::Cancelled);
    if actor.kind == ActorKind::Person && !known && !over {
        // The command's reason is repeated, because it has not changed.
        let said = Said { message: command.body.message.as_deref(), ..Said::default() };
        draft.change_command(command.id, command.state, said, |moved| {
            Fact::CommandReservedAgain(ReservedAgain { moved })
        });
    }
}

/// A model words its arguments differently on a retry: a command that an earlier attempt reserved and nobody
/// sent is superseded.
fn supersede(draft: &mut Draft, old: &Command, new: CommandId, intent: &Intent) -> Result<(), Refusal> {
    let unsent = old.body.dispatches == 0 && (old.state.is_idle() || old.state == CommandState::Cancelled);
    if !unsent || old.body.fence >= draft.work.fence {
        return Err(Refusal::new(
            Code::IdempotencyMismatch,
            format!(
                "{} to {} is reserved already as {} with other arguments, and is {}. \
                 Send the same arguments, or another slot.",
                intent.tool, intent.target, old.id, old.state
            ),
        ));
    }
    let said = Said { message: Some("a later attempt reserved it with other arguments"), ..Said::default() };
    draft.change_command(old.id, CommandState::Cancelled, said, |moved| {
        Fact::CommandCancelled(CommandCancelled {
            moved,
            code: CancelCode::Superseded,
            superseded_by: Some(new),
        })
    });
    Ok(())
}

/// The initial state of a command.
struct Fate {
    state: CommandState,
    blocked: Option<BlockCode>,
    review: bool,
    receipt: Option<Receipt>,
    message: Option<String>,
}

fn fate(cx: Context<'_>, draft: &Draft, intent: &Intent) -> Result<Fate, Refusal> {
    if let Some(earlier) = earlier(cx, draft, intent) {
        let same = earlier.spec.input_hash == intent.arguments.hash;
        match earlier.state {
            CommandState::Succeeded if same => return Ok(reused(earlier)),
            CommandState::Succeeded => return Ok(done_otherwise(earlier)),
            CommandState::Dispatched | CommandState::Uncertain => return Err(still_open(earlier)),
            CommandState::Pending | CommandState::Blocked | CommandState::Approved
                if !earlier.is_worker() =>
            {
                return Err(still_open(earlier));
            }
            CommandState::Pending
            | CommandState::Blocked
            | CommandState::Approved
            | CommandState::Failed
            | CommandState::Cancelled => {}
        }
    }
    let decision = &intent.evaluation.decision;
    let (state, blocked) = match decision.effect {
        Effect::Allow => (CommandState::Pending, None),
        Effect::Deny => (CommandState::Blocked, Some(BlockCode::PolicyDenied)),
        Effect::NeedsApproval => (CommandState::Blocked, Some(BlockCode::ApprovalRequired)),
    };
    let message = blocked.and_then(|_| decision.reasons.first().cloned());
    Ok(Fate { state, blocked, review: false, receipt: None, message })
}

/// The same intent in an earlier run of the same work item, unless a person decided to execute it again.
fn earlier<'a>(cx: Context<'a>, draft: &Draft, intent: &Intent) -> Option<&'a Command> {
    let work = &draft.work;
    let key = intent.key();
    let rerun = work.spec.rerun_of.is_some() && !work.spec.execute.contains(&key);
    rerun.then(|| cx.records.earlier.get(&(work.id, key))?.as_ref()).flatten()
}

fn reused(earlier: &Command) -> Fate {
    // The usage of that call is counted in the run that made it.
    let receipt = earlier.body.receipt.clone().map(|receipt| Receipt {
        reused_from: Some(receipt.reused_from.unwrap_or(earlier.id)),
        usage: Vec::new(),
        ..receipt
    });
    let message = Some(format!("{} of an earlier run did it", earlier.id));
    Fate { state: CommandState::Succeeded, blocked: None, review: false, receipt, message }
}

fn done_otherwise(earlier: &Command) -> Fate {
    let message = Some(format!("{} of an earlier run did it with other arguments", earlier.id));
    let blocked = Some(BlockCode::ApprovalRequired);
    Fate { state: CommandState::Blocked, blocked, review: true, receipt: None, message }
}

fn still_open(earlier: &Command) -> Refusal {
    Refusal::new(
        Code::InDoubt,
        format!(
            "{} of an earlier run ({}) is {}: executing it again could do it twice. Settle that one first, \
             or rerun with `execute`.",
            earlier.id, earlier.work, earlier.state
        ),
    )
}
