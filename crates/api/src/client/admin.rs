//! Housekeeping, access tokens, and the daemon's own state.

use super::{
    Client, Error,
    call::{Call, segment},
};
use crate::wire::{
    Backup, BackupReport, Database, Health, Intake, LimitQuery, NewToken, Page, PageQuery, Prune,
    PruneReport, Pruning, Readiness, RevokeToken, SetIntake, Token, TokenId, TokenMade, VerifyReport,
};

impl Client {
    /// Removes works that ended before a time. Their identities stay.
    pub async fn prune(&self, prune: &Prune) -> Result<PruneReport, Error> {
        self.call(Call::post("/v1/admin/prune", prune).patient()).await
    }

    /// Reads everything back and tells what contradicts itself.
    pub async fn verify(&self) -> Result<VerifyReport, Error> {
        self.call(Call::post_empty("/v1/admin/verify").patient()).await
    }

    /// Who pruned, when and why, newest first.
    pub async fn prunings(&self, query: &LimitQuery) -> Result<Page<Pruning>, Error> {
        self.call(Call::get("/v1/admin/prune").query(query)).await
    }

    /// Copies the ledger to a new file in the daemon's folder of backups.
    pub async fn backup(&self, backup: &Backup) -> Result<BackupReport, Error> {
        self.call(Call::post("/v1/admin/backup", backup).once().patient()).await
    }

    /// What the database says of itself.
    pub async fn database(&self) -> Result<Database, Error> {
        self.call(Call::get("/v1/admin/database")).await
    }

    /// The tokens, newest first, without their secrets.
    pub async fn tokens(&self, page: &PageQuery) -> Result<Page<Token>, Error> {
        self.call(Call::get("/v1/tokens").query(page)).await
    }

    /// Makes a token. Its secret is in the answer and nowhere else.
    pub async fn make_token(&self, new: &NewToken) -> Result<TokenMade, Error> {
        self.call(Call::post("/v1/tokens", new).once()).await
    }

    /// Ends a token, and the calls that it opened.
    pub async fn revoke_token(&self, id: &TokenId, revoke: &RevokeToken) -> Result<Token, Error> {
        self.call(Call::delete(format!("/v1/tokens/{}", segment(id.as_str()))).query(revoke)).await
    }

    /// Whether the process answers.
    pub async fn health(&self) -> Result<Health, Error> {
        self.call(Call::get("/healthz")).await
    }

    /// Whether new works are let in, and who stopped it.
    pub async fn intake(&self) -> Result<Intake, Error> {
        self.call(Call::get("/v1/intake")).await
    }

    /// Pauses the intake of new works, or resumes it. The same again changes nothing.
    pub async fn set_intake(&self, set: &SetIntake) -> Result<Intake, Error> {
        self.call(Call::post("/v1/intake", set)).await
    }

    /// Whether requests can be served; a server that is not ready says why.
    pub async fn readiness(&self) -> Result<Readiness, Error> {
        self.call(Call::get("/readyz").also_unavailable()).await
    }
}
