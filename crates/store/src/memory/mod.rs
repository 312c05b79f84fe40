//! The memory store: the core over maps. It is the oracle that the databases are held against, and a
//! ledger for tests of runtimes that embed one.

mod claim;
mod command;
mod credential;
mod gauges;
mod look;
mod retention;
mod schedule;

use std::{
    collections::{BTreeMap, HashMap},
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tenure_core::{
    Attempt, Change, Code, Command, CommandId, CommandState, CredentialId, Event, Evidence, LoadSet, Millis,
    PrincipalId, Records, Refusal, Reply, State, Step, Submission, Wait, WaitId, Work, WorkId,
    action::{Action, Tenants},
    command::{
        Duty,
        budget::{Budget, BudgetKey},
    },
    decide,
    model::{Kept, WaitState},
    payload::Digest,
    records::{SessionView, TargetKey, TenantKey},
    schedule::Schedule,
};
use tokio::time::Instant;

use self::look::{listed, page};
use crate::{
    Anchor, Clock, CommandFilter, Credential, Diagnosis, Error, EventKey, Gauges, IntakeChange, LedgerReply,
    Listed, Options, Position, Pruned, Pruning, Revocation, ScheduleChange, StoredEvent, WaitFilter,
    WorkFilter,
    counters::Counters,
    damaged::DamagedSet,
    job::{Job, Payloads, left, payloads_of, wanted},
    ledger_settings::LedgerSettings,
    retention::{Before, Tombstone},
    schedule::{self as schedules, Key as ScheduleKey},
    steady::SteadyClock,
    store::{Store, StoreFuture},
    token::Key,
};

pub(crate) struct Memory {
    key: Key,
    clock: SteadyClock,
    counters: Counters,
    ledger_settings: LedgerSettings,
    damaged: DamagedSet,
    inner: Arc<Mutex<Inner>>,
}

#[derive(Default)]
struct Inner {
    records: Records,
    log: BTreeMap<usize, Event>,
    /// The hash of every event that ever was.
    links: Vec<Digest>,
    tombstones: HashMap<WorkId, Tombstone>,
    anchor: Anchor,
    by_work: HashMap<WorkId, Vec<usize>>,
    attempts: BTreeMap<(WorkId, u64), Attempt>,
    credentials: BTreeMap<CredentialId, Credential>,
    schedules: BTreeMap<ScheduleKey, Schedule>,
    /// Oldest first.
    intake: Vec<IntakeChange>,
    prunings: Vec<Pruning>,
    schedule_changes: Vec<(ScheduleKey, ScheduleChange)>,
    parked: Vec<Job>,
    closed: bool,
}

pub(crate) fn open(options: &Options) -> Result<Arc<dyn Store>, Error> {
    let mut key = [0; 32];
    getrandom::fill(&mut key).map_err(|e| Error::Unavailable(format!("no randomness: {e}")))?;
    let clock = SteadyClock::of(options.clock.as_ref());
    let key = Key::new(key);
    Ok(Arc::new(Memory {
        key,
        clock,
        counters: Counters::default(),
        ledger_settings: LedgerSettings::default(),
        damaged: DamagedSet::default(),
        inner: Arc::default(),
    }))
}

impl Memory {
    /// A panic while it was held left the records as they were: decisions are applied after they are made.
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ready<'a, T: Send + 'a>(&self, read: impl FnOnce(&Inner) -> T) -> StoreFuture<'a, T> {
        let value = read(&self.inner());
        Box::pin(std::future::ready(Ok(value)))
    }

    /// A parked claim that nobody served is answered when its time is over.
    fn expire(&self, until: Instant) {
        let inner = self.inner.clone();
        tokio::spawn(async move {
            tokio::time::sleep_until(until).await;
            let mut inner = inner.lock().unwrap_or_else(PoisonError::into_inner);
            let late = |job: &Job| job.park_until.is_none_or(|at| at <= Instant::now());
            for job in std::mem::take(&mut inner.parked) {
                if late(&job) {
                    job.answer(Ok(nothing()));
                } else {
                    inner.parked.push(job);
                }
            }
        });
    }
}

