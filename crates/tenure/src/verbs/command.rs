//! Verbs on commands: reading them, approving them, and resolving those in doubt.

use std::cmp::Reverse;

use tenure_api::wire::{
    ApproveCommand, CancelCommand, Command, CommandId, CommandQuery, Decision, Event, LookupOutcome,
    PlannedCommand, Reconcile as ReconcileRequest, RecordCommand, RecordOutcome, RejectCommand,
    ReplayCommand, ReplayPlanQuery, Work,
};

use super::{
    Context,
    ask::{confirm, typed},
    cut, draw, names,
    operate::decision,
    read::events_after,
    say_unreadable,
};
use crate::{
    args::{
        Answered, CommandCancel, CommandSort, CommandsList, CommandsPlan, CommandsVerb, Reconcile, Record,
        Replay, Shown,
    },
    exit::{Exit, Failure},
    render::{self, say},
};

/// The largest page size.
const PAGE: usize = 1_000;
/// How far back a command's events are searched in its work item's log.
const BACK: u64 = 1_000;

pub async fn commands(cx: &Context, verb: CommandsVerb) -> Result<Exit, Failure> {
    match verb {
        CommandsVerb::List(args) => list(cx, args).await,
        CommandsVerb::Show(args) => show(cx, &args.id, args.redraw.watch).await,
        CommandsVerb::Plan(args) => plan(cx, &args).await,
        CommandsVerb::Reconcile(args) => reconcile(cx, args).await,
        CommandsVerb::Record(args) => record(cx, args).await,
        CommandsVerb::Replay(args) => replay(cx, &args).await,
        CommandsVerb::Cancel(args) => cancel(cx, &args).await,
    }
}

async fn list(cx: &Context, args: CommandsList) -> Result<Exit, Failure> {
    let work = match &args.work {
        Some(id) => Some(names::work(cx, id).await?.id),
        None => None,
    };
    let query = CommandQuery {
        state: args.state,
        tenant: args.tenant,
        work,
        tool: args.tool,
        target: args.target,
        needs_person: args.needs_person,
        needs_approval: args.needs_approval,
        created_after: args.created_after,
        created_before: args.created_before,
        cursor: None,
        limit: None,
    };
    draw(cx, args.redraw.watch, || async {
        let mut commands = cut(pages(cx, &query, args.limit.saturating_add(1)).await?, args.limit);
        sort(&mut commands, args.sort);
        cx.out.list(&commands, render::commands)
    })
    .await
}

/// The list is the newest first already.
fn sort(commands: &mut [Command], order: CommandSort) {
    match order {
        CommandSort::Newest => {}
        CommandSort::Oldest => commands.reverse(),
        CommandSort::Updated => commands.sort_by_key(|command| Reverse(command.updated_at)),
        CommandSort::State => commands.sort_by(|a, b| a.state.as_str().cmp(b.state.as_str())),
        CommandSort::Tool => commands.sort_by(|a, b| (&a.tool, &a.target).cmp(&(&b.tool, &b.target))),
        CommandSort::Dispatches => commands.sort_by_key(|command| Reverse(command.dispatches)),
    }
}

/// The requested number of commands, page by page.
pub(super) async fn pages(cx: &Context, query: &CommandQuery, limit: usize) -> Result<Vec<Command>, Failure> {
    let mut commands = Vec::new();
    let mut query = query.clone();
    while commands.len() < limit {
        query.limit = Some((limit - commands.len()).min(PAGE) as u32);
        let page = cx.client.commands(&query).await?;
        say_unreadable(&page.unreadable);
        commands.extend(page.items);
        query.cursor = page.next;
        if query.cursor.is_none() {
            break;
        }
    }
    Ok(commands)
}

pub async fn show(cx: &Context, id: &str, watch: bool) -> Result<Exit, Failure> {
    draw(cx, watch, || async {
        let command = names::command(cx, id).await?;
        let page = page(cx, &command).await?;
        cx.out.one(&command, |_, _| page)
    })
    .await
}

