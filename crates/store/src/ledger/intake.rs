//! The intake: paused and resumed by people, with a recorded reason. Existing work items continue.

use std::sync::Arc;

use tenure_core::{
    Code, Refusal,
    action::Tenants,
    intake::{self, Pause},
    limits,
};

use super::{Caller, Ledger, reads::PAGE_MAX};
use crate::{Error, IntakeChange, IntakeTable};

impl Ledger {
    /// Reads whose intake is paused; later groups are decided accordingly.
    pub(crate) async fn look_at_intake(&self) -> Result<Arc<[Pause]>, Error> {
        let pauses = self.store().pauses().await?.iter().map(IntakeChange::pause).collect();
        self.store().ledger_settings().set_paused(pauses);
        Ok(self.pauses())
    }

    /// The pauses that this process knows of; it reads them every second.
    pub fn pauses(&self) -> Arc<[Pause]> {
        self.store().ledger_settings().paused().unwrap_or_default()
    }
}

impl Ledger {
    /// How many rows of `tenure_intake` wait, and how many were set aside.
    pub async fn intake_table(&self) -> Result<IntakeTable, Error> {
        self.store().intake_table().await
    }
}

impl Caller {
    /// The pauses that concern this caller's tenants.
    pub async fn intake(&self) -> Result<Vec<Pause>, Error> {
        let standing = self.ledger.store().pauses().await?;
        Ok(standing.iter().filter(|change| change.concerns(&self.tenants)).map(IntakeChange::pause).collect())
    }

    /// The changes of the intake, newest first.
    pub async fn intake_changes(&self, limit: usize) -> Result<Vec<IntakeChange>, Error> {
        let mut changes = self.ledger.store().intake_changes(PAGE_MAX).await?;
        changes.retain(|change| change.concerns(&self.tenants));
        changes.truncate(limit);
        Ok(changes)
    }

    /// Accepts no new work items of a tenant, or of any tenant, until it is resumed. Idempotent. Returns the
    /// pauses that apply afterwards.
    pub async fn pause_intake(&self, tenant: Option<&str>, reason: &str) -> Result<Vec<Pause>, Error> {
        self.set_intake(tenant, reason, true).await
    }

    /// Ends the pause of a tenant, or the one of every tenant; the two are independent.
    pub async fn resume_intake(&self, tenant: Option<&str>, reason: &str) -> Result<Vec<Pause>, Error> {
        self.set_intake(tenant, reason, false).await
    }

    async fn set_intake(
        &self,
        tenant: Option<&str>,
        reason: &str,
        paused: bool,
    ) -> Result<Vec<Pause>, Error> {
        limits::reason(reason)?;
        self.may_steer(tenant)?;
        let tenant = tenant.map(str::to_owned);
        let mut standing = self.intake().await?;
        if standing.iter().any(|pause| pause.tenant == tenant) == paused {
            return Ok(standing);
        }
        let (at, actor) = (self.ledger.now().await?, self.actor.clone());
        let change = IntakeChange { tenant, paused, at, actor, reason: reason.to_owned() };
        if self.dry_run {
            standing.retain(|pause| pause.tenant != change.tenant);
            standing.extend(paused.then(|| change.pause()));
            return Ok(standing);
        }
        self.ledger.store().change_intake(&change).await?;
        self.ledger.look_at_intake().await?;
        self.intake().await
    }

    fn may_steer(&self, tenant: Option<&str>) -> Result<(), Refusal> {
        let Some(tenant) = tenant else {
            return match &self.tenants {
                Tenants::All => Ok(()),
                Tenants::Only(_) => Err(Refusal::new(
                    Code::Invalid,
                    "This concerns every tenant, but your credential is restricted to some. Name one in `tenant`.",
                )),
            };
        };
        limits::name("tenant", tenant)?;
        if self.tenants.allow(tenant) {
            return Ok(());
        }
        let detail = format!("Tenant {tenant} is not one of yours. Use a tenant of your credential.");
        Err(Refusal::new(Code::NotFound, detail))
    }

    /// Refuses new work items while the intake is paused.
    pub(super) fn refuse_while_paused(&self, tenant: &str) -> Result<(), Refusal> {
        intake::open(&self.ledger.pauses(), tenant)
    }
}
