//! The ledger in PostgreSQL: any number of lanes and processes over one database.
//!
//! Owns connections, transactions and SQL. It knows no rules: what is claimable, due or legal the core says.

mod around;
#[doc(hidden)]
pub mod bench_support;
mod cache;
mod check;
mod claim;
mod command;
mod connect;
mod connection;
mod credential;
mod diagnosis;
mod fault;
mod gauges;
mod group;
mod intake;
mod lane;
mod load;
mod migrate;
mod queue;
mod read;
mod retention;
mod row;
mod save;
mod schedule;
mod seats;
mod selection;
mod server;
mod time;
mod tls;
mod unlogged;
mod unreadable;
mod wake;

use std::{
    collections::{BTreeMap, HashMap},
    future::Future,
    panic::AssertUnwindSafe,
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use futures_util::FutureExt;
use tenure_core::{
    Attempt, Code, Command, CommandId, CommandState, CredentialId, Evidence, Millis, PrincipalId, Refusal,
    State, Step, Wait, WaitId, Work, WorkId,
    action::Tenants,
    command::{
        Duty,
        budget::{Budget, BudgetKey},
    },
    model::Kept,
    payload::Digest,
    records::{SessionView, TargetKey},
    schedule::Schedule,
};
use tokio::{
    sync::{Notify, watch},
    task::JoinHandle,
};

use self::{
    cache::Recent,
    connect::Connector,
    load::Mark,
    queue::{Parked, Queue},
    read::Reader,
    seats::Seats,
    selection::Selections,
    server::Fences,
    time::Time,
    unreadable::Unreadable,
};
use crate::{
    Anchor, CommandFilter, Credential, Diagnosis, Error, EventKey, Gauges, IntakeChange, Listed, Options,
    Position, Pruned, Pruning, Revocation, ScheduleChange, StoredEvent, WaitFilter, WorkFilter,
    batch::Batch,
    counters::Counters,
    damaged::DamagedSet,
    job::{Job, Payloads},
    ledger_settings::LedgerSettings,
    retention::{Before, Tombstone},
    schedule::Key as ScheduleKey,
    store::{Store, StoreFuture},
    token::Key,
    writing::{Cure, Stop, Writing},
};

/// What the lanes share.
struct Shared {
    key: Key,
    connector: Arc<Connector>,
    time: Time,
    writes: Queue,
    claims: Queue,
    parked: Parked,
    /// Set when parked claims should look again.
    nudged: AtomicBool,
    /// To be told to the other processes.
    announced: Notify,
    recent: Recent,
    counters: Counters,
    ledger_settings: LedgerSettings,
    damaged: DamagedSet,
    in_hand: Selections,
    unreadable: Unreadable,
    fences: Fences,
    writing: Writing,
    closed: watch::Sender<bool>,
}

impl Shared {
    /// Names a queued work that cannot be read; claims pass it over for a while.
    fn pass_over(&self, work: WorkId, error: &Error) {
        self.unreadable.put(work, error);
        self.damaged.add(work.to_string(), &error.to_string(), self.time.last());
    }

    /// Names the queue, where a part of it cannot be read.
    fn cannot_select(&self, error: &Error) {
        self.unreadable.put_queue();
        self.damaged.add(unreadable::QUEUE.to_owned(), &error.to_string(), self.time.last());
    }

    /// Remembers what a group wrote.
    fn committed(&self, batch: Batch, mark: Mark) {
        self.fences.saw(mark.now, batch.writes.begun.iter().map(|attempt| attempt.fence));
        // One that wrote nothing need not be durable.
        if !batch.writes.events.is_empty() {
            self.connector.servers().committed(mark.by.server, mark.by.xid.whole(mark.txn));
        }
        self.recent.keep(batch, mark.by);
    }

    /// Lets the parked claims look again.
    fn nudge(&self) {
        self.nudged.store(true, Ordering::Release);
        self.claims.nudge();
    }

    fn take_nudge(&self) -> bool {
        self.nudged.swap(false, Ordering::AcqRel)
    }

    /// There is more to claim than before: here, and for the others.
    fn ready_grew(&self) {
        self.nudge();
        self.announced.notify_one();
    }

    fn close(&self) {
        self.writes.close();
        self.claims.close();
        let _nobody = self.closed.send_replace(true);
    }
}

struct Postgres {
    shared: Arc<Shared>,
    /// One for single records, one for lists and the feed.
    points: Reader,
    lists: Reader,
    /// One for credentials: who somebody is must be found however much others read.
    credentials: Reader,
    /// One for the gauges of dials and alerts, which are added up over everything that is open.
    gauges: Reader,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

/// Opens the ledger, bringing its schema up to date.
pub(crate) async fn open(url: &str, options: &Options) -> Result<Arc<dyn Store>, Error> {
    let connector = Arc::new(Connector::new(url, options)?);
    let mut session = connector.session().await?;
    let key = migrate::migrate(&mut session.client).await?;
    drop(session);
    let shared = Arc::new(Shared {
        key,
        connector,
        time: Time::new(options.clock.clone()),
        writes: Queue::default(),
        claims: Queue::default(),
        parked: Parked::default(),
        nudged: AtomicBool::new(false),
        announced: Notify::new(),
        recent: Recent::default(),
        counters: Counters::default(),
        ledger_settings: LedgerSettings::default(),
        damaged: DamagedSet::default(),
        in_hand: Selections::default(),
        unreadable: Unreadable::default(),
        fences: Fences::default(),
        writing: Writing::default(),
        closed: watch::Sender::new(false),
    });
    let mut tasks: Vec<JoinHandle<()>> =
        (0..options.lanes.max(1)).map(|_| tokio::spawn(guarded(shared.clone(), lane::run))).collect();
    for _ in 0..claim::LANES {
        tasks.push(tokio::spawn(guarded(shared.clone(), claim::run)));
    }
    tasks.push(tokio::spawn(guarded(shared.clone(), wake::run)));
    let seats = Seats::new(shared.connector.clone());
    Ok(Arc::new(Postgres {
        points: Reader::new(shared.clone(), seats.clone()),
        lists: Reader::new(shared.clone(), seats.clone()),
        credentials: Reader::new(shared.clone(), seats.clone()),
        gauges: Reader::new(shared.clone(), seats),
        shared,
        tasks: Mutex::new(tasks),
    }))
}

/// Runs one of the store's tasks. After a panic nothing more is written and nobody is left waiting: the task
/// goes on, and finds that writing has stopped.
async fn guarded<F: Future<Output = ()>>(shared: Arc<Shared>, run: impl Fn(Arc<Shared>) -> F) {
    while AssertUnwindSafe(run(shared.clone())).catch_unwind().await.is_err() {
        shared.writing.stop("a task of the ledger panicked; the log says where", Cure::Restart);
        shared.nudge();
    }
}

impl Drop for Postgres {
    /// Lanes finish what is queued, and end.
    fn drop(&mut self) {
        self.shared.close();
    }
}

impl Store for Postgres {
    fn key(&self) -> &Key {
        &self.shared.key
    }

    fn damaged(&self) -> &DamagedSet {
        &self.shared.damaged
    }

    fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    fn stopped(&self) -> Option<Stop> {
        self.shared.writing.stopped()
    }

    fn clock(&self) -> (u64, Millis) {
        self.shared.time.told()
    }

    fn queued(&self) -> usize {
        self.shared.writes.len() + self.shared.claims.len()
    }

    fn send(&self, job: Job) {
        if let Some(stop) = self.shared.writing.stopped() {
            return job.answer(Err(Error::Stopped(stop.why)));
        }
        if job.claim_filter().is_some() {
            self.shared.claims.push(job);
        } else {
            self.shared.writes.push(job);
        }
    }

    fn now(&self) -> StoreFuture<'_, Millis> {
        Box::pin(self.points.now(&self.shared.time))
    }

    fn works<'a>(&'a self, ids: &'a [WorkId]) -> StoreFuture<'a, Listed<Work, WorkId>> {
        Box::pin(self.points.works(ids))
    }

    fn ids(&self, before: Option<WorkId>, limit: usize) -> StoreFuture<'_, Vec<WorkId>> {
        Box::pin(self.lists.ids(before, limit))
    }

    fn between<'a>(
        &'a self,
        first: WorkId,
        last: WorkId,
        tenants: &'a Tenants,
        limit: usize,
    ) -> StoreFuture<'a, Vec<WorkId>> {
        Box::pin(self.lists.between(first, last, tenants, limit))
    }

    fn tenants_of<'a>(&'a self, ids: &'a [WorkId]) -> StoreFuture<'a, HashMap<WorkId, String>> {
        Box::pin(self.points.tenants_of(ids))
    }

    fn list<'a>(
        &'a self,
        filter: &'a WorkFilter,
        before: Option<WorkId>,
        limit: usize,
    ) -> StoreFuture<'a, Listed<Work, WorkId>> {
        Box::pin(self.lists.list(filter, before, limit))
    }

    fn counts<'a>(&'a self, tenants: &'a Tenants) -> StoreFuture<'a, BTreeMap<State, u64>> {
        Box::pin(self.lists.counts(tenants))
    }

    fn gauges(&self, at: Millis) -> StoreFuture<'_, Gauges> {
        Box::pin(self.gauges.gauges(at))
    }

    fn events(
        &self,
        work: WorkId,
        after: u64,
        limit: usize,
    ) -> StoreFuture<'_, Listed<StoredEvent, EventKey>> {
        Box::pin(self.points.events(work, after, limit))
    }

    fn evidence(&self, work: WorkId, after: u64) -> StoreFuture<'_, Vec<Evidence>> {
        Box::pin(self.points.evidence(work, after))
    }

    fn feed(&self, after: Position, limit: usize) -> StoreFuture<'_, Listed<StoredEvent, EventKey>> {
        Box::pin(self.lists.feed(after, limit))
    }

    fn feed_of<'a>(
        &'a self,
        tenants: &'a [String],
        after: Position,
        limit: usize,
    ) -> StoreFuture<'a, (Listed<StoredEvent, EventKey>, Position)> {
        Box::pin(self.lists.feed_of(tenants, after, limit))
    }

    fn tail(&self) -> StoreFuture<'_, Position> {
        Box::pin(self.lists.tail())
    }

    fn payloads<'a>(&'a self, keys: &'a [(WorkId, u64)]) -> StoreFuture<'a, Payloads> {
        Box::pin(self.points.payloads(keys))
    }

    fn steps(&self, work: WorkId) -> StoreFuture<'_, Vec<Step>> {
        Box::pin(self.points.steps(work))
    }

    fn attempts(&self, work: WorkId) -> StoreFuture<'_, Vec<Attempt>> {
        Box::pin(self.points.attempts(work))
    }

    fn waits<'a>(
        &'a self,
        filter: &'a WaitFilter,
        limit: usize,
    ) -> StoreFuture<'a, Listed<Wait, (Millis, WaitId)>> {
        Box::pin(self.lists.waits(filter, limit))
    }

    fn session<'a>(&'a self, tenant: &'a str, session: &'a str) -> StoreFuture<'a, SessionView> {
        Box::pin(self.points.session_view(tenant, session))
    }

    fn kept<'a>(&'a self, tenant: &'a str, reference: &'a str) -> StoreFuture<'a, Option<Kept>> {
        Box::pin(self.points.kept(tenant, reference))
    }

    fn due(
        &self,
        at: Millis,
        after: Option<(Millis, WorkId)>,
        limit: usize,
    ) -> StoreFuture<'_, Vec<(Millis, WorkId)>> {
        Box::pin(self.points.due(at, after, limit))
    }

    fn next_due(&self) -> StoreFuture<'_, Option<Millis>> {
        Box::pin(self.points.next_due())
    }

    fn leased(&self, after: Option<WorkId>, limit: usize) -> StoreFuture<'_, Vec<WorkId>> {
        Box::pin(self.points.leased(after, limit))
    }

    fn forget_kept(&self, at: Millis) -> StoreFuture<'_, u64> {
        Box::pin(self.points.forget_kept(at))
    }

    fn add_credential<'a>(&'a self, credential: &'a Credential) -> StoreFuture<'a, ()> {
        Box::pin(self.points.add_credential(credential, self.key().row_mac(credential)))
    }

    fn credential(&self, hash: Digest) -> StoreFuture<'_, Option<Credential>> {
        Box::pin(self.credentials.credential(hash))
    }

    fn credentials(
        &self,
        before: Option<CredentialId>,
        limit: usize,
    ) -> StoreFuture<'_, Listed<Credential, CredentialId>> {
        Box::pin(self.lists.credentials(before, limit))
    }

    fn credentials_of(&self, principal: PrincipalId, limit: usize) -> StoreFuture<'_, Vec<Credential>> {
        Box::pin(self.points.credentials_of(principal, limit))
    }

    fn count_credentials<'a>(&'a self, tenant: Option<&'a str>) -> StoreFuture<'a, u64> {
        Box::pin(self.points.count_credentials(tenant))
    }

    fn revoked_among<'a>(&'a self, ids: &'a [CredentialId]) -> StoreFuture<'a, Vec<CredentialId>> {
        Box::pin(self.points.revoked_among(ids))
    }

    fn revoke_credential<'a>(
        &'a self,
        id: CredentialId,
        revocation: &'a Revocation,
        keeping: Option<&'a [String]>,
    ) -> StoreFuture<'a, Option<Credential>> {
        Box::pin(self.points.revoke_credential(self.key(), id, revocation, keeping))
    }

    fn ledger_settings(&self) -> &LedgerSettings {
        &self.shared.ledger_settings
    }

    fn commands<'a>(&'a self, ids: &'a [CommandId]) -> StoreFuture<'a, Listed<Command, CommandId>> {
        Box::pin(self.points.commands(ids))
    }

    fn list_commands<'a>(
        &'a self,
        filter: &'a CommandFilter,
        before: Option<CommandId>,
        limit: usize,
    ) -> StoreFuture<'a, Listed<Command, CommandId>> {
        Box::pin(self.lists.list_commands(filter, before, limit))
    }

    fn command_counts<'a>(&'a self, tenants: &'a Tenants) -> StoreFuture<'a, BTreeMap<CommandState, u64>> {
        Box::pin(self.lists.command_counts(tenants))
    }

    fn due_commands(
        &self,
        duty: Duty,
        at: Millis,
        after: Option<(Millis, CommandId)>,
        except: &[String],
        limit: usize,
    ) -> StoreFuture<'_, Vec<(Millis, CommandId)>> {
        let except = except.to_vec();
        Box::pin(self.points.due_commands(duty, at, after, except, limit))
    }

    fn due_lookups<'a>(
        &'a self,
        tenants: &'a [String],
        at: Millis,
        after: Option<(Millis, CommandId)>,
        limit: usize,
    ) -> StoreFuture<'a, Vec<(Millis, CommandId)>> {
        Box::pin(self.points.due_lookups(tenants, at, after, limit))
    }

    fn heads<'a>(&'a self, lines: &'a [TargetKey]) -> StoreFuture<'a, Vec<Option<CommandId>>> {
        Box::pin(self.points.heads(lines))
    }

    fn next_due_command(&self, duty: Duty) -> StoreFuture<'_, Option<Millis>> {
        Box::pin(self.points.next_due_command(duty))
    }

    fn budgets<'a>(&'a self, keys: &'a [BudgetKey]) -> StoreFuture<'a, Vec<(BudgetKey, Budget)>> {
        Box::pin(self.points.budgets(keys))
    }

    fn all_budgets<'a>(&'a self, after: &'a str, limit: usize) -> StoreFuture<'a, Vec<(BudgetKey, Budget)>> {
        Box::pin(self.points.all_budgets(after, limit))
    }

    fn any_pruned(&self) -> StoreFuture<'_, bool> {
        Box::pin(self.points.any_pruned())
    }

    fn schedule<'a>(&'a self, tenant: &'a str, name: &'a str) -> StoreFuture<'a, Option<Schedule>> {
        Box::pin(self.points.schedule(tenant, name))
    }

    fn schedules<'a>(
        &'a self,
        tenants: &'a Tenants,
        after: (&'a str, &'a str),
        limit: usize,
    ) -> StoreFuture<'a, Listed<Schedule, ScheduleKey>> {
        Box::pin(self.lists.schedules(tenants, after, limit))
    }

    fn schedules_due<'a>(
        &'a self,
        at: Millis,
        except: &'a [String],
        limit: usize,
    ) -> StoreFuture<'a, Vec<Schedule>> {
        Box::pin(self.points.schedules_due(at, except, limit))
    }

    fn save_schedules<'a>(&'a self, schedules: &'a [Schedule]) -> StoreFuture<'a, Vec<ScheduleKey>> {
        Box::pin(self.points.save_schedules(schedules))
    }

    fn change_schedule<'a>(
        &'a self,
        schedule: &'a Schedule,
        change: &'a ScheduleChange,
    ) -> StoreFuture<'a, bool> {
        Box::pin(self.points.change_schedule(schedule, change))
    }

    fn schedule_changes<'a>(
        &'a self,
        tenant: &'a str,
        name: &'a str,
        limit: usize,
    ) -> StoreFuture<'a, Vec<ScheduleChange>> {
        Box::pin(self.lists.schedule_changes(tenant, name, limit))
    }

    fn pauses(&self) -> StoreFuture<'_, Vec<IntakeChange>> {
        Box::pin(self.points.pauses())
    }

    fn change_intake<'a>(&'a self, change: &'a IntakeChange) -> StoreFuture<'a, ()> {
        Box::pin(self.points.change_intake(change))
    }

    fn intake_changes(&self, limit: usize) -> StoreFuture<'_, Vec<IntakeChange>> {
        Box::pin(self.points.intake_changes(limit))
    }

    fn prunable(&self, before: Before, limit: usize) -> StoreFuture<'_, Vec<WorkId>> {
        Box::pin(self.lists.prunable(before, limit))
    }

    fn add_pruning<'a>(&'a self, pruning: &'a Pruning) -> StoreFuture<'a, ()> {
        Box::pin(self.points.add_pruning(pruning, self.key().row_mac(pruning)))
    }

    fn prunings(&self, limit: usize) -> StoreFuture<'_, Vec<Pruning>> {
        Box::pin(self.lists.prunings(limit))
    }

    fn prune<'a>(&'a self, works: &'a [WorkId], before: Before, at: Millis) -> StoreFuture<'a, Pruned> {
        Box::pin(self.lists.prune(self.key(), works, before, at))
    }

    fn tombstone(&self, work: WorkId) -> StoreFuture<'_, Option<Tombstone>> {
        Box::pin(self.points.tombstone(work))
    }

    fn links(&self, after: Position, limit: usize) -> StoreFuture<'_, Vec<(Position, Digest)>> {
        Box::pin(self.lists.links(after, limit))
    }

    fn anchor(&self) -> StoreFuture<'_, Anchor> {
        Box::pin(self.points.anchor(self.key()))
    }

    fn set_anchor(&self, anchor: Anchor) -> StoreFuture<'_, ()> {
        Box::pin(self.points.set_anchor(self.key().with_mac(anchor), anchor.events))
    }

    fn backup<'a>(&'a self, to: &'a Path) -> StoreFuture<'a, ()> {
        let detail = format!(
            "A PostgreSQL ledger is copied by PostgreSQL's own tools. Type: pg_dump --format=custom \
             --file={} \"$DATABASE_URL\"",
            shell_word(&to.display().to_string())
        );
        Box::pin(std::future::ready(Err(Refusal::new(Code::Invalid, detail).into())))
    }

    fn self_check(&self) -> StoreFuture<'_, Vec<String>> {
        Box::pin(self.lists.self_check(self.key()))
    }

    fn diagnosis(&self) -> StoreFuture<'_, Diagnosis> {
        Box::pin(self.points.diagnosis())
    }

    fn close(&self) -> StoreFuture<'_, ()> {
        self.shared.close();
        let tasks = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        Box::pin(async move {
            for task in tasks {
                task.await.map_err(|e| Error::Unavailable(format!("a lane ended badly: {e}")))?;
            }
            Ok(())
        })
    }
}

/// A text as one word of a shell's command line.
fn shell_word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}
