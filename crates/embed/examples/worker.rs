//! A worker: it handles reviews from an SQLite ledger, keeps a checkpoint, and returns values of its own
//! types.
//!
//!     cargo run -p tenure-embed --example worker

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenure_embed::prelude::*;

#[derive(Serialize, Deserialize)]
struct Review {
    pr: u64,
}

#[derive(Debug, Serialize, Deserialize, PartialEq)]
pub struct Reviewed {
    pub comment: String,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    for reviewed in run("ledger.db").await? {
        println!("{}", reviewed.comment);
    }
    Ok(())
}

pub async fn run(db: &str) -> Result<Vec<Reviewed>, Box<dyn std::error::Error>> {
    let tenure = Tenure::open(db).await?;

    // Recording is idempotent: run the example again, and nothing is done a second time.
    let mut ids = Vec::new();
    for pr in [7, 8, 9] {
        let source = Source::manual(&format!("pr-{pr}"));
        let work = Ingest::typed(source, "review", Disposition::Rerunnable, &Review { pr })?;
        ids.push(tenure.ingest(&work).await?.work.id);
    }

    // A program that runs for long stops on `worker::termination()`; this one, once all are done.
    let mut results = Vec::new();
    let all_done = async {
        for id in &ids {
            results.push(tenure.work_at_end(id, Duration::from_secs(60)).await);
        }
    };
    let options = worker::Options {
        capacity: 2,
        kinds: vec!["review".to_owned()],
        ..worker::Options::new("reviewer-1")
    };
    worker::run(tenure.client(), options, review, all_done).await;
    tenure.close().await?;

    let read = |work: Result<tenure_embed::wire::Work, Error>| {
        Ok(serde_json::from_value(work?.result.unwrap_or_default())?)
    };
    results.into_iter().map(read).collect()
}

async fn review(job: Job) -> Result<Reviewed, Outcome> {
    let review: Review = job.input()?;
    // A checkpoint: if this process is lost, the next worker gets the comment and does not write it again.
    let write = || async { Ok::<_, Error>(format!("pull request {} looks right to me", review.pr)) };
    let comment = job.step("write", &review, write).await?;
    Ok(Reviewed { comment })
}
