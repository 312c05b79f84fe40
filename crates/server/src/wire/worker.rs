//! A worker as its leases and its waiting claims show it.

use tenure_api::wire as w;
use tenure_store::{IdleClaim, WorkerView};

use super::{ToWire, at};

pub(crate) fn worker(view: WorkerView) -> w::WorkerView {
    w::WorkerView {
        id: view.id,
        incarnation: view.incarnation,
        leases: view.leases as u64,
        liveness: view.grade.to_wire().into(),
        proof: view.evidence,
        oldest_renewal_at: view.oldest_renewal.map(at),
        missed: view.missed,
        next_expiry_at: view.next_expiry.map(at),
        idle: view.idle.into_iter().map(idle).collect(),
    }
}

fn idle(claim: IdleClaim) -> w::IdleClaim {
    let IdleClaim { kinds, sources, tenants, since, .. } = claim;
    w::IdleClaim { kinds, sources, tenants, since: at(since) }
}
