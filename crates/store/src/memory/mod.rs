//! The memory store: the core over maps. It is the oracle that the databases are held against, and a
//! ledger for tests of runtimes that embed one.

mod backup;
mod budget;
mod check;
mod claim;
mod command;
mod credential;
mod diagnosis;
mod event;
mod gauges;
mod intake;
mod intake_table;
mod retention;
mod schedule;
mod session;
mod stuck;
mod wait;
mod work;

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tenure_core::{
    Attempt, Change, CredentialId, Event, Fact, LoadSet, Millis, Records, Reply, Submission, WorkId,
    action::Action, decide, limits, model::AttemptEnd, payload::Digest, schedule::Schedule,
};
use tokio::time::Instant;

use crate::{
    Anchor, Clock, Credential, Error, IntakeChange, LedgerReply, Listed, Options, Position, Pruning,
    ScheduleChange, StoredEvent,
    counters::Counters,
    damaged::DamagedSet,
    job::{Job, Payloads, left, payloads_of, wanted},
    ledger_settings::LedgerSettings,
    retention::Tombstone,
    schedule::Key as ScheduleKey,
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

    fn change<'a, T: Send + 'a>(&self, change: impl FnOnce(&mut Inner) -> T) -> StoreFuture<'a, T> {
        let value = change(&mut self.inner());
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
                Change::Erase { work, before } => self.erase(*work, *before),
                _ => {}
            }
            self.records.absorb(change);
        }
        let payloads = self.payloads(&wanted(&decision.reply));
        Ok(LedgerReply { reply: decision.reply, payloads })
    }

    /// Erases the same as the databases' statements.
    fn erase(&mut self, work: WorkId, before: u64) {
        for index in self.by_work.get(&work).into_iter().flatten() {
            let Some(event) = self.log.get_mut(index) else { continue };
            if event.seq >= before || matches!(event.fact, Fact::ContentErased(_)) {
                continue;
            }
            (event.message, event.payload) = (None, None);
            event.evidence.clear();
            if let Some(content) = &mut event.content {
                content.salt = None;
            }
        }
        let ends = self.attempts.iter_mut().filter(|((owner, _), _)| *owner == work);
        ends.filter_map(|(_, attempt)| attempt.end.as_mut()).for_each(AttemptEnd::erase);
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

/// The first of these rows: as many as a page may have and weigh.
fn listed<T: Clone, K>(
    rows: Vec<&T>,
    limit: usize,
    key: impl Fn(&T) -> K,
    weight: impl Fn(&T) -> usize,
) -> Listed<T, K> {
    let (mut page, mut bytes) = (Vec::new(), 0);
    for row in rows.into_iter().take(limit) {
        bytes += weight(row);
        page.push(row.clone());
        if bytes >= limits::PAGE_BYTES {
            let full = page.len();
            return Listed::of(page, full, key);
        }
    }
    Listed::of(page, limit, key)
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

    fn ledger_settings(&self) -> &LedgerSettings {
        &self.ledger_settings
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
