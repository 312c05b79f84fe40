//! A worker in one screen: it handles reviews, asks a person before it continues, and drains when it is asked
//! to stop.
//!
//!     tenure serve &
//!     cargo run -p tenure-api --example http_worker
//!     tenure ingest manual pr-7 --kind review --disposition rerunnable --input '{"pr": 7}'

use serde::{Deserialize, Serialize};
use tenure_api::{
    Client, Error,
    wire::{NewWait, WaitKind},
    worker::{self, Job, Options, Outcome},
};

#[derive(Deserialize, Serialize)]
struct Review {
    pr: u64,
}

#[derive(Deserialize)]
struct Decision {
    approved: bool,
}

#[derive(Serialize)]
struct Posted {
    posted: bool,
    comment: String,
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let token = std::fs::read_to_string("tenure.db.token").ok();
    let client = Client::http("http://127.0.0.1:7171", token.as_deref().map(str::trim))?;
    let options = Options { capacity: 4, kinds: vec!["review".to_owned()], ..Options::new("reviewer-1") };
    let report = worker::run(client, options, review, worker::termination()).await;
    println!("drained: {report:?}");
    Ok(())
}

async fn review(job: Job) -> Result<Posted, Outcome> {
    let review: Review = job.input()?;
    // A checkpoint: if this worker is lost, the next one gets the comment and does not write it again.
    let write = || async { Ok::<_, Error>(format!("{} looks right to me", review.pr)) };
    let comment = job.step("write", &review, write).await?;
    // A durable pause: no worker is occupied while the person thinks. `tenure approve ID` answers it.
    let Some(Decision { approved }) = job.answer("post-it")? else {
        let prompt = Some(format!("Post this? {comment}"));
        return Err(Outcome::wait(NewWait { prompt, ..NewWait::new(WaitKind::Approval, "post-it") }));
    };
    Ok(Posted { posted: approved, comment })
}
