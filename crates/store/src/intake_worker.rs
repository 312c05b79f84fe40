//! The intake worker: makes committed rows of `tenure_intake` work items, through the ingest that every caller uses.
//!
//! Any number may run on one ledger. A row is submitted first and deleted afterwards, so a worker that stops in between leaves
//! a row whose ingest is repeated and returns the same work item. Each worker submits a source's rows one after another, so
//! no work item is made before those of the rows that come before it. The sources take turns.

use std::collections::VecDeque;

use tenure_core::{Action, Actor, Refusal, Reply, Retryable, Submission, action::Tenants};
use tokio::task::JoinSet;

use crate::{
    Error, Ledger,
    intake_table::{IntakeRow, IntakeSource},
    ledger::{WeakLedger, seed},
    schema::shortened,
};

/// Rows a page, and pages after which a look ends with its round.
const PAGE: usize = 64;
const PAGES: usize = 20;

/// The result of one look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IntakeLook {
    /// Rows that are work items now.
    pub ingested: usize,
    /// Rows that were set aside with a reason.
    pub rejected: usize,
    /// Rows that wait for their tenant: its intake is paused, or its quota is used up.
    pub held_back: usize,
    /// There may be more rows to take at once.
    pub more: bool,
}

/// The intake worker of one process.
#[derive(Debug, Default)]
pub struct IntakeWorker;

impl IntakeWorker {
    /// Runs until the ledger is closed, or nobody has it any more.
    pub(crate) async fn run(self, ledger: WeakLedger) {
        loop {
            let Some(open) = ledger.upgrade() else { return };
            let closed = open.closed();
            let store = open.shared_store();
            let look = self.run_once(&open).await;
            drop(open);
            match look {
                Ok(look) if look.more => continue,
                Ok(_) => {}
                Err(error) => tracing::warn!(%error, "the intake table could not be read; trying again"),
            }
            tokio::select! {
                () = store.intake_hint() => {}
                () = closed => return,
            }
        }
    }

    /// One look: takes a bounded number of the rows that are there.
    pub async fn run_once(&self, ledger: &Ledger) -> Result<IntakeLook, Error> {
        let mut look = IntakeLook::default();
        let paused = ledger.pauses();
        if paused.iter().any(|pause| pause.tenant.is_none()) {
            return Ok(look);
        }
        let mut except: Vec<String> = paused.iter().filter_map(|pause| pause.tenant.clone()).collect();
        let mut pages = 0;
        loop {
            // A round: each source has its turn once, however many rows the others have.
            let (mut after, mut settled, mut full) = (None, 0, false);
            loop {
                let sources = by_source(ledger.store().intake_rows(&except, after.as_ref(), PAGE).await?);
                let Some(last) = sources.last().map(|rows| source_of(&rows[0])) else { break };
                let share = (PAGE / sources.len()).max(1);
                full |= sources.iter().any(|rows| rows.len() == share);
                // A name that is not UTF-8 may sort before itself.
                let more = sources.len() == PAGE && after.as_ref() != Some(&last);
                settled += page(ledger, sources, &mut except, &mut look).await?;
                pages += 1;
                if !more {
                    break;
                }
                after = Some(last);
            }
            look.more = full && settled > 0;
            if !look.more || pages >= PAGES {
                return Ok(look);
            }
        }
    }
}

/// Takes these rows, the sources at the same time. Returns how many left the set of waiting rows.
async fn page(
    ledger: &Ledger,
    rows: Vec<VecDeque<IntakeRow>>,
    except: &mut Vec<String>,
    look: &mut IntakeLook,
) -> Result<usize, Error> {
    let mut sources = JoinSet::new();
    for rows in rows {
        sources.spawn(one_source(ledger.clone(), rows));
    }
    let (mut done, mut rejected, mut failed) = (Vec::new(), Vec::new(), None);
    // One that panicked left its rows where they are; the log has its words.
    while let Some(result) = sources.join_next().await {
        let Ok(mut result) = result else { continue };
        done.append(&mut result.done);
        rejected.append(&mut result.rejected);
        look.held_back += result.held_back;
        except.extend(result.blocked);
        failed = failed.or(result.failed);
    }
    if !done.is_empty() || !rejected.is_empty() {
        let now = ledger.now().await?;
        ledger.store().settle_intake_rows(&done, &rejected, now).await?;
    }
    look.ingested += done.len();
    look.rejected += rejected.len();
    failed.map_or(Ok(done.len() + rejected.len()), Err)
}

