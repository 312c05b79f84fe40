//! The number of open work items of a tenant, as this process knows it: its own additions count immediately;
//! ended work items and additions by others are seen when the tenant's work items are counted again.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tenure_core::{
    Refusal, Reply, Submission,
    action::Tenants,
    quota::{Added, Quota},
};
use tokio::time::Instant;

use super::{Ledger, LedgerReply};
use crate::Error;

/// A tenant at its quota is counted again after this time.
const COUNT_AGAIN: Duration = Duration::from_secs(5);
/// The limit on cached tenants; beyond it, all are counted again.
const REMEMBERED: usize = 10_000;
/// The period of the byte quota.
const MINUTE: Duration = Duration::from_secs(60);

#[derive(Default)]
pub(super) struct QuotaUsage(Mutex<HashMap<String, TenantUsage>>);

struct TenantUsage {
    /// None: never.
    counted: Option<Instant>,
    /// The open work items at the last count, plus those added since.
    works: u64,
    /// Submissions in progress that may each add one.
    under_way: u64,
    /// The bytes that count now; they decay to zero within a minute.
    bytes: u64,
    at: Instant,
}

enum Asked {
    Taken,
    Refused(Refusal),
    /// The tenant's work items have to be counted first.
    Count,
}

impl TenantUsage {
    fn new() -> Self {
        Self { counted: None, works: 0, under_way: 0, bytes: 0, at: Instant::now() }
    }

    fn take(&mut self, tenant: &str, bytes: u64, quota: &Quota) -> Asked {
        let now = Instant::now();
        if quota.open_works != u64::MAX {
            let due = self.counted.is_none_or(|at| now - at >= COUNT_AGAIN);
            if self.works + self.under_way >= quota.open_works && due || self.counted.is_none() {
                // Until the count is complete, other submissions use the known numbers.
                self.counted = self.counted.map(|_| now);
                return Asked::Count;
            }
            if self.works + self.under_way >= quota.open_works {
                return Asked::Refused(quota.no_more_works(tenant));
            }
        }
        let worn = (now - self.at).as_secs_f64() / MINUTE.as_secs_f64() * quota.input_bytes as f64;
        (self.bytes, self.at) = (self.bytes.saturating_sub(worn as u64), now);
        if self.bytes.saturating_add(bytes) > quota.input_bytes {
            return Asked::Refused(quota.no_more_bytes(tenant));
        }
        self.bytes += bytes;
        self.under_way += 1;
        Asked::Taken
    }
}

impl QuotaUsage {
    fn of(&self) -> MutexGuard<'_, HashMap<String, TenantUsage>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, tenant: &str, bytes: u64, quota: &Quota) -> Asked {
        let mut rooms = self.of();
        if rooms.len() >= REMEMBERED && !rooms.contains_key(tenant) {
            rooms.clear();
        }
        rooms.entry(tenant.to_owned()).or_insert_with(TenantUsage::new).take(tenant, bytes, quota)
    }

    fn counted(&self, tenant: &str, works: u64) {
        let mut rooms = self.of();
        let room = rooms.entry(tenant.to_owned()).or_insert_with(TenantUsage::new);
        (room.counted, room.works) = (Some(Instant::now()), works);
    }
}

/// Reserves quota for one work item until it is known whether it was added. If the caller goes away, it
/// counts as added.
pub(super) struct QuotaSlot {
    rooms: Arc<QuotaUsage>,
    tenant: String,
    bytes: u64,
    added: bool,
}

impl QuotaSlot {
    /// Releases the quota if nothing was added.
    pub fn settle(mut self, outcome: &Result<LedgerReply, Error>, dry_run: bool) {
        self.added = match outcome {
            Ok(_) if dry_run => false,
            Ok(LedgerReply { reply: Reply::Ingested { created, .. }, .. }) => *created,
            Ok(LedgerReply { reply: Reply::Command { fresh, .. }, .. }) => *fresh,
            Ok(_) | Err(Error::Refused(_)) => false,
            Err(_) => true,
        };
    }
}

impl Drop for QuotaSlot {
    fn drop(&mut self) {
        let mut rooms = self.rooms.of();
        let Some(room) = rooms.get_mut(&self.tenant) else { return };
        room.under_way = room.under_way.saturating_sub(1);
        if self.added {
            room.works += 1;
        } else {
            room.bytes = room.bytes.saturating_sub(self.bytes);
        }
    }
}

