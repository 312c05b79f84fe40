//! Verbs on commands: reading them, approving them, and resolving those in doubt.

use tenure_api::wire::{
    ApproveCommand, CancelCommand, Command, CommandId, CommandQuery, Event, LookupOutcome, PlannedCommand,
    Reconcile as ReconcileRequest, RecordCommand, RecordOutcome, RejectCommand, ReplayCommand,
    ReplayPlanQuery, Work,
};

use super::{Context, cut, draw, find, not_found, operate::confirm, read::events_after, say_unreadable};
use crate::{
    args::{
        Act, Answered, CommandCancel, CommandsList, CommandsPlan, CommandsVerb, Reconcile, Record, Replay,
    },
    exit::{Exit, Failure},
    render,
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

/// Finds a command by its id, or by a unique prefix.
async fn found(cx: &Context, id: &str) -> Result<Command, Failure> {
    cx.client.command(&CommandId::from(id)).await.map_err(|error| not_found(id, error))
}

async fn list(cx: &Context, args: CommandsList) -> Result<Exit, Failure> {
    let work = match &args.work {
        Some(id) => Some(find(cx, id).await?.id),
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
        let commands = cut(pages(cx, &query, args.limit.saturating_add(1)).await?, args.limit);
        cx.out.list(&commands, render::commands)
    })
    .await
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
        let command = found(cx, id).await?;
        let page = page(cx, &command).await?;
        cx.out.one(&command, |_, _| page)
    })
    .await
}

/// The page of a command, for people.
async fn page(cx: &Context, command: &Command) -> Result<String, Failure> {
    let why = cx.client.explain_command(&command.id).await?;
    let work = find(cx, command.work.as_str()).await?;
    let after = work.seq.saturating_sub(BACK);
    let mut events = events_after(cx, &work.id, after, usize::MAX).await?;
    events.retain(|event: &Event| event.data["command"] == command.id.as_str());
    Ok(render::describe_command(command, &why, &events, &cx.out.style()))
}

pub async fn explain(cx: &Context, id: &str) -> Result<Exit, Failure> {
    let explained = cx.client.explain_command(&found(cx, id).await?.id).await?;
    cx.out.one(&explained, |explained, _| {
        format!("{}\nNext: {}\n", render::safe(&explained.sentence), render::safe(&explained.next))
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
        let execute =
            execute.iter().map(|named| key_of(&items, named)).collect::<Result<Vec<String>, Failure>>()?;
        Ok(Self { items: ask(execute.clone()).await?, execute })
    }
}

fn key_of(items: &[PlannedCommand], named: &str) -> Result<String, Failure> {
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
            format!("no command of its runs has the id or key `{named}`. `tenure commands plan` lists them"),
        )),
        _ => Err(Failure::usage(format!("several commands begin with `{named}`: give a longer prefix."))),
    }
}

async fn plan(cx: &Context, args: &CommandsPlan) -> Result<Exit, Failure> {
    let plan = Plan::of(cx, &find(cx, &args.work).await?, &args.execute).await?;
    cx.out.list(&plan.items, render::plan)?;
    Ok(Exit::Ok)
}

/// Approves or rejects exactly the command that was just shown.
pub async fn decide(cx: &Context, id: &str, approved: bool, decision: Answered) -> Result<Exit, Failure> {
    let Answered { reason: Some(reason), seal, yes, dry_run } = decision else {
        return Err(Failure::usage("A decision on a command needs a reason: give --reason."));
    };
    let command = found(cx, id).await?;
    render::show(&render::intent(&command, &cx.out.style()));
    let act = Act { reason: reason.clone(), yes, dry_run };
    let what = format!("{} to {}", command.tool, command.target);
    let command = if approved {
        let approve = ApproveCommand { reason, seal: seal.unwrap_or_else(|| command.seal.clone()) };
        let then = format!("{what} may be dispatched once, with exactly these arguments.");
        confirm(&act, &then)?;
        cx.client.approve_command(&command.id, &approve).await?
    } else {
        let reject = RejectCommand { reason };
        let then = format!("{what} will not be dispatched.");
        confirm(&act, &then)?;
        cx.client.reject_command(&command.id, &reject).await?
    };
    became(cx, &command)
}

fn became(cx: &Context, command: &Command) -> Result<Exit, Failure> {
    cx.out.one(command, render::became)?;
    Ok(Exit::Ok)
}

async fn reconcile(cx: &Context, args: Reconcile) -> Result<Exit, Failure> {
    let command = found(cx, &args.id).await?;
    let request = ReconcileRequest {
        token: None,
        outcome: args.outcome,
        external_id: args.shown.external_id,
        reference: args.shown.reference,
        response: args.shown.response,
        message: Some(args.act.reason.clone()),
    };
    let what = format!("{} to {}", command.tool, command.target);
    let then = match args.outcome {
        LookupOutcome::Found => format!("{what} will finally count as done."),
        LookupOutcome::Absent => format!("{what} will count as not done, and may be sent again."),
        LookupOutcome::Unknown => format!("One more lookup of {what} will be recorded as unknown."),
    };
    confirm(&args.act, &then)?;
    became(cx, &cx.client.reconcile(&command.id, &request).await?)
}

async fn record(cx: &Context, args: Record) -> Result<Exit, Failure> {
    let command = found(cx, &args.id).await?;
    let outcome = if args.happened { RecordOutcome::Happened } else { RecordOutcome::DidNotHappen };
    let request = RecordCommand {
        reason: args.act.reason.clone(),
        outcome,
        external_id: args.shown.external_id,
        reference: args.shown.reference,
        response: args.shown.response,
    };
    let what = format!("{} to {}", command.tool, command.target);
    let then = match outcome {
        RecordOutcome::Happened => format!("{what} will finally count as done, on your word."),
        RecordOutcome::DidNotHappen => {
            format!("{what} will count as failed, on your word, and may be replayed.")
        }
    };
    confirm(&args.act, &then)?;
    became(cx, &cx.client.record(&command.id, &request).await?)
}

/// The complete command is shown first.
async fn replay(cx: &Context, args: &Replay) -> Result<Exit, Failure> {
    let command = found(cx, &args.id).await?;
    render::show(&page(cx, &command).await?);
    confirm(&args.act, &format!("{} to {} will be sent again, as recorded.", command.tool, command.target))?;
    let request = ReplayCommand { reason: args.act.reason.clone() };
    became(cx, &cx.client.replay(&command.id, &request).await?)
}

async fn cancel(cx: &Context, args: &CommandCancel) -> Result<Exit, Failure> {
    let command = found(cx, &args.id).await?;
    let request = CancelCommand { reason: args.act.reason.clone(), fence: None, token: None };
    let then = format!("{} to {} will not be dispatched.", command.tool, command.target);
    confirm(&args.act, &then)?;
    became(cx, &cx.client.cancel_command(&command.id, &request).await?)
}
