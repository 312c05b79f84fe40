//! Housekeeping, access tokens, and the daemon's own state.

use super::{
    Client, Error,
    call::{Call, segment},
};
use crate::wire::{
    Anchor, Backup, BackupReport, Database, Erase, EraseReport, Health, Intake, LimitQuery, NewToken, Page,
    PageQuery, Prune, PruneReport, Pruning, Readiness, RevokeToken, SetIntake, Token, TokenId, TokenMade,
    Verify, VerifyReport,
};

impl Client {
    /// Deletes work items that ended before a given time. Their identities are kept.
    pub async fn prune(&self, prune: &Prune) -> Result<PruneReport, Error> {
        self.call(Call::post("/v1/admin/prune", prune).without_time_limit()).await
    }

    /// Reads the whole ledger back and reports inconsistencies.
    pub async fn verify(&self) -> Result<VerifyReport, Error> {
        self.verify_with(&Verify::default()).await
    }

    /// The same, and compares the ledger with a copy of its anchor that was stored elsewhere.
    pub async fn verify_with(&self, verify: &Verify) -> Result<VerifyReport, Error> {
        self.call(Call::post("/v1/admin/verify", verify).without_time_limit()).await
    }

    /// A signed copy of the ledger's anchor, to be stored elsewhere.
    pub async fn anchor(&self) -> Result<Anchor, Error> {
        self.call(Call::get("/v1/admin/anchor").without_time_limit()).await
    }

    /// Erases the content of ended work items.
    pub async fn erase(&self, erase: &Erase) -> Result<EraseReport, Error> {
        self.call(Call::post("/v1/admin/erase", erase).without_time_limit()).await
    }

    /// Past prunings: who, when and why, newest first.
    pub async fn prunings(&self, query: &LimitQuery) -> Result<Page<Pruning>, Error> {
        self.call(Call::get("/v1/admin/prune").query(query)).await
    }

    /// Copies the ledger to a new file in the daemon's backup directory.
    pub async fn backup(&self, backup: &Backup) -> Result<BackupReport, Error> {
        self.call(Call::post("/v1/admin/backup", backup).once().without_time_limit()).await
    }

    /// The state of the database.
    pub async fn database(&self) -> Result<Database, Error> {
        self.call(Call::get("/v1/admin/database")).await
    }

    /// The access tokens, newest first, without their secrets.
    pub async fn tokens(&self, page: &PageQuery) -> Result<Page<Token>, Error> {
        self.call(Call::get("/v1/tokens").query(page)).await
    }

    /// Creates an access token. Its secret is returned here only.
    pub async fn make_token(&self, new: &NewToken) -> Result<TokenMade, Error> {
        self.call(Call::post("/v1/tokens", new).once()).await
    }

    /// Revokes an access token, and ends the calls that it opened.
    pub async fn revoke_token(&self, id: &TokenId, revoke: &RevokeToken) -> Result<Token, Error> {
        self.call(Call::delete(format!("/v1/tokens/{}", segment(id.as_str()))).query(revoke)).await
    }

    /// Whether the process is running.
    pub async fn health(&self) -> Result<Health, Error> {
        self.call(Call::get("/healthz")).await
    }

    /// Whether new work items are accepted, and who paused the intake.
    pub async fn intake(&self) -> Result<Intake, Error> {
        self.call(Call::get("/v1/intake")).await
    }

    /// Pauses or resumes the intake of new work items. Idempotent.
    pub async fn set_intake(&self, set: &SetIntake) -> Result<Intake, Error> {
        self.call(Call::post("/v1/intake", set)).await
    }

    /// Whether requests can be served, and if not, why.
    pub async fn readiness(&self) -> Result<Readiness, Error> {
        self.call(Call::get("/readyz").also_unavailable()).await
    }
}
