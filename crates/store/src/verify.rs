//! Verification: reads the whole ledger back and reports inconsistencies.

use tenure_core::{
    Event, Fact, Work, WorkId, chain,
    fold::{self, GENESIS},
    invariant, refold,
};

use crate::{Error, Ledger, SignedAnchor, WaitFilter, spending::Spending};

const PAGE: usize = 500;

/// The limit on rereads of a work item that changes meanwhile.
const TRIES: usize = 5;

/// An inconsistency of the stored data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// None if it does not belong to a single work item.
    pub work: Option<WorkId>,
    /// What is wrong.
    pub what: String,
}

/// The result of a verification.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Work items that were checked.
    pub works: u64,
    /// Events that were checked.
    pub events: u64,
    /// Works with events or rows of a newer version. Their chains are followed as far as this version can read them; what
    /// those events did to their works is not judged.
    pub newer: u64,
    /// What was found.
    pub faults: Vec<Fault>,
    /// Checks that could not be made, each with the way to make it.
    pub not_checked: Vec<String>,
}

impl Ledger {
    /// Recomputes every work item and its rows from the log, checks every hash chain, compares the budgets
    /// with the logs and the feed with the ledger's own anchor, and runs the database's own integrity check.
    pub async fn verify(&self) -> Result<Report, Error> {
        self.verify_with(None).await
    }

    /// The same, and compares the feed with a copy of the anchor that was stored elsewhere. Refuses a copy of another ledger,
    /// and one that this ledger did not sign.
    pub async fn verify_with(&self, copy: Option<&SignedAnchor>) -> Result<Report, Error> {
        if let Some(copy) = copy {
            self.check_signature(copy)?;
        }
        let mut report = Report::default();
        let mut spending = Spending::new(self.tail().await?);
        let mut before = None;
        loop {
            let ids = self.store().ids(before, PAGE).await?;
            let Some(last) = ids.last() else { break };
            before = Some(*last);
            for id in ids {
                report.works += 1;
                let what = match self.verify_work(id, &mut report, &mut spending).await {
                    // An unreadable work item is reported as a fault and does not affect the others.
                    Err(Error::Corrupt(what)) => Some(what),
                    Err(Error::Newer(why)) => self.newer_fault(id, &why, &mut report).await?,
                    what => what?,
                };
                report.faults.extend(what.map(|what| Fault { work: Some(id), what }));
            }
        }
        let wrong = self.budget_faults(spending).await?;
        report.faults.extend(wrong.into_iter().map(|what| Fault { work: None, what }));
        let anchored = match self.anchor().await {
            Err(Error::Corrupt(what)) => Some(what),
            anchor => {
                let fault = self.prefix_fault(&anchor?).await?;
                fault.map(|fault| format!("the feed does not match the anchor: {fault}"))
            }
        };
        if let Some(copy) = copy {
            let fault = self.copy_fault(copy).await?;
            report.faults.extend(fault.map(|what| Fault { work: None, what }));
        }
        report.faults.extend(anchored.map(|what| Fault { work: None, what }));
        let own = match self.store().self_check().await {
            Err(Error::Corrupt(what)) => vec![what].into(),
            own => own?,
        };
        report.faults.extend(own.faults.into_iter().map(|what| Fault { work: None, what }));
        report.not_checked = own.not_checked;
        Ok(report)
    }

    async fn verify_work(
        &self,
        id: WorkId,
        report: &mut Report,
        spending: &mut Spending,
    ) -> Result<Option<String>, Error> {
        let work = self.work(id).await?;
        let events = self.log(&work).await?;
        report.events += events.len() as u64;
        spending.hear(&events);
        if let Some(fault) = log_fault(&events).or_else(|| end_fault(&work, &events)) {
            return Ok(Some(fault));
        }
        if events.iter().any(|event| event.fact.is_unknown()) {
            report.newer += 1;
            return Ok(None);
        }
        if let Some(fault) = row_fault(&work, &events) {
            return Ok(Some(fault));
        }
        self.parts_fault(work, events).await
    }

    /// A row or an event that only a newer version can read: that version must have left an event that shows it.
    /// A row is computed from its log, so one with more than its log was changed outside the ledger.
    async fn newer_fault(&self, id: WorkId, why: &str, report: &mut Report) -> Result<Option<String>, Error> {
        let mut after = 0;
        loop {
            let page = self.events(id, after, PAGE).await?;
            let newer = page.iter().any(|stored| stored.event.fact.is_unknown());
            if newer || page.unreadable.iter().any(|event| event.newer) {
                report.newer += 1;
                return Ok(None);
            }
            let Some(last) = page.next() else {
                return Ok(Some(format!("it says what no event of its log does: {why}")));
            };
            after = last.seq;
        }
    }

