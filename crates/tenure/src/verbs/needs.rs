//! Who is being waited for: everything that only a person can end, in one list. What is asked and what to type is the
//! ledger's own explanation.

use tenure_api::wire::{Command, CommandQuery, State, Wait, WaitKind, Work, WorkQuery};

use super::{Context, command, cut, draw, read};
use crate::{
    args::Needs,
    exit::{Exit, Failure},
    render::{self, Asked, Need},
};

const STATES: [State; 4] =
    [State::WaitingApproval, State::WaitingUser, State::WaitingAuth, State::Quarantined];

pub async fn needs(cx: &Context, args: &Needs) -> Result<Exit, Failure> {
    draw(cx, args.redraw.watch, || async {
        let needs = asked(cx, args).await?;
        cx.out.list(&needs, render::needs)
    })
    .await
}

async fn asked(cx: &Context, args: &Needs) -> Result<Vec<Need>, Failure> {
    let of_state = WorkQuery { state: STATES.to_vec(), tenant: args.tenant.clone(), ..WorkQuery::default() };
    // One further, to know whether there are more.
    let limit = args.limit.saturating_add(1);
    let works = read::pages(cx, &of_state, limit).await?;
    let any = CommandQuery { tenant: args.tenant.clone(), ..CommandQuery::default() };
    let blocked = CommandQuery { needs_approval: true, ..any.clone() };
    let mut commands = command::pages(cx, &blocked, limit).await?;
    let doubtful = CommandQuery { needs_person: true, ..any };
    commands.extend(command::pages(cx, &doubtful, limit).await?);

    let mut needs: Vec<Need> = commands.iter().map(|command| of_command(command, &works)).collect();
    needs.extend(works.iter().filter_map(of_work));
    // What ends by itself comes first, then what has waited longest.
    needs.sort_by_key(|need| (need.deadline_at.is_none(), need.deadline_at, need.since));
    let mut needs = cut(needs, args.limit);
    for need in &mut needs {
        (need.ask, need.next) = match &need.command {
            Some(id) => {
                let why = cx.client.explain_command(id).await?;
                (why.sentence, why.next)
            }
            None => {
                let why = cx.client.explain(&need.work).await?;
                (why.sentence, why.next)
            }
        };
    }
    Ok(needs)
}

/// Its deadline is that of the wait in which its work waits for it.
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

/// None where nobody is asked: what waits for a command is asked for by that command.
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
    let people = |wait: &&Wait| {
        matches!(wait.kind.known(), Some(WaitKind::Approval | WaitKind::Auth | WaitKind::User))
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
