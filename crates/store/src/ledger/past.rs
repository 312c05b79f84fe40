//! Work items as of a past moment, computed from their logs. Renewals write no events, so the expiry of a lease, and the
//! progress that came with renewals, are not known of a past moment; due dates are not either.

use std::{collections::HashSet, time::Duration};

use tenure_core::{
    Code, Event, Evidence, Millis, Refusal, Wait, Work, WorkId, fold, limits, model::WaitState, refold,
    schedule::rfc3339,
};
use tokio::time::Instant;

use super::{Caller, Ledger, reads::PAGE_MAX};
use crate::{Error, Position, Unreadable, WaitFilter, WorkFilter, error::READ_WITHIN};

/// Events of a work item that are read for its past state. A longer log is refused: its page would take too long.
const EVENTS_MAX: u64 = 20_000;

/// Events and rows read at a time.
const PAGE: usize = 500;

/// Work items looked at for one page of a list. A page may be short, or empty, while more follow.
const SCAN: usize = 2_000;

/// A page is returned as it is after this time, with the cursor to continue from.
const SCAN_WITHIN: Duration = Duration::from_secs(3);

/// A work item as of a past moment.
#[derive(Clone, Debug, PartialEq)]
pub struct PastWork {
    /// The fold of its events up to the moment.
    pub work: Work,
    /// The waits that were open.
    pub waits: Vec<Wait>,
    /// The latest evidence links of these events, oldest first.
    pub evidence: Vec<Evidence>,
}

/// A page of work items as of a past moment.
#[derive(Clone, Debug, Default)]
pub struct PastPage {
    /// Newest first.
    pub works: Vec<PastWork>,
    /// The rows that cannot be read.
    pub unreadable: Vec<Unreadable>,
    /// The key for the next page. A page may be short while more follow.
    pub next: Option<WorkId>,
    /// Work items were pruned since the moment: the list may lack some that existed then.
    pub pruned_since: bool,
}

impl Caller {
    /// A work item of this caller's tenants as of a past moment.
    pub async fn work_at(&self, id: WorkId, at: Millis) -> Result<PastWork, Error> {
        let work = self.work(id).await?;
        self.ledger.not_in_future(at).await?;
        let reading = tokio::time::timeout(READ_WITHIN, self.ledger.past(&work, at));
        let past = reading.await.unwrap_or(Err(Error::ReadTimeout))?;
        past.ok_or_else(|| {
            let made = rfc3339(work.spec.created_at);
            let detail = format!("{id} was recorded at {made}, after that time. Give a later time.");
            Refusal::new(Code::BeforeLog, detail).into()
        })
    }

    /// The work items that matched as of a past moment, newest first.
    pub async fn list_at(
        &self,
        filter: &WorkFilter,
        at: Millis,
        before: Option<WorkId>,
        limit: usize,
    ) -> Result<PastPage, Error> {
        filter.check()?;
        if filter.due_before.is_some() {
            let detail = "Due dates are not in the log: leave `due_before` out, or `at`.";
            return Err(Refusal::new(Code::Unsupported, detail).into());
        }
        let tenants = Some(self.tenants.narrowed(filter.tenants.as_ref()));
        let filter = WorkFilter { tenants, kinds: self.kinds.clone(), ..filter.clone() };
        self.ledger.not_in_future(at).await?;
        self.ledger.not_before_log(at).await?;
        self.ledger.list_past(&filter, at, before, limit.min(PAGE_MAX)).await
    }
}

impl Ledger {
    async fn not_in_future(&self, at: Millis) -> Result<(), Error> {
        let now = self.now().await?;
        if at <= now {
            return Ok(());
        }
        let detail = format!("It is {} now: the state of a later time is not known.", rfc3339(now));
        Err(Refusal::new(Code::InFuture, detail).into())
    }

    async fn not_before_log(&self, at: Millis) -> Result<(), Error> {
        let page = self.feed(Position::default(), 1).await?;
        let detail = match page.events.first().map(|first| first.event.at) {
            Some(first) if first > at => format!("The log begins at {}: give a later time.", rfc3339(first)),
            // On PostgreSQL the feed has an event only once no earlier transaction can still commit.
            None if page.unreadable.is_empty() && !self.any_until(at).await? => {
                "The log has no events of that time or before it: give a later time.".to_owned()
            }
            Some(_) | None => return Ok(()),
        };
        Err(Refusal::new(Code::BeforeLog, detail).into())
    }

    async fn any_until(&self, at: Millis) -> Result<bool, Error> {
        let filter = WorkFilter { created_before: Some(at + 1), ..WorkFilter::default() };
        Ok(self.list(&filter, None, 1).await?.count() > 0)
    }

