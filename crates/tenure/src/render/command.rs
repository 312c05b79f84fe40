//! Commands: in a table, one in full, before an approval, and in the plan of a rerun.

use tenure_api::{
    story::Narrator,
    wire::{Command, CommandExplanation, CommandState, Cost, Event, Planned, PlannedCommand, Receipt},
};

use super::{
    Cell, Endings, Style, Table,
    describe::{Page, told},
    light::Light,
    safe,
    text::{age, span},
};

/// The length of a key in tables; all arguments that take keys take prefixes.
const KEY: usize = 12;

pub fn commands(commands: &[Command], style: &Style) -> Table {
    let mut table = Table::new(
        &[
            "STATE",
            "COMMAND",
            "TOOL",
            "DISPATCHES",
            "POLICY",
            "APPROVAL",
            "KEY",
            "EXTERNAL ID",
            "EVIDENCE",
            "AGE",
            "NEXT",
        ],
        "No command matches, or there is none yet: a worker records commands by reserving side effects.",
    )
    .least(&["NEXT", "KEY", "POLICY", "EVIDENCE", "DISPATCHES", "APPROVAL", "EXTERNAL ID"]);
    let ids = Endings::of(commands.iter().map(|command| command.id.as_str()), style);
    for command in commands {
        let receipt = command.receipt.as_ref();
        table.row(vec![
            lit(command),
            Cell::whole(ids.short(command.id.as_str())),
            what(command, style).into(),
            command.dispatches.to_string().into(),
            command.decision.effect.as_str().into(),
            approval(command).into(),
            key(command).into(),
            receipt.and_then(|receipt| receipt.external_id.as_deref()).unwrap_or("-").into(),
            receipt.map_or("-".to_owned(), evidence).into(),
            age(command.updated_at, style.now).into(),
            Cell::whole(&next(command, &ids)),
        ]);
    }
    table
}

pub fn light(command: &Command) -> Light {
    let asked = command.reason.as_ref().is_some_and(|reason| reason.code == "approval_required");
    match command.state.known() {
        Some(CommandState::Blocked) if asked => Light::You,
        Some(CommandState::Uncertain) if command.needs_person => Light::You,
        Some(CommandState::Pending) | None => Light::Idle,
        Some(CommandState::Cancelled) => Light::Off,
        Some(CommandState::Approved) => Light::Wait,
        Some(CommandState::Dispatched) => Light::Alive,
        Some(CommandState::Uncertain) => Light::Risk,
        Some(CommandState::Blocked | CommandState::Failed) => Light::Fail,
        Some(CommandState::Succeeded) => Light::Done,
    }
}

fn lit(command: &Command) -> Cell {
    let text = match &command.reason {
        Some(reason) => format!("{} {}", command.state, reason.code),
        None => command.state.as_str().to_owned(),
    };
    Cell::lit(light(command), &text)
}

fn what(command: &Command, style: &Style) -> String {
    let arrow = if style.ascii { "->" } else { "→" };
    format!("{} {arrow} {}", command.tool, command.target)
}

fn key(command: &Command) -> &str {
    command.command_key.get(..KEY).unwrap_or(&command.command_key)
}

fn approval(command: &Command) -> String {
    match &command.approval {
        None => "-".to_owned(),
        Some(approval) if approval.used_at.is_some() => format!("{}, used", approval.by.label()),
        Some(approval) => approval.by.label().to_owned(),
    }
}

fn evidence(receipt: &Receipt) -> String {
    match &receipt.evidence.reference {
        Some(reference) => format!("{} {reference}", receipt.evidence.kind),
        None => receipt.evidence.kind.as_str().to_owned(),
    }
}

/// The most likely next step; `show` has details.
fn next(command: &Command, ids: &Endings) -> String {
    let id = ids.short(command.id.as_str());
    match (command.state.known(), light(command)) {
        (Some(CommandState::Blocked), Light::You) => format!("tenure approve {id}"),
        (Some(CommandState::Blocked | CommandState::Uncertain | CommandState::Failed), _) => {
            format!("tenure show {id}")
        }
        _ => "-".to_owned(),
    }
}

/// A command with its explanation and its events, oldest first.
pub fn describe_command(
    command: &Command,
    why: &CommandExplanation,
    events: &[Event],
    style: &Style,
) -> String {
    let mut page = Page::new(style);
    page.lit("State", light(command), command.state.as_str());
    page.line("Why", &why.sentence);
    page.next(&why.advice, &why.next);
    page.out.push('\n');
    page.line("Command", command.id.as_str());
    page.out.push_str(&intent(command, style));
    calls(&mut page, command);
    outcome(&mut page, command);
    page.out.push_str("\nEvents\n");
    let mut narrator = Narrator::default();
    narrator.knows(command);
    for event in events {
        page.out.push_str(&told(event, &mut narrator));
    }
    if events.is_empty() {
        page.out.push_str("  No events are kept.\n");
    }
    page.out
}

