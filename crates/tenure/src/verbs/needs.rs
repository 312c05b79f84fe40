//! `needs`: everything that only a person can resolve, in one list. Questions and next steps come from the
//! ledger's own explanations.

use tenure_api::wire::{
    BATCH_MAX, Batch, BatchItem, BatchMethod, Command, CommandQuery, OnStalled, State, Timestamp, Wait,
    WaitKind, WaitQuery, WaitState, Work, WorkQuery,
};

use super::{Context, command, cut, draw, read};
use crate::{
    args::Needs,
    exit::{Exit, Failure},
    render::{self, Asked, Light, Need},
};

/// How many of the newest stalled work items are searched for those that prompt.
const STALLED: usize = 1_000;

/// How many of the newest commands are searched for an approval.
const BACK: u32 = 200;

pub async fn needs(cx: &Context, args: &Needs) -> Result<Exit, Failure> {
    draw(cx, args.redraw.watch, || async {
        let needs = asked(cx, args).await?;
        let last = if needs.is_empty() { last_answer(cx, args).await? } else { None };
        cx.out.list(&needs, |needs, style| render::needs(needs, last.as_ref(), style))
    })
    .await
}

async fn asked(cx: &Context, args: &Needs) -> Result<Vec<Need>, Failure> {
    let for_people = |state: &State| *state == State::Quarantined || Light::of_state(*state) == Light::You;
    let states = State::ALL.iter().copied().filter(for_people).collect();
    let of_state = WorkQuery { state: states, tenant: args.tenant.clone(), ..WorkQuery::default() };
    // One more than requested, to know whether there are more.
    let limit = args.limit.saturating_add(1);
    let mut works = read::pages(cx, &of_state, limit).await?;
    let stalled = WorkQuery { state: vec![State::Stalled], ..of_state };
    works.extend(read::pages(cx, &stalled, STALLED).await?);
    let any = CommandQuery { tenant: args.tenant.clone(), ..CommandQuery::default() };
    let blocked = CommandQuery { needs_approval: true, ..any.clone() };
    let mut commands = command::pages(cx, &blocked, limit).await?;
    let doubtful = CommandQuery { needs_person: true, ..any };
    commands.extend(command::pages(cx, &doubtful, limit).await?);

    let mut needs = all(&commands, &works);
    // Deadlines first, then the longest waiting.
    needs.sort_by_key(|need| (need.deadline_at.is_none(), need.deadline_at, need.since));
    let mut needs = cut(needs, args.limit);
    explain(cx, &mut needs).await?;
    Ok(needs)
}

/// Everything that only a person can resolve, without the explanations.
pub fn all(commands: &[Command], works: &[Work]) -> Vec<Need> {
    let of_commands = commands.iter().map(|command| of_command(command, works));
    of_commands.chain(works.iter().filter_map(of_work)).collect()
}

/// Adds the ledger's explanations, in one call. An item resolved meanwhile says so itself.
async fn explain(cx: &Context, needs: &mut [Need]) -> Result<(), Failure> {
    for some in needs.chunks_mut(BATCH_MAX) {
        let items = some.iter().map(|need| {
            let path = match &need.command {
                Some(id) => format!("/v1/commands/{id}/explain"),
                None => format!("/v1/work/{}/explain", need.work),
            };
            BatchItem { method: Some(BatchMethod::Get), path, body: None }
        });
        let answers = cx.client.batch(&Batch { items: items.collect() }).await?.items;
        for (need, answer) in some.iter_mut().zip(answers) {
            let said = |field: &str| answer.body[field].as_str().unwrap_or_default().to_owned();
            (need.ask, need.next) = match answer.status {
                200 => (said("sentence"), said("next")),
                _ => (said("detail"), "`tenure needs`".to_owned()),
            };
        }
    }
    Ok(())
}

/// The time and the person of the last answer or approval. Of commands, the newest are searched.
async fn last_answer(cx: &Context, args: &Needs) -> Result<Option<(Timestamp, String)>, Failure> {
    let mut answers = Vec::new();
    let people = WaitKind::ALL.iter().filter(|kind| Light::of_wait(**kind) == Light::You);
    for kind in people {
        let ended = WaitQuery {
            kind: Some(*kind),
            state: Some(WaitState::Answered),
            tenant: args.tenant.clone(),
            last_ended: true,
            limit: Some(1),
            ..WaitQuery::default()
        };
        let waits = cx.client.waits(&ended).await?.items.into_iter();
        answers.extend(waits.filter_map(|wait| Some((wait.ended_at?, wait.answered_by?.label().to_owned()))));
    }
    let newest = CommandQuery { tenant: args.tenant.clone(), limit: Some(BACK), ..CommandQuery::default() };
    let commands = cx.client.commands(&newest).await?.items.into_iter();
    answers.extend(
        commands.filter_map(|command| command.approval).map(|given| (given.at, given.by.label().to_owned())),
    );
    Ok(answers.into_iter().max())
}

/// Its deadline is that of the wait in which its work item waits for it.
fn of_command(command: &Command, works: &[Work]) -> Need {
    let mut waits = works.iter().flat_map(|work| &work.waits);
    let wait = waits.find(|wait| render::command_of(&wait.reference) == Some(command.id.as_str()));
    Need {
        kind: if command.needs_person { Asked::Outcome } else { Asked::Approval },
        risk: Some(command.risk.clone()),
        ask: String::new(),
        work: command.work.clone(),
        step: command.step.clone(),
        command: Some(command.id.clone()),
        assignee: wait.and_then(|wait| wait.assignee.clone()),
        since: command.updated_at,
        deadline_at: wait.and_then(|wait| wait.deadline_at),
        on_timeout: wait.filter(|wait| wait.deadline_at.is_some()).map(|wait| wait.on_timeout.clone()),
        next: String::new(),
    }
}

/// None if it asks nobody: a work item that waits for a command is represented by that command.
fn of_work(work: &Work) -> Option<Need> {
    let need = Need {
        kind: Asked::Decision,
        risk: None,
        ask: String::new(),
        work: work.id.clone(),
        step: work.step.clone(),
        command: None,
        assignee: None,
        since: work.timestamps.updated,
        deadline_at: None,
        on_timeout: None,
        next: String::new(),
    };
    if work.state == State::Quarantined {
        return Some(need);
    }
    if work.state == State::Stalled {
        let prompts = work.on_stalled.as_ref().is_some_and(|told| *told == OnStalled::Prompt);
        return prompts.then_some(need);
    }
    let people = |wait: &&Wait| {
        wait.kind.known().is_some_and(|kind| Light::of_wait(kind) == Light::You)
            && !wait.reference.starts_with("work:")
            && render::command_of(&wait.reference).is_none()
    };
    let wait =
        work.waits.iter().filter(people).min_by_key(|wait| (wait.deadline_at.is_none(), wait.deadline_at))?;
    Some(Need {
        kind: Asked::Answer(wait.kind.known()?),
        assignee: wait.assignee.clone(),
        since: wait.opened_at,
        deadline_at: wait.deadline_at,
        on_timeout: wait.deadline_at.map(|_| wait.on_timeout.clone()),
        ..need
    })
}
