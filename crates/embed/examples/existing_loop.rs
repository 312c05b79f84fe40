//! A program with a loop of its own: each message is recorded and leased while the program answers it in its
//! own way.
//!
//!     cargo run -p tenure-embed --example existing_loop

use serde::{Deserialize, Serialize};
use tenure_embed::prelude::*;

/// A message from a messenger, which sometimes delivers it twice.
#[derive(Serialize, Deserialize)]
struct Message {
    id: String,
    text: String,
}

#[derive(Serialize)]
struct Reply {
    text: String,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    for line in run("ledger.db").await? {
        println!("{line}");
    }
    Ok(())
}

pub async fn run(db: &str) -> Result<Vec<String>, Box<dyn std::error::Error>> {
    let tenure = Tenure::builder(db).name("telegram-bridge").open().await?;
    // The holder of the leases: created once at each start of the program.
    let holder = tenure.holder("bridge-1");
    let mut said = Vec::new();

    for message in inbox() {
        let source = Source::conversation(&message.id);
        let work = Ingest::typed(source, "chat", Disposition::Rerunnable, &message)?;
        let Recorded { work, leased, .. } = holder.ingest(work).await?;
        let Some(mut leased) = leased else {
            said.push(format!("{}: {} already", message.id, work.state));
            continue;
        };
        // From here on the lease is renewed in the background. A cancel by somebody else ends the answer
        // half-way.
        let answered = tokio::select! {
            reply = answer(&leased, &message) => Some(reply?),
            () = leased.cancelled() => None,
        };
        match answered {
            Some(reply) => leased.succeed(&reply).await.map(drop)?,
            None => leased.finish(Outcome::Stopped).await.map(drop)?,
        }
        said.push(tenure.explain(&work.id).await?.sentence);
    }

    // An earlier run of this program may have left unfinished work.
    while let Some(mut left) = holder.claim(ClaimOptions::default()).await? {
        let message: Message = left.input()?;
        let reply = answer(&left, &message).await?;
        left.succeed(&reply).await?;
    }
    tenure.close().await?;
    Ok(said)
}

async fn answer(leased: &LeasedWork, message: &Message) -> Result<Reply, Error> {
    leased.note("thinking")?;
    let text =
        leased.step("think", message, || async { Ok::<_, Error>(message.text.to_uppercase()) }).await?;
    Ok(Reply { text })
}

fn inbox() -> Vec<Message> {
    let message = |id: &str, text: &str| Message { id: id.to_owned(), text: text.to_owned() };
    vec![message("m-1", "book me a table"), message("m-2", "for two"), message("m-1", "book me a table")]
}
