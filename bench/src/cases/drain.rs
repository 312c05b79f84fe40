//! Workers that empty a queue: claim, close out, claim again.

use std::time::{Duration, Instant};

use crate::{Result, stats::Rate, subject::Subject};

const KIND: &str = "drained";

/// Work items per second with which a queue is filled before the first slice has measured the rate.
const GUESS: f64 = 10_000.0;

pub struct Drain {
    subject: Subject,
    queued: usize,
    fastest: f64,
}

impl Drain {
    pub fn new(subject: Subject) -> Drain {
        Drain { subject, queued: 0, fastest: GUESS }
    }

    /// Each worker claims `claim` items at a time and closes out each in a write of its own.
    pub async fn run(&mut self, workers: usize, claim: usize, slice: Duration) -> Result<Rate> {
        self.top_up(workers * claim, slice).await?;
        let began = Instant::now();
        let tasks: Vec<_> =
            (0..workers).map(|_| tokio::spawn(worker(self.subject.clone(), claim, began, slice))).collect();
        let mut drained = 0;
        for task in tasks {
            drained += task.await??;
        }
        let rate = Rate { count: drained as u64, elapsed: began.elapsed() };
        self.queued -= drained;
        self.fastest = self.fastest.max(rate.per_s());
        Ok(rate)
    }

    /// Fills the queue, outside of the timed part, so that it outlasts the slice.
    async fn top_up(&mut self, at_hand: usize, slice: Duration) -> Result<()> {
        let wanted = (1.5 * self.fastest * slice.as_secs_f64()) as usize + 2 * at_hand;
        let missing = wanted.saturating_sub(self.queued);
        self.subject.fill(KIND, missing).await?;
        self.queued += missing;
        Ok(())
    }
}

async fn worker(subject: Subject, claim: usize, began: Instant, slice: Duration) -> Result<usize> {
    let mut drained = 0;
    while began.elapsed() < slice {
        let claimed = subject.claim(KIND, claim, None).await?;
        if claimed.is_empty() {
            break;
        }
        subject.close_out_all(&claimed).await?;
        drained += claimed.len();
    }
    Ok(drained)
}
