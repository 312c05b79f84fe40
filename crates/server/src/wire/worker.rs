//! A worker as its leases show it.

use tenure_api::wire as w;
use tenure_store::WorkerView;

use super::{ToWire, at};

pub(crate) fn worker(view: WorkerView) -> w::WorkerView {
    w::WorkerView {
        id: view.id,
        incarnation: view.incarnation,
        leases: view.leases as u64,
        liveness: view.grade.to_wire().into(),
        proof: view.evidence,
        oldest_renewal_at: Some(at(view.oldest_renewal)),
        missed: view.missed,
        next_expiry_at: Some(at(view.next_expiry)),
    }
}
