//! A writing lane: a task with its own connection that takes queued jobs and commits them as a group.

use std::{sync::Arc, time::Instant};

use super::{
    Shared,
    connection::PgConnection,
    fault::Fault,
    group::{self, Decided},
    load::Lessons,
};
use crate::{Error, job::Job, writing::Cure};

/// The maximum number of submissions in one group.
const GROUP: usize = 1_024;
/// How often a group is tried before its callers are told to retry.
const TRIES: usize = 12;

/// Runs until the queue is closed and empty.
pub(super) async fn run(shared: Arc<Shared>) {
    let mut lane = LaneConnection::new(shared.clone());
    while let Some(jobs) = shared.writes.take(GROUP).await {
        let _busy = Busy { shared: &shared, jobs: jobs.len() };
        lane.serve(jobs).await;
        // Lets the callers that just received their replies send the next requests first.
        tokio::task::yield_now().await;
    }
}

/// The jobs that a lane is working on, until it is done or dropped.
struct Busy<'a> {
    shared: &'a Shared,
    jobs: usize,
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.shared.writes.done(self.jobs);
    }
}

/// A lane's connection, opened on demand and reopened after it was lost.
pub(super) struct LaneConnection {
    pub shared: Arc<Shared>,
    session: Option<PgConnection>,
}

impl LaneConnection {
    pub fn new(shared: Arc<Shared>) -> Self {
        Self { shared, session: None }
    }

    /// A connection that is not known to be broken.
    pub async fn session(&mut self) -> Result<&PgConnection, Error> {
        if let Some(stop) = self.shared.writing.stopped() {
            return Err(Error::Stopped(stop.why));
        }
        let connector = &self.shared.connector;
        if self.session.as_ref().is_none_or(|session| !connector.is_usable(session)) {
            self.session = None;
            let session = connector.lane(&self.shared.fences).await?;
            self.shared.counters.server_changes(connector.servers().changes().into());
            return Ok(self.session.insert(session));
        }
        self.session.as_ref().ok_or_else(|| Error::Unavailable("no connection".to_owned()))
    }

    /// After a fault: ends the transaction, or drops the connection.
    pub async fn clean(&mut self, fault: &Fault) {
        if let Fault::Full(text) = fault {
            self.shared.writing.stop(text, Cure::NextWrite);
        }
        let keep = matches!(fault, Fault::Again(_) | Fault::Data(_) | Fault::Full(_));
        let session = self.session.take();
        if let (Some(session), true) = (session, keep)
            && session.within(session.client.batch_execute("ROLLBACK")).await.is_ok()
        {
            self.session = Some(session);
        }
    }

    async fn serve(&mut self, jobs: Vec<Job>) {
        let most = jobs.iter().filter(|job| group::ingest(&job.submission).is_some()).count();
        let parked = if most == 0 || self.shared.parked.is_empty() {
            Vec::new()
        } else {
            self.shared.parked.take(most, group::fitting(&jobs))
        };
        match self.attempt(&jobs, &parked).await {
            Ok(decided) => self.answer(jobs, parked, decided),
            Err(fault) => {
                self.put_back(parked);
                // One bad job fails alone.
                if matches!(fault, Fault::Data(_) | Fault::Again(_)) && jobs.len() > 1 {
                    return self.replay(jobs).await;
                }
                fail(jobs, &fault);
            }
        }
    }

    async fn replay(&mut self, jobs: Vec<Job>) {
        for job in jobs {
            let one = vec![job];
            match self.attempt(&one, &[]).await {
                Ok(decided) => self.answer(one, Vec::new(), decided),
                Err(fault) => fail(one, &fault),
            }
        }
    }

    /// Tries a group until it is decided, or until another attempt cannot help.
    async fn attempt(&mut self, jobs: &[Job], parked: &[Job]) -> Result<Decided, Fault> {
        let mut lessons = Lessons { identities: group::looked_up(jobs), ..Lessons::default() };
        let mut tries = 0;
        loop {
            tries += 1;
            let shared = self.shared.clone();
            let session = self.session().await?;
            let began = Instant::now();
            let ran = async {
                shared.time.settle(session).await?;
                group::run(&shared, session, jobs, parked, &mut lessons).await
            };
            let fault = match ran.await {
                Ok(decided) => {
                    shared.counters.committed(jobs.len(), began.elapsed());
                    shared.writing.committed();
                    return Ok(decided);
                }
                Err(fault) => fault,
            };
            self.clean(&fault).await;
            if !matches!(fault, Fault::Again(_)) || tries == TRIES {
                return Err(fault);
            }
        }
    }

    /// Returns claims to the parked ones. Their deadlines may have passed meanwhile.
    fn put_back(&self, parked: Vec<Job>) {
        if !parked.is_empty() {
            self.shared.parked.put_back(parked);
            self.shared.claims.nudge();
        }
    }

    fn answer(&self, jobs: Vec<Job>, parked: Vec<Job>, decided: Decided) {
        for (job, answer) in jobs.into_iter().zip(decided.answers) {
            job.answer(answer);
        }
        let mut left = Vec::new();
        for (job, served) in parked.into_iter().zip(decided.served) {
            match served {
                Some(outcome) => job.answer(Ok(outcome)),
                None => left.push(job),
            }
        }
        self.put_back(left);
        if decided.news {
            self.shared.ready_grew();
        }
    }
}

fn fail(jobs: Vec<Job>, fault: &Fault) {
    jobs.into_iter().for_each(|job| job.answer(Err(fault.error())));
}
