//! Reads: they present the stored data and change nothing.

use std::collections::{BTreeMap, HashMap, HashSet};

use tenure_core::{
    Attempt, Command, CommandState, Evidence, Millis, Payload, Refusal, State, Step, Wait, WaitId, Work,
    WorkId,
    action::{Kinds, Tenants},
    explain::{Around, Explanation, explain},
    limits,
    refusal::Code,
};

use crate::{
    CommandFilter, Error, EventKey, EventPage, Gauges, Ledger, Listed, Position, StoredEvent, WaitFilter,
    WorkFilter,
};

/// The largest page.
pub(super) const PAGE_MAX: usize = 1_000;

impl Ledger {
    /// The store's clock.
    pub async fn now(&self) -> Result<Millis, Error> {
        self.store().now().await
    }

    /// Reads a work item.
    pub async fn work(&self, id: WorkId) -> Result<Work, Error> {
        match self.works(&[id]).await?.pop() {
            Some(work) => Ok(work),
            None => Err(self.missing(id, &Tenants::All).await?),
        }
    }

    /// Why these tenants have no such work item.
    pub(super) async fn missing(&self, id: WorkId, tenants: &Tenants) -> Result<Error, Error> {
        let tombstone = self.store().tombstone(id).await?;
        let refusal = match tombstone.filter(|tombstone| tenants.allow(&tombstone.identity.tenant)) {
            Some(_) => Refusal::new(
                Code::NoLongerRetained,
                format!("{id} has ended and was pruned. Look for it in a backup."),
            ),
            None => Refusal::new(Code::NotFound, format!("There is no work item {id}. Check the id.")),
        };
        Ok(refusal.into())
    }

    /// Work items by id; ids that do not exist are left out. Fails if one cannot be read.
    pub async fn works(&self, ids: &[WorkId]) -> Result<Vec<Work>, Error> {
        self.store().works(ids).await?.whole()
    }

    /// Work items by id; those that cannot be read are listed separately.
    pub async fn readable_works(&self, ids: &[WorkId]) -> Result<Listed<Work, WorkId>, Error> {
        self.store().works(ids).await
    }

    /// Matching work items, newest first. Pass the key `next` of a page to read the next one.
    pub async fn list(
        &self,
        filter: &WorkFilter,
        before: Option<WorkId>,
        limit: usize,
    ) -> Result<Listed<Work, WorkId>, Error> {
        filter.check()?;
        self.store().list(filter, before, limit.min(PAGE_MAX)).await
    }

    /// The tenant of each work item; ids that do not exist are left out.
    pub async fn tenants_of(&self, works: &[WorkId]) -> Result<HashMap<WorkId, String>, Error> {
        self.store().tenants_of(works).await
    }

    /// The number of work items in each state.
    pub async fn counts(&self, tenants: &Tenants) -> Result<BTreeMap<State, u64>, Error> {
        self.store().counts(tenants).await
    }

    /// Figures of everything that is open, in all tenants.
    pub async fn gauges(&self) -> Result<Gauges, Error> {
        self.store().gauges(self.now().await?).await
    }

    /// A work item's events after `seq`, up to the byte limit of a page.
    pub async fn events(
        &self,
        work: WorkId,
        after: u64,
        limit: usize,
    ) -> Result<Listed<StoredEvent, EventKey>, Error> {
        self.store().events(work, after, limit.min(PAGE_MAX)).await
    }

    /// The latest evidence links of a work item's events, oldest first, without duplicates. Only its last
    /// thousand events are read.
    pub async fn evidence(&self, work: &Work) -> Result<Vec<Evidence>, Error> {
        let all = self.store().evidence(work.id, work.seq.saturating_sub(PAGE_MAX as u64)).await?;
        let mut seen = HashSet::new();
        let mut last: Vec<Evidence> =
            all.into_iter().rev().filter(|link| seen.insert(link.clone())).take(limits::EVIDENCE).collect();
        last.reverse();
        Ok(last)
    }

    /// The events of all tenants after a position; none is ever skipped.
    pub async fn feed(&self, after: Position, limit: usize) -> Result<EventPage, Error> {
        let limit = limit.min(PAGE_MAX);
        let Listed { rows: events, unreadable, last, full } = self.store().feed(after, limit).await?;
        let next = last.map_or(after, |last| last.position);
        Ok(EventPage { next, full, events, unreadable })
    }

