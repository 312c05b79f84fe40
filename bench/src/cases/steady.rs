//! Submitters that repeat one verb: transitions and renewals of works that are held, ingests of new ones.

use std::{sync::Arc, time::Duration};

use tenure_store::LeaseRef;

use super::at_once;
use crate::{Result, stats::Rate, subject::Subject};

/// A ledger with works that are held for the whole run.
pub struct Steady {
    subject: Subject,
    held: Arc<Vec<LeaseRef>>,
}

impl Steady {
    pub async fn new(subject: Subject, rows: usize) -> Result<Steady> {
        let held = Arc::new(subject.hold("steady", rows).await?);
        Ok(Steady { subject, held })
    }

    pub async fn transition(&self, submitters: usize, slice: Duration) -> Result<Rate> {
        let (subject, held) = (self.subject.clone(), self.held.clone());
        at_once(submitters, slice, move |submitter, number| {
            let (subject, held) = (subject.clone(), held.clone());
            async move { subject.progress(own(&held, submitters, submitter, number), number).await }
        })
        .await
    }

    pub async fn renew(&self, submitters: usize, slice: Duration) -> Result<Rate> {
        let (subject, held) = (self.subject.clone(), self.held.clone());
        at_once(submitters, slice, move |submitter, number| {
            let (subject, held) = (subject.clone(), held.clone());
            async move { subject.renew(own(&held, submitters, submitter, number)).await }
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

/// The next of a submitter's own works. They lie interleaved, so that a group of calls touches neighbours,
/// as raw does.
fn own(held: &[LeaseRef], submitters: usize, submitter: usize, number: usize) -> &LeaseRef {
    let each = held.len() / submitters;
    &held[number % each * submitters + submitter]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_submitters_share_a_work() {
        let held: Vec<LeaseRef> = (0..12)
            .map(|n| LeaseRef {
                work: tenure_core::WorkId(uuid::Uuid::from_u128(n)),
                fence: 1,
                token: String::new(),
            })
            .collect();
        let mut seen = std::collections::HashMap::new();
        for submitter in 0..5 {
            for number in 0..20 {
                let work = own(&held, 5, submitter, number).work;
                assert_eq!(*seen.entry(work).or_insert(submitter), submitter);
            }
        }
        assert_eq!(seen.len(), 10);
    }
}
