//! A caller's reads: within its tenants, and what lies outside does not exist.

use std::collections::BTreeMap;

use tenure_core::{
    Attempt, Code, Payload, Refusal, State, Step, Wait, Work, WorkId, action::Tenants, explain::Explanation,
};

use super::Caller;
use crate::{Error, EventPage, Position, StoredEvent, WaitFilter, WorkFilter};

impl Caller {
    pub async fn work(&self, id: WorkId) -> Result<Work, Error> {
        let mut works = self.ledger.works(&[id]).await?;
        match works.pop().filter(|work| self.tenants.allow(&work.spec.tenant)) {
            Some(work) => Ok(work),
            None => Err(self.ledger.missing(id, &self.tenants).await?),
        }
    }

    /// The one work whose id begins so; a whole id is its own beginning.
    pub async fn find_work(&self, beginning: &str) -> Result<WorkId, Error> {
        let (first, last) = WorkId::beginning_with(beginning)?;
        let found = self.ledger.store().between(first, last, &self.tenants, 2).await?;
        match found[..] {
            [only] => Ok(only),
            [] => Err(Refusal::new(
                Code::NotFound,
                format!("There is no work here whose id begins with `{beginning}`. Check the id."),
            )
            .into()),
            _ => Err(Refusal::new(
                Code::Ambiguous,
                format!("Several works have ids that begin with `{beginning}`. Give more digits."),
            )
            .into()),
        }
    }

    /// Matching works, newest first. The next page goes on below the last id of this one.
    pub async fn list(
        &self,
        filter: &WorkFilter,
        before: Option<WorkId>,
        limit: usize,
    ) -> Result<Vec<Work>, Error> {
        let tenants = Some(self.tenants.narrowed(filter.tenants.as_ref()));
        self.ledger.list(&WorkFilter { tenants, ..filter.clone() }, before, limit).await
    }

    pub async fn counts(&self) -> Result<BTreeMap<State, u64>, Error> {
        self.ledger.counts(&self.tenants).await
    }

    /// A work's events after `seq`.
    pub async fn events(&self, work: WorkId, after: u64, limit: usize) -> Result<Vec<StoredEvent>, Error> {
        self.work(work).await?;
        self.ledger.events(work, after, limit).await
    }

    /// The own tenants' events after a position. A page of them may be short, or empty, while more follow: go
    /// on from `next` until it stays where it is.
    pub async fn feed(&self, after: Position, limit: usize) -> Result<EventPage, Error> {
        let mut page = self.ledger.feed(after, limit).await?;
        if self.tenants != Tenants::All {
            let mut works: Vec<WorkId> = page.events.iter().map(|stored| stored.event.work).collect();
            works.sort_unstable();
            works.dedup();
            let tenants = self.ledger.tenants_of(&works).await?;
            let own = |work: &WorkId| tenants.get(work).is_some_and(|tenant| self.tenants.allow(tenant));
            page.events.retain(|stored| own(&stored.event.work));
        }
        Ok(page)
    }

    /// The payload of one event. None where there is none, or it was erased.
    pub async fn payload(&self, work: WorkId, seq: u64) -> Result<Option<Payload>, Error> {
        self.work(work).await?;
        self.ledger.payload(work, seq).await
    }

    pub async fn steps(&self, work: WorkId) -> Result<Vec<Step>, Error> {
        self.work(work).await?;
        self.ledger.steps(work).await
    }

    pub async fn attempts(&self, work: WorkId) -> Result<Vec<Attempt>, Error> {
        self.work(work).await?;
        self.ledger.attempts(work).await
    }

    /// Matching waits by the time they were opened. The next page goes on after the last of this one.
    pub async fn waits(&self, filter: &WaitFilter, limit: usize) -> Result<Vec<Wait>, Error> {
        let tenants = Some(self.tenants.narrowed(filter.tenants.as_ref()));
        self.ledger.waits(&WaitFilter { tenants, ..filter.clone() }, limit).await
    }

    /// Why a work stands where it stands, in one sentence, and what to do next.
    pub async fn explain(&self, id: WorkId) -> Result<Explanation, Error> {
        self.work(id).await?;
        self.ledger.explain(id).await
    }
}