fn nothing() -> LedgerReply {
    LedgerReply { reply: Reply::Claimed(Vec::new()), payloads: Payloads::new() }
}

impl Inner {
    fn submit(&mut self, submission: &Submission, now: Millis) -> Result<LedgerReply, Error> {
        let submission = &self.selected(submission);
        self.refresh(submission);
        self.refresh_commands(submission);
        let decision = decide(&self.records, submission, now)?;
        if submission.dry_run {
            let keys = [wanted(&decision.reply), left(&decision.reply)].concat();
            let mut payloads = self.payloads(&keys);
            payloads.extend(payloads_of(decision.events).filter(|(key, _)| keys.contains(key)));
            return Ok(LedgerReply { reply: decision.reply, payloads });
        }
        for event in decision.events {
            let index = self.links.len();
            self.by_work.entry(event.work).or_default().push(index);
            self.links.push(event.hash);
            self.log.insert(index, event);
        }
        for change in decision.changes {
            match &change {
                Change::BeginAttempt(attempt) => {
                    self.attempts.insert((attempt.work, attempt.fence), (**attempt).clone());
                }
                Change::EndAttempt { work, fence, end } => {
                    if let Some(attempt) = self.attempts.get_mut(&(*work, *fence)) {
                        attempt.end = Some((**end).clone());
                    }
                }
                _ => {}
            }
            self.records.absorb(change);
        }
        let payloads = self.payloads(&wanted(&decision.reply));
        Ok(LedgerReply { reply: decision.reply, payloads })
    }

    /// Everything is at hand but what is derived: sessions, and inputs that live in the log.
    fn refresh(&mut self, submission: &Submission) {
        let mut load_set = LoadSet::default();
        load_set.first(submission);
        load_set.then(submission, &self.records);
        let mut keys = load_set.sessions;
        let works = load_set.works.iter().chain(&load_set.waits).chain(&load_set.steps);
        keys.extend(works.filter_map(|id| self.records.works.get(id)?.spec.session_key()));
        if let Action::Resolve(resolve) = &submission.action
            && resolve.claim.is_some()
        {
            keys.extend(self.records.works.values().filter_map(|work| work.spec.session_key()));
        }
        self.records.sessions.clear();
        for key in keys {
            let view = self.view(&key);
            self.records.sessions.insert(key, view);
        }
        for id in load_set.inputs {
            let input = self.payloads(&[(id, 1)]).remove(&(id, 1));
            self.records.inputs.insert(id, input);
        }
    }

    fn serve_parked(&mut self, now: Millis) {
        for job in std::mem::take(&mut self.parked) {
            if job.abandoned() {
                continue;
            }
            match self.submit(&job.submission, now) {
                Ok(outcome) if is_empty(&outcome) => self.parked.push(job),
                answer => job.answer(answer),
            }
        }
    }

    fn stored(&self, index: usize) -> Option<StoredEvent> {
        Some(StoredEvent { position: position(index), event: self.log.get(&index)?.clone() })
    }
}

fn position(index: usize) -> Position {
    Position { epoch: 0, txn: 0, number: index as i64 + 1 }
}

fn is_empty(outcome: &LedgerReply) -> bool {
    matches!(&outcome.reply, Reply::Claimed(grants) if grants.is_empty())
}

impl Store for Memory {
    fn key(&self) -> &Key {
        &self.key
    }

