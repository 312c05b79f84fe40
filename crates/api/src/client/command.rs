//! Commands. A call is not retried automatically if its first execution makes a repeat illegal.

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
    /// Records a side effect before it happens. Repeating the same intent returns the same command.
    pub async fn reserve(&self, id: &WorkId, new: &Reserve) -> Result<Command, Error> {
        self.call(Call::post(work::path(id, "/commands"), new)).await
    }

    /// Reserves without a work item: one is recorded for the command and claimed, in the same transaction.
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

    /// Why a command is in its state, and what to do.
    pub async fn explain_command(&self, id: &CommandId) -> Result<CommandExplanation, Error> {
        self.call(Call::get(path(id, "/explain"))).await
    }

    /// Approves a command; only for people.
    pub async fn approve_command(&self, id: &CommandId, approve: &ApproveCommand) -> Result<Command, Error> {
        self.call(Call::post(path(id, "/approve"), approve).once()).await
    }

    /// Rejects a command; only for people.
    pub async fn reject_command(&self, id: &CommandId, reject: &RejectCommand) -> Result<Command, Error> {
        self.call(Call::post(path(id, "/reject"), reject)).await
    }

    /// Asks for permission to make the call now. Ok: it is dispatched, make the call. A problem: do not make
    /// it; [`Error::command`] is the command as it is now. Retried automatically only if it has a
    /// `request_id`: any other repeat would be refused because of the first.
    pub async fn dispatch(&self, id: &CommandId, dispatch: &DispatchCommand) -> Result<Command, Error> {
        let call = Call::post(path(id, "/dispatch"), dispatch);
        self.call(call.once_if(dispatch.request_id.is_none())).await
    }

    /// Reports that the effect happened, with evidence. Accepted from the caller that dispatched it even
    /// after its lease is lost.
    pub async fn receipt(&self, id: &CommandId, receipt: &DeliverReceipt) -> Result<Command, Error> {
        self.call(Call::post(path(id, "/receipt"), receipt)).await
    }

    /// Reports that the effect certainly did not happen.
    pub async fn fail_command(&self, id: &CommandId, fail: &FailCommand) -> Result<Command, Error> {
        self.call(Call::post(path(id, "/fail"), fail)).await
    }

    /// Reports that it is unknown whether the effect happened.
    pub async fn uncertain(&self, id: &CommandId, uncertain: &UncertainCommand) -> Result<Command, Error> {
        self.call(Call::post(path(id, "/uncertain"), uncertain)).await
    }

    /// Claims lookups that are due, of tools that workers look up.
    pub async fn claim_lookups(&self, claim: &ClaimLookups) -> Result<Lookups, Error> {
        let wait = Duration::from_millis(claim.wait_ms.unwrap_or(0));
        self.call(Call::post("/v1/commands/claim", claim).waits(wait).once()).await
    }

    /// Reports the outcome of a lookup. Not retried automatically, because every `unknown` is counted.
    pub async fn reconcile(&self, id: &CommandId, reconcile: &Reconcile) -> Result<Command, Error> {
        self.call(Call::post(path(id, "/reconcile"), reconcile).once()).await
    }

    /// Has a failed command executed again; only for people.
    pub async fn replay(&self, id: &CommandId, replay: &ReplayCommand) -> Result<Command, Error> {
        self.call(Call::post(path(id, "/replay"), replay).once()).await
    }

    /// Records how a command in doubt went; only for people.
    pub async fn record(&self, id: &CommandId, record: &RecordCommand) -> Result<Command, Error> {
        self.call(Call::post(path(id, "/record"), record)).await
    }

    /// Cancels a command that is not dispatched yet.
    pub async fn cancel_command(&self, id: &CommandId, cancel: &CancelCommand) -> Result<Command, Error> {
        self.call(Call::post(path(id, "/cancel"), cancel)).await
    }

    /// How a rerun of this work item would treat each command.
    pub async fn replay_plan(&self, id: &WorkId, query: &ReplayPlanQuery) -> Result<ReplayPlan, Error> {
        self.call(Call::get(work::path(id, "/replay-plan")).query(query)).await
    }
}

fn path(id: &CommandId, rest: &str) -> String {
    format!("/v1/commands/{}{rest}", segment(id.as_str()))
}
