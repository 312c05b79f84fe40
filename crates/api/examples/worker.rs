//! A worker in one screen: it takes reviews, asks a person before it goes on, and stops when it is asked to.
//!
//!     tenure serve &
//!     cargo run -p tenure-api --example worker
//!     tenure ingest manual pr-7 --kind review --disposition rerunnable --input '{"pr": 7}'

use serde_json::json;
use tenure_api::{
    Client, Error,
    wire::{ErrorClass, Failure, NewWait, WaitKind, WaitReason},
    worker::{self, Job, Options, Outcome},
};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let token = std::fs::read_to_string("tenure.db.token").ok();
    let client = Client::http("http://127.0.0.1:7171", token.as_deref().map(str::trim))?;
    let options = Options { capacity: 4, kinds: vec!["review".to_owned()], ..Options::new("reviewer-1") };
    let report = worker::run(client, options, review, worker::termination()).await;
    println!("drained: {report:?}");
    Ok(())
}

async fn review(job: Job) -> Outcome {
    // A checkpoint: if this worker is lost, the next one finds the draft and does not make it again.
    let draft: Result<_, Error> = job
        .step("draft", job.input().clone(), || async { Ok(json!({ "comment": "looks right to me" })) })
        .await;
    let draft = match draft {
        Ok(draft) => draft,
        Err(error) => return Outcome::Err(Failure::new(ErrorClass::Transport, error.to_string())),
    };
    // A durable pause: no worker is held while a person thinks. `tenure approve ID` answers it.
    let Some(answer) = job.answer("post-it") else {
        let ask = NewWait {
            prompt: Some(format!("Post this? {draft}")),
            ..NewWait::new(WaitKind::Approval, "post-it")
        };
        return Outcome::Wait(vec![ask], WaitReason::default());
    };
    Outcome::Ok(json!({ "posted": answer["approved"], "review": draft }))
}
