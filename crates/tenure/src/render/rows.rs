//! One row for each item: light, state, reason, freshness, next step.

use tenure_api::{
    story::Narrator,
    wire::{Alert, Event, Grant, IdleClaim, LeaseLiveness, State, Timestamp, Token, Work, WorkerView},
};

use super::{
    Style, Table,
    light::Light,
    table::{Cell, Endings},
    text::{age, safe, span},
};

/// The least width for a sentence: narrower terminals leave other columns out.
const SENTENCE: usize = 44;
/// The least widths of a state and of a title.
const STATE: usize = 18;
const TITLE: usize = 24;

/// Work items of any state, newest first.
pub fn works(works: &[Work], style: &Style) -> Table {
    let mut table = Table::new(
        &["STATE", "WORK", "TITLE", "SOURCE", "KIND", "TRY", "REASON", "FRESH", "NEXT"],
        "No work item matches. `tenure list` without filters shows the newest.",
    )
    .least(&["NEXT", "KIND", "SOURCE", "TRY", "REASON"])
    .keep("STATE", STATE)
    .keep("TITLE", TITLE);
    let ids = Endings::of(works.iter().map(|work| work.id.as_str()), style);
    for work in works {
        table.row(vec![
            Cell::lit(Light::of(work), work.state.as_str()),
            Cell::whole(ids.short(work.id.as_str())),
            title(work).into(),
            source(work).into(),
            (&work.kind).into(),
            work.attempt.to_string().into(),
            reason(work).into(),
            fresh(work, style).into(),
            Cell::whole(&next(work, &ids)),
        ]);
    }
    table
}

/// Work items as of a past moment: without what is not recorded, and without a next step.
pub fn past(works: &[Work], style: &Style) -> Table {
    let mut table = Table::new(
        &["STATE", "WORK", "SOURCE", "KIND", "STEP", "TRY", "OWNER", "REASON", "IN STATE"],
        "No work item matched at that time.",
    );
    for work in works {
        table.row(vec![
            Cell::lit(Light::of(work), work.state.as_str()),
            work.id.as_str().into(),
            source(work).into(),
            (&work.kind).into(),
            work.step.as_deref().unwrap_or("-").into(),
            work.attempt.to_string().into(),
            work.lease.as_ref().map_or("-", |lease| &lease.worker).into(),
            reason(work).into(),
            in_state(work, style).into(),
        ]);
    }
    table
}

/// Held work items, by remaining lease time.
pub fn running(works: &[Work], style: &Style) -> Table {
    let mut table = Table::new(
        &["STATE", "WORK", "TITLE", "KIND", "STEP", "TRY", "OWNER", "BEAT", "LEFT", "IN STATE", "NEXT"],
        "Nothing is running: no lease is held. `tenure list --phase pending` shows what waits for a worker.",
    )
    .least(&["NEXT", "KIND", "TRY", "STEP", "IN STATE", "TITLE"])
    .keep("STATE", STATE)
    .keep("TITLE", TITLE);
    let ids = Endings::of(works.iter().map(|work| work.id.as_str()), style);
    for work in works {
        let lease = work.lease.as_ref();
        let state = match work.spinning_since {
            Some(since) => format!("{}, spinning {}", work.state, age(since, style.now)),
            None => work.state.to_string(),
        };
        table.row(vec![
            Cell::lit(Light::of(work), &state),
            Cell::whole(ids.short(work.id.as_str())),
            title(work).into(),
            (&work.kind).into(),
            work.step.as_deref().unwrap_or("-").into(),
            work.attempt.to_string().into(),
            lease.map_or("-", |lease| &lease.worker).into(),
            lease.map_or("-".to_owned(), |lease| beat(lease.renewed_at, lease.missed, style)).into(),
            lease.map_or("-".to_owned(), |lease| left(lease.expires_at, style)).into(),
            in_state(work, style).into(),
            Cell::whole(&next(work, &ids)),
        ]);
    }
    table
}

/// The time in its current state.
pub fn in_state(work: &Work, style: &Style) -> String {
    work.state_since.map_or("-".to_owned(), |since| age(since, style.now))
}

/// Its title, unless that is only the id in its source.
fn title(work: &Work) -> &str {
    if work.title == work.source.id { "-" } else { &work.title }
}

/// Its source as it can be typed: `system/id`, or `system/id/run`.
pub fn source(work: &Work) -> String {
    let source = &work.source;
    if source.run_id.is_empty() {
        format!("{}/{}", source.system, source.id)
    } else {
        format!("{}/{}/{}", source.system, source.id, source.run_id)
    }
}

/// Why it does not progress, in short.
pub fn reason(work: &Work) -> String {
    let Some(reason) = &work.reason else { return "-".to_owned() };
    match (&reason.tool, &reason.message) {
        (Some(tool), _) => format!("{} {tool}", reason.code),
        (None, Some(message)) => format!("{}: {message}", reason.code),
        (None, None) => reason.code.clone(),
    }
}

