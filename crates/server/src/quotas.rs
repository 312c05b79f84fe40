//! Limits one tenant's use of shared resources. Quotas apply to credentials that are bound to tenants; a
//! credential for all tenants is the operator's. Open work items, their input bytes and their priority are
//! counted by the ledger itself.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tenure_api::wire::Code;
use tenure_core::action::Tenants;
use tenure_store::{
    CREDENTIALS_MAX, Caller, Ledger,
    fair::{self, Fair, Turn},
};

use crate::{auth::Authenticated, config::Quotas, http::Problem};

/// Credentials reserved for the operator.
const CREDENTIALS_OF_THE_OPERATOR: u64 = 1_000;
/// Schedules read at once.
const PAGE: usize = 1_000;

/// Each tenant's current use in this process.
pub(crate) struct Usage {
    used: Mutex<Used>,
    /// Serializes additions that are counted first, with tenants in turns.
    adding: Arc<Fair>,
}

#[derive(Default)]
struct Used {
    calls: HashMap<Arc<str>, u64>,
    streams: HashMap<Arc<str>, u64>,
}

impl Default for Usage {
    fn default() -> Self {
        Self { used: Mutex::default(), adding: Fair::new(1, 1) }
    }
}

#[derive(Clone, Copy)]
enum What {
    Calls,
    Streams,
}

/// One call or stream of a tenant, until it is dropped.
pub(crate) struct InUse {
    usage: Arc<Usage>,
    what: What,
    tenant: Arc<str>,
}

impl Drop for InUse {
    fn drop(&mut self) {
        let mut used = self.usage.used();
        let all = used.of(self.what);
        if let Some(count) = all.get_mut(&self.tenant) {
            *count -= 1;
            if *count == 0 {
                all.remove(&self.tenant);
            }
        }
    }
}

impl Used {
    fn of(&mut self, what: What) -> &mut HashMap<Arc<str>, u64> {
        match what {
            What::Calls => &mut self.calls,
            What::Streams => &mut self.streams,
        }
    }
}

impl Usage {
    fn used(&self) -> MutexGuard<'_, Used> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A call in progress, long polls included.
    pub fn call(self: &Arc<Self>, tenants: &Tenants, quotas: &Quotas) -> Result<Option<InUse>, Problem> {
        self.place(What::Calls, tenants, quotas.calls, "calls are in progress", "calls")
    }

    pub fn stream(self: &Arc<Self>, tenants: &Tenants, quotas: &Quotas) -> Result<Option<InUse>, Problem> {
        self.place(What::Streams, tenants, quotas.streams, "event streams are open", "streams")
    }

    fn place(
        self: &Arc<Self>,
        what: What,
        tenants: &Tenants,
        most: u64,
        are: &str,
        key: &str,
    ) -> Result<Option<InUse>, Problem> {
        if *tenants == Tenants::All {
            return Ok(None);
        }
        let tenant = fair::key_of(tenants);
        let mut used = self.used();
        let count = used.of(what).entry(tenant.clone()).or_default();
        if *count >= most {
            let detail = format!("{most} {are} for this tenant already. End some, or raise `quotas.{key}`.");
            return Err(Problem::later(Code::RateLimited, detail, Duration::from_secs(1)));
        }
        *count += 1;
        Ok(Some(InUse { usage: self.clone(), what, tenant }))
    }

    /// Capacity for a schedule of this name, until it is created.
    pub async fn schedule(
        &self,
        who: &Authenticated,
        caller: &Caller,
        tenant: &str,
        name: &str,
        quotas: &Quotas,
    ) -> Result<Option<Turn>, Problem> {
        if who.tenants == Tenants::All {
            return Ok(None);
        }
        let turn = self.adding.turn_of(fair::key_of(&who.tenants), 1).await;
        let own = Tenants::Only(vec![tenant.to_owned()]);
        let (mut after, mut there) = (String::new(), 0);
        loop {
            let page = caller.schedules(Some(&own), Some((tenant, &after)), PAGE).await?;
            if page.iter().any(|schedule| schedule.name == name) {
                return Ok(Some(turn));
            }
            there += page.count() as u64;
            match page.next() {
                Some((_, last)) => after.clone_from(last),
                None => break,
            }
        }
        room(tenant, there, quotas.schedules, "schedules").map(|()| Some(turn))
    }

    /// Capacity for a credential of these tenants, until it is created. Some of the ledger's capacity is
    /// reserved for the operator.
    pub async fn credential(
        &self,
        who: &Authenticated,
        ledger: &Ledger,
        tenants: &Tenants,
        quotas: &Quotas,
    ) -> Result<Option<Turn>, Problem> {
        let (Tenants::Only(_), Tenants::Only(asked)) = (&who.tenants, tenants) else { return Ok(None) };
        let turn = self.adding.turn_of(fair::key_of(&who.tenants), 1).await;
        for tenant in asked.iter().filter(|asked| who.tenants.allow(asked)) {
            let there = ledger.count_credentials(Some(tenant)).await?;
            room(tenant, there, quotas.credentials, "credentials")?;
        }
        let all = ledger.count_credentials(None).await?;
        if all + CREDENTIALS_OF_THE_OPERATOR >= CREDENTIALS_MAX as u64 {
            let detail = format!(
                "There are {all} credentials, and the last {CREDENTIALS_OF_THE_OPERATOR} are reserved for the \
                 operator. Revoke unused ones."
            );
            return Err(Problem::new(Code::LimitReached, detail));
        }
        Ok(Some(turn))
    }
}

fn room(tenant: &str, there: u64, most: u64, of: &str) -> Result<(), Problem> {
    if there < most {
        return Ok(());
    }
    let detail = format!(
        "Tenant {tenant} has {there} {of}, and {most} are allowed. End some, or raise `quotas.{of}`."
    );
    Err(Problem::new(Code::LimitReached, detail))
}
