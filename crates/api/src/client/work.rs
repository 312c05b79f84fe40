//! Works and waits: what is there, what comes in, what is answered.

use std::time::Duration;

use super::{
    Client, Error,
    call::{Call, segment},
};
use crate::wire::{
    Approve, Batch, BatchReply, Claim, Event, EventPage, EventQuery, Explanation, Grants, Ingest, Ingested,
    Page, Reconnect, Resolve, ResolveWait, Resolved, RevokeWaits, Revoked, Until, Wait, WaitId, WaitQuery,
    Work, WorkEventQuery, WorkGet, WorkId, WorkQuery,
};

impl Client {
    /// Records a work. The same source and content again returns what is there.
    pub async fn ingest(&self, new: &Ingest) -> Result<Ingested, Error> {
        self.call(Call::post("/v1/work", new)).await
    }

    /// A work by its id, or by a prefix that only it has.
    pub async fn work(&self, id: &WorkId) -> Result<Work, Error> {
        self.call(Call::get(path(id, ""))).await
    }

    /// A work once it has ended, or as it stands when the time is over.
    pub async fn work_at_end(&self, id: &WorkId, timeout: Duration) -> Result<Work, Error> {
        let timeout_ms = Some(timeout.as_millis().try_into().unwrap_or(u64::MAX));
        let query = WorkGet { wait: Some(Until::Terminal), timeout_ms };
        self.call(Call::get(path(id, "")).query(&query).waits(timeout)).await
    }

    /// Works, newest first.
    pub async fn works(&self, query: &WorkQuery) -> Result<Page<Work>, Error> {
        self.call(Call::get("/v1/work").query(query)).await
    }

    /// A work's own events, oldest first.
    pub async fn work_events(&self, id: &WorkId, query: &WorkEventQuery) -> Result<Page<Event>, Error> {
        self.call(Call::get(path(id, "/events")).query(query)).await
    }

    /// Why a work stands where it stands, and what to do.
    pub async fn explain(&self, id: &WorkId) -> Result<Explanation, Error> {
        self.call(Call::get(path(id, "/explain"))).await
    }

    /// Everybody's events after a cursor; none is ever skipped.
    pub async fn events(&self, query: &EventQuery) -> Result<EventPage, Error> {
        self.call(Call::get("/v1/events").query(query)).await
    }

    /// Claims works: waits for some where `wait_ms` says so.
    pub async fn claim(&self, claim: &Claim) -> Result<Grants, Error> {
        let wait = Duration::from_millis(claim.wait_ms.unwrap_or(0));
        self.call(Call::post("/v1/work/claim", claim).waits(wait)).await
    }

    /// Waits, by the time they were opened.
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

    /// Calls off every open wait of a session; its works go on without answers.
    pub async fn revoke_waits(&self, revoke: &RevokeWaits) -> Result<Revoked, Error> {
        self.call(Call::post("/v1/waits/revoke", revoke).once()).await
    }

    /// Only a person: answers what a work in `waiting_approval` asks.
    pub async fn approve(&self, id: &WorkId, answer: &Approve) -> Result<Resolved, Error> {
        self.call(Call::post(path(id, "/approve"), answer)).await
    }

    /// Says that the account which a work in `waiting_auth` needs is connected again.
    pub async fn reconnect(&self, id: &WorkId, answer: &Reconnect) -> Result<Resolved, Error> {
        self.call(Call::post(path(id, "/reconnect"), answer)).await
    }

    /// Many calls at once, each answered on its own. Never repeated by itself: it may hold what must not be.
    pub async fn batch(&self, batch: &Batch) -> Result<BatchReply, Error> {
        self.call(Call::post("/v1/batch", batch).once()).await
    }
}

/// The route of a work, with a verb.
pub(super) fn path(id: &WorkId, rest: &str) -> String {
    format!("/v1/work/{}{rest}", segment(id.as_str()))
}
