//! Metrics. Changes are counted from the feed; numbers of open items are read when the metrics are collected.
//! The number of label values is bounded, however callers name their tenants and workflows.

mod commands;
mod memory;

use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::{Registry, Unit},
};
use tenure_core::{Event, Fact, Millis, State, Usage};
use tenure_store::{Error, Ledger};

use crate::{config::Live, connections, feed::EventNews};
use commands::CommandMetrics;
use memory::{Known, Memory};

/// The labels of a work item's counters.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    source: String,
    workflow: String,
    tenant: String,
}

/// The labels of a work item with a state: its terminal state, or one that it left.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfWorkState {
    state: &'static str,
    source: String,
    workflow: String,
    tenant: String,
}

impl Labels {
    fn in_state(&self, state: State) -> OfWorkState {
        let Labels { source, workflow, tenant } = self.clone();
        OfWorkState { state: state.as_str(), source, workflow, tenant }
    }

    /// The labels of everything beyond the bound.
    fn other() -> Self {
        let other = || "other".to_owned();
        Self { source: other(), workflow: other(), tenant: other() }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfState {
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfKind {
    kind: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfSource {
    source: String,
    kind: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfTenant {
    tenant: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfName {
    name: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Request {
    method: String,
    route: String,
    status: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfModel {
    source: String,
    model: String,
    kind: &'static str,
}

/// How far recovery has come: to its verdict, or to the next holder.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfRecovery {
    until: &'static str,
}

type ByWork = Family<Labels, Counter>;
type GaugeBy<L> = Family<L, Gauge>;

/// All metrics of `/metrics`.
pub struct Metrics {
    registry: Registry,
    memory: Mutex<Memory>,
    commands: CommandMetrics,
    sent: Mutex<commands::Memory>,
    created: ByWork,
    ended: Family<OfWorkState, Counter>,
    retries: ByWork,
    retry_successes: ByWork,
    auth_blocked: ByWork,
    stalls: ByWork,
    warnings: ByWork,
    lapses: ByWork,
    late_writes: ByWork,
    tokens: Family<OfModel, Counter>,
    in_state: Family<OfWorkState, Histogram>,
    recovery: Family<OfRecovery, Histogram>,
    duplicates: Counter,
    key_reuse: Counter,
    requests: Family<Request, Counter>,
    streams: Gauge,
    works: GaugeBy<OfState>,
    ready: GaugeBy<OfSource>,
    pending_age: GaugeBy<OfSource>,
    in_flight: Gauge,
    expired_leases: Gauge,
    waits: GaugeBy<OfKind>,
    idle_workers: GaugeBy<OfKind>,
    renewals_refused: Counter,
    server_changes: Counter,
    clock_jumps: Counter,
    clock_offset: Gauge,
    runs_fired: Counter,
    runs_skipped: Counter,
    runs_refused: Counter,
    groups: Counter,
    submissions: Counter,
    group_time: Counter<f64, AtomicU64>,
    connections_refused: Counter,
    queued: Gauge,
    alerts: GaugeBy<OfName>,
    intake_paused: GaugeBy<OfTenant>,
    intake_rows: GaugeBy<OfState>,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut metrics = Self {
            registry: Registry::with_prefix("tenure"),
            memory: Mutex::default(),
            commands: CommandMetrics::default(),
            sent: Mutex::default(),
            created: Family::default(),
            ended: Family::default(),
            retries: Family::default(),
            retry_successes: Family::default(),
            auth_blocked: Family::default(),
            stalls: Family::default(),
            warnings: Family::default(),
            lapses: Family::default(),
            late_writes: Family::default(),
            tokens: Family::default(),
            in_state: Family::new_with_constructor(|| Histogram::new(TIME_IN_STATE)),
            recovery: Family::new_with_constructor(|| Histogram::new(TIME_IN_STATE)),
            duplicates: Counter::default(),
            key_reuse: Counter::default(),
            requests: Family::default(),
            streams: Gauge::default(),
            works: Family::default(),
            ready: Family::default(),
            pending_age: Family::default(),
            in_flight: Gauge::default(),
            expired_leases: Gauge::default(),
            waits: Family::default(),
            idle_workers: Family::default(),
            renewals_refused: Counter::default(),
            server_changes: Counter::default(),
            clock_jumps: Counter::default(),
            clock_offset: Gauge::default(),
            runs_fired: Counter::default(),
            runs_skipped: Counter::default(),
            runs_refused: Counter::default(),
            groups: Counter::default(),
            submissions: Counter::default(),
            connections_refused: Counter::default(),
            group_time: Counter::default(),
            queued: Gauge::default(),
            alerts: Family::default(),
            intake_paused: Family::default(),
            intake_rows: Family::default(),
        };
        metrics.register();
        metrics
    }
}

/// The kinds of idle workers that have a label of their own.
const KINDS_MAX: usize = 100;

/// Seconds: from a quick tool call to a person who answers the next day.
const TIME_IN_STATE: [f64; 12] =
    [0.01, 0.05, 0.25, 1.0, 5.0, 15.0, 60.0, 300.0, 1_800.0, 7_200.0, 28_800.0, 86_400.0];

impl Metrics {
    fn register(&mut self) {
        let Self { registry: r, .. } = self;
        r.register("works_created", "Work items that were recorded", self.created.clone());
        r.register("works_ended", "Work items that ended, by their terminal state", self.ended.clone());
        r.register("retries", "Failures after which a work item is retried", self.retries.clone());
        r.register(
            "retry_successes",
            "Work items that succeeded after a failure",
            self.retry_successes.clone(),
        );
        r.register(
            "auth_blocked",
            "Work items that stopped to have an account reconnected",
            self.auth_blocked.clone(),
        );
        r.register(
            "stalls",
            "Work items that stalled: their holder could not be proven alive",
            self.stalls.clone(),
        );
        r.register("warnings", "Work items that completed with warnings", self.warnings.clone());
        r.register("lease_lapses", "Leases found past expiry and grace", self.lapses.clone());
        r.register(
            "late_writes",
            "Writes accepted from holders whose lease had lapsed and was not superseded",
            self.late_writes.clone(),
        );
        r.register(
            "tokens",
            "Tokens that attempts and commands used, as reported at their end",
            self.tokens.clone(),
        );
        r.register_with_unit(
            "time_in_state",
            "Time that work items spent in a state they left, if this process saw them enter it",
            Unit::Seconds,
            self.in_state.clone(),
        );
        r.register_with_unit(
            "recovery",
            "Time from a recorded lapse or proof of death to the verdict, or until the work item runs again, if this process saw both",
            Unit::Seconds,
            self.recovery.clone(),
        );
        r.register(
            "duplicate_deliveries",
            "Ingests of a work item that existed already",
            self.duplicates.clone(),
        );
        r.register(
            "key_reuse",
            "Ingests refused because the same identity had different content",
            self.key_reuse.clone(),
        );
        r.register("http_requests", "Requests by route and status", self.requests.clone());
        r.register("streams", "Open event streams", self.streams.clone());
        r.register("works", "Open work items by state", self.works.clone());
        r.register("works_ready", "Work items that can be claimed", self.ready.clone());
        r.register_with_unit(
            "pending_age",
            "Age of the oldest work item that can be claimed",
            Unit::Seconds,
            self.pending_age.clone(),
        );
        r.register("in_flight", "Work items that a worker holds", self.in_flight.clone());
        r.register(
            "expired_leases",
            "Leases past their expiry that have not lapsed yet",
            self.expired_leases.clone(),
        );
        r.register("waits", "Open waits by kind", self.waits.clone());
        r.register(
            "idle_workers",
            "Workers whose claims wait for work at this daemon, by kind; without a kind, they claim any",
            self.idle_workers.clone(),
        );
        r.register("renewals_refused", "Renewals that were refused", self.renewals_refused.clone());
        r.register("clock_jumps", "Detected jumps of the system clock", self.clock_jumps.clone());
        r.register_with_unit(
            "clock_offset",
            "How far the ledger's time is ahead of the system clock",
            Unit::Seconds,
            self.clock_offset.clone(),
        );
        r.register("server_changes", "Changes of the database server", self.server_changes.clone());
        r.register("schedule_runs", "Runs of schedules that this process ingested", self.runs_fired.clone());
        r.register(
            "schedule_runs_skipped",
            "Runs of schedules that this process skipped",
            self.runs_skipped.clone(),
        );
        r.register("schedule_runs_refused", "Runs of schedules that were refused", self.runs_refused.clone());
        r.register("groups", "Group commits", self.groups.clone());
        r.register("submissions", "Writes in those group commits", self.submissions.clone());
        r.register_with_unit(
            "group_time",
            "Duration of group commits, from the first read to the commit",
            Unit::Seconds,
            self.group_time.clone(),
        );
        let refused = self.connections_refused.clone();
        r.register("connections_refused", "Connections refused because too many are open", refused);
        r.register("queued_submissions", "Writes that wait for a group commit", self.queued.clone());
        r.register("alerts", "1 for each active alert", self.alerts.clone());
        r.register(
            "intake_paused",
            "1 for each pause of the intake; without a tenant, it covers all tenants",
            self.intake_paused.clone(),
        );
        let rows = self.intake_rows.clone();
        r.register("intake_rows", "Rows of the table tenure_intake, counted up to 10,000", rows);
        self.commands.register(r);
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sent(&self) -> MutexGuard<'_, commands::Memory> {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts the command events of a page of the feed.
    async fn observe_commands(&self, ledger: &Ledger, events: &[EventNews]) -> Result<(), Error> {
        let unknown = self.commands.unknown(&self.sent(), events);
        let read = if unknown.is_empty() { Vec::new() } else { ledger.commands_by_id(&unknown).await?.rows };
        let mut sent = self.sent();
        sent.learn_all(&read);
        events.iter().for_each(|news| self.commands.count(&mut sent, &news.stored.event));
        Ok(())
    }

    /// Counts a page of the feed.
    pub(crate) async fn observe(&self, ledger: &Ledger, events: &[EventNews]) -> Result<(), Error> {
        self.observe_commands(ledger, events).await?;
        let unknown = self.memory().unknown(events);
        let works = if unknown.is_empty() { Vec::new() } else { ledger.readable_works(&unknown).await?.rows };
        let mut memory = self.memory();
        works.iter().for_each(|work| memory.learn(work));
        for news in events {
            let event = &news.stored.event;
            for usage in event.fact.usage() {
                self.used(memory.model_of(usage), usage);
            }
            if let Some(known) = memory.of(event) {
                self.count(event, known);
            }
            if event.to.is_terminal() {
                memory.forget(event.work);
            }
        }
        Ok(())
    }

    fn used(&self, (source, model): (String, String), usage: &Usage) {
        let kinds =
            [("input", usage.input_tokens), ("output", usage.output_tokens), ("cached", usage.cached_tokens)];
        for (kind, tokens) in kinds.into_iter().filter(|(_, tokens)| *tokens > 0) {
            let labels = OfModel { source: source.clone(), model: model.clone(), kind };
            self.tokens.get_or_create(&labels).inc_by(tokens);
        }
    }

    fn count(&self, event: &Event, known: &mut Known) {
        let labels = &*known.labels;
        match &event.fact {
            Fact::WorkCreated(_) => _ = self.created.get_or_create(labels).inc(),
            Fact::AttemptFailed(failed) => {
                known.failed = true;
                if failed.next_retry_at.is_some() {
                    self.retries.get_or_create(labels).inc();
                }
            }
            Fact::LeaseLapsed(_) => {
                known.failed = true;
                self.lapses.get_or_create(labels).inc();
            }
            Fact::Late(_) => _ = self.late_writes.get_or_create(labels).inc(),
            _ => {}
        }
        self.count_recovery(event, known);
        let labels = &*known.labels;
        let moved = event.from != Some(event.to);
        if !moved {
            return;
        }
        if let (Some(from), Some(since)) = (event.from, known.since) {
            let labels = known.timed.in_state(from);
            self.in_state.get_or_create(&labels).observe((event.at - since).max(0) as f64 / 1_000.0);
        }
        known.since = Some(event.at);
        match event.to {
            State::WaitingAuth => _ = self.auth_blocked.get_or_create(labels).inc(),
            State::Stalled => _ = self.stalls.get_or_create(labels).inc(),
            State::CompletedWithWarnings => _ = self.warnings.get_or_create(labels).inc(),
            _ => {}
        }
        if event.to.is_terminal() {
            self.ended.get_or_create(&labels.in_state(event.to)).inc();
            if event.to.is_success() && known.failed {
                self.retry_successes.get_or_create(labels).inc();
            }
        }
    }

    /// How long a work item that lost its holder takes to a verdict, and to run again. An end or a person's decision is
    /// no recovery.
    fn count_recovery(&self, event: &Event, known: &mut Known) {
        let took = |until: &'static str, lost: Millis| {
            let seconds = (event.at - lost).max(0) as f64 / 1_000.0;
            self.recovery.get_or_create(&OfRecovery { until }).observe(seconds);
        };
        match (&event.fact, known.lost) {
            (Fact::LeaseLapsed(_), _) => (known.lost, known.decided) = (Some(event.at), false),
            (Fact::Recovered(_), Some(lost)) if !known.decided => {
                known.decided = true;
                took("verdict", lost);
            }
            _ => {}
        }
        match (event.to, known.lost) {
            (State::Running | State::CancelRequested, Some(lost)) => {
                known.lost = None;
                took("running", lost);
            }
            (State::Quarantined, Some(_)) => known.lost = None,
            _ => {}
        }
    }

    pub(crate) fn duplicate(&self) {
        self.duplicates.inc();
    }

    pub(crate) fn key_reused(&self) {
        self.key_reuse.inc();
    }

    pub(crate) fn request(&self, method: &str, route: &str, status: u16) {
        let labels = Request { method: method.to_owned(), route: route.to_owned(), status };
        self.requests.get_or_create(&labels).inc();
    }

    pub(crate) fn stream_opened(&self) -> StreamGuard {
        self.streams.inc();
        StreamGuard(self.streams.clone())
    }

    /// Sets the metric of active alerts.
    pub(crate) fn set_alerts(&self, names: impl Iterator<Item = String>) {
        self.alerts.clear();
        names.for_each(|name| _ = self.alerts.get_or_create(&OfName { name }).set(1));
    }

    /// The text for a scraper.
    pub(crate) async fn render(&self, ledger: &Ledger, live: &Live) -> Result<String, Error> {
        let gauges = ledger.gauges().await?;
        let spent_from = self.sent().spent();
        self.commands.show(&gauges, spent_from, live, ledger).await?;
        self.works.clear();
        for (state, of) in &gauges.states {
            self.works.get_or_create(&OfState { state: state.as_str() }).set(of.works as i64);
        }
        self.ready.clear();
        self.pending_age.clear();
        for source in &gauges.sources {
            let labels = OfSource { source: source.system.clone(), kind: source.kind.clone() };
            self.ready.get_or_create(&labels).set(source.ready as i64);
            let age = source.oldest_ready.map_or(0, |oldest| seconds(gauges.at - oldest));
            self.pending_age.get_or_create(&labels).set(age);
        }
        let held = gauges.works(State::Running) + gauges.works(State::CancelRequested);
        self.in_flight.set(held as i64);
        self.expired_leases.set(gauges.expired_leases() as i64);
        self.waits.clear();
        for (kind, of) in &gauges.waits {
            let kind = crate::wire::ToWire::to_wire(*kind).to_string();
            self.waits.get_or_create(&OfKind { kind }).set(of.open as i64);
        }
        self.idle_workers.clear();
        for (kind, workers) in idle_by_kind(ledger) {
            self.idle_workers.get_or_create(&OfKind { kind }).set(workers as i64);
        }
        self.intake_paused.clear();
        for pause in ledger.pauses().iter() {
            let tenant = pause.tenant.clone().unwrap_or_default();
            self.intake_paused.get_or_create(&OfTenant { tenant }).set(1);
        }
        let table = ledger.intake_table().await?;
        for (state, rows) in [("waiting", table.waiting), ("rejected", table.rejected)] {
            self.intake_rows.get_or_create(&OfState { state }).set(rows as i64);
        }
        let stats = ledger.stats();
        self.renewals_refused.inner().store(stats.renewals_refused, Relaxed);
        self.server_changes.inner().store(stats.server_changes, Relaxed);
        self.clock_jumps.inner().store(stats.clock_jumps, Relaxed);
        self.clock_offset.set(stats.clock_offset_ms / 1_000);
        self.runs_fired.inner().store(stats.runs_fired, Relaxed);
        self.runs_skipped.inner().store(stats.runs_skipped, Relaxed);
        self.runs_refused.inner().store(stats.runs_refused, Relaxed);
        self.groups.inner().store(stats.groups, Relaxed);
        self.submissions.inner().store(stats.submissions, Relaxed);
        self.connections_refused.inner().store(connections::REFUSED.load(Relaxed), Relaxed);
        self.group_time.inner().store(stats.group_time.as_secs_f64().to_bits(), Relaxed);
        self.queued.set(stats.queued as i64);
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("a String takes all text");
        Ok(text)
    }
}

/// A worker may name any kind: the largest groups are named, the others are summed up as those of sources are.
fn idle_by_kind(ledger: &Ledger) -> Vec<(String, u64)> {
    let mut kinds: Vec<(String, u64)> = ledger
        .idle_by_kind()
        .into_iter()
        .map(|(kind, workers)| (kind.unwrap_or_default(), workers))
        .collect();
    kinds.sort_by_key(|(_, workers)| std::cmp::Reverse(*workers));
    let rest: u64 = kinds.split_off(kinds.len().min(KINDS_MAX)).iter().map(|(_, workers)| workers).sum();
    if rest > 0 {
        match kinds.iter_mut().find(|(kind, _)| kind == "other") {
            Some((_, workers)) => *workers += rest,
            None => kinds.push(("other".to_owned(), rest)),
        }
    }
    kinds
}

fn seconds(ms: Millis) -> i64 {
    ms.max(0) / 1_000
}

/// Counts an event stream while it is open.
pub(crate) struct StreamGuard(Gauge);

impl Drop for StreamGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}