impl Ledger {
    /// Reserves quota for the work item that a submission adds; if there is none, sets the submission's
    /// refusal.
    pub(super) async fn room(&self, submission: &mut Submission) -> Result<Option<QuotaSlot>, Error> {
        if submission.no_room.is_some() {
            return Ok(None);
        }
        let Some(added) = submission.action.adds() else { return Ok(None) };
        let quota = *self.settings().quota();
        if quota == Quota::default() {
            return Ok(None);
        }
        let (tenant, bytes) = match added {
            Added::New { tenant, bytes, .. } => (tenant.to_owned(), bytes),
            Added::Rerun(of) => match self.works(&[of]).await?.pop() {
                Some(work) => (work.spec.tenant.clone(), work.spec.input_bytes.into()),
                None => return Ok(None),
            },
        };
        // Nothing is revealed about tenants that the caller cannot access.
        if !submission.tenants.allow(&tenant) {
            return Ok(None);
        }
        match self.place(tenant, bytes, &quota).await? {
            Ok(place) => Ok(Some(place)),
            Err(refusal) => {
                submission.no_room = Some(refusal);
                Ok(None)
            }
        }
    }

    /// Whether a tenant has quota for one more work item.
    pub(super) async fn refuse_without_room(&self, tenant: &str) -> Result<(), Error> {
        let mut place = self.place(tenant.to_owned(), 0, self.settings().quota()).await??;
        place.added = false;
        Ok(())
    }

    async fn place(
        &self,
        tenant: String,
        bytes: u64,
        quota: &Quota,
    ) -> Result<Result<QuotaSlot, Refusal>, Error> {
        let rooms = self.0.rooms.clone();
        loop {
            match rooms.take(&tenant, bytes, quota) {
                Asked::Taken => return Ok(Ok(QuotaSlot { rooms, tenant, bytes, added: true })),
                Asked::Refused(refusal) => return Ok(Err(refusal)),
                Asked::Count => {
                    let states = self.counts(&Tenants::Only(vec![tenant.clone()])).await?;
                    let open = states.iter().filter(|(state, _)| !state.is_terminal());
                    rooms.counted(&tenant, open.map(|(_, works)| works).sum());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_works(open_works: u64) -> Quota {
        Quota { open_works, ..Quota::default() }
    }

    fn refused(asked: &Asked) -> bool {
        matches!(asked, Asked::Refused(_))
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_tenant_is_counted_anew_once_in_a_while() {
        let (mut room, two) = (TenantUsage::new(), of_works(2));
        assert!(matches!(room.take("a", 0, &two), Asked::Count), "nobody has counted yet");
        (room.counted, room.works) = (Some(Instant::now()), 1);
        assert!(matches!(room.take("a", 0, &two), Asked::Taken));
        assert!(refused(&room.take("a", 0, &two)), "one is under way");
        tokio::time::advance(COUNT_AGAIN).await;
        assert!(matches!(room.take("a", 0, &two), Asked::Count));
        assert!(refused(&room.take("a", 0, &two)), "somebody counts already");
        room.works = 0;
        assert!(matches!(room.take("a", 0, &two), Asked::Taken));
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_wear_off_within_a_minute() {
        let (mut room, quota) = (TenantUsage::new(), Quota { input_bytes: 1_000, ..Quota::default() });
        assert!(matches!(room.take("a", 1_000, &quota), Asked::Taken));
        assert!(refused(&room.take("a", 500, &quota)));
        tokio::time::advance(MINUTE / 2).await;
        assert!(matches!(room.take("a", 500, &quota), Asked::Taken));
        assert!(refused(&room.take("a", 500, &quota)));
    }

    #[tokio::test]
    async fn quota_of_a_caller_that_went_away_is_not_released() {
        let rooms = Arc::new(QuotaUsage::default());
        rooms.counted("a", 0);
        let one = of_works(1);
        assert!(matches!(rooms.take("a", 0, &one), Asked::Taken));
        drop(QuotaSlot { rooms: rooms.clone(), tenant: "a".to_owned(), bytes: 0, added: true });
        assert!(refused(&rooms.take("a", 0, &one)));
    }
}