fn source_of(row: &IntakeRow) -> IntakeSource {
    (row.tenant.clone(), row.source_system.clone())
}

/// The rows of each source, in their order.
fn by_source(rows: Vec<IntakeRow>) -> Vec<VecDeque<IntakeRow>> {
    let mut sources: Vec<VecDeque<IntakeRow>> = Vec::new();
    for row in rows {
        let same = |rows: &&mut VecDeque<IntakeRow>| {
            let first = &rows[0];
            (&first.tenant, &first.source_system) == (&row.tenant, &row.source_system)
        };
        match sources.iter_mut().find(same) {
            Some(rows) => rows.push_back(row),
            None => sources.push(VecDeque::from([row])),
        }
    }
    sources
}

#[derive(Default)]
struct SourceResult {
    done: Vec<i64>,
    rejected: Vec<(i64, String)>,
    held_back: usize,
    /// The tenant that can have no more now.
    blocked: Option<String>,
    failed: Option<Error>,
}

async fn one_source(ledger: Ledger, mut rows: VecDeque<IntakeRow>) -> SourceResult {
    let mut result = SourceResult::default();
    while let Some(row) = rows.pop_front() {
        let (id, tenant) = (row.id, row.tenant.clone());
        match ingest(&ledger, row).await {
            Ok(Ok(())) => result.done.push(id),
            Ok(Err(reason)) => {
                tracing::warn!(id, reason, "a row of tenure_intake was rejected");
                result.rejected.push((id, shortened(reason)));
            }
            Err(Error::Refused(_)) => {
                result.held_back = rows.len() + 1;
                result.blocked = Some(tenant);
                break;
            }
            Err(error) => {
                result.failed = Some(error);
                break;
            }
        }
    }
    result
}

/// The inner error is the reason for which a row is set aside. A refusal that ends by itself, such as a pause or a quota, and
/// a database that cannot be reached leave the row where it is.
async fn ingest(ledger: &Ledger, row: IntakeRow) -> Result<Result<(), String>, Error> {
    let tenant = row.tenant.clone();
    let told = |refusal: &Refusal| format!("{}: {}", refusal.code.as_str(), refusal.detail);
    let new = match row.new_work() {
        Ok(new) => new,
        Err(reason) => return Ok(Err(reason)),
    };
    let ingest = match new.settle(&ledger.settings()) {
        Ok(ingest) => ingest,
        Err(refusal) => return Ok(Err(told(&refusal))),
    };
    let urgency = ledger.settings().quota().urgency(ingest.priority);
    let action = Action::Ingest(Box::new(ingest));
    let mut submission =
        Submission::new(Actor::system("intake"), Tenants::Only(vec![tenant]), action, seed()?);
    submission.no_room = urgency.err();
    let reply = match ledger.begin(submission, None).await {
        Ok(reply) => reply.await,
        Err(error) => Err(error),
    };
    match reply.map(|outcome| outcome.reply) {
        Ok(Reply::Ingested { .. }) => Ok(Ok(())),
        Ok(other) => Err(Error::Corrupt(format!("an ingest was answered with {other:?}"))),
        Err(Error::Refused(refusal)) if refusal.retryable() == Retryable::Yes => Err(refusal.into()),
        Err(Error::Refused(refusal)) => Ok(Err(told(&refusal))),
        Err(error) if error.is_of_stored() => Ok(Err(error.to_string())),
        Err(error) => Err(error),
    }
}