/// The page of a command, for people.
async fn page(cx: &Context, command: &Command) -> Result<String, Failure> {
    let why = cx.client.explain_command(&command.id).await?;
    let work = names::work(cx, command.work.as_str()).await?;
    let after = work.seq.saturating_sub(BACK);
    let mut events = events_after(cx, &work.id, after, usize::MAX).await?;
    events.retain(|event: &Event| event.data["command"] == command.id.as_str());
    Ok(render::describe_command(command, &why, &events, &cx.out.style()))
}

pub async fn explain(cx: &Context, id: &CommandId) -> Result<Exit, Failure> {
    let explained = cx.client.explain_command(id).await?;
    cx.out.one(&explained, |explained, _| {
        render::explained(&explained.sentence, None, &explained.advice, &explained.next)
    })?;
    Ok(Exit::Ok)
}

/// The plan of a rerun, and the keys of the commands that it would execute again.
pub struct Plan {
    pub items: Vec<PlannedCommand>,
    pub execute: Vec<String>,
}

impl Plan {
    /// `execute`: ids or keys of commands of its runs, or prefixes of them.
    pub async fn of(cx: &Context, work: &Work, execute: &[String]) -> Result<Self, Failure> {
        let ask = |execute: Vec<String>| async move {
            let query = ReplayPlanQuery { execute };
            Ok::<_, Failure>(cx.client.replay_plan(&work.id, &query).await?.items)
        };
        let items = ask(Vec::new()).await?;
        if execute.is_empty() {
            return Ok(Self { items, execute: Vec::new() });
        }
        let execute = execute
            .iter()
            .map(|named| key_of(work, &items, named))
            .collect::<Result<Vec<String>, Failure>>()?;
        Ok(Self { items: ask(execute.clone()).await?, execute })
    }
}

fn key_of(work: &Work, items: &[PlannedCommand], named: &str) -> Result<String, Failure> {
    let commands = items.iter().map(|item| &item.command);
    let mut keys: Vec<&str> = commands
        .filter(|command| command.id.as_str().starts_with(named) || command.command_key.starts_with(named))
        .map(|command| command.command_key.as_str())
        .collect();
    keys.dedup();
    match keys[..] {
        [only] if !named.is_empty() => Ok(only.to_owned()),
        [] => Err(Failure::new(
            Exit::NotFound,
            format!(
                "no command of its runs has the id or key `{named}`. `tenure commands plan {}` lists them",
                work.id
            ),
        )),
        _ => Err(Failure::usage(format!("several commands begin with `{named}`: give a longer prefix."))),
    }
}

async fn plan(cx: &Context, args: &CommandsPlan) -> Result<Exit, Failure> {
    let plan = Plan::of(cx, &names::work(cx, &args.work).await?, &args.execute).await?;
    cx.out.list(&plan.items, render::plan)?;
    Ok(Exit::Ok)
}

/// Approves or rejects exactly the command that was just shown.
pub async fn decide(
    cx: &Context,
    command: Command,
    approved: bool,
    decision: Answered,
) -> Result<Exit, Failure> {
    let Answered { act, seal } = decision;
    render::show(&render::intent(&command, &cx.out.style()));
    let what = format!("{} to {}", command.tool, command.target);
    let command = if approved {
        let reason = confirm(&act, &format!("{what} may be dispatched once, with exactly these arguments."))?;
        let approve = ApproveCommand { reason, seal: seal.unwrap_or_else(|| command.seal.clone()) };
        cx.client.approve_command(&command.id, &approve).await?
    } else {
        let reject = RejectCommand { reason: confirm(&act, &format!("{what} will not be dispatched."))? };
        cx.client.reject_command(&command.id, &reject).await?
    };
    became(cx, &command)
}

fn became(cx: &Context, command: &Command) -> Result<Exit, Failure> {
    cx.out.one(command, render::became)?;
    Ok(Exit::Ok)
}

