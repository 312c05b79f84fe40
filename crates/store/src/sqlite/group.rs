//! One group in one transaction: load, decide one action after another, save, serve claims, commit.

use std::sync::Arc;

use tenure_core::{
    Millis, Reply, Submission, Work, WorkId,
    action::{Action, ClaimFilter, Claimant},
    claimable, in_turns,
    records::SessionView,
};

use super::{
    checkpoint,
    claim::{Queues, Wish},
    fault::Fault,
    loss,
    row::Read,
    tables::Tables,
};
use crate::{
    Clock, Error,
    batch::Batch,
    job::{Job, Payloads, left, wanted},
    ledger::LedgerReply,
    speed::Remembered,
};

pub(super) type JobResult = Result<LedgerReply, Error>;

/// Why a group was not committed.
pub(super) enum Failure {
    /// Nothing was committed.
    Before(Fault),
    /// Whether it was committed is unknown.
    AtCommit(Fault),
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        Failure::Before(fault)
    }
}

/// The result of a claim by filter.
pub(super) enum Claimed {
    JobResult(JobResult),
    /// There is no work item for it now; it may wait.
    Nothing(JobResult),
}

/// The replies of a committed group, in the order of its jobs.
pub(super) struct Committed {
    pub submitted: Vec<JobResult>,
    /// None: the parked claim continues to wait.
    pub parked: Vec<Option<JobResult>>,
    pub claims: Vec<Claimed>,
    /// Its batches, which are freed when no caller waits for it.
    pub spent: [Batch; 2],
}

/// The jobs of a group. Claims by filter are decided after everything else.
pub(super) struct Group<'j> {
    pub submits: &'j [Box<Job>],
    /// Claims that wait since an earlier group, oldest first.
    pub parked: &'j [Box<Job>],
    pub claims: &'j [Box<Job>],
    /// Whether parked claims search the whole queue, because another process may have filled it.
    pub look: bool,
}

impl Group<'_> {
    /// Runs the group. After a failure it has been rolled back.
    pub fn run(&self, tables: &mut Tables<'_>, clock: &dyn Clock) -> Result<Committed, Failure> {
        if let Err(fault) = tables.begin() {
            tables.undo();
            return Err(Failure::Before(fault));
        }
        let decided = self.decide(tables, clock.wall());
        let answers = match decided {
            Ok(answers) => answers,
            Err(fault) => {
                tables.undo();
                return Err(Failure::Before(fault));
            }
        };
        match tables.hot.commit.raw_execute() {
            Ok(_) => {
                tables.mark_in_file();
                Ok(answers)
            }
            Err(error) => {
                tables.undo();
                Err(Failure::AtCommit(error.into()))
            }
        }
    }

    fn decide(&self, tables: &mut Tables<'_>, now: Millis) -> Read<Committed> {
        let mut batch = Batch::under(&tables.ledger_settings);
        tables.gather(self.submits.iter().map(|job| &job.submission), &mut batch.records)?;
        let submitted: Vec<Result<Reply, Error>> =
            self.submits.iter().map(|job| batch.decide(&job.submission, now)).collect();
        let mut parked = self.offer(tables, &mut batch, now)?;
        let new_heads = tables.save(&batch)?;
        let concerned = |job: &Job| self.look || new_heads.iter().any(|head| job.asks_for(head));
        tables.remember(&mut batch);

        let mut claiming = Claiming { now, batch: Batch::default(), queues: Queues::default() };
        for (job, answer) in self.parked.iter().zip(&mut parked) {
            if answer.is_none() && concerned(job) {
                let (reply, waits) = claiming.claim(tables, job)?;
                *answer = (!waits).then_some(reply);
            }
        }
        let mut claims = Vec::with_capacity(self.claims.len());
        for job in self.claims {
            claims.push(claiming.claim(tables, job)?);
        }
        tables.save(&claiming.batch)?;
        tables.remember(&mut claiming.batch);
        let tried = std::mem::take(&mut batch.tried);

        let claims = claims.into_iter().map(|(reply, waits)| {
            let answer = tables.outcome(reply, &tried)?;
            Ok(if waits { Claimed::Nothing(answer) } else { Claimed::JobResult(answer) })
        });
        let claims = claims.collect::<Read<_>>()?;
        let parked =
            parked.into_iter().map(|reply| reply.map(|reply| tables.outcome(reply, &tried)).transpose());
        let parked = parked.collect::<Read<_>>()?;
        let submitted =
            submitted.into_iter().map(|reply| tables.outcome(reply, &tried)).collect::<Read<_>>()?;
        Ok(Committed { submitted, parked, claims, spent: [batch, claiming.batch] })
    }

    /// Offers the work items that became claimable in this group to the parked claims, before they are written to the
    /// queue.
    fn offer(
        &self,
        tables: &mut Tables<'_>,
        batch: &mut Batch,
        now: Millis,
    ) -> Read<Vec<Option<Result<Reply, Error>>>> {
        let mut answers: Vec<Option<Result<Reply, Error>>> = self.parked.iter().map(|_| None).collect();
        if self.parked.is_empty() {
            return Ok(answers);
        }
        let mut ready = batch.newly_ready();
        let queues = batch.queues(&ready);
        for (job, answer) in self.parked.iter().zip(&mut answers) {
            if ready.is_empty() {
                break;
            }
            let Some((claimant, filter)) = claim_of(job) else { continue };
            if !queues.iter().any(|spec| job.asks_for(spec)) {
                continue;
            }
            let fits = |work: &&Work| {
                job.asks_for(&work.spec)
                    && claimable(work, &claimant.worker, &job.submission.actor.id, SessionView::default())
                        .is_ok()
            };
            let works = ready.iter().filter_map(|id| batch.records.works.get(id).map(Arc::as_ref));
            let works = in_turns(works.filter(fits).collect(), &job.submission.seed);
            let chosen: Vec<WorkId> = works.into_iter().take(filter.max).map(|work| work.id).collect();
            if chosen.is_empty() || job.abandoned() {
                continue;
            }
            let submission = job.chosen(chosen);
            tables.gather(std::iter::once(&submission), &mut batch.records)?;
            let reply = batch.decide(&submission, now);
            if let Ok(Reply::Claimed(grants)) = &reply {
                ready.retain(|id| !grants.iter().any(|grant| grant.work.id == *id));
            }
            *answer = Some(reply);
        }
        Ok(answers)
    }
}