    fn damaged(&self) -> &DamagedSet {
        &self.damaged
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn clock(&self) -> (u64, Millis) {
        self.clock.told()
    }

    fn queued(&self) -> usize {
        0
    }

    fn send(&self, job: Job) {
        let now = self.clock.wall();
        let began = Instant::now();
        let mut inner = self.inner();
        if inner.closed {
            return job.answer(Err(Error::Unavailable("the ledger is closed".into())));
        }
        self.ledger_settings.apply(&mut inner.records);
        let answer = inner.submit(&job.submission, now);
        match (answer, job.park_until) {
            (Ok(outcome), Some(until)) if is_empty(&outcome) && until > Instant::now() => {
                inner.parked.push(job);
                self.expire(until);
            }
            (answer, _) => job.answer(answer),
        }
        inner.serve_parked(now);
        self.counters.committed(1, began.elapsed());
    }

    fn now(&self) -> StoreFuture<'_, Millis> {
        let now = self.clock.wall();
        self.ready(|_| now)
    }

    fn works<'a>(&'a self, ids: &'a [WorkId]) -> StoreFuture<'a, Listed<Work, WorkId>> {
        self.ready(|inner| {
            let works = ids.iter().filter_map(|id| Some((**inner.records.works.get(id)?).clone()));
            Listed::of(works.collect(), usize::MAX, |work| work.id)
        })
    }

