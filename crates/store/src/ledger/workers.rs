//! Workers, as seen through their leases and their waiting claims: who holds what, who waits for work, and how certain it
//! is that the worker is running.

use std::collections::BTreeMap;

use tenure_core::{
    Millis, State, Work,
    liveness::{self, Grade, Liveness, Sighting},
};

use super::{Caller, IdleClaim, reads::PAGE_MAX};
use crate::{Error, WorkFilter, process};

/// The limit on held work items that are read. A caller with more should query a single tenant.
const HELD_MAX: usize = 20_000;

/// An incarnation of a worker that holds work items, or waits for some.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerView {
    /// The id of the worker.
    pub id: String,
    /// The incarnation of the worker.
    pub incarnation: String,
    /// The liveness evidence that it offers besides renewing.
    pub liveness: Liveness,
    /// How many leases it holds.
    pub leases: usize,
    /// When the lease that was renewed first was renewed.
    pub oldest_renewal: Option<Millis>,
    /// The renewals that the lease furthest behind has missed.
    pub missed: u32,
    /// The worst grade among its leases: a lapsed one needs attention, even if the worker renews others.
    pub grade: Grade,
    /// The state of its process, if it can be seen from this machine.
    pub evidence: Option<String>,
    /// When the first of its leases expires or expired.
    pub next_expiry: Option<Millis>,
    /// Its claims that wait for work in this process.
    pub idle: Vec<IdleClaim>,
}

/// Workers by id and incarnation.
#[derive(Clone, Debug, Default)]
pub struct Workers {
    /// Workers that hold leases, and after them those that only wait for work.
    pub workers: Vec<WorkerView>,
    /// False if more work items are held than were read.
    pub complete: bool,
}

impl Caller {
    /// The workers that hold work items of this caller's tenants, or wait for some in this process.
    pub async fn workers(&self) -> Result<Workers, Error> {
        let states = vec![State::Running, State::CancelRequested, State::Stalled];
        let filter = WorkFilter { states, ..WorkFilter::default() };
        let (mut held, mut before): (Vec<Work>, _) = (Vec::new(), None);
        let complete = loop {
            let page = self.list(&filter, before, PAGE_MAX).await?;
            before = page.next().copied();
            held.extend(page);
            if before.is_none() || held.len() >= HELD_MAX {
                break before.is_none();
            }
        };
        let mut workers = grouped(&held, self.ledger.now().await?);
        for claim in self.idle_claims().await? {
            let same = |worker: &&mut WorkerView| {
                worker.id == claim.worker && worker.incarnation == claim.incarnation
            };
            match workers.iter_mut().find(same) {
                Some(worker) => worker.idle.push(claim),
                None => workers.push(waiting(claim)),
            }
        }
        Ok(Workers { workers, complete })
    }
}

/// A worker that holds nothing. It is alive: its call is open.
fn waiting(claim: IdleClaim) -> WorkerView {
    WorkerView {
        id: claim.worker.clone(),
        incarnation: claim.incarnation.clone(),
        liveness: Liveness::Opaque,
        leases: 0,
        oldest_renewal: None,
        missed: 0,
        grade: Grade::Alive,
        evidence: None,
        next_expiry: None,
        idle: vec![claim],
    }
}

fn grouped(held: &[Work], now: Millis) -> Vec<WorkerView> {
    let mut workers: BTreeMap<(&str, &str), Vec<&Work>> = BTreeMap::new();
    for work in held.iter().filter(|work| work.lease.is_some()) {
        if let Some(holder) = &work.body.holder {
            workers.entry((&holder.id, &holder.incarnation)).or_default().push(work);
        }
    }
    workers.into_values().filter_map(|works| view(&works, now)).collect()
}

fn view(works: &[&Work], now: Millis) -> Option<WorkerView> {
    let leases = || works.iter().filter_map(|work| work.lease.as_ref());
    let newest = works.iter().max_by_key(|work| work.lease.as_ref().map(|lease| lease.expires_at))?;
    let holder = newest.body.holder.as_ref()?;
    let sighting = process::look(&holder.liveness, newest.lease.as_ref()?.fence);
    // The state of its process applies to each of its leases.
    let graded = works.iter().filter_map(|work| {
        let seen = sighting.clone().zip(work.lease.as_ref());
        let seen = seen.map(|(sighting, lease)| Sighting { fence: lease.fence, ..sighting });
        liveness::grade(work, seen.as_ref(), now)
    });
    let (grade, missed) =
        graded.reduce(|(grade, missed), (other, late)| (grade.max(other), missed.max(late)))?;
    Some(WorkerView {
        id: holder.id.clone(),
        incarnation: holder.incarnation.clone(),
        liveness: holder.liveness.clone(),
        leases: works.len(),
        oldest_renewal: leases().map(|lease| lease.renewed_at).min(),
        missed,
        grade,
        evidence: sighting.map(|sighting| sighting.detail),
        next_expiry: leases().map(|lease| lease.expires_at).min(),
        idle: Vec::new(),
    })
}