async fn reconcile(cx: &Context, args: Reconcile) -> Result<Exit, Failure> {
    let command = names::command(cx, &args.id).await?;
    let what = format!("{} to {}", command.tool, command.target);
    let then = match args.outcome {
        LookupOutcome::Found => format!("{what} will finally count as done."),
        LookupOutcome::Absent => format!("{what} will count as not done, and may be sent again."),
        LookupOutcome::Unknown => format!("One more lookup of {what} will be recorded as unknown."),
    };
    let request = ReconcileRequest {
        token: None,
        outcome: args.outcome,
        external_id: args.shown.external_id,
        reference: args.shown.reference,
        response: args.shown.response,
        message: Some(confirm(&args.act, &then)?),
    };
    became(cx, &cx.client.reconcile(&command.id, &request).await?)
}

/// The command is shown first. With `--requeue`, its work item follows in the same decision.
async fn record(cx: &Context, args: Record) -> Result<Exit, Failure> {
    let command = names::command(cx, &args.id).await?;
    render::show(&render::intent(&command, &cx.out.style()));
    let outcome = if args.happened { RecordOutcome::Happened } else { RecordOutcome::DidNotHappen };
    let Shown { mut external_id, mut reference, response } = args.shown;
    if args.happened && external_id.is_none() && reference.is_none() && response.is_none() {
        external_id = typed("The provider's id of the effect (empty if it has none): ")?;
    }
    if args.happened && external_id.is_none() && reference.is_none() && response.is_none() {
        reference = typed("Where it can be seen: ")?;
    }
    let what = format!("{} to {}", command.tool, command.target);
    let then = match outcome {
        RecordOutcome::Happened => format!("{what} will finally count as done, on your word."),
        RecordOutcome::DidNotHappen => {
            format!("{what} will count as failed, on your word, and may be replayed.")
        }
    };
    let work = if args.requeue { Some(names::work(cx, command.work.as_str()).await?) } else { None };
    let then = match &work {
        Some(work) => format!("{then} Then {}, {}, will be queued again.", work.id, work.title),
        None => then,
    };
    let reason = confirm(&args.act, &then)?;
    let request = RecordCommand { reason: reason.clone(), outcome, external_id, reference, response };
    let recorded = cx.client.record(&command.id, &request).await?;
    became(cx, &recorded)?;
    match work {
        Some(work) => requeue(cx, &work, reason).await,
        None => Ok(Exit::Ok),
    }
}

/// Queues a work item again after its command was recorded. A dry run has recorded nothing, so the work item
/// is still in doubt.
async fn requeue(cx: &Context, work: &Work, reason: String) -> Result<Exit, Failure> {
    if cx.dry_run {
        return Ok(Exit::Ok);
    }
    let work = names::work(cx, work.id.as_str()).await?;
    let requeue = decision(reason, &work, Decision::Requeue);
    match cx.client.decide(&work.id, &requeue).await {
        Ok(ack) => say(&format!("{} is {}.", ack.id, ack.state)),
        Err(error) => {
            say(&format!("The command is recorded, but {} was not queued: {error}", work.id));
            return Ok(Exit::Partial);
        }
    }
    Ok(Exit::Ok)
}

/// The complete command is shown first.
async fn replay(cx: &Context, args: &Replay) -> Result<Exit, Failure> {
    let command = names::command(cx, &args.id).await?;
    render::show(&page(cx, &command).await?);
    let then = format!("{} to {} will be sent again, as recorded.", command.tool, command.target);
    let request = ReplayCommand { reason: confirm(&args.act, &then)? };
    became(cx, &cx.client.replay(&command.id, &request).await?)
}

async fn cancel(cx: &Context, args: &CommandCancel) -> Result<Exit, Failure> {
    let command = names::command(cx, &args.id).await?;
    let then = format!("{} to {} will not be dispatched.", command.tool, command.target);
    let request = CancelCommand { reason: confirm(&args.act, &then)?, fence: None, token: None };
    became(cx, &cx.client.cancel_command(&command.id, &request).await?)
}