    /// A stored work item as of a past moment: its events up to the first later one, folded. None: it did not exist yet.
    async fn past(&self, stored: &Work, at: Millis) -> Result<Option<PastWork>, Error> {
        let mut past: Option<Work> = None;
        let mut evidence = Vec::new();
        // Only what the open waits depend on.
        let mut waiting: Vec<Event> = Vec::new();
        let mut after = 0;
        'log: while after < stored.seq {
            if after >= EVENTS_MAX {
                let detail = format!(
                    "{} has more than {EVENTS_MAX} events before that time. Read them: `tenure events {}`.",
                    stored.id, stored.id
                );
                return Err(Refusal::new(Code::LimitReached, detail).into());
            }
            let events = self.events(stored.id, after, PAGE).await?.whole()?;
            let Some(last) = events.last() else { break };
            after = last.event.seq;
            for mut event in events.into_iter().map(|stored| stored.event) {
                if event.at > at {
                    break 'log;
                }
                if event.fact.is_unknown() {
                    let why = format!("event {} of {} is a `{}`", event.seq, stored.id, event.fact.kind());
                    return Err(Error::Newer(why));
                }
                match &mut past {
                    Some(work) => fold::apply(work, &event),
                    None => past = fold::born(&event),
                }
                evidence.append(&mut event.evidence);
                event.payload = None;
                if event.to.is_waiting() || waiting.last().is_some_and(|last| last.to.is_waiting()) {
                    waiting.push(event);
                } else {
                    // An early answer comes before the wait that it is for.
                    waiting.retain(is_early_answer);
                    if is_early_answer(&event) {
                        waiting.push(event);
                    }
                }
            }
        }
        let Some(work) = past else { return Ok(None) };
        let waits = self.waits_at(&work, &waiting).await?;
        Ok(Some(PastWork { work, waits, evidence: latest(evidence) }))
    }

    /// The waits that were open after these events.
    async fn waits_at(&self, work: &Work, events: &[Event]) -> Result<Vec<Wait>, Error> {
        if work.open_waits == 0 {
            return Ok(Vec::new());
        }
        let open = refold::open_waits(events);
        let mut filter = WaitFilter { work: Some(work.id), ..WaitFilter::default() };
        let mut waits = Vec::new();
        loop {
            let page = self.waits(&filter, PAGE_MAX).await?;
            filter.after = page.next().copied();
            for mut wait in page.whole()? {
                let Some(deadline_at) = open.get(&wait.id) else { continue };
                wait.state = WaitState::Open;
                wait.deadline_at = *deadline_at;
                (wait.ended_at, wait.answer_seq) = (None, None);
                wait.detail.answered_by = None;
                waits.push(wait);
            }
            if filter.after.is_none() {
                return Ok(waits);
            }
        }
    }

    async fn list_past(
        &self,
        filter: &WorkFilter,
        at: Millis,
        mut before: Option<WorkId>,
        limit: usize,
    ) -> Result<PastPage, Error> {
        let pruned_since = self.prunings(1).await?.first().is_some_and(|pruning| pruning.at >= at);
        let mut found = PastPage { pruned_since, ..PastPage::default() };
        // Of these, the row has the present value.
        let lasting = WorkFilter {
            states: Vec::new(),
            phase: None,
            owner: None,
            created_before: Some(filter.created_before.map_or(at + 1, |before| before.min(at + 1))),
            ..filter.clone()
        };
        let (until, mut scanned) = (Instant::now() + SCAN_WITHIN, 0);
        while scanned < SCAN {
            let page = self.list(&lasting, before, PAGE.min(SCAN - scanned)).await?;
            scanned += page.count();
            found.unreadable.extend(page.unreadable.iter().cloned());
            let next = page.next().copied();
            for row in &page.rows {
                // Unchanged since: it is in the state that it was in.
                if row.updated_at <= at && !filter.matches(row) {
                    continue;
                }
                match self.past(row, at).await {
                    Ok(Some(past)) if filter.matches(&past.work) => found.works.push(past),
                    Ok(_) => {}
                    Err(error) if error.is_of_stored() => {
                        let (work, newer) = (Some(row.id), matches!(error, Error::Newer(_)));
                        let id = row.id.to_string();
                        found.unreadable.push(Unreadable { id, work, why: error.to_string(), newer });
                    }
                    Err(error) => return Err(error),
                }
                if found.works.len() >= limit || Instant::now() >= until {
                    found.next = Some(row.id);
                    return Ok(found);
                }
            }
            before = next;
            if before.is_none() {
                return Ok(found);
            }
        }
        found.next = before;
        Ok(found)
    }
}

fn is_early_answer(event: &Event) -> bool {
    matches!(&event.fact, tenure_core::Fact::WaitResolved(resolved) if resolved.early)
}

/// The last ones, without duplicates.
fn latest(evidence: Vec<Evidence>) -> Vec<Evidence> {
    let mut seen = HashSet::new();
    let mut last: Vec<Evidence> =
        evidence.into_iter().rev().filter(|link| seen.insert(link.clone())).take(limits::EVIDENCE).collect();
    last.reverse();
    last
}
