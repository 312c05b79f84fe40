//! Work items that do not progress.

use tenure_api::wire as w;
use tenure_core::{
    Work,
    stuck::{Cause, Proof, Stuck},
};
use tenure_store::StuckReport;

use super::{ToWire, at};

/// At most so many items of each cause; the counts are of all.
pub(crate) fn stuck(report: &StuckReport, shown: usize) -> w::Stuck {
    let groups = Cause::ALL.into_iter().filter_map(|cause| {
        let of_cause: Vec<&(Work, Stuck)> =
            report.works.iter().filter(|(_, stuck)| stuck.cause == cause).collect();
        let oldest = of_cause.iter().map(|(_, stuck)| stuck.since).min()?;
        Some(w::StuckGroup {
            cause: cause.to_wire().into(),
            works: of_cause.len() as u64,
            oldest_at: at(oldest),
            action: cause.action().to_owned(),
            items: of_cause.into_iter().take(shown).map(|(work, stuck)| item(work, stuck)).collect(),
        })
    });
    w::Stuck {
        checked_at: at(report.at),
        open: report.open,
        swept_ms_ago: report.swept.map(|ago| u64::try_from(ago.as_millis()).unwrap_or(u64::MAX)),
        complete: report.complete,
        groups: groups.collect(),
    }
}

fn item(work: &Work, stuck: &Stuck) -> w::StuckWork {
    w::StuckWork {
        work: work.id.to_string().into(),
        title: work.spec.label().to_owned(),
        kind: work.spec.kind.clone(),
        tenant: work.spec.tenant.clone(),
        state: work.state.to_wire().into(),
        since: at(stuck.since),
        evidence: stuck.evidence.iter().map(fact).collect(),
        next: stuck.next.clone(),
    }
}

fn fact(proof: &Proof) -> w::StuckFact {
    w::StuckFact {
        text: proof.text.clone(),
        works: proof.works.iter().map(|id| id.to_string().into()).collect(),
        wait: proof.wait.map(|id| id.to_string().into()),
        command: proof.command.map(|id| id.to_string().into()),
        worker: proof.worker.clone(),
    }
}
