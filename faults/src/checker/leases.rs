//! Leases as clients were granted them: the holders, their fences, and their writes.

use std::collections::HashMap;

use tenure_api::wire::{Grant, Grants, WorkId};

use super::{
    Judge, Rule, Violation,
    index::{Index, body},
};
use crate::{
    history::{Call, Outcome, Record},
    run::Run,
};

/// One lease of one acknowledged claim.
struct Granted<'a> {
    record: &'a Record,
    /// The worker, its incarnation, and its request.
    request: [&'a str; 3],
    fence: u64,
    /// Its claim is in the log.
    stored: bool,
}

type ByWork<'a> = HashMap<String, Vec<Granted<'a>>>;

pub fn check(run: &Run, index: &Index, judge: &mut Judge) {
    let granted = granted(run, index);
    for (work, granted) in &granted {
        fences(work, granted, judge);
    }
    repeats(run, index, judge);
    for record in run.history.iter().filter(|record| matches!(record.outcome, Outcome::Ok(_))) {
        if let Some((work, fence)) = holder(&record.call, index) {
            stale(record, &work, fence, &granted, index, judge);
        }
    }
}

/// If every holder renews, nobody loses a lease or reaches a deadline.
pub fn expired(run: &Run) -> Vec<Violation> {
    let ended =
        run.log.iter().filter(|event| matches!(event.kind.as_str(), "lease_lapsed" | "timeout_marked"));
    ended
        .map(|event| Violation {
            rule: Rule::LivingHolderExpired,
            what: format!(
                "{} by event {} of {}, although its holder renewed",
                event.kind, event.seq, event.work
            ),
        })
        .collect()
}

fn granted<'a>(run: &'a Run, index: &Index) -> ByWork<'a> {
    let mut all = ByWork::new();
    for record in &run.history {
        let Call::Claim(claim) = &record.call else { continue };
        let Some(Ok(grants)) = body::<Grants>(record) else { continue };
        for lease in grants.leases {
            let (work, fence) = (lease.work.id.as_str(), lease.fence);
            let stored = is_stored(index, &lease);
            let request = [claim.worker.id.as_str(), &claim.worker.incarnation, &claim.request_id];
            let granted = Granted { record, request, fence, stored };
            all.entry(work.to_owned()).or_default().push(granted);
        }
    }
    all
}

/// Includes leases whose claim was lost: a fence that was granted once is never granted again.
fn fences(work: &str, granted: &[Granted], judge: &mut Judge) {
    for (nth, one) in granted.iter().enumerate() {
        for other in &granted[nth + 1..] {
            if one.request == other.request && one.fence == other.fence {
                continue;
            }
            let (first, then) = if one.record.answered_us < other.record.asked_us {
                (one, other)
            } else if other.record.answered_us < one.record.asked_us {
                (other, one)
            } else {
                if one.fence == other.fence {
                    let what = format!("fence {} of {work} was granted to two requests", one.fence);
                    judge.broken(Rule::FenceRepeated, what);
                }
                continue;
            };
            // A repeat of an older request returns its original grant.
            let repeated = granted.iter().any(|earlier| {
                earlier.request == then.request
                    && earlier.fence == then.fence
                    && earlier.record.asked_us < first.record.answered_us
            });
            if then.fence <= first.fence && !repeated {
                let what =
                    format!("{work} was granted under fence {} after fence {}", then.fence, first.fence);
                judge.broken(Rule::FenceRepeated, what);
            }
        }
    }
}

/// A repeated claim returns leases of its first response, with the same fences and tokens. A claim whose
/// commit was lost claims again, and later repeats return that response.
fn repeats(run: &Run, index: &Index, judge: &mut Judge) {
    let mut first: HashMap<[&str; 3], Grants> = HashMap::new();
    for record in &run.history {
        let Call::Claim(claim) = &record.call else { continue };
        let Some(Ok(grants)) = body::<Grants>(record) else { continue };
        let request = [claim.worker.id.as_str(), &claim.worker.incarnation, &claim.request_id];
        let Some(before) = first.get(&request).filter(|before| !before.leases.is_empty()) else {
            first.insert(request, grants);
            continue;
        };
        let differs = grants.leases.iter().find(|lease| {
            !before.leases.iter().any(|known| {
                (&known.work.id, known.fence, &known.token) == (&lease.work.id, lease.fence, &lease.token)
            })
        });
        let Some(lease) = differs else { continue };
        let what = format!(
            "request {} of {} was repeated and returned {} under fence {}, unlike its first response",
            claim.request_id, claim.worker.id, lease.work.id, lease.fence
        );
        // One claim is one commit: all of its leases are stored, or none.
        if before.leases.iter().any(|lease| is_stored(index, lease)) {
            judge.broken(Rule::ClaimNotRepeated, what);
        } else {
            judge.lost(Rule::ClaimNotRepeated, what);
            first.insert(request, grants);
        }
    }
}

/// Whether the claim that granted this lease is in the log.
fn is_stored(index: &Index, lease: &Grant) -> bool {
    index.event(lease.work.id.as_str(), "claimed", |event| event.fence == Some(lease.fence)).is_some()
}

/// The work item and the fence of a holder's write.
fn holder(call: &Call, index: &Index) -> Option<(WorkId, u64)> {
    match call {
        Call::Renew { work, fence }
        | Call::Progress { work, fence, .. }
        | Call::Step { work, fence, .. }
        | Call::SetWait { work, fence, .. }
        | Call::Reserve { work, fence, .. }
        | Call::Fail { work, fence }
        | Call::Release { work, fence }
        | Call::CloseOut { work, fence, .. } => Some((work.clone(), *fence)),
        Call::Dispatch { command, fence, .. } => {
            index.commands.get(command.as_str()).map(|command| (command.work.clone(), *fence))
        }
        // A receipt is evidence, independent of its sender.
        Call::Receipt { .. }
        | Call::Happened { .. }
        | Call::Ingest(_)
        | Call::Claim(_)
        | Call::Answer { .. }
        | Call::Cancel { .. }
        | Call::Look { .. } => None,
    }
}

/// A write that was accepted although a higher fence had been granted before it was sent.
fn stale(record: &Record, work: &WorkId, fence: u64, granted: &ByWork, index: &Index, judge: &mut Judge) {
    let later = granted.get(work.as_str()).into_iter().flatten();
    let mut later = later.filter(|granted| {
        granted.stored && granted.fence > fence && granted.record.answered_us < record.asked_us
    });
    let Some(later) = later.next() else { return };
    // The verb that ended a lease returns its first response when it is repeated, however late.
    let ended = match &record.call {
        Call::Fail { .. } => &["attempt_failed"][..],
        Call::Release { .. } => &["lease_released", "cancelled"],
        Call::SetWait { .. } => &["waiting_set"],
        Call::CloseOut { .. } => &["close_out"],
        _ => &[],
    };
    let mut log = index.log(work.as_str()).iter();
    if log.any(|event| event.fence == Some(fence) && ended.contains(&event.kind.as_str())) {
        return;
    }
    let what = format!(
        "{} wrote to {work} under fence {fence} after fence {} was granted: {:?}",
        record.client, later.fence, record.call
    );
    judge.broken(Rule::StaleWrite, what);
}
