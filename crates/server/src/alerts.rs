//! Compares the configured thresholds with the ledger's gauges, again and again. Crossed thresholds are
//! listed, sent to streams and shown as a metric. It decides nothing.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tenure_api::wire::{Alert, Timestamp};
use tenure_core::{Millis, State, Work};
use tenure_store::{CounterSnapshot, Damaged, Error, Gauges, Health, IntakeTable, Ledger, SourceGauges};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    anchors::{AnchorExports, Failing},
    config::{Live, Thresholds},
    feed::{Feed, News},
    metrics::Metrics,
};

/// Damaged rows named in an alert; `tenure doctor` names all of them.
const NAMED: usize = 3;

/// Sources with an alert of their own, the longest waiting first; the others share one. A submitter can
/// invent any number of kinds.
const SOURCES: usize = 20;

/// How long a change of the database server stays an alert: long enough for a daily check to see it.
const SERVER_CHANGED_FOR: Duration = Duration::from_secs(24 * 3_600);

/// The identity of an alert: a threshold, with its source if there is one.
type Key = (&'static str, Option<String>);

/// The thresholds that are crossed now.
#[derive(Default)]
pub struct Alerts(Mutex<BTreeMap<Key, Alert>>);

impl Alerts {
    pub fn list(&self) -> Vec<Alert> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// Stores the crossed thresholds and returns the new ones.
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

/// Compares the gauges with the thresholds.
pub struct Watcher {
    pub ledger: Ledger,
    pub live: watch::Receiver<Arc<Live>>,
    pub alerts: Arc<Alerts>,
    pub feed: Arc<Feed>,
    pub metrics: Arc<Metrics>,
    pub anchors: Arc<AnchorExports>,
}

impl Watcher {
    /// Compares once. Returns the number of active alerts.
    pub async fn run_once(&self) -> Result<usize, Error> {
        let health = self.ledger.health().await;
        let gauges = self.ledger.gauges().await;
        let mut crossed = match &gauges {
            Ok(gauges) => crossed(&self.live.borrow().alerts, gauges),
            Err(_) => Vec::new(),
        };
        crossed.extend(faults(&health, &gauges, &self.ledger.stats()));
        crossed.extend(self.ledger.intake_table().await.ok().and_then(rejected_rows));
        crossed.extend(self.anchors.failing().map(unexported_anchor));
        crossed.extend(self.ledger.to_tell().await.map(|works| told(&works)).unwrap_or_default());
        let standing = crossed.len();
        self.metrics.set_alerts(crossed.iter().map(|((name, _), _)| (*name).to_owned()));
        let fresh = self.alerts.update(crossed);
        self.feed.publish(fresh.into_iter().map(News::Alert).collect());
        gauges.map(|_| standing)
    }

    /// Runs until shutdown.
    pub async fn run(self, stopping: CancellationToken) {
        loop {
            if let Err(error) = self.run_once().await {
                tracing::warn!(%error, "the alerts cannot be evaluated; retrying");
            }
            let every = self.live.borrow().alerts.every;
            tokio::select! {
                () = stopping.cancelled() => return,
                () = tokio::time::sleep(every.max(Duration::from_millis(100))) => {}
            }
        }
    }
}

/// Work items of sources and kinds that ask for an alert: spinning ones, and stalled ones.
fn told(works: &[Work]) -> Vec<(Key, Alert)> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as Millis);
    let mut groups: BTreeMap<(&'static str, String), Vec<&Work>> = BTreeMap::new();
    for work in works {
        let name = if work.state == State::Stalled { "stalled_page" } else { "spinning" };
        let source = format!("{}/{}", work.spec.source.system, work.spec.kind);
        groups.entry((name, source)).or_default().push(work);
    }
    let mut largest: Vec<_> = groups.into_iter().collect();
    largest.sort_by_key(|(_, works)| std::cmp::Reverse(works.len()));
    largest.truncate(SOURCES);
    let alert = |((name, source), works): ((&'static str, String), Vec<&Work>)| {
        let ids: Vec<String> = works.iter().take(NAMED).map(|work| work.id.to_string()).collect();
        let (count, ids) = (works.len(), ids.join(", "));
        let message = match name {
            "spinning" => format!(
                "{count} holders of {source} renew and show no progress: {ids}. Look at them: `tenure stuck`."
            ),
            _ => format!("{count} work items of {source} are stalled: {ids}. Look at them: `tenure stuck`."),
        };
        let alert = Alert {
            name: name.to_owned(),
            message,
            value: count as u64,
            threshold: 0,
            since: Timestamp(now),
            tenant: None,
            source: Some(source.clone()),
        };
        ((name, Some(source)), alert)
    };
    largest.into_iter().map(alert).collect()
}

/// Rows of the intake table that were set aside: no work item comes of them until somebody looks.
fn rejected_rows(table: IntakeTable) -> Option<(Key, Alert)> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as Millis);
    let reason = table.newest_reason.unwrap_or_default();
    let alert = Alert {
        name: "intake_rejected".to_owned(),
        message: format!(
            "{} rows of tenure_intake were rejected, the last one for: {reason}",
            table.rejected
        ),
        value: table.rejected,
        threshold: 0,
        since: Timestamp(now),
        tenant: None,
        source: None,
    };
    (table.rejected > 0).then_some((("intake_rejected", None), alert))
}