/// The age of our information: the heartbeat if there is a holder, otherwise the last event.
fn fresh(work: &Work, style: &Style) -> String {
    match &work.lease {
        Some(lease) => beat(lease.renewed_at, lease.missed, style),
        None => age(work.timestamps.updated, style.now),
    }
}

fn beat(renewed_at: Timestamp, missed: u32, style: &Style) -> String {
    match missed {
        0 => age(renewed_at, style.now),
        1 => format!("{}, 1 missed", age(renewed_at, style.now)),
        many => format!("{}, {many} missed", age(renewed_at, style.now)),
    }
}

fn left(expires_at: Timestamp, style: &Style) -> String {
    if expires_at < style.now { "expired".to_owned() } else { span(expires_at.0 - style.now.0) }
}

/// The most likely next step, as a complete command line; `explain` has details.
fn next(work: &Work, ids: &Endings) -> String {
    let id = ids.short(work.id.as_str());
    match work.state.known() {
        Some(State::WaitingApproval) => {
            match work.waits.iter().find_map(|wait| command_of(&wait.reference)) {
                Some(command) => format!("tenure approve {command}"),
                None => format!("tenure approve {id}"),
            }
        }
        Some(State::WaitingAuth) => format!("tenure reconnect {id}"),
        Some(state) if Light::of_state(state) == Light::You => match work.waits.first() {
            Some(wait) => format!("tenure resolve {}", wait.id),
            None => format!("tenure explain {id}"),
        },
        Some(State::Stalled | State::Quarantined | State::Failed | State::TimedOut | State::Abandoned) => {
            format!("tenure explain {id}")
        }
        _ => "-".to_owned(),
    }
}

/// The command that a wait is for.
pub fn command_of(reference: &str) -> Option<&str> {
    reference.strip_prefix("command:")
}

/// The events of one work item, in order.
pub fn events(events: &[Event], narrator: Narrator, style: &Style) -> Table {
    logged(events, narrator, false, style)
}

/// The events of all work items.
pub fn feed(events: &[Event], narrator: Narrator, style: &Style) -> Table {
    logged(events, narrator, true, style)
}

fn logged(events: &[Event], mut narrator: Narrator, several: bool, style: &Style) -> Table {
    let mut head = vec!["SEQ", "AT", "EVENT", "MOVE", "TRY", "WHAT HAPPENED"];
    if several {
        head.insert(2, "WORK");
    }
    let mut table = Table::new(&head, "No event yet.")
        .least(&["TRY", "EVENT", "MOVE", "AT"])
        .keep("WHAT HAPPENED", SENTENCE);
    let ids = Endings::of(events.iter().map(|event| event.work.as_str()), style);
    for event in events {
        let mut cells: Vec<Cell> = vec![
            event.seq.to_string().into(),
            Cell::whole(&event.at.to_string()),
            Cell::whole(&event.kind),
            Cell::whole(&moved(event, style)),
            event.attempt.to_string().into(),
            narrator.tell(event).into(),
        ];
        if several {
            cells.insert(2, Cell::whole(ids.short(event.work.as_str())));
        }
        table.row(cells);
    }
    table
}

/// The move from state to state; a dash if the state did not change.
fn moved(event: &Event, style: &Style) -> String {
    let arrow = if style.ascii { "->" } else { "→" };
    match &event.from {
        Some(from) if *from == event.to => "-".to_owned(),
        Some(from) => format!("{from} {arrow} {}", event.to),
        None => format!("{arrow} {}", event.to),
    }
}

/// An event on a line, for streams, which cannot know the widths of later columns.
pub fn event(event: &Event, narrator: &mut Narrator, style: &Style) -> String {
    let said = narrator.tell(event);
    let line = format!(
        "{} {} #{} {} ({}): {said}",
        event.at,
        event.work,
        event.seq,
        event.kind,
        moved(event, style)
    );
    format!("{}\n", safe(&line))
}

pub fn leases(grants: &[Grant], style: &Style) -> Table {
    let mut table = Table::new(
        &["WORK", "KIND", "TRY", "FENCE", "RENEW", "LEFT", "LEASE"],
        "Nothing to claim. `--wait 30s` waits; `tenure list --phase pending` shows the queue.",
    );
    for grant in grants {
        table.row(vec![
            grant.work.id.as_str().into(),
            (&grant.work.kind).into(),
            grant.work.attempt.to_string().into(),
            grant.fence.to_string().into(),
            span(i64::try_from(grant.renew_ms).unwrap_or(i64::MAX)).into(),
            left(grant.expires_at, style).into(),
            (&grant.token).into(),
        ]);
    }
    table
}

