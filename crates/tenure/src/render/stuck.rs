//! Work items that do not progress: one paragraph for each cause.

use tenure_api::wire::{Stuck, StuckCause, StuckGroup, Timestamp};

use super::{
    Style,
    light::Light,
    safe,
    text::{age, span},
};

/// Evidence that is printed of one work item; the rest is in JSON.
const FACTS: usize = 4;

pub fn stuck(found: &Stuck, style: &Style) -> String {
    let mut text = String::new();
    for group in &found.groups {
        paragraph(&mut text, group, found.complete, style);
    }
    text.push_str(&format!("{}\n", checked(found, style)));
    text
}

/// The true numbers of a check that found nothing.
pub fn nothing_stuck(found: &Stuck, style: &Style) -> String {
    let partly = if found.complete { "" } else { " Not all were read." };
    format!("Nothing stuck: {}.{partly}", checked(found, style))
}

fn checked(found: &Stuck, style: &Style) -> String {
    let (works, at) = (plural(found.open, "open work"), ago(found.checked_at, style));
    match found.swept_ms_ago {
        Some(ms) => {
            let swept = span(i64::try_from(ms).unwrap_or(i64::MAX));
            format!("{works} checked {at}; sweeper ticked {swept} ago")
        }
        None => format!("{works} checked {at}; no sweeper runs here"),
    }
}

fn paragraph(text: &mut String, group: &StuckGroup, complete: bool, style: &Style) {
    let light = light(group.cause.known());
    let head = format!("{} {}", light.glyph(style.ascii), words(group.cause.as_str()));
    let head = if style.colour { light.paint(&head) } else { head };
    let more = if complete { "" } else { " or more" };
    let count = plural(group.works, "work item");
    text.push_str(&format!("{head}: {count}{more}, oldest {}\n", ago(group.oldest_at, style)));
    text.push_str(&format!("  {}\n", safe(&group.action)));
    for item in &group.items {
        let (since, state) = (age(item.since, style.now), item.state.as_str());
        let line = format!("{} {} ({}, {state}, {since})", item.work, item.title, item.kind);
        text.push_str(&format!("\n  {}\n", safe(&line)));
        for fact in item.evidence.iter().take(FACTS) {
            text.push_str(&format!("    {}\n", safe(&fact.text)));
        }
        text.push_str(&format!("    {}\n", safe(&item.next)));
    }
    let shown = group.items.len() as u64;
    if group.works > shown {
        text.push_str(&format!("\n  and {} more: --limit shows them\n", group.works - shown));
    }
    text.push('\n');
}

fn words(cause: &str) -> String {
    cause.replace('_', " ")
}

fn ago(at: Timestamp, style: &Style) -> String {
    format!("{} ago", age(at, style.now))
}

fn plural(count: u64, one: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {one}s") }
}

fn light(cause: Option<StuckCause>) -> Light {
    match cause {
        Some(StuckCause::Poison) => Light::Fail,
        Some(StuckCause::CircularWait | StuckCause::RetryOverdue) => Light::Wait,
        Some(StuckCause::UnansweredWait) => Light::You,
        Some(StuckCause::NoWorker) => Light::Idle,
        Some(StuckCause::InDoubt | StuckCause::LeaseLost | StuckCause::Spinning) | None => Light::Risk,
    }
}