/// Without exports, a deletion would not be noticed.
fn unexported_anchor(Failing { since, why }: Failing) -> (Key, Alert) {
    let alert = Alert {
        name: "anchor".to_owned(),
        message: format!("The anchor is not exported: {why}. Check the file and the webhook under [anchor]."),
        value: 1,
        threshold: 0,
        since: Timestamp(since),
        tenant: None,
        source: None,
    };
    (("anchor", None), alert)
}

/// Faults of the ledger itself: alerts without a threshold.
fn faults(health: &Health, gauges: &Result<Gauges, Error>, stats: &CounterSnapshot) -> Vec<(Key, Alert)> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as Millis);
    let mut faults = Vec::new();
    let mut tell = |name: &'static str, value: u64, since: Millis, message: String| {
        let (tenant, source) = (None, None);
        let alert = Alert {
            name: String::from(name),
            message,
            value,
            threshold: 0,
            since: Timestamp(since),
            tenant,
            source,
        };
        faults.push(((name, None), alert));
    };
    let (newer, damaged): (Vec<&Damaged>, Vec<&Damaged>) = health.damaged.iter().partition(|one| one.newer);
    for (name, why, next, rows) in [
        ("damaged", "cannot be read", "Examine them: `tenure doctor`, `tenure verify`.", damaged),
        ("newer", "were written by a newer version", "Upgrade this daemon.", newer),
    ] {
        if let Some(since) = rows.iter().map(|one| one.since).min() {
            let names: Vec<&str> = rows.iter().take(NAMED).map(|one| one.id.as_str()).collect();
            let message = format!("{} {why} and are skipped: {}. {next}", rows.len(), names.join(", "));
            tell(name, rows.len() as u64, since, message);
        }
    }
    if let Some(why) = health.closed() {
        tell("ledger", 1, now, format!("{why}. Check the disk and the database: `tenure doctor`."));
    }
    if let Some(ago) = stats.server_changed.filter(|ago| *ago < SERVER_CHANGED_FOR) {
        let message = "The database server has changed: commits that the new one lacks are lost. Look for gaps: \
                       `tenure verify`. This alert ends after a day.";
        tell("server_changed", stats.server_changes, now - ms(ago) as Millis, message.to_owned());
    }
    if let Some(failed) = &health.checkpoints {
        let message = format!(
            "{} checkpoints have failed and the write-ahead log grows: {}. Check the disk: `tenure doctor`.",
            failed.count, failed.why
        );
        tell("checkpoints", failed.count, failed.since, message);
    }
    let offset_s = stats.clock_offset_ms / 1_000;
    if offset_s != 0 {
        let side = if offset_s > 0 { "ahead of" } else { "behind" };
        let message = format!(
            "The system clock jumped: the ledger's time is {} s {side} it, and approaches it by a sixteenth of the \
             time that passes. Use one time service that slews the clock; to follow a jump of more than a day, stop \
             every daemon of the ledger for a minute.",
            offset_s.abs()
        );
        tell("clock", offset_s.unsigned_abs(), now, message);
    }
    if let Err(error) = gauges {
        tell("gauges", 1, now, format!("The thresholds cannot be evaluated: {error}"));
    }
    faults
}

