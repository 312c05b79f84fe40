//! Commands. What the first one of a repeat makes illegal is not repeated by itself.

use std::time::Duration;

use super::{
    Client, Error,
    call::{Call, segment},
    work,
};
use crate::wire::{
    ApproveCommand, CancelCommand, ClaimLookups, Command, CommandExplanation, CommandId, CommandQuery,
    DeliverReceipt, DispatchCommand, FailCommand, Lookups, Page, Reconcile, RecordCommand, RejectCommand,
    ReplayCommand, ReplayPlan, ReplayPlanQuery, Reserve, ReserveAlone, ReservedAlone, UncertainCommand,
    WorkId,
};

impl Client {
    /// Records an intended effect before it happens. The same intent again is the same command.
    pub async fn reserve(&self, id: &WorkId, new: &Reserve) -> Result<Command, Error> {
        self.call(Call::post(work::path(id, "/commands"), new)).await
    }

    /// The same without a work: one is recorded for it, and claimed, in the same act.
    pub async fn reserve_alone(&self, new: &ReserveAlone) -> Result<ReservedAlone, Error> {
        self.call(Call::post("/v1/commands", new)).await
    }

    /// Commands, newest first.
    pub async fn commands(&self, query: &CommandQuery) -> Result<Page<Command>, Error> {
        self.call(Call::get("/v1/commands").query(query)).await
    }

    /// A command by its id.
    pub async fn command(&self, id: &CommandId) -> Result<Command, Error> {
        self.call(Call::get(path(id, ""))).await
    }

    /// Why a command stands where it stands, and what to do.
    pub async fn explain_command(&self, id: &CommandId) -> Result<CommandExplanation, Error> {
        self.call(Call::get(path(id, "/explain"))).await
    }

    /// Only a person.
    pub async fn approve_command(&self, id: &CommandId, approve: &ApproveCommand) -> Result<Command, Error> {
        self.call(Call::post(path(id, "/approve"), approve).once()).await
    }

    /// Only a person.
    pub async fn reject_command(&self, id: &CommandId, reject: &RejectCommand) -> Result<Command, Error> {
        self.call(Call::post(path(id, "/reject"), reject)).await
    }

    /// Asks whether to make the call now. Ok: it is dispatched, make it. A problem: do not, and [`Error::command`] is how
    /// the command stands. Repeated by itself only if it has a `request_id`: any other repeat would be told that somebody
    /// does it already.
    pub async fn dispatch(&self, id: &CommandId, dispatch: &DispatchCommand) -> Result<Command, Error> {
        let call = Call::post(path(id, "/dispatch"), dispatch);
        self.call(call.once_if(dispatch.request_id.is_none())).await
    }

    /// It happened, with evidence. By whoever dispatched it, also after the lease is lost.
    pub async fn receipt(&self, id: &CommandId, receipt: &DeliverReceipt) -> Result<Command, Error> {
        self.call(Call::post(path(id, "/receipt"), receipt)).await
    }

    /// It did not happen, for certain.
    pub async fn fail_command(&self, id: &CommandId, fail: &FailCommand) -> Result<Command, Error> {
        self.call(Call::post(path(id, "/fail"), fail)).await
    }

    /// Nobody knows whether it happened.
    pub async fn uncertain(&self, id: &CommandId, uncertain: &UncertainCommand) -> Result<Command, Error> {
        self.call(Call::post(path(id, "/uncertain"), uncertain)).await
    }

    /// Takes lookups that are due, of tools whose lookup is a worker's.
    pub async fn claim_lookups(&self, claim: &ClaimLookups) -> Result<Lookups, Error> {
        let wait = Duration::from_millis(claim.wait_ms.unwrap_or(0));
        self.call(Call::post("/v1/commands/claim", claim).waits(wait).once()).await
    }

    /// What a lookup says of a command in doubt. An `unknown` counts each time, so it is not repeated by itself.
    pub async fn reconcile(&self, id: &CommandId, reconcile: &Reconcile) -> Result<Command, Error> {
        self.call(Call::post(path(id, "/reconcile"), reconcile).once()).await
    }

    /// Only a person: has a failed command done again.
    pub async fn replay(&self, id: &CommandId, replay: &ReplayCommand) -> Result<Command, Error> {
        self.call(Call::post(path(id, "/replay"), replay).once()).await
    }

    /// Only a person: how a command in doubt went.
    pub async fn record(&self, id: &CommandId, record: &RecordCommand) -> Result<Command, Error> {
        self.call(Call::post(path(id, "/record"), record)).await
    }

    /// Only before it is dispatched.
    pub async fn cancel_command(&self, id: &CommandId, cancel: &CancelCommand) -> Result<Command, Error> {
        self.call(Call::post(path(id, "/cancel"), cancel)).await
    }

    /// What a rerun of this work would do with each command.
    pub async fn replay_plan(&self, id: &WorkId, query: &ReplayPlanQuery) -> Result<ReplayPlan, Error> {
        self.call(Call::get(work::path(id, "/replay-plan")).query(query)).await
    }
}

fn path(id: &CommandId, rest: &str) -> String {
    format!("/v1/commands/{}{rest}", segment(id.as_str()))
}
