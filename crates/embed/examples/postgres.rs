//! Two programs on one PostgreSQL database: one records, the other works. They share nothing else.
//!
//!     cargo run -p tenure-embed --example postgres postgres://user@localhost/tenure

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenure_embed::prelude::*;

#[derive(Serialize, Deserialize)]
struct Question {
    text: String,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).ok_or("name the database: postgres://…")?;
    println!("{}", run(&url).await?);
    Ok(())
}

pub async fn run(url: &str) -> Result<String, Box<dyn std::error::Error>> {
    let front = Tenure::builder(url).name("front").open().await?;
    let back = Tenure::builder(url).name("back").open().await?;

    let question = Question { text: "why is the sky blue?".to_owned() };
    let work = Ingest::typed(Source::manual("question-1"), "question", Disposition::Rerunnable, &question)?;
    let id = front.ingest(&work).await?.work.id;

    let answerer = |job: Job| async move {
        let Question { text } = job.input()?;
        Ok::<_, Outcome>(format!("{text} because of the air"))
    };
    let mut ended = None;
    let stop = async { ended = Some(front.work_at_end(&id, Duration::from_secs(60)).await) };
    worker::run(back.client(), worker::Options::new("answerer-1"), answerer, stop).await;

    back.close().await?;
    front.close().await?;
    let result = ended.ok_or("the worker stopped by itself")??.result.unwrap_or_default();
    Ok(serde_json::from_value(result)?)
}
