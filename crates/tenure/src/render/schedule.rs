//! Schedules: in a table, and one in full.

use tenure_api::wire::{RunOutcome, Schedule};

use super::{
    Cell, Style, Table,
    describe::Page,
    light::Light,
    text::{age, span},
};

pub fn schedules(schedules: &[Schedule], style: &Style) -> Table {
    let head = ["SCHEDULE", "TENANT", "WHEN", "NEXT", "LAST", "FIRED", "SKIPPED"];
    let mut table = Table::new(&head, "No schedule. `tenure schedule set --help` shows how to create one.");
    for schedule in schedules {
        table.row(vec![
            lit(schedule),
            (&schedule.tenant).into(),
            when(schedule).into(),
            schedule
                .next_at
                .map_or("paused".to_owned(), |at| format!("in {}", span(at.0 - style.now.0)))
                .into(),
            last(schedule, style).into(),
            schedule.fired.to_string().into(),
            schedule.skipped.to_string().into(),
        ]);
    }
    table
}

fn lit(schedule: &Schedule) -> Cell {
    let light = match (&schedule.last_error, schedule.paused) {
        (Some(_), _) => Light::Fail,
        (None, true) => Light::Idle,
        (None, false) => Light::Wait,
    };
    Cell::lit(light, &schedule.name)
}

fn when(schedule: &Schedule) -> String {
    match (&schedule.cron, &schedule.zone, schedule.every_ms) {
        (Some(cron), Some(zone), _) => format!("{cron} ({zone})"),
        (Some(cron), None, _) => cron.clone(),
        (None, _, Some(ms)) if ms % 1_000 != 0 => format!("every {ms}ms"),
        (None, _, Some(ms)) => format!("every {}s", ms / 1_000),
        (None, _, None) => "-".to_owned(),
    }
}

fn last(schedule: &Schedule, style: &Style) -> String {
    match &schedule.last_run {
        None => "never".to_owned(),
        Some(run) => {
            let refused = if run.outcome == RunOutcome::Refused { ", refused" } else { "" };
            format!("{} ago{refused}", age(run.at, style.now))
        }
    }
}

pub fn describe_schedule(schedule: &Schedule, style: &Style) -> String {
    let mut page = Page::new(style);
    page.line("Schedule", &schedule.name);
    page.line("Tenant", &schedule.tenant);
    page.line("When", &when(schedule));
    page.line("State", if schedule.paused { "paused" } else { "running" });
    if let Some(error) = &schedule.last_error {
        page.line("Error", &format!("{}: {} (run {})", error.code, error.detail, error.run_id));
    }
    page.line("Overlap", schedule.overlap.as_str());
    page.line("Catch up", &span(i64::try_from(schedule.catch_up_ms).unwrap_or(i64::MAX)));
    page.line("Fired", &schedule.fired.to_string());
    page.line("Skipped", &skipped(schedule));
    if let Some(run) = &schedule.last_run {
        let work = run.work.as_ref().map_or("no work", |work| work.as_str());
        page.line("Last run", &format!("{} {}: {work} at {}", run.run_id, run.outcome, run.at));
    }
    let template = &schedule.template;
    page.line("Kind", &template.kind);
    page.line("Disposition", template.disposition.as_str());
    page.option("Session", template.session.as_deref());
    page.json("Input", template.input.as_ref());
    for at in &schedule.upcoming {
        page.line("Next", &format!("{at} (in {})", span(at.0 - style.now.0)));
    }
    for change in &schedule.changes {
        page.line(
            "Changed",
            &format!("{} {} by {}: {}", change.at, change.act, change.actor.label(), change.reason),
        );
    }
    page.out
}

fn skipped(schedule: &Schedule) -> String {
    match &schedule.last_skip {
        None => schedule.skipped.to_string(),
        Some(skip) => format!("{}, last {} ({})", schedule.skipped, skip.due_at, skip.reason),
    }
}