/// The content and its evaluation: what a person reads before approving.
pub fn intent(command: &Command, style: &Style) -> String {
    let mut page = Page::new(style);
    let step = command.step.as_deref().map(|step| format!(", step {step}")).unwrap_or_default();
    page.line("Work", &format!("{}{step}, attempt {}", command.work, command.attempt));
    page.line("Tenant", &command.tenant);
    page.line(
        "Reserved",
        &format!(
            "{} by {} {}",
            page.at(command.created_at),
            command.submitter.kind,
            command.submitter.label()
        ),
    );
    page.line("Tool", &format!("{} ({}, executed by: {})", command.tool, command.kind, command.executor));
    page.line("Target", &command.target);
    page.option("Slot", command.slot.as_deref());
    match &command.arguments {
        Some(arguments) => page.json("Arguments", Some(arguments)),
        None => page.line("Arguments", "not shown: your token may not see them, or they were erased"),
    }
    page.line("Input hash", &command.input_hash);
    page.line("Seal", &command.seal);
    page.line("Key", &command.command_key);
    page.line("Sent as", &command.idempotency_key);
    let eyes =
        if command.four_eyes { ", not to be approved by a person who took part in the request" } else { "" };
    page.line("Risk", &format!("{}, idempotency: {}{eyes}", command.risk, command.idempotency));
    if let Some(cost) = &command.estimate {
        page.line("Estimate", &amounts(cost));
    }
    let decision = &command.decision;
    page.line("Policy", &format!("{} by version {}", decision.effect, decision.policy_version));
    for reason in &decision.reasons {
        page.line("Because", reason);
    }
    page.out
}

/// Tokens and money in words.
pub(super) fn amounts(cost: &Cost) -> String {
    let money = cost
        .micros
        .iter()
        .map(|(currency, micros)| format!("{}.{:06} {currency}", micros / 1_000_000, micros % 1_000_000));
    let tokens = (cost.tokens > 0).then(|| format!("{} tokens", cost.tokens));
    tokens.into_iter().chain(money).collect::<Vec<_>>().join(", ")
}

fn calls(page: &mut Page, command: &Command) {
    if let Some(reason) = &command.reason {
        let message = reason.message.as_deref().map(|message| format!(": {message}")).unwrap_or_default();
        page.line("Reason", &format!("{}{message}", reason.code));
    }
    if let Some(approval) = &command.approval {
        let used = match approval.used_at {
            Some(at) => format!("used {at}"),
            None => format!("good until {}", approval.expires_at),
        };
        page.line("Approved", &format!("{} by {}, {used}", approval.at, approval.by.label()));
    }
    let replays = match command.replays {
        0 => String::new(),
        n => format!(", {n} replays"),
    };
    page.line("Dispatches", &format!("{} ({} failed{replays})", command.dispatches, command.failures));
    if let Some(dispatch) = &command.dispatch {
        let by = format!("{} by {}, fence {}", page.at(dispatch.at), dispatch.by.label(), dispatch.fence);
        page.line("Dispatched", &by);
    }
    if command.unknowns > 0 {
        page.line("Lookups", &format!("{} in a row were unknown", command.unknowns));
    }
    if let Some(at) = command.next_at {
        page.line("Not before", &format!("{at} (in {})", span(at.0 - page.now().0)));
    }
    if let Some(error) = &command.error {
        let message = error.message.as_deref().unwrap_or("no message");
        page.line("Error", &format!("{}: {message}", error.class));
    }
}

fn outcome(page: &mut Page, command: &Command) {
    page.option("Superseded", command.superseded_by.as_ref().map(|id| id.as_str()));
    let Some(receipt) = &command.receipt else { return };
    page.line("Receipt", &format!("{}, evidence: {}", page.at(receipt.at), evidence(receipt)));
    page.option("External id", receipt.external_id.as_deref());
    page.json("Response", receipt.response.as_ref());
    page.option("Reused from", receipt.reused_from.as_ref().map(|id| id.as_str()));
}

/// A command on a line of its work's page.
pub(super) fn brief(command: &Command, style: &Style) -> String {
    let reason = command.reason.as_ref().map(|reason| format!(" {}", reason.code)).unwrap_or_default();
    let proof = command
        .receipt
        .as_ref()
        .and_then(|receipt| receipt.external_id.clone().or_else(|| receipt.evidence.reference.clone()));
    let proof = proof.map(|proof| format!(": {proof}")).unwrap_or_default();
    format!(
        "{} {}{reason} {}{proof} ({})",
        light(command).glyph(style.ascii),
        command.state,
        what(command, style),
        command.id
    )
}

/// The plan of a rerun, command by command.
pub fn plan(items: &[PlannedCommand], style: &Style) -> Table {
    let head = ["PLANNED", "COMMAND", "TOOL", "STATE", "KEY", "RECEIPT"];
    let mut table =
        Table::new(&head, "No run of it had commands: there is nothing to reuse or to resolve first.");
    for item in items {
        let command = &item.command;
        let light = match item.planned.known() {
            Some(Planned::ReuseReceipt) => Light::Done,
            Some(Planned::Execute) => Light::Alive,
            Some(Planned::NeedsApproval) => Light::You,
            Some(Planned::Blocked) | None => Light::Risk,
        };
        let receipt = command.receipt.as_ref();
        table.row(vec![
            Cell::lit(light, item.planned.as_str()),
            command.id.as_str().into(),
            what(command, style).into(),
            command.state.as_str().into(),
            key(command).into(),
            receipt
                .map_or("-".to_owned(), |receipt| {
                    receipt.external_id.clone().unwrap_or_else(|| evidence(receipt))
                })
                .into(),
        ]);
    }
    table
}

/// The result of a command, on one line.
pub fn became(command: &Command, _: &Style) -> String {
    let reason = command.reason.as_ref().map(|reason| format!(" {}", reason.code)).unwrap_or_default();
    format!("{} {}{}\n", command.id, command.state, safe(&reason))
}