/// The claims by filter of one group, served in the order of arrival.
struct Claiming {
    now: Millis,
    batch: Batch,
    queues: Queues,
}

impl Claiming {
    /// Decides one claim. The flag: it found nothing and may wait.
    fn claim(&mut self, tables: &mut Tables<'_>, job: &Job) -> Read<(Result<Reply, Error>, bool)> {
        tables.gather(std::iter::once(&job.submission), &mut self.batch.records)?;
        let Some((claimant, filter)) = claim_of(job).filter(|(_, filter)| filter.check().is_ok()) else {
            return Ok((self.batch.decide(&job.submission, self.now), false));
        };
        let key = claimant.key(&job.submission);
        let repeat = self.batch.records.requests.get(&key).is_some_and(|given| !given.is_empty());
        if repeat || claimant.check().is_err() || job.abandoned() {
            return Ok((self.batch.decide(&job.submission, self.now), false));
        }
        let chosen = self.choose(tables, job, claimant, filter)?;
        if chosen.is_empty() {
            return Ok((self.batch.decide(&job.submission, self.now), true));
        }
        Ok((self.batch.decide(&job.chosen(chosen), self.now), false))
    }

    /// The selection is only a hint: the core decides on each selected work item.
    fn choose(
        &mut self,
        tables: &mut Tables<'_>,
        job: &Job,
        claimant: &Claimant,
        filter: &ClaimFilter,
    ) -> Read<Vec<WorkId>> {
        let Submission { tenants, seed, .. } = &job.submission;
        let wish = Wish { filter, tenants, incarnation: &claimant.worker.incarnation, seed };
        let mut chosen = Vec::new();
        while chosen.len() < filter.max {
            let found = self.queues.take(tables, &wish, filter.max - chosen.len())?;
            if found.is_empty() {
                break;
            }
            let submission: Submission = job.chosen(found.clone());
            let gathered = tables.gather(std::iter::once(&submission), &mut self.batch.records);
            let found = match gathered {
                Err(Fault::Data(_)) => self.readable(tables, job, found)?,
                gathered => gathered.map(|()| found)?,
            };
            let may = |work: &Work| {
                let view = work.spec.session_key().and_then(|key| self.batch.records.sessions.get(&key));
                claimable(work, &claimant.worker, &job.submission.actor.id, view.copied().unwrap_or_default())
            };
            for id in found {
                match self.batch.records.works.get(&id).map(|work| may(work)) {
                    Some(Ok(())) => chosen.push(id),
                    // Two workers may use the same incarnation name, and bound work items are queued under that name.
                    Some(Err(refusal)) => tracing::debug!(work = %id, %refusal, "queued, yet not claimable"),
                    None => tracing::warn!(work = %id, "queued, yet not there"),
                }
            }
        }
        Ok(chosen)
    }

