//! Schedules: looked at, set, stopped, run.

use tenure_api::wire::{
    DeleteSchedule, PauseSchedule, RunSchedule, Schedule as View, ScheduleGet, ScheduleQuery, SetSchedule,
    Template,
};

use super::{Context, ask::confirm, say_unreadable};
use crate::{
    args::{Schedule, ScheduleAct, ScheduleRun, ScheduleSet, ScheduleVerb},
    exit::{Exit, Failure},
    render,
};

pub async fn schedule(cx: &Context, verb: ScheduleVerb) -> Result<Exit, Failure> {
    match verb {
        ScheduleVerb::List { tenant } => list(cx, tenant).await,
        ScheduleVerb::Show(of) => show(cx, of).await,
        ScheduleVerb::Set(args) => set(cx, *args).await,
        ScheduleVerb::Pause(args) => pause(cx, args, true).await,
        ScheduleVerb::Resume(args) => pause(cx, args, false).await,
        ScheduleVerb::Run(args) => run(cx, args).await,
        ScheduleVerb::Delete(args) => delete(cx, args).await,
    }
}

async fn list(cx: &Context, tenant: Option<String>) -> Result<Exit, Failure> {
    let mut query = ScheduleQuery { tenant, ..ScheduleQuery::default() };
    let mut schedules = Vec::new();
    loop {
        let page = cx.client.schedules(&query).await?;
        say_unreadable(&page.unreadable);
        schedules.extend(page.items);
        query.cursor = page.next;
        if query.cursor.is_none() {
            break;
        }
    }
    cx.out.list(&schedules, render::schedules)?;
    Ok(Exit::Ok)
}

async fn show(cx: &Context, of: Schedule) -> Result<Exit, Failure> {
    let schedule = cx.client.schedule(&of.name, &ScheduleGet { tenant: of.tenant }).await?;
    cx.out.one(&schedule, render::describe_schedule)?;
    Ok(Exit::Ok)
}

async fn set(cx: &Context, args: ScheduleSet) -> Result<Exit, Failure> {
    let ms = |period: std::time::Duration| u64::try_from(period.as_millis()).unwrap_or(u64::MAX);
    let name = args.schedule.name;
    let then = format!("Schedule {name} will be created, or replaced with this definition.");
    let set = SetSchedule {
        reason: confirm(&args.act, &then)?,
        tenant: args.schedule.tenant,
        cron: args.cron,
        zone: args.zone,
        every_ms: args.every.map(ms),
        template: Template {
            kind: args.kind,
            title: args.title,
            disposition: args.disposition,
            input: args.input,
            priority: args.priority,
            session: args.session,
            correlation_id: None,
            workflow: None,
            policy: None,
        },
        overlap: args.overlap,
        catch_up_ms: args.catch_up.map(ms),
        paused: None,
    };
    done(cx, &cx.client.set_schedule(&name, &set).await?)?;
    Ok(Exit::Ok)
}

async fn pause(cx: &Context, args: ScheduleAct, pause: bool) -> Result<Exit, Failure> {
    let ScheduleAct { schedule: Schedule { name, tenant }, act } = args;
    let then = match pause {
        true => format!("Schedule {name} will not run until it is resumed."),
        false => format!("Schedule {name} will run again from its next due time."),
    };
    let body = PauseSchedule { reason: confirm(&act, &then)?, tenant };
    let schedule = match pause {
        true => cx.client.pause_schedule(&name, &body).await?,
        false => cx.client.resume_schedule(&name, &body).await?,
    };
    done(cx, &schedule)?;
    Ok(Exit::Ok)
}

async fn run(cx: &Context, args: ScheduleRun) -> Result<Exit, Failure> {
    let ScheduleRun { schedule: Schedule { name, tenant }, request_id, act } = args;
    let request_id = request_id.unwrap_or_else(|| uuid::Uuid::now_v7().simple().to_string());
    let reason = confirm(&act, &format!("Schedule {name} will run once, now."))?;
    let body = RunSchedule { reason, request_id, tenant };
    let schedule = cx.client.run_schedule(&name, &body).await?;
    let work = schedule.last_run.as_ref().and_then(|run| run.work.clone());
    cx.out.one(&schedule, |_, _| work.as_ref().map(|work| format!("{work}\n")).unwrap_or_default())?;
    match (work, &schedule.last_error) {
        (None, Some(error)) => Err(Failure::new(Exit::Refused, format!("{}: {}", error.code, error.detail))),
        _ => Ok(Exit::Ok),
    }
}

async fn delete(cx: &Context, args: ScheduleAct) -> Result<Exit, Failure> {
    let ScheduleAct { schedule: Schedule { name, tenant }, act } = args;
    let reason = confirm(&act, &format!("Schedule {name} will be deleted; its work items are kept."))?;
    let query = DeleteSchedule { reason, tenant };
    let gone = cx.client.delete_schedule(&name, &query).await?;
    cx.out.one(&gone, |gone, _| format!("{} deleted\n", render::safe(&gone.name)))?;
    Ok(Exit::Ok)
}

fn done(cx: &Context, schedule: &View) -> Result<(), Failure> {
    cx.out.one(schedule, |schedule, _| {
        let next = schedule.next_at.map_or("paused".to_owned(), |at| format!("next {at}"));
        format!("{} {next}\n", render::safe(&schedule.name))
    })
}
