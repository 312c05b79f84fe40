//! Submitters that repeat one verb: transitions and renewals of held work items, or ingests of new ones.

use std::time::Duration;

use super::{at_once, turns::Turns};
use crate::{Result, stats::Rate, subject::Subject};

/// A ledger with work items that are held for the whole run.
pub struct Steady {
    subject: Subject,
    turns: Turns,
}

impl Steady {
    pub async fn new(subject: Subject, rows: usize) -> Result<Steady> {
        let turns = Turns::new(subject.hold("steady", rows).await?);
        Ok(Steady { subject, turns })
    }

    pub async fn transition(&self, submitters: usize, slice: Duration) -> Result<Rate> {
        let (subject, turns) = (self.subject.clone(), self.turns.clone());
        at_once(submitters, slice, move |_, number| {
            let (subject, turns) = (subject.clone(), turns.clone());
            async move { subject.progress(turns.next(), number).await }
        })
        .await
    }

    pub async fn renew(&self, submitters: usize, slice: Duration) -> Result<Rate> {
        let (subject, turns) = (self.subject.clone(), self.turns.clone());
        at_once(submitters, slice, move |_, _| {
            let (subject, turns) = (subject.clone(), turns.clone());
            async move { subject.renew(turns.next()).await }
        })
        .await
    }

    pub async fn close(&self) -> Result<()> {
        self.subject.close().await
    }
}

pub async fn ingest(subject: &Subject, submitters: usize, slice: Duration) -> Result<Rate> {
    let subject = subject.clone();
    at_once(submitters, slice, move |_, _| {
        let subject = subject.clone();
        async move { subject.ingest("ingested").await }
    })
    .await
}
