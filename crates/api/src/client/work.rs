//! Work items, waits, the feed and batches.

use std::time::Duration;

use super::{
    Client, Error,
    call::{Call, segment},
};
use crate::wire::{
    Approve, Batch, BatchReply, Claim, Event, EventPage, EventQuery, Explanation, Grants, Ingest, Ingested,
    Page, Reconnect, Resolve, ResolveWait, Resolved, RevokeWaits, Revoked, Timestamp, Until, Wait, WaitId,
    WaitQuery, Work, WorkEventQuery, WorkGet, WorkId, WorkPage, WorkQuery,
};

impl Client {
    /// Records a work item. Repeating the same source and content returns the existing one.
    pub async fn ingest(&self, new: &Ingest) -> Result<Ingested, Error> {
        self.call(Call::post("/v1/work", new)).await
    }

    /// A work item by its id, or by an unambiguous prefix of it.
    pub async fn work(&self, id: &WorkId) -> Result<Work, Error> {
        self.call(Call::get(path(id, ""))).await
    }

    /// A work item as of a past moment, from its log.
    pub async fn work_at(&self, id: &WorkId, at: Timestamp) -> Result<Work, Error> {
        let query = WorkGet { at: Some(at), ..WorkGet::default() };
        self.call(Call::get(path(id, "")).query(&query)).await
    }

    /// A work item once it has ended, or as it is when the time is over.
    pub async fn work_at_end(&self, id: &WorkId, timeout: Duration) -> Result<Work, Error> {
        let timeout_ms = Some(timeout.as_millis().try_into().unwrap_or(u64::MAX));
        let query = WorkGet { wait: Some(Until::Terminal), timeout_ms, at: None };
        self.call(Call::get(path(id, "")).query(&query).waits(timeout)).await
    }

    /// Work items, newest first.
    pub async fn works(&self, query: &WorkQuery) -> Result<WorkPage, Error> {
        self.call(Call::get("/v1/work").query(query)).await
    }

    /// A work item's own events, oldest first.
    pub async fn work_events(&self, id: &WorkId, query: &WorkEventQuery) -> Result<Page<Event>, Error> {
        self.call(Call::get(path(id, "/events")).query(query)).await
    }

    /// Why a work item is in its state, and what to do.
    pub async fn explain(&self, id: &WorkId) -> Result<Explanation, Error> {
        self.call(Call::get(path(id, "/explain"))).await
    }

    /// The events of all work items after a cursor; none is ever skipped.
    pub async fn events(&self, query: &EventQuery) -> Result<EventPage, Error> {
        self.call(Call::get("/v1/events").query(query)).await
    }

    /// Claims work items: with `wait_ms`, waits for some.
    pub async fn claim(&self, claim: &Claim) -> Result<Grants, Error> {
        let wait = Duration::from_millis(claim.wait_ms.unwrap_or(0));
        self.call(Call::post("/v1/work/claim", claim).waits(wait)).await
    }

    /// Waits, in the order in which they were opened.
    pub async fn waits(&self, query: &WaitQuery) -> Result<Page<Wait>, Error> {
        self.call(Call::get("/v1/waits").query(query)).await
    }

    /// Answers by reference, or by the token of a wait. The first answer counts.
    pub async fn resolve(&self, answer: &Resolve) -> Result<Resolved, Error> {
        self.call(Call::post("/v1/resolve", answer)).await
    }

    /// Answers one wait. The first answer counts.
    pub async fn resolve_wait(&self, id: &WaitId, answer: &ResolveWait) -> Result<Resolved, Error> {
        self.call(Call::post(format!("/v1/waits/{}/resolve", segment(id.as_str())), answer)).await
    }

    /// Cancels every open wait of a session; its work items continue without answers.
    pub async fn revoke_waits(&self, revoke: &RevokeWaits) -> Result<Revoked, Error> {
        self.call(Call::post("/v1/waits/revoke", revoke).once()).await
    }

    /// Answers the approval that a work item in `waiting_approval` waits for; only for people.
    pub async fn approve(&self, id: &WorkId, answer: &Approve) -> Result<Resolved, Error> {
        self.call(Call::post(path(id, "/approve"), answer)).await
    }

    /// Confirms that the account which a work item in `waiting_auth` needs is connected again.
    pub async fn reconnect(&self, id: &WorkId, answer: &Reconnect) -> Result<Resolved, Error> {
        self.call(Call::post(path(id, "/reconnect"), answer)).await
    }

    /// Sends many calls in one request, each with its own response. Never retried automatically: it may
    /// contain calls that must not be.
    pub async fn batch(&self, batch: &Batch) -> Result<BatchReply, Error> {
        self.call(Call::post("/v1/batch", batch).once()).await
    }
}

/// The path of a work item, with a verb.
pub(super) fn path(id: &WorkId, rest: &str) -> String {
    format!("/v1/work/{}{rest}", segment(id.as_str()))
}