fn crossed(thresholds: &Thresholds, gauges: &Gauges) -> Vec<(Key, Alert)> {
    let mut crossed = Vec::new();
    let mut cross = |name, source: Option<String>, value: u64, threshold: u64, message: String| {
        let alert = Alert {
            name: String::from(name),
            message,
            value,
            threshold,
            since: Timestamp(gauges.at),
            tenant: None,
            source: source.clone(),
        };
        crossed.push(((name, source), alert));
    };
    if let (Some(limit), Some(oldest)) = (thresholds.open_age, gauges.oldest_open()) {
        let (age, limit) = (age(gauges, oldest), ms(limit));
        if age > limit {
            let message =
                format!("A work item has been open for {} s. List the oldest: `tenure list`.", age / 1_000);
            cross("open_age", None, age, limit, message);
        }
    }
    if let Some(limit) = thresholds.pending_age.map(ms) {
        pending_crossed(limit, gauges, &mut cross);
    }
    if let Some(limit) = thresholds.expired_leases
        && gauges.expired_leases() > limit
    {
        let count = gauges.expired_leases();
        let message = format!("{count} leases are past their expiry. Check the workers: `tenure workers`.");
        cross("expired_leases", None, count, limit, message);
    }
    if let Some(limit) = thresholds.stalled
        && gauges.works(State::Stalled) > limit
    {
        let count = gauges.works(State::Stalled);
        let message = format!("{count} work items are stalled. List them: `tenure list --state stalled`.");
        cross("stalled", None, count, limit, message);
    }
    if let Some(limit) = thresholds.wait_deadline.map(ms) {
        for (kind, waits) in &gauges.waits {
            let Some(deadline) = waits.nearest_deadline else { continue };
            let left = u64::try_from(deadline - gauges.at).unwrap_or(0);
            if left < limit {
                let kind = crate::wire::ToWire::to_wire(*kind).to_string();
                let message = format!(
                    "A wait of kind {kind} reaches its deadline in {} s. Answer it: `tenure list --state waiting_{kind}`.",
                    left / 1_000
                );
                cross("wait_deadline", Some(kind), left, limit, message);
            }
        }
    }
    commands_crossed(thresholds, gauges, &mut cross);
    crossed
}

