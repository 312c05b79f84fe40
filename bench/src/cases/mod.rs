//! The cases that use the ledger. They use its public calls and know nothing of its tables.

pub mod bytes;
pub mod drain;
pub mod growth;
pub mod start;
pub mod steady;
pub mod turns;

use std::time::{Duration, Instant};

use crate::{Result, stats::Rate};

/// Runs this many submitters, each with one call at a time, until the slice is over. A call gets its
/// submitter's number and its own.
pub async fn at_once<C, F>(submitters: usize, slice: Duration, call: C) -> Result<Rate>
where
    C: Fn(usize, usize) -> F + Clone + Send + 'static,
    F: Future<Output = Result<()>> + Send,
{
    let began = Instant::now();
    at_once_until(submitters, move |submitter, number| {
        let call = (began.elapsed() < slice).then(|| call(submitter, number));
        async move {
            match call {
                Some(call) => call.await.map(|()| true),
                None => Ok(false),
            }
        }
    })
    .await
}

/// Like [`at_once`], but each submitter continues until one of its calls reports that nothing is left.
pub async fn at_once_until<C, F>(submitters: usize, call: C) -> Result<Rate>
where
    C: Fn(usize, usize) -> F + Clone + Send + 'static,
    F: Future<Output = Result<bool>> + Send,
{
    let began = Instant::now();
    let one = async |submitter: usize, call: C| {
        let mut number = 0;
        while call(submitter, number).await? {
            number += 1;
        }
        Result::Ok(number as u64)
    };
    let tasks: Vec<_> = (0..submitters).map(|submitter| tokio::spawn(one(submitter, call.clone()))).collect();
    let mut count = 0;
    for task in tasks {
        count += task.await??;
    }
    Ok(Rate { count, elapsed: began.elapsed() })
}

#[cfg(test)]
mod tests {
    use tenure_store::{Ledger, Options};

    use super::*;
    use crate::subject::Subject;

    const SLICE: Duration = Duration::from_millis(30);

    async fn subject() -> Subject {
        Subject::new(Ledger::open_memory(Options::default()).await.unwrap()).unwrap()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn every_case_gets_something_done() {
        let subject = subject().await;
        let steady = steady::Steady::new(subject.clone(), 64).await.unwrap();
        for submitters in [1, 16, 64] {
            assert!(steady.transition(submitters, SLICE).await.unwrap().count > 0);
            assert!(steady.renew(submitters, SLICE).await.unwrap().count > 0);
            assert!(steady::ingest(&subject, submitters, SLICE).await.unwrap().count > 0);
        }
        let mut drain = drain::Drain::new(subject.clone());
        for claim in [1, 10] {
            assert!(drain.run(3, claim, SLICE).await.unwrap().count > 0);
        }
        assert!(!start::run(&subject, 2 * SLICE).await.unwrap().is_empty());
        subject.close().await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_failed_call_fails_the_case() {
        let subject = subject().await;
        subject.close().await.unwrap();
        assert!(
            at_once(2, SLICE, move |_, _| {
                let subject = subject.clone();
                async move { subject.ingest("refused").await }
            })
            .await
            .is_err()
        );
    }
}