pub fn workers(workers: &[WorkerView], style: &Style) -> Table {
    let mut table = Table::new(
        &["LIVENESS", "WORKER", "INCARNATION", "LEASES", "BEAT", "NEXT EXPIRY", "WAITS FOR", "PROOF"],
        "No worker holds a lease, and none waits for work at this daemon.",
    );
    for worker in workers {
        let light = match worker.liveness.known() {
            Some(LeaseLiveness::Alive) if worker.leases == 0 => Light::Idle,
            Some(LeaseLiveness::Alive) if worker.missed == 0 => Light::Alive,
            Some(LeaseLiveness::Dead) => Light::Fail,
            Some(LeaseLiveness::Alive | LeaseLiveness::Suspended | LeaseLiveness::Silent) | None => {
                Light::Risk
            }
        };
        let word = if light == Light::Idle { "idle" } else { worker.liveness.as_str() };
        table.row(vec![
            Cell::lit(light, word),
            (&worker.id).into(),
            (&worker.incarnation).into(),
            worker.leases.to_string().into(),
            worker.oldest_renewal_at.map_or("-".to_owned(), |at| beat(at, worker.missed, style)).into(),
            worker.next_expiry_at.map_or("-".to_owned(), |at| left(at, style)).into(),
            waits_for(worker, style).into(),
            worker.proof.as_deref().unwrap_or("-").into(),
        ]);
    }
    table
}

/// The kinds that its open claims ask for, and since when the first of them has waited: `reply from manual (4 m)`.
fn waits_for(worker: &WorkerView, style: &Style) -> String {
    let Some(first) = worker.idle.iter().map(|claim| claim.since).min() else { return "-".to_owned() };
    let mut asked: Vec<String> = worker.idle.iter().map(asked).collect();
    asked.sort();
    asked.dedup();
    format!("{} ({})", asked.join("; "), age(first, style.now))
}

fn asked(claim: &IdleClaim) -> String {
    let kinds = if claim.kinds.is_empty() { "any kind".to_owned() } else { claim.kinds.join(", ") };
    let from = if claim.sources.is_empty() { "" } else { " from " };
    let tenants = match &claim.tenants {
        Some(tenants) => format!(" for {}", tenants.join(", ")),
        None => String::new(),
    };
    format!("{kinds}{from}{}{tenants}", claim.sources.join(", "))
}

pub fn alerts(alerts: &[Alert], style: &Style) -> Table {
    let mut table =
        Table::new(&["ALERT", "VALUE", "THRESHOLD", "SINCE", "WHERE", "MESSAGE"], "No active alert.");
    for alert in alerts {
        let place = [alert.tenant.as_deref(), alert.source.as_deref()];
        let place: Vec<&str> = place.into_iter().flatten().collect();
        table.row(vec![
            Cell::lit(Light::Risk, &alert.name),
            alert.value.to_string().into(),
            alert.threshold.to_string().into(),
            age(alert.since, style.now).into(),
            if place.is_empty() { "-".into() } else { place.join("/").into() },
            (&alert.message).into(),
        ]);
    }
    table
}

pub fn tokens(tokens: &[Token], style: &Style) -> Table {
    let mut table = Table::new(
        &["TOKEN", "NAME", "PRINCIPAL", "KIND", "STATE", "TENANTS", "BOUND TO", "SCOPES"],
        "No token.",
    );
    for token in tokens {
        let state = match (&token.revoked, token.expires_at) {
            (Some(revoked), _) => {
                let (by, reason) = (revoked.by.label(), &revoked.reason);
                format!("revoked {} ago by {by}: {reason}", age(revoked.at, style.now))
            }
            (None, Some(at)) if at < style.now => "expired".to_owned(),
            (None, Some(at)) => format!("expires in {}", span(at.0 - style.now.0)),
            (None, None) => "valid".to_owned(),
        };
        let scopes: Vec<&str> = token.scopes.iter().map(|scope| scope.as_str()).collect();
        table.row(vec![
            token.id.as_str().into(),
            (&token.name).into(),
            token.principal.id.as_str().into(),
            token.kind.as_str().into(),
            state.into(),
            token.tenants.as_ref().map_or("all".to_owned(), |tenants| tenants.join(",")).into(),
            bounds(token).into(),
            scopes.join(",").into(),
        ]);
    }
    table
}

/// The kinds of work and the worker that a token is bound to.
fn bounds(token: &Token) -> String {
    let kinds = token.kinds.as_ref().map(|kinds| kinds.join(","));
    let worker = token.worker.as_ref().map(|worker| format!("worker {worker}"));
    let bounds: Vec<String> = kinds.into_iter().chain(worker).collect();
    if bounds.is_empty() { "-".to_owned() } else { bounds.join("; ") }
}