    fn ids(&self, before: Option<WorkId>, limit: usize) -> StoreFuture<'_, Vec<WorkId>> {
        self.ready(|inner| {
            let below = |id: &&WorkId| before.is_none_or(|before| **id < before);
            let mut ids: Vec<WorkId> = inner.records.works.keys().filter(below).copied().collect();
            ids.sort_unstable_by(|a, b| b.cmp(a));
            ids.truncate(limit);
            ids
        })
    }

    fn between<'a>(
        &'a self,
        first: WorkId,
        last: WorkId,
        tenants: &'a Tenants,
        limit: usize,
    ) -> StoreFuture<'a, Vec<WorkId>> {
        self.ready(|inner| {
            let here = |work: &&Work| (first..=last).contains(&work.id) && tenants.allow(&work.spec.tenant);
            let works = inner.records.works.values().map(Arc::as_ref);
            works.filter(here).map(|work| work.id).take(limit).collect()
        })
    }

    fn tenants_of<'a>(&'a self, ids: &'a [WorkId]) -> StoreFuture<'a, HashMap<WorkId, String>> {
        self.ready(|inner| {
            let tenant = |id: &WorkId| Some((*id, inner.records.works.get(id)?.spec.tenant.clone()));
            ids.iter().filter_map(tenant).collect()
        })
    }

    fn list<'a>(
        &'a self,
        filter: &'a WorkFilter,
        before: Option<WorkId>,
        limit: usize,
    ) -> StoreFuture<'a, Listed<Work, WorkId>> {
        self.ready(|inner| inner.list(filter, before, limit))
    }

    fn counts<'a>(&'a self, tenants: &'a Tenants) -> StoreFuture<'a, BTreeMap<State, u64>> {
        self.ready(|inner| {
            let mut counts = BTreeMap::new();
            for work in inner.records.works.values().filter(|work| tenants.allow(&work.spec.tenant)) {
                *counts.entry(work.state).or_default() += 1;
            }
            counts
        })
    }

    fn gauges(&self, at: Millis) -> StoreFuture<'_, Gauges> {
        self.ready(|inner| inner.gauges(at))
    }

    fn events(
        &self,
        work: WorkId,
        after: u64,
        limit: usize,
    ) -> StoreFuture<'_, Listed<StoredEvent, EventKey>> {
        self.ready(|inner| {
            let indexes = inner.by_work.get(&work).map_or(&[][..], Vec::as_slice);
            page(indexes.iter().skip(after as usize).filter_map(|index| inner.stored(*index)), limit)
        })
    }

    fn evidence(&self, work: WorkId, after: u64) -> StoreFuture<'_, Vec<Evidence>> {
        self.ready(|inner| {
            let indexes = inner.by_work.get(&work).map_or(&[][..], Vec::as_slice);
            let events = indexes.iter().skip(after as usize).filter_map(|index| inner.stored(*index));
            events.flat_map(|stored| stored.event.evidence).collect()
        })
    }

    fn feed(&self, after: Position, limit: usize) -> StoreFuture<'_, Listed<StoredEvent, EventKey>> {
        self.ready(|inner| {
            let first = after.number.max(0) as usize;
            page(inner.log.range(first..).filter_map(|(index, _)| inner.stored(*index)), limit)
        })
    }

    fn feed_of<'a>(
        &'a self,
        tenants: &'a [String],
        after: Position,
        limit: usize,
    ) -> StoreFuture<'a, (Listed<StoredEvent, EventKey>, Position)> {
        self.ready(|inner| inner.feed_of(tenants, after, limit))
    }

    fn tail(&self) -> StoreFuture<'_, Position> {
        self.ready(|inner| Position { epoch: 0, txn: 0, number: inner.log.len() as i64 })
    }

    fn payloads<'a>(&'a self, keys: &'a [(WorkId, u64)]) -> StoreFuture<'a, Payloads> {
        self.ready(|inner| inner.payloads(keys))
    }

    fn steps(&self, work: WorkId) -> StoreFuture<'_, Vec<Step>> {
        self.ready(|inner| inner.records.steps.get(&work).cloned().unwrap_or_default())
    }

    fn attempts(&self, work: WorkId) -> StoreFuture<'_, Vec<Attempt>> {
        self.ready(|inner| {
            inner.attempts.range((work, 0)..=(work, u64::MAX)).map(|(_, attempt)| attempt.clone()).collect()
        })
    }

    fn waits<'a>(
        &'a self,
        filter: &'a WaitFilter,
        limit: usize,
    ) -> StoreFuture<'a, Listed<Wait, (Millis, WaitId)>> {
        self.ready(|inner| {
            let all = inner.records.waits.iter();
            let mut waits: Vec<&Wait> = all
                .filter(|(id, _)| {
                    let session = inner.records.works.get(id).and_then(|work| work.spec.session.as_ref());
                    filter.session.is_none() || filter.session.as_ref() == session
                })
                .flat_map(|(_, waits)| waits)
                .filter(|wait| {
                    filter.tenants.as_ref().is_none_or(|tenants| tenants.allow(&wait.tenant))
                        && filter.id.is_none_or(|id| wait.id == id)
                        && filter.work.is_none_or(|id| wait.work == id)
                        && (filter.works.is_empty() || filter.works.contains(&wait.work))
                        && filter.reference.as_ref().is_none_or(|r| wait.reference == *r)
                        && filter.kind.is_none_or(|kind| wait.kind == kind)
                        && filter.state.is_none_or(|state| wait.state == state)
                        && filter.after.is_none_or(|after| (wait.opened_at, wait.id) > after)
                        && (!filter.last_ended || wait.ended_at.is_some())
                })
                .collect();
            let ended = |wait: &&Wait| wait.ended_at.filter(|_| filter.last_ended).map(std::cmp::Reverse);
            waits.sort_by_key(|wait| (ended(wait), wait.opened_at, wait.id));
            listed(waits, limit, |wait| (wait.opened_at, wait.id), |wait| wait.detail.bytes())
        })
    }

    fn session<'a>(&'a self, tenant: &'a str, session: &'a str) -> StoreFuture<'a, SessionView> {
        let key = (tenant.to_owned(), session.to_owned());
        self.ready(move |inner| inner.view(&key))
    }

    fn kept<'a>(&'a self, tenant: &'a str, reference: &'a str) -> StoreFuture<'a, Option<Kept>> {
        let key = (tenant.to_owned(), reference.to_owned());
        self.ready(|inner| inner.records.kept.get(&key).cloned().flatten())
    }

    fn due(
        &self,
        at: Millis,
        after: Option<(Millis, WorkId)>,
        limit: usize,
    ) -> StoreFuture<'_, Vec<(Millis, WorkId)>> {
        self.ready(|inner| {
            let mut due: Vec<(Millis, WorkId)> = inner
                .records
                .works
                .values()
                .filter_map(|work| Some((work.due_at?, work.id)))
                .filter(|row| row.0 <= at && after.is_none_or(|after| *row > after))
                .collect();
            due.sort_unstable();
            due.truncate(limit);
            due
        })
    }

    fn next_due(&self) -> StoreFuture<'_, Option<Millis>> {
        self.ready(|inner| inner.records.works.values().filter_map(|work| work.due_at).min())
    }

    fn leased(&self, after: Option<WorkId>, limit: usize) -> StoreFuture<'_, Vec<WorkId>> {
        self.ready(|inner| {
            let mut ids: Vec<WorkId> = inner
                .records
                .works
                .values()
                .filter(|work| work.held_lease().is_some() && after.is_none_or(|id| work.id > id))
                .map(|work| work.id)
                .collect();
            ids.sort_unstable();
            ids.truncate(limit);
            ids
        })
    }

    fn forget_kept(&self, at: Millis) -> StoreFuture<'_, u64> {
        let mut inner = self.inner();
        let old: Vec<TenantKey> = inner
            .records
            .kept
            .iter()
            .filter(|(_, kept)| kept.as_ref().is_some_and(|kept| kept.kept_at <= at))
            .map(|(key, _)| key.clone())
            .collect();
        let count = old.len() as u64;
        old.into_iter()
            .for_each(|(tenant, reference)| inner.records.absorb(Change::Unkeep { tenant, reference }));
        Box::pin(std::future::ready(Ok(count)))
    }

    fn add_credential<'a>(&'a self, credential: &'a Credential) -> StoreFuture<'a, ()> {
        self.inner().add_credential(credential);
        Box::pin(std::future::ready(Ok(())))
    }

    fn credential(&self, hash: Digest) -> StoreFuture<'_, Option<Credential>> {
        self.ready(|inner| inner.credential(hash).cloned())
    }

    fn credentials(
        &self,
        before: Option<CredentialId>,
        limit: usize,
    ) -> StoreFuture<'_, Listed<Credential, CredentialId>> {
        self.ready(|inner| Listed::of(inner.credentials(before, limit), limit, |one| one.id))
    }

    fn credentials_of(&self, principal: PrincipalId, limit: usize) -> StoreFuture<'_, Vec<Credential>> {
        self.ready(|inner| inner.credentials_of(principal, limit))
    }

    fn count_credentials<'a>(&'a self, tenant: Option<&'a str>) -> StoreFuture<'a, u64> {
        self.ready(|inner| inner.count_credentials(tenant))
    }

    fn revoked_among<'a>(&'a self, ids: &'a [CredentialId]) -> StoreFuture<'a, Vec<CredentialId>> {
        self.ready(|inner| inner.revoked_among(ids))
    }

    fn revoke_credential<'a>(
        &'a self,
        id: CredentialId,
        revocation: &'a Revocation,
        keeping: Option<&'a [String]>,
    ) -> StoreFuture<'a, Option<Credential>> {
        let revoked = self.inner().revoke_credential(id, revocation, keeping);
        Box::pin(std::future::ready(Ok(revoked)))
    }

    fn schedule<'a>(&'a self, tenant: &'a str, name: &'a str) -> StoreFuture<'a, Option<Schedule>> {
        self.ready(|inner| inner.schedules.get(&(tenant.to_owned(), name.to_owned())).cloned())
    }

    fn schedules<'a>(
        &'a self,
        tenants: &'a Tenants,
        after: (&'a str, &'a str),
        limit: usize,
    ) -> StoreFuture<'a, Listed<Schedule, ScheduleKey>> {
        let after = (after.0.to_owned(), after.1.to_owned());
        self.ready(|inner| Listed::of(inner.schedules(tenants, &after, limit), limit, schedules::key))
    }

    fn schedules_due<'a>(
        &'a self,
        at: Millis,
        except: &'a [String],
        limit: usize,
    ) -> StoreFuture<'a, Vec<Schedule>> {
        self.ready(|inner| inner.schedules_due(at, except, limit))
    }

    fn save_schedules<'a>(&'a self, schedules: &'a [Schedule]) -> StoreFuture<'a, Vec<ScheduleKey>> {
        let kept = self.inner().save_schedules(schedules);
        Box::pin(std::future::ready(Ok(kept)))
    }

    fn change_schedule<'a>(
        &'a self,
        schedule: &'a Schedule,
        change: &'a ScheduleChange,
    ) -> StoreFuture<'a, bool> {
        let changed = self.inner().change_schedule(schedule, change);
        Box::pin(std::future::ready(Ok(changed)))
    }

    fn schedule_changes<'a>(
        &'a self,
        tenant: &'a str,
        name: &'a str,
        limit: usize,
    ) -> StoreFuture<'a, Vec<ScheduleChange>> {
        self.ready(|inner| inner.schedule_changes(&(tenant.to_owned(), name.to_owned()), limit))
    }

    fn pauses(&self) -> StoreFuture<'_, Vec<IntakeChange>> {
        self.ready(Inner::pauses)
    }

    fn change_intake<'a>(&'a self, change: &'a IntakeChange) -> StoreFuture<'a, ()> {
        self.inner().intake.push(change.clone());
        Box::pin(std::future::ready(Ok(())))
    }

    fn intake_changes(&self, limit: usize) -> StoreFuture<'_, Vec<IntakeChange>> {
        self.ready(|inner| inner.intake.iter().rev().take(limit).cloned().collect())
    }

    fn prunable(&self, before: Before, limit: usize) -> StoreFuture<'_, Vec<WorkId>> {
        self.ready(|inner| inner.prunable(before, limit))
    }

    fn add_pruning<'a>(&'a self, pruning: &'a Pruning) -> StoreFuture<'a, ()> {
        self.inner().prunings.push(pruning.clone());
        Box::pin(std::future::ready(Ok(())))
    }

    fn prunings(&self, limit: usize) -> StoreFuture<'_, Vec<Pruning>> {
        self.ready(|inner| inner.prunings.iter().rev().take(limit).cloned().collect())
    }

    fn prune<'a>(&'a self, works: &'a [WorkId], before: Before, at: Millis) -> StoreFuture<'a, Pruned> {
        let pruned = self.inner().prune(works, before, at);
        Box::pin(std::future::ready(Ok(pruned)))
    }

    fn tombstone(&self, work: WorkId) -> StoreFuture<'_, Option<Tombstone>> {
        self.ready(|inner| inner.tombstones.get(&work).cloned())
    }

    fn links(&self, after: Position, limit: usize) -> StoreFuture<'_, Vec<(Position, Digest)>> {
        self.ready(|inner| {
            let later = inner.links.iter().enumerate().skip(after.number.max(0) as usize).take(limit);
            later.map(|(index, hash)| (position(index), *hash)).collect()
        })
    }

    fn anchor(&self) -> StoreFuture<'_, Anchor> {
        self.ready(|inner| inner.anchor)
    }

    fn set_anchor(&self, anchor: Anchor) -> StoreFuture<'_, ()> {
        let mut inner = self.inner();
        if inner.anchor.events < anchor.events {
            inner.anchor = anchor;
        }
        Box::pin(std::future::ready(Ok(())))
    }

    fn backup<'a>(&'a self, _: &'a Path) -> StoreFuture<'a, ()> {
        let detail = "A ledger in memory is gone with its process. Open one in a file to keep it.";
        Box::pin(std::future::ready(Err(Refusal::new(Code::Invalid, detail).into())))
    }

    fn self_check(&self) -> StoreFuture<'_, Vec<String>> {
        self.ready(|inner| {
            let open = |waits: &[Wait]| waits.iter().filter(|w| w.state == WaitState::Open).count();
            inner
                .records
                .works
                .values()
                .filter(|work| {
                    let waits = inner.records.waits.get(&work.id).map_or(&[][..], Vec::as_slice);
                    open(waits) != work.open_waits as usize
                })
                .map(|work| format!("{} does not count its open waits right", work.id))
                .collect()
        })
    }

    fn ledger_settings(&self) -> &LedgerSettings {
        &self.ledger_settings
    }

    fn commands<'a>(&'a self, ids: &'a [CommandId]) -> StoreFuture<'a, Listed<Command, CommandId>> {
        self.ready(|inner| {
            let commands = ids.iter().filter_map(|id| inner.records.command(*id).cloned());
            Listed::of(commands.collect(), usize::MAX, |command| command.id)
        })
    }

    fn list_commands<'a>(
        &'a self,
        filter: &'a CommandFilter,
        before: Option<CommandId>,
        limit: usize,
    ) -> StoreFuture<'a, Listed<Command, CommandId>> {
        self.ready(|inner| Listed::of(inner.list_commands(filter, before, limit), limit, |one| one.id))
    }

    fn command_counts<'a>(&'a self, tenants: &'a Tenants) -> StoreFuture<'a, BTreeMap<CommandState, u64>> {
        self.ready(|inner| inner.command_counts(tenants))
    }

    fn due_commands(
        &self,
        duty: Duty,
        at: Millis,
        after: Option<(Millis, CommandId)>,
        except: &[String],
        limit: usize,
    ) -> StoreFuture<'_, Vec<(Millis, CommandId)>> {
        self.ready(|inner| inner.due_commands(duty, at, after, |tenant| !except.contains(tenant), limit))
    }

    fn due_lookups<'a>(
        &'a self,
        tenants: &'a [String],
        at: Millis,
        after: Option<(Millis, CommandId)>,
        limit: usize,
    ) -> StoreFuture<'a, Vec<(Millis, CommandId)>> {
        self.ready(|inner| inner.due_commands(Duty::Lookup, at, after, |one| tenants.contains(one), limit))
    }

    fn heads<'a>(&'a self, lines: &'a [TargetKey]) -> StoreFuture<'a, Vec<Option<CommandId>>> {
        self.ready(|inner| lines.iter().map(|line| inner.head(line)).collect())
    }

    fn next_due_command(&self, duty: Duty) -> StoreFuture<'_, Option<Millis>> {
        self.ready(|inner| inner.next_due_command(duty))
    }

    fn all_budgets<'a>(&'a self, after: &'a str, limit: usize) -> StoreFuture<'a, Vec<(BudgetKey, Budget)>> {
        self.ready(|inner| inner.all_budgets(after, limit))
    }

    fn any_pruned(&self) -> StoreFuture<'_, bool> {
        self.ready(|inner| !inner.tombstones.is_empty())
    }

    fn budgets<'a>(&'a self, keys: &'a [BudgetKey]) -> StoreFuture<'a, Vec<(BudgetKey, Budget)>> {
        self.ready(|inner| {
            let known = |key: &BudgetKey| Some((key.clone(), *inner.records.budgets.get(key)?));
            keys.iter().filter_map(known).collect()
        })
    }

    fn diagnosis(&self) -> StoreFuture<'_, Diagnosis> {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        self.ready(|_| Diagnosis { engine: "memory", version, ..Diagnosis::default() })
    }

    fn close(&self) -> StoreFuture<'_, ()> {
        let mut inner = self.inner();
        inner.closed = true;
        for job in std::mem::take(&mut inner.parked) {
            job.answer(Ok(nothing()));
        }
        Box::pin(std::future::ready(Ok(())))
    }
}
