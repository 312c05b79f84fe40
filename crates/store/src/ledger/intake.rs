//! The intake: paused and resumed by people, with a reason that is kept. What is in goes on.

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
    /// Learns whose intake is paused; groups go by it from now on.
    pub(crate) async fn look_at_intake(&self) -> Result<Arc<[Pause]>, Error> {
        let pauses = self.store().pauses().await?.iter().map(IntakeChange::pause).collect();
        self.store().ledger_settings().set_paused(pauses);
        Ok(self.pauses())
    }

    /// Whose intake this process knows to be paused: it looks every second.
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
    /// The pauses that stop works of the own tenants.
    pub async fn intake(&self) -> Result<Vec<Pause>, Error> {
        let standing = self.ledger.store().pauses().await?;
        Ok(standing.iter().filter(|change| change.concerns(&self.tenants)).map(IntakeChange::pause).collect())
    }

    /// What was done to the intake, newest first.
    pub async fn intake_changes(&self, limit: usize) -> Result<Vec<IntakeChange>, Error> {
        let mut changes = self.ledger.store().intake_changes(PAGE_MAX).await?;
        changes.retain(|change| change.concerns(&self.tenants));
        changes.truncate(limit);
        Ok(changes)
    }

    /// Lets no new work of a tenant in, or of any: until it is resumed. The same again changes nothing. Returns the
    /// pauses that stand then.
    pub async fn pause_intake(&self, tenant: Option<&str>, reason: &str) -> Result<Vec<Pause>, Error> {
        self.set_intake(tenant, reason, true).await
    }

    /// Ends the pause of a tenant, or the one of every tenant; the other kind stands on its own.
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
                    "This is about every tenant, and you have some. Say in `tenant` which one.",
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

    /// Refuses what would bring a new work in.
    pub(super) fn refuse_while_paused(&self, tenant: &str) -> Result<(), Refusal> {
        intake::open(&self.ledger.pauses(), tenant)
    }
}