    /// Compares attempts, steps, waits and commands with the log. They are read after it: if the work item
    /// has changed since, it is read again, and one that keeps changing is left for the next verification.
    async fn parts_fault(&self, mut work: Work, mut events: Vec<Event>) -> Result<Option<String>, Error> {
        for _ in 0..TRIES {
            let attempts = self.attempts(work.id).await?;
            let steps = self.steps(work.id).await?;
            let mut waits = Vec::new();
            if work.body.waits > 0 {
                let filter = WaitFilter { work: Some(work.id), ..WaitFilter::default() };
                waits = self.waits(&filter, PAGE).await?.whole()?;
            }
            let commands =
                if work.body.commands.total > 0 { self.commands_of(work.id).await? } else { Vec::new() };
            let Some(now) = self.works(&[work.id]).await?.pop() else { return Ok(None) };
            if now.seq == work.seq {
                return Ok(refold::fault(&work, &events, &attempts, &steps, &waits, &commands));
            }
            events = self.log(&now).await?;
            work = now;
        }
        Ok(None)
    }

    /// The events of a work item up to the last one that its row knows. Events after the row was read are not
    /// checked.
    pub(crate) async fn log(&self, work: &Work) -> Result<Vec<Event>, Error> {
        let mut events: Vec<Event> = Vec::new();
        loop {
            let after = events.last().map_or(0, |event| event.seq);
            let page = self.events(work.id, after, PAGE).await?.whole()?;
            let end = page.is_empty();
            events.extend(page.into_iter().map(|stored| stored.event).filter(|event| event.seq <= work.seq));
            if end || events.last().is_some_and(|event| event.seq == work.seq) {
                return Ok(events);
            }
        }
    }
}

/// The first event that does not follow from its predecessor.
fn log_fault(events: &[Event]) -> Option<String> {
    let mut previous = GENESIS;
    let mut state = None;
    for (i, event) in events.iter().enumerate() {
        if event.seq != i as u64 + 1 {
            return Some(format!("event {} is missing", i + 1));
        }
        if let Some(fault) = chain::fault(event, previous) {
            return Some(fault);
        }
        let legal = match (state, event.from) {
            (None, None) => i == 0,
            (Some(state), Some(from)) => state == from && from.may_become(event.to),
            _ => false,
        };
        if !legal {
            return Some(format!("event {} moves to {} from a state it was not in", event.seq, event.to));
        }
        previous = event.hash;
        state = Some(event.to);
    }
    let erased = |event: &&Event| event.content.is_some_and(|content| content.salt.is_none());
    let recorded = events.iter().filter_map(|event| match &event.fact {
        Fact::ContentErased(erased) => Some(erased.before),
        _ => None,
    });
    let recorded = recorded.max().unwrap_or_default();
    let unrecorded = events.iter().filter(erased).find(|event| event.seq >= recorded);
    unrecorded.map(|event| {
        format!("the content of event {} was erased, and nobody is recorded to have done so", event.seq)
    })
}

/// Whether a row is where its last event left it: that is known of every event, also of one of a newer version.
fn end_fault(work: &Work, events: &[Event]) -> Option<String> {
    let Some(last) = events.last() else {
        return Some("it has no log".to_owned());
    };
    if last.seq != work.seq || last.hash != work.head {
        return Some(format!("its log ends at event {}, its row at {}", last.seq, work.seq));
    }
    (last.to != work.state).then(|| format!("its row is {}, its last event left it {}", work.state, last.to))
}

fn row_fault(work: &Work, events: &[Event]) -> Option<String> {
    let Some(folded) = fold::fold(events) else {
        return Some("its log does not begin with its creation".to_owned());
    };
    if !fold::matches(work, &folded) {
        return Some(format!("its row is not what its log adds up to ({})", difference(work, &folded)));
    }
    invariant::fault(work)
}

/// The part that differs.
fn difference(row: &Work, folded: &Work) -> &'static str {
    if row.state != folded.state {
        "state"
    } else if row.spec != folded.spec {
        "spec"
    } else if row.lease.as_ref().map(|l| (l.fence, l.lapsed_at))
        != folded.lease.as_ref().map(|l| (l.fence, l.lapsed_at))
    {
        "lease"
    } else if row.body != folded.body {
        "body"
    } else {
        "counters"
    }
}