    /// The events of these tenants after a position. A page may be short or empty although more follow:
    /// continue from `next` until it no longer changes.
    pub async fn feed_of(
        &self,
        tenants: &Tenants,
        after: Position,
        limit: usize,
    ) -> Result<EventPage, Error> {
        let Tenants::Only(own) = tenants else { return self.feed(after, limit).await };
        let limit = limit.min(PAGE_MAX);
        let (Listed { rows: events, unreadable, full, .. }, next) =
            self.store().feed_of(own, after, limit).await?;
        Ok(EventPage { next, full, events, unreadable })
    }

    /// The current end of the feed: the start for readers that want only future events.
    pub async fn tail(&self) -> Result<Position, Error> {
        self.store().tail().await
    }

    /// The payload of one event: an input, a result, an answer. None if it has none, or it was erased.
    pub async fn payload(&self, work: WorkId, seq: u64) -> Result<Option<Payload>, Error> {
        Ok(self.store().payloads(&[(work, seq)]).await?.remove(&(work, seq)))
    }

    /// Reads the steps of a work item.
    pub async fn steps(&self, work: WorkId) -> Result<Vec<Step>, Error> {
        self.store().steps(work).await
    }

    /// Reads the attempts of a work item.
    pub async fn attempts(&self, work: WorkId) -> Result<Vec<Attempt>, Error> {
        self.store().attempts(work).await
    }

    /// Matching waits in the order of their opening. Pass the key `next` of a page to read the next one.
    pub async fn waits(
        &self,
        filter: &WaitFilter,
        limit: usize,
    ) -> Result<Listed<Wait, (Millis, WaitId)>, Error> {
        filter.check()?;
        self.store().waits(filter, limit.min(PAGE_MAX)).await
    }

    /// Why a work item is in its state, in one sentence, and what to do next.
    pub async fn explain(&self, id: WorkId) -> Result<Explanation, Error> {
        self.explain_to(id, &Kinds::All).await
    }

    /// The same, for a reader of these kinds.
    pub(super) async fn explain_to(&self, id: WorkId, kinds: &Kinds) -> Result<Explanation, Error> {
        let work = self.work(id).await?;
        let filter = WaitFilter { work: Some(id), ..WaitFilter::default() };
        let waits = self.waits(&filter, PAGE_MAX).await?;
        let last: Vec<_> = self
            .events(id, work.seq.saturating_sub(20), 20)
            .await?
            .into_iter()
            .map(|stored| stored.event)
            .collect();
        let commands = self.open_commands(&work).await?;
        let ahead = self.ahead(&work).await?;
        let idle = (work.state == State::Queued).then(|| self.idle().around(&work, kinds));
        let around = Around {
            waits: &waits,
            last: &last,
            commands: &commands,
            ahead: ahead.as_ref(),
            idle: idle.as_ref(),
        };
        let now = self.now().await?;
        let explained = explain(&work, &around, now);
        Ok(match self.behind(&commands, now).await? {
            Some(command) => explained.with_command(command),
            None => explained,
        })
    }

    /// The commands of a work item to which something can still happen, even after its end; oldest first.
    pub(super) async fn open_commands(&self, work: &Work) -> Result<Vec<Command>, Error> {
        if work.body.commands.total == 0 {
            return Ok(Vec::new());
        }
        let states = CommandState::ALL.into_iter().filter(|state| state.is_open()).collect();
        let filter = CommandFilter { work: Some(work.id), states, ..CommandFilter::default() };
        let mut commands = self.store().list_commands(&filter, None, PAGE_MAX).await?.rows;
        commands.reverse();
        Ok(commands)
    }

    /// The work item that keeps a queued one from being claimed: the holder of its session, or the first in the
    /// session.
    async fn ahead(&self, work: &Work) -> Result<Option<Work>, Error> {
        let Some(session) = work.spec.session.as_deref().filter(|_| work.state == State::Queued) else {
            return Ok(None);
        };
        let view = self.store().session(&work.spec.tenant, session).await?;
        match view.holder.or(view.head).filter(|ahead| *ahead != work.id) {
            Some(ahead) => Ok(self.works(&[ahead]).await?.pop()),
            None => Ok(None),
        }
    }

    pub(crate) async fn due(
        &self,
        at: Millis,
        after: Option<(Millis, WorkId)>,
        limit: usize,
    ) -> Result<Vec<(Millis, WorkId)>, Error> {
        self.store().due(at, after, limit).await
    }

    pub(crate) async fn next_due(&self) -> Result<Option<Millis>, Error> {
        self.store().next_due().await
    }

    pub(crate) async fn leased(&self, after: Option<WorkId>, limit: usize) -> Result<Vec<WorkId>, Error> {
        self.store().leased(after, limit).await
    }

    pub(crate) async fn forget_kept(&self, at: Millis) -> Result<u64, Error> {
        self.store().forget_kept(at).await
    }
}