    /// The readable work items of a selection. A damaged one does not stop the others.
    fn readable(&mut self, tables: &mut Tables<'_>, job: &Job, ids: Vec<WorkId>) -> Read<Vec<WorkId>> {
        let mut readable = Vec::with_capacity(ids.len());
        for id in ids {
            match tables.gather(std::iter::once(&job.chosen(vec![id])), &mut self.batch.records) {
                Ok(()) => readable.push(id),
                Err(Fault::Data(error)) => tracing::warn!(work = %id, %error, "queued, yet unreadable"),
                Err(fault) => return Err(fault),
            }
        }
        Ok(readable)
    }
}

fn claim_of(job: &Job) -> Option<(&Claimant, &ClaimFilter)> {
    let filter = job.claim_filter()?;
    match &job.submission.action {
        Action::Claim(claim) => Some((&claim.claimant, filter)),
        _ => None,
    }
}

impl Tables<'_> {
    /// A reply with the payloads that it contains.
    fn outcome(&mut self, reply: Result<Reply, Error>, tried: &Payloads) -> Read<JobResult> {
        let reply = match reply {
            Ok(reply) => reply,
            Err(error) => return Ok(Err(error)),
        };
        let mut payloads = Payloads::new();
        for (work, seq) in wanted(&reply) {
            if let Some(payload) = self.payload(work, seq)?.or_else(|| tried.get(&(work, seq)).cloned()) {
                payloads.insert((work, seq), payload);
            }
        }
        if !tried.is_empty() {
            let left = left(&reply).into_iter();
            payloads.extend(left.filter_map(|key| Some((key, tried.get(&key)?.clone()))));
        }
        Ok(Ok(LedgerReply { reply, payloads }))
    }

    /// Waits for the write lock, then checks whether another process has written since the last group.
    fn begin(&mut self) -> Read<()> {
        self.places.clear();
        self.hot.begin.raw_execute()?;
        let version = self.version()?;
        if version != self.seen {
            self.seen = version;
            self.works.clear();
            // Another process that closed the file meanwhile may have removed the mark.
            self.marked = loss::mark(self.conn)?;
        }
        Ok(())
    }

    /// Moves a mark that this group has set from the WAL into the file, before the first reply. If the WAL were lost,
    /// the mark would be lost with it. If a reader prevents this, the next checkpoint does it.
    fn mark_in_file(&mut self) {
        if std::mem::take(&mut self.marked)
            && let Err(error) = checkpoint::passive(self.conn)
        {
            tracing::warn!(%error, "that the file is in use is not in the file yet");
        }
    }

    /// Caches the work items of a saved batch for the next one. A wake-up changes rows that the batch has not loaded.
    fn remember(&mut self, batch: &mut Batch) {
        if !batch.writes.wakes.is_empty() {
            self.works.clear();
            return;
        }
        for (id, remembered) in Remembered::all(&mut batch.records) {
            if let Some(place) = self.places.get(&id) {
                self.works.put(id, remembered.work.state, (*place, remembered));
            }
        }
    }

    /// Rolls a group back. SQLite has often done so already.
    fn undo(&mut self) {
        self.works.clear();
        // The rollback also undoes the group's mark, and its check for other processes is repeated.
        (self.seen, self.marked) = (0, false);
        if !self.conn.is_autocommit()
            && let Err(error) = self.conn.execute_batch("ROLLBACK")
        {
            tracing::error!(%error, "rollback failed");
        }
    }
}
