//! What one tenant may have of what all share. Quotas count for credentials that are bound to tenants; whoever may act for
//! all of them is the operator. Open works, the bytes of their inputs and their priority are counted by the ledger itself.

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

/// Credentials that nobody but the operator can use up.
const CREDENTIALS_OF_THE_OPERATOR: u64 = 1_000;
/// Schedules that are counted at once.
const PAGE: usize = 1_000;

/// What each tenant has now, as far as this process sees it.
pub(crate) struct Usage {
    used: Mutex<Used>,
    /// What is counted before it is added is added by one at a time, tenants in turns.
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

/// One of a tenant's calls or streams, until it is dropped.
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

    /// A call that is being answered, parked ones included.
    pub fn call(self: &Arc<Self>, tenants: &Tenants, quotas: &Quotas) -> Result<Option<InUse>, Problem> {
        self.place(What::Calls, tenants, quotas.calls, "calls are being answered", "calls")
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
            let detail =
                format!("{most} {are} for this tenant already. End some, or have `quotas.{key}` raised.");
            return Err(Problem::later(Code::RateLimited, detail, Duration::from_secs(1)));
        }
        *count += 1;
        Ok(Some(InUse { usage: self.clone(), what, tenant }))
    }

    /// Room for a schedule of this name, until it is made.
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

    /// Room for a credential of these tenants, until it is made. A part of what the ledger keeps is the operator's.
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
                "There are {all} credentials, and the last {CREDENTIALS_OF_THE_OPERATOR} that the ledger keeps are the \
                 operator's. Revoke those that nobody uses."
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
        "Tenant {tenant} has {there} {of}, and {most} are allowed. End some, or have `quotas.{of}` raised."
    );
    Err(Problem::new(Code::LimitReached, detail))
}
