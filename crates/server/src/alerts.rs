//! Thresholds of the configuration, looked at again and again: what is crossed is listed, told on the stream
//! and shown as a metric. Derived from the ledger's figures alone; it decides nothing.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tenure_api::wire::{Alert, Timestamp};
use tenure_core::{Millis, State};
use tenure_store::{Error, Facts, Ledger};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    config::{Live, Thresholds},
    feed::{Feed, News},
    metrics::Metrics,
};

/// What an alert is about: a threshold, and the source where it is one source's.
type Key = (&'static str, Option<String>);

/// The thresholds that are crossed now.
#[derive(Default)]
pub struct Alerts(Mutex<BTreeMap<Key, Alert>>);

impl Alerts {
    pub fn list(&self) -> Vec<Alert> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// Takes in what is crossed now, and gives back what was not before.
    fn update(&self, crossed: Vec<(Key, Alert)>) -> Vec<Alert> {
        let mut standing = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::take(&mut *standing);
        let mut fresh = Vec::new();
        for (key, mut alert) in crossed {
            match before.get(&key) {
                Some(known) => alert.since = known.since,
                None => fresh.push(alert.clone()),
            }
            standing.insert(key, alert);
        }
        fresh
    }
}

/// Looks at the figures and says what is crossed.
pub struct Watcher {
    ledger: Ledger,
    live: watch::Receiver<Arc<Live>>,
    alerts: Arc<Alerts>,
    feed: Arc<Feed>,
    metrics: Arc<Metrics>,
}

impl Watcher {
    pub fn new(
        ledger: Ledger,
        live: watch::Receiver<Arc<Live>>,
        alerts: Arc<Alerts>,
        feed: Arc<Feed>,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self { ledger, live, alerts, feed, metrics }
    }

    /// One look. The number of alerts that stand.
    pub async fn run_once(&self) -> Result<usize, Error> {
        let facts = self.ledger.facts().await?;
        let crossed = crossed(&self.live.borrow().alerts, &facts);
        let standing = crossed.len();
        self.metrics.set_alerts(crossed.iter().map(|((name, _), _)| (*name).to_owned()));
        let fresh = self.alerts.update(crossed);
        self.feed.tell(fresh.into_iter().map(News::Alert).collect());
        Ok(standing)
    }

    /// Runs until told to stop.
    pub async fn run(self, stopping: CancellationToken) {
        loop {
            if let Err(error) = self.run_once().await {
                tracing::warn!(%error, "the alerts cannot be evaluated; trying again");
            }
            let every = self.live.borrow().alerts.every;
            tokio::select! {
                () = stopping.cancelled() => return,
                () = tokio::time::sleep(every.max(Duration::from_millis(100))) => {}
            }
        }
    }
}

fn crossed(thresholds: &Thresholds, facts: &Facts) -> Vec<(Key, Alert)> {
    let mut crossed = Vec::new();
    let mut cross = |name, source: Option<String>, value: u64, threshold: u64, message: String| {
        let alert = Alert {
            name: String::from(name),
            message,
            value,
            threshold,
            since: Timestamp(facts.at),
            tenant: None,
            source: source.clone(),
        };
        crossed.push(((name, source), alert));
    };
    if let (Some(limit), Some(oldest)) = (thresholds.open_age, facts.oldest_open()) {
        let (age, limit) = (age(facts, oldest), ms(limit));
        if age > limit {
            let message =
                format!("A work has been open for {} s. Look at the oldest: `tenure list`.", age / 1_000);
            cross("open_age", None, age, limit, message);
        }
    }
    if let Some(limit) = thresholds.pending_age.map(ms) {
        for source in &facts.sources {
            let age = source.oldest_ready.map_or(0, |oldest| age(facts, oldest));
            if age > limit {
                let name = format!("{}/{}", source.system, source.kind);
                let message = format!(
                    "{} works of {name} wait to be claimed, the oldest for {} s. Is a worker up that claims them?",
                    source.ready,
                    age / 1_000
                );
                cross("pending_age", Some(name), age, limit, message);
            }
        }
    }
    if let Some(limit) = thresholds.expired_leases
        && facts.expired_leases() > limit
    {
        let count = facts.expired_leases();
        let message = format!("{count} leases are past their expiry. Look at the workers: `tenure workers`.");
        cross("expired_leases", None, count, limit, message);
    }
    if let Some(limit) = thresholds.stalled
        && facts.works(State::Stalled) > limit
    {
        let count = facts.works(State::Stalled);
        let message = format!("{count} works are stalled. Look why: `tenure list --state stalled`.");
        cross("stalled", None, count, limit, message);
    }
    if let Some(limit) = thresholds.wait_deadline.map(ms) {
        for (kind, waits) in &facts.waits {
            let Some(deadline) = waits.nearest_deadline else { continue };
            let left = u64::try_from(deadline - facts.at).unwrap_or(0);
            if left < limit {
                let kind = crate::wire::ToWire::to_wire(*kind).to_string();
                let message = format!(
                    "A wait for {kind} has {} s left before its deadline. Answer it: `tenure list --state waiting_{kind}`.",
                    left / 1_000
                );
                cross("wait_deadline", Some(kind), left, limit, message);
            }
        }
    }
    commands_crossed(thresholds, facts, &mut cross);
    crossed
}

/// Commands that nobody ends: in doubt, left to a person, waiting for an approval, or not sent.
fn commands_crossed(
    thresholds: &Thresholds,
    facts: &Facts,
    cross: &mut impl FnMut(&'static str, Option<String>, u64, u64, String),
) {
    let commands = &facts.commands;
    let ((uncertain, doubted), (persons, _), (approvals, asked)) =
        (commands.uncertain(), commands.needs_person(), commands.approvals());
    let ages = [
        ("uncertain_age", thresholds.uncertain_age, doubted, uncertain),
        ("approval_age", thresholds.approval_age, asked, approvals),
        ("outbox_lag", thresholds.outbox_lag, commands.unsent_since, 0),
    ];
    for (name, limit, since, count) in ages {
        let (Some(limit), Some(since)) = (limit.map(ms), since) else { continue };
        let age = age(facts, since);
        if age <= limit {
            continue;
        }
        let s = age / 1_000;
        let message = match name {
            "uncertain_age" => format!(
                "Nobody knows whether {count} commands happened, of the first for {s} s. Look at them: `tenure \
                 commands list --state uncertain`."
            ),
            "approval_age" => {
                format!(
                    "{count} commands wait for an approval, the first for {s} s. Decide: `tenure approve`, `tenure reject`."
                )
            }
            _ => format!(
                "A command has been due for {s} s and the relay has not sent it. Is a daemon up, and may the tool go \
                 faster?"
            ),
        };
        cross(name, None, age, limit, message);
    }
    if let Some(limit) = thresholds.needs_person
        && persons > limit
    {
        let message = format!(
            "Only a person can tell whether {persons} commands happened. Find out, and `tenure commands record` it."
        );
        cross("needs_person", None, persons, limit, message);
    }
}

fn age(facts: &Facts, since: Millis) -> u64 {
    u64::try_from(facts.at - since).unwrap_or(0)
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use tenure_core::{CommandState, command::BlockCode, model::WaitKind};
    use tenure_store::{CommandFacts, PlaceFacts, SourceFacts, StateFacts, WaitFacts};

    use super::*;

    fn place(
        state: CommandState,
        blocked: Option<BlockCode>,
        needs_person: bool,
        since: Millis,
    ) -> PlaceFacts {
        PlaceFacts { tool: "mail".into(), state, blocked, needs_person, commands: 2, since }
    }

    fn facts() -> Facts {
        Facts {
            at: 1_000_000,
            states: [(State::Stalled, StateFacts { works: 2, oldest: 100_000 })].into(),
            sources: vec![SourceFacts {
                system: "manual".into(),
                kind: "job".into(),
                ready: 3,
                oldest_ready: Some(400_000),
                expired: 1,
                ..SourceFacts::default()
            }],
            waits: [(WaitKind::User, WaitFacts { open: 1, nearest_deadline: Some(1_030_000) })].into(),
            commands: CommandFacts {
                states: [(CommandState::Uncertain, 3)].into(),
                places: vec![
                    place(CommandState::Uncertain, None, true, 700_000),
                    place(CommandState::Blocked, Some(BlockCode::ApprovalRequired), false, 800_000),
                ],
                unsent_since: Some(900_000),
            },
        }
    }

    #[test]
    fn each_threshold_fires_above_its_limit_and_not_at_it() {
        let names = |thresholds: &Thresholds| -> Vec<&'static str> {
            crossed(thresholds, &facts()).into_iter().map(|((name, _), _)| name).collect()
        };
        let second = Duration::from_secs;
        let none = Thresholds {
            every: second(1),
            open_age: Some(second(900)),
            pending_age: Some(second(600)),
            expired_leases: Some(1),
            stalled: Some(2),
            wait_deadline: Some(second(30)),
            uncertain_age: Some(second(300)),
            needs_person: Some(2),
            approval_age: Some(second(200)),
            outbox_lag: Some(second(100)),
        };
        assert!(names(&none).is_empty());
        let all = Thresholds {
            open_age: Some(second(899)),
            pending_age: Some(second(599)),
            expired_leases: Some(0),
            stalled: Some(1),
            wait_deadline: Some(second(31)),
            uncertain_age: Some(second(299)),
            needs_person: Some(1),
            approval_age: Some(second(199)),
            outbox_lag: Some(second(99)),
            ..none.clone()
        };
        let works = ["open_age", "pending_age", "expired_leases", "stalled", "wait_deadline"];
        let commands = ["uncertain_age", "approval_age", "outbox_lag", "needs_person"];
        assert_eq!(names(&all), [&works[..], &commands].concat());
        let off = Thresholds {
            open_age: None,
            pending_age: None,
            expired_leases: None,
            stalled: None,
            wait_deadline: None,
            uncertain_age: None,
            needs_person: None,
            approval_age: None,
            outbox_lag: None,
            ..none
        };
        assert!(names(&off).is_empty());
    }

    #[test]
    fn an_alert_is_told_once_and_keeps_its_beginning() {
        let alerts = Alerts::default();
        let thresholds = Thresholds { stalled: Some(1), ..Thresholds::default() };
        let first = alerts.update(crossed(&thresholds, &facts()));
        assert!(!first.is_empty());
        let later = Facts { at: 1_500_000, ..facts() };
        assert!(alerts.update(crossed(&thresholds, &later)).is_empty());
        let stalled = alerts.list().into_iter().find(|alert| alert.name == "stalled").unwrap();
        assert_eq!(stalled.since, Timestamp(1_000_000));
        assert!(alerts.update(Vec::new()).is_empty());
        assert!(alerts.list().is_empty(), "what is no longer crossed is gone");
    }
}