/// Sources whose work items have waited too long for a claim, longest first.
fn pending_crossed(
    limit: u64,
    gauges: &Gauges,
    cross: &mut impl FnMut(&'static str, Option<String>, u64, u64, String),
) {
    let waits = |source: &SourceGauges| source.oldest_ready.map_or(0, |oldest| age(gauges, oldest));
    let mut late: Vec<&SourceGauges> = gauges.sources.iter().filter(|source| waits(source) > limit).collect();
    late.sort_by_key(|source| std::cmp::Reverse(waits(source)));
    let rest = late.split_off(late.len().min(SOURCES));
    for source in late {
        let (name, age) = (format!("{}/{}", source.system, source.kind), waits(source));
        let message = format!(
            "{} work items of {name} wait to be claimed, the oldest for {} s. Check that their workers run.",
            source.ready,
            age / 1_000
        );
        cross("pending_age", Some(name), age, limit, message);
    }
    if let Some(oldest) = rest.first() {
        let (works, age) = (rest.iter().map(|source| source.ready).sum::<u64>(), waits(oldest));
        let message = format!(
            "{works} work items of {} more sources and kinds wait to be claimed, the oldest for {} s. \
             List them: `tenure list --state queued`.",
            rest.len(),
            age / 1_000
        );
        cross("pending_age", Some("more".to_owned()), age, limit, message);
    }
}

/// Commands that do not progress: in doubt, left to a person, waiting for an approval, or not sent.
fn commands_crossed(
    thresholds: &Thresholds,
    gauges: &Gauges,
    cross: &mut impl FnMut(&'static str, Option<String>, u64, u64, String),
) {
    let commands = &gauges.commands;
    let ((uncertain, doubted), (persons, _), (approvals, asked)) =
        (commands.uncertain(), commands.needs_person(), commands.approvals());
    let ages = [
        ("uncertain_age", thresholds.uncertain_age, doubted, uncertain),
        ("approval_age", thresholds.approval_age, asked, approvals),
        ("outbox_lag", thresholds.outbox_lag, commands.unsent_since, 0),
    ];
    for (name, limit, since, count) in ages {
        let (Some(limit), Some(since)) = (limit.map(ms), since) else { continue };
        let age = age(gauges, since);
        if age <= limit {
            continue;
        }
        let s = age / 1_000;
        let message = match name {
            "uncertain_age" => format!(
                "{count} commands are in doubt, the oldest for {s} s. List them: `tenure \
                 commands list --state uncertain`."
            ),
            "approval_age" => {
                format!(
                    "{count} commands wait for an approval, the oldest for {s} s. Decide: `tenure needs`."
                )
            }
            _ => format!(
                "A command has been due for {s} s and the relay has not sent it. Check that a daemon runs, and the tool's \
                 rate limit."
            ),
        };
        cross(name, None, age, limit, message);
    }
    if let Some(limit) = thresholds.needs_person
        && persons > limit
    {
        let message = format!(
            "{persons} commands in doubt need a person. Find out what happened, and record it: `tenure needs`."
        );
        cross("needs_person", None, persons, limit, message);
    }
}

fn age(gauges: &Gauges, since: Millis) -> u64 {
    u64::try_from(gauges.at - since).unwrap_or(0)
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use tenure_core::{CommandState, command::BlockCode, model::WaitKind};
    use tenure_store::{
        CheckpointFailure, CommandGauges, CommandGroupGauges, SourceGauges, StateGauges, WaitGauges,
    };

    use super::*;

    fn place(
        state: CommandState,
        blocked: Option<BlockCode>,
        needs_person: bool,
        since: Millis,
    ) -> CommandGroupGauges {
        CommandGroupGauges { tool: "mail".into(), state, blocked, needs_person, commands: 2, since }
    }

    fn gauges() -> Gauges {
        Gauges {
            at: 1_000_000,
            states: [(State::Stalled, StateGauges { works: 2, oldest: 100_000 })].into(),
            sources: vec![SourceGauges {
                system: "manual".into(),
                kind: "job".into(),
                ready: 3,
                oldest_ready: Some(400_000),
                expired: 1,
                ..SourceGauges::default()
            }],
            waits: [(WaitKind::User, WaitGauges { open: 1, nearest_deadline: Some(1_030_000) })].into(),
            commands: CommandGauges {
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
            crossed(thresholds, &gauges()).into_iter().map(|((name, _), _)| name).collect()
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
    fn made_up_kinds_make_no_flood_of_alerts_and_hide_nobodys_queue() {
        let source = |kind: String, ready, oldest| SourceGauges {
            system: "manual".into(),
            kind,
            ready,
            oldest_ready: Some(oldest),
            ..SourceGauges::default()
        };
        let mut sources: Vec<_> = (0..1_000).map(|n| source(format!("made-up-{n}"), 2, 500_000)).collect();
        sources.push(source("quiet".into(), 1, 400_000));
        sources.push(source("late".into(), 1, 600_000));
        let gauges = Gauges { sources, ..gauges() };
        let thresholds = Thresholds { pending_age: Some(Duration::from_secs(60)), ..Thresholds::default() };
        let told = crossed(&thresholds, &gauges);
        let told: Vec<&Alert> =
            told.iter().map(|(_, alert)| alert).filter(|alert| alert.name == "pending_age").collect();
        assert_eq!(told.len(), SOURCES + 1);
        assert_eq!(told[0].source.as_deref(), Some("manual/quiet"), "the longest waiting comes first");
        let named: u64 = 2 * (SOURCES as u64 - 1) + 1;
        let rest = told[SOURCES];
        assert!(
            rest.message.starts_with(&format!("{} work items of 982 more", 2_002 - named)),
            "{}",
            rest.message
        );
        assert_eq!(rest.value, 500_000);
    }

    #[test]
    fn a_change_of_the_database_server_is_an_alert_for_a_day() {
        let health =
            Health { unreachable: None, stopped: None, checkpoints: None, damaged: Vec::new(), swept: None };
        let told = |server_changed| {
            let stats = CounterSnapshot { server_changes: 1, server_changed, ..CounterSnapshot::default() };
            faults(&health, &Ok(gauges()), &stats).into_iter().map(|((name, _), _)| name).collect::<Vec<_>>()
        };
        assert!(told(None).is_empty());
        assert_eq!(told(Some(Duration::from_secs(23 * 3_600))), ["server_changed"]);
        assert!(told(Some(SERVER_CHANGED_FOR)).is_empty());
    }

    #[test]
    fn a_log_that_only_grows_and_a_clock_that_jumped_are_alerts() {
        let mut health =
            Health { unreachable: None, stopped: None, checkpoints: None, damaged: Vec::new(), swept: None };
        let told = |health: &Health, clock_offset_ms| -> Vec<Alert> {
            let stats = CounterSnapshot { clock_offset_ms, ..CounterSnapshot::default() };
            faults(health, &Ok(gauges()), &stats).into_iter().map(|(_, alert)| alert).collect()
        };
        assert!(told(&health, 999).is_empty());
        let why = "disk I/O error".to_owned();
        health.checkpoints = Some(CheckpointFailure { count: 3, since: 7, why });
        let alerts = told(&health, -7_200_000);
        let names: Vec<&str> = alerts.iter().map(|alert| alert.name.as_str()).collect();
        assert_eq!(names, ["checkpoints", "clock"]);
        assert_eq!((alerts[0].value, alerts[0].since), (3, Timestamp(7)));
        assert!(alerts[0].message.contains("disk I/O error"), "{}", alerts[0].message);
        assert!(alerts[1].message.contains("7200 s behind"), "{}", alerts[1].message);
    }

    #[test]
    fn an_alert_is_sent_once_and_keeps_its_start() {
        let alerts = Alerts::default();
        let thresholds = Thresholds { stalled: Some(1), ..Thresholds::default() };
        let first = alerts.update(crossed(&thresholds, &gauges()));
        assert!(!first.is_empty());
        let later = Gauges { at: 1_500_000, ..gauges() };
        assert!(alerts.update(crossed(&thresholds, &later)).is_empty());
        let stalled = alerts.list().into_iter().find(|alert| alert.name == "stalled").unwrap();
        assert_eq!(stalled.since, Timestamp(1_000_000));
        assert!(alerts.update(Vec::new()).is_empty());
        assert!(alerts.list().is_empty(), "a threshold that is no longer crossed has no alert");
    }
}
