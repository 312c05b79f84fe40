//! How the tour looks in a terminal: plain text, at most 120 columns.

use std::path::Path;

use tenure_store::{
    Ledger, Report,
    core::{ActorKind, Event, Fact, Millis, WorkId, explain::Explanation},
};

use crate::Told;

const WIDTH: usize = 118;
const EVENTS: usize = 1_000;

pub fn opening() {
    println!("A tour of Tenure: what six works lived through, and what their ledger says about it.");
    println!("Time is simulated: the clock is moved by hand, and nothing here waits for real.");
}

pub fn title(letter: &str, title: &str) {
    println!("\n\n({letter}) {title}");
    println!("{}", "─".repeat(WIDTH));
}

pub fn aside(text: &str) {
    paragraph("  » ", text);
}

pub fn explanation(when: &str, explanation: &Explanation) {
    println!("  {when}:");
    paragraph("      why   ", &explanation.sentence);
    paragraph("      do    ", &explanation.advice);
    for next in &explanation.next {
        println!("      next  {next}");
    }
}

/// A work item as it is now, and all its events.
pub async fn work(ledger: &Ledger, id: WorkId) -> Told {
    let work = ledger.work(id).await?;
    let explanation = ledger.explain(id).await?;
    println!("\n  work   {id}  ({} {})", work.spec.source.system, work.spec.source.id);
    println!("  state  {}", work.state);
    paragraph("  why    ", &explanation.sentence);
    paragraph("  do     ", &explanation.advice);
    for next in &explanation.next {
        println!("  next   {next}");
    }
    println!(
        "\n  {:>3}  {:>8}  {:<17}  {:<15}  {:<27}  message",
        "seq", "time", "actor", "event", "from → to"
    );
    for stored in ledger.events(id, 0, EVENTS).await? {
        event(&stored.event, work.spec.created_at);
    }
    Ok(())
}

fn event(event: &Event, since: Millis) {
    let actor = format!("{} {}", kind(event.actor.kind), event.actor.id);
    let moved = match event.from {
        None => format!("· → {}", event.to),
        Some(from) if from == event.to => from.to_string(),
        Some(from) => format!("{from} → {}", event.to),
    };
    let start = format!(
        "  {:>3}  {:>8}  {actor:<17}  {:<15}  {moved:<27}  ",
        event.seq,
        after(event.at - since),
        event.fact.kind()
    );
    paragraph(&start, &said(event));
}

fn kind(actor: ActorKind) -> &'static str {
    match actor {
        ActorKind::Person => "person",
        ActorKind::Machine => "machine",
        ActorKind::Worker => "worker",
        ActorKind::System => "system",
    }
}

/// The message, or else the subject of the event.
fn said(event: &Event) -> String {
    let payload = event.payload.as_ref().map(|payload| payload.text().to_owned());
    let step = event.step.as_ref().map(|step| format!("step `{step}`"));
    match (&event.message, step, payload) {
        (Some(message), ..) => message.clone(),
        (None, Some(step), Some(result)) => format!("{step} gave {result}"),
        (None, Some(step), None) => step,
        (None, None, Some(payload)) => payload,
        (None, None, None) => match &event.fact {
            Fact::Claimed(claimed) => format!("attempt {} by {}", event.attempt, claimed.worker.id),
            Fact::Accepted(accepted) => format!("{:?}", accepted.strength).to_lowercase(),
            fact => meaning(fact),
        },
    }
}

/// The meaning of an event type, as the ledger documents it.
fn meaning(fact: &Fact) -> String {
    let documented = Fact::TYPES.iter().find(|(kind, _)| *kind == fact.kind());
    documented.map_or_else(String::new, |(_, meaning)| meaning.trim_end_matches('.').to_lowercase())
}

/// In the format of a stopwatch.
fn after(ms: Millis) -> String {
    let seconds = ms / 1_000;
    let (hours, minutes, seconds) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    if hours > 0 { format!("+{hours}:{minutes:02}:{seconds:02}") } else { format!("+{minutes}:{seconds:02}") }
}

/// Wraps text after a first column; further lines are indented to it.
fn paragraph(start: &str, text: &str) {
    let indent = start.chars().count();
    let mut line = start.to_owned();
    let mut empty = true;
    for word in text.split_whitespace() {
        if !empty && line.chars().count() + 1 + word.chars().count() > WIDTH {
            println!("{}", line.trim_end());
            line = " ".repeat(indent);
            empty = true;
        }
        if !empty {
            line.push(' ');
        }
        line.push_str(word);
        empty = false;
    }
    println!("{}", line.trim_end());
}

pub fn closing(report: &Report, file: &Path) {
    println!("\n{}", "─".repeat(WIDTH));
    let faults = match report.faults.len() {
        0 => "no faults".to_owned(),
        found => format!("{found} faults: {:?}", report.faults),
    };
    println!("verify: {} works, {} events, {faults}", report.works, report.events);
    println!("The ledger is {}.", file.display());
}
