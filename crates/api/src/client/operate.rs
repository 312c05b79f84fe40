//! The operators' verbs. A call is not retried automatically if its first execution makes a repeat illegal.

use super::{
    Client, Error,
    call::{Call, segment},
    work::path,
};
use crate::wire::{
    Abandon, Ack, Alert, ApplyRecovery, Cancel, Decide, Drain, DrainReport, Page, PlanRecovery, Quarantine,
    RecoveryPlan, RecoveryReport, Rerun, RetryNow, Stuck, StuckQuery, Victim, VictimQuery, Work, WorkId,
    WorkerView,
};

impl Client {
    /// Requests that a work item stops.
    pub async fn cancel(&self, id: &WorkId, cancel: &Cancel) -> Result<Ack, Error> {
        self.call(Call::post(path(id, "/cancel"), cancel).once()).await
    }

    /// Requests that a work item is given up once its lease lapses.
    pub async fn abandon(&self, id: &WorkId, abandon: &Abandon) -> Result<Ack, Error> {
        self.call(Call::post(path(id, "/abandon"), abandon).once()).await
    }

    /// Retries now, without waiting for the rest of the backoff.
    pub async fn retry_now(&self, id: &WorkId, retry: &RetryNow) -> Result<Ack, Error> {
        self.call(Call::post(path(id, "/retry-now"), retry).once()).await
    }

    /// Runs an ended work item again. A repeat returns the work item that the first call recorded.
    pub async fn rerun(&self, id: &WorkId, rerun: &Rerun) -> Result<Work, Error> {
        self.call(Call::post(path(id, "/rerun"), rerun)).await
    }

    /// Sets a work item aside for a person. Its holder loses the lease.
    pub async fn quarantine(&self, id: &WorkId, quarantine: &Quarantine) -> Result<Ack, Error> {
        self.call(Call::post(path(id, "/quarantine"), quarantine).once()).await
    }

    /// Decides on a quarantined work item; only for people.
    pub async fn decide(&self, id: &WorkId, decide: &Decide) -> Result<Ack, Error> {
        self.call(Call::post(path(id, "/decide"), decide).once()).await
    }

    /// The work items that lost or may lose their holder, with what recovery will decide.
    pub async fn victims(&self, query: &VictimQuery) -> Result<Page<Victim>, Error> {
        self.call(Call::get("/v1/recovery/victims").query(query)).await
    }

    /// The decisions that recovery would take now. Changes nothing.
    pub async fn recovery_plan(&self, plan: &PlanRecovery) -> Result<RecoveryPlan, Error> {
        self.call(Call::post("/v1/recovery/plan", plan)).await
    }

    /// Carries out a recovery plan: exactly what it says, or nothing.
    pub async fn apply_recovery(&self, apply: &ApplyRecovery) -> Result<RecoveryReport, Error> {
        self.call(Call::post("/v1/recovery/apply", apply).once()).await
    }

    /// The work items that do not progress, by cause.
    pub async fn stuck(&self, query: &StuckQuery) -> Result<Stuck, Error> {
        self.call(Call::get("/v1/stuck").query(query)).await
    }

    /// The workers that hold leases, and those whose claims wait for work at the daemon.
    pub async fn workers(&self) -> Result<Page<WorkerView>, Error> {
        self.call(Call::get("/v1/workers")).await
    }

    /// Drains a worker from outside.
    pub async fn drain_worker(&self, worker: &str, drain: &Drain) -> Result<DrainReport, Error> {
        self.call(Call::post(format!("/v1/workers/{}/drain", segment(worker)), drain).once()).await
    }

    /// The thresholds that are exceeded now.
    pub async fn alerts(&self) -> Result<Page<Alert>, Error> {
        self.call(Call::get("/v1/alerts")).await
    }
}
