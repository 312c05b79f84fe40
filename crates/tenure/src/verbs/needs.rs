//! `needs`: everything that only a person can resolve, in one list. Questions and next steps come from the
//! ledger's own explanations.

use std::{cmp::Reverse, collections::HashMap};

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

/// How many work items and commands are searched.
const SEARCHED: usize = 1_000;

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
    // All of them are needed, to know how many work items wait for the same answer.
    let mut works = read::pages(cx, &of_state, SEARCHED).await?;
    let stalled = WorkQuery { state: vec![State::Stalled], ..of_state };
    works.extend(read::pages(cx, &stalled, SEARCHED).await?);
    let any = CommandQuery { tenant: args.tenant.clone(), ..CommandQuery::default() };
    let blocked = CommandQuery { needs_approval: true, ..any.clone() };
    let mut commands = command::pages(cx, &blocked, SEARCHED).await?;
    let doubtful = CommandQuery { needs_person: true, ..any };
    commands.extend(command::pages(cx, &doubtful, SEARCHED).await?);

    let mut needs = all(&commands, &works);
    // The most useful first; then deadlines, and then the longest waiting.
    needs.sort_by_key(|need| {
        (Reverse(need.unblocks), need.deadline_at.is_none(), need.deadline_at, need.since)
    });
    let mut needs = cut(needs, args.limit);
    explain(cx, &mut needs).await?;
    Ok(needs)
}

/// Everything that only a person can resolve, without the explanations.
pub fn all(commands: &[Command], works: &[Work]) -> Vec<Need> {
    let mut needs: Vec<Need> = commands.iter().map(|command| of_command(command, works)).collect();
    let mut shared: HashMap<(String, String), usize> = HashMap::new();
    for mut need in works.iter().filter_map(of_work) {
        // Several work items that wait for one answer are one need: the one with the earliest deadline.
        let key = need.reference.clone().map(|reference| (need.tenant.clone(), reference));
        if let Some(at) = key.as_ref().and_then(|key| shared.get(key)) {
            let known = &mut needs[*at];
            need.unblocks += known.unblocks;
            need.since = need.since.min(known.since);
            if (known.deadline_at.is_none(), known.deadline_at)
                <= (need.deadline_at.is_none(), need.deadline_at)
            {
                (known.unblocks, known.since) = (need.unblocks, need.since);
            } else {
                *known = need;
            }
            continue;
        }
        shared.extend(key.map(|key| (key, needs.len())));
        needs.push(need);
    }
    needs
}

/// Adds the ledger's explanations and the contents of commands, in one call. An item resolved meanwhile says so
/// itself.
async fn explain(cx: &Context, needs: &mut [Need]) -> Result<(), Failure> {
    let get = |path: String| BatchItem { method: Some(BatchMethod::Get), path, body: None };
    for some in needs.chunks_mut(BATCH_MAX / 2) {
        let mut items = Vec::new();
        for need in &*some {
            match &need.command {
                Some(id) => {
                    items.push(get(format!("/v1/commands/{id}/explain")));
                    items.push(get(format!("/v1/commands/{id}")));
                }
                None => items.push(get(format!("/v1/work/{}/explain", need.work))),
            }
        }
        let mut answers = cx.client.batch(&Batch { items }).await?.items.into_iter();
        for need in some {
            let Some(answer) = answers.next() else { break };
            let said = |field: &str| answer.body[field].as_str().unwrap_or_default().to_owned();
            need.ask = said(if answer.status == 200 { "sentence" } else { "detail" });
            need.advice = said("advice");
            let lines = answer.body["next"].as_array().into_iter().flatten();
            need.next = lines.filter_map(|line| Some(line.as_str()?.to_owned())).collect();
            if need.command.is_some() {
                let mut content = answers.next().map(|answer| answer.body).unwrap_or_default();
                need.arguments = Some(content["arguments"].take()).filter(|value| !value.is_null());
            }
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
        title: works
            .iter()
            .find(|work| work.id == command.work)
            .map_or_else(String::new, |work| work.title.clone()),
        tenant: command.tenant.clone(),
        reference: None,
        unblocks: 1,
        arguments: None,
        estimate: command.estimate.clone(),
        step: command.step.clone(),
        command: Some(command.id.clone()),
        assignee: wait.and_then(|wait| wait.assignee.clone()),
        since: command.updated_at,
        deadline_at: wait.and_then(|wait| wait.deadline_at),
        on_timeout: wait.filter(|wait| wait.deadline_at.is_some()).map(|wait| wait.on_timeout.clone()),
        advice: String::new(),
        next: Vec::new(),
    }
}

/// None if it asks nobody: a work item that waits for a command is represented by that command.
fn of_work(work: &Work) -> Option<Need> {
    let need = Need {
        kind: Asked::Decision,
        risk: None,
        ask: String::new(),
        work: work.id.clone(),
        title: work.title.clone(),
        tenant: work.tenant.clone(),
        reference: None,
        unblocks: 1,
        arguments: None,
        estimate: None,
        step: work.step.clone(),
        command: None,
        assignee: None,
        since: work.timestamps.updated,
        deadline_at: None,
        on_timeout: None,
        advice: String::new(),
        next: Vec::new(),
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
    let kind = wait.kind.known()?;
    Some(Need {
        kind: Asked::Answer(kind),
        // An approval is sealed to its own work item.
        reference: (kind != WaitKind::Approval).then(|| wait.reference.clone()),
        assignee: wait.assignee.clone(),
        since: wait.opened_at,
        deadline_at: wait.deadline_at,
        on_timeout: wait.deadline_at.map(|_| wait.on_timeout.clone()),
        ..need
    })
}
