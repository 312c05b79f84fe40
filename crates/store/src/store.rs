//! What a store must do. Everything that changes anything goes through [`Store::send`].

use std::{collections::BTreeMap, future::Future, pin::Pin};

use tenure_core::{Attempt, Millis, State, Step, Wait, Work, WorkId, action::Tenants};

use crate::{
    Error, Position, StoredEvent, WaitFilter, WorkFilter,
    job::{Job, Payloads},
    token::Key,
};

pub(crate) type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

pub(crate) trait Store: Send + Sync + 'static {
    /// The key of this ledger's tokens, read at open.
    fn key(&self) -> &Key;

    /// Queues a submission; it is answered when its group has committed.
    fn send(&self, job: Job);

    /// The store's clock.
    fn now(&self) -> Answer<'_, Millis>;

    /// Works by id; those that do not exist are left out.
    fn works<'a>(&'a self, ids: &'a [WorkId]) -> Answer<'a, Vec<Work>>;

    /// The ids of all works, newest first, below `before`: also of those that cannot be read.
    fn ids(&self, before: Option<WorkId>, limit: usize) -> Answer<'_, Vec<WorkId>>;

    /// Matching works, newest id first, below `before`.
    fn list<'a>(
        &'a self,
        filter: &'a WorkFilter,
        before: Option<WorkId>,
        limit: usize,
    ) -> Answer<'a, Vec<Work>>;

    fn counts<'a>(&'a self, tenants: &'a Tenants) -> Answer<'a, BTreeMap<State, u64>>;

    /// A work's events after `seq`, in order.
    fn events(&self, work: WorkId, after: u64, limit: usize) -> Answer<'_, Vec<StoredEvent>>;

    /// All events after a position, in an order in which none is ever skipped.
    fn feed(&self, after: Position, limit: usize) -> Answer<'_, Vec<StoredEvent>>;

    fn payloads<'a>(&'a self, keys: &'a [(WorkId, u64)]) -> Answer<'a, Payloads>;

    fn steps(&self, work: WorkId) -> Answer<'_, Vec<Step>>;

    /// In the order of their fences.
    fn attempts(&self, work: WorkId) -> Answer<'_, Vec<Attempt>>;

    /// Matching waits by (opened_at, id).
    fn waits<'a>(&'a self, filter: &'a WaitFilter, limit: usize) -> Answer<'a, Vec<Wait>>;

    /// Open works whose due date is `at` or earlier, earliest first, after the given (due, id).
    fn due(
        &self,
        at: Millis,
        after: Option<(Millis, WorkId)>,
        limit: usize,
    ) -> Answer<'_, Vec<(Millis, WorkId)>>;

    /// The earliest due date of all.
    fn next_due(&self) -> Answer<'_, Option<Millis>>;

    /// Works with a lease that nobody found lapsed, by id, after the given one.
    fn leased(&self, after: Option<WorkId>, limit: usize) -> Answer<'_, Vec<WorkId>>;

    /// Drops early answers kept at `at` or before.
    fn forget_kept(&self, at: Millis) -> Answer<'_, u64>;

    /// Faults that only the database itself can see: its own integrity check, narrow tables that
    /// disagree with their works, rows without events. Each is a sentence.
    fn self_check(&self) -> Answer<'_, Vec<String>>;

    /// Finishes what is queued and refuses what comes after.
    fn close(&self) -> Answer<'_, ()>;
}
