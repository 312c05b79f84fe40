//! A side effect with an approval: an e-mail is recorded before it is sent, and sent once, after a person has
//! approved it.
//!
//!     cargo run -p tenure-embed --example effect

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::json;
use tenure_embed::{
    prelude::*,
    wire::{ApproveCommand, CommandQuery},
};

/// Which tools need an approval. Undeclared tools are of high risk, too.
const TOOLS: &str = r#"
[tools.send_email]
kind = "message"
risk = "high"
"#;

#[derive(Serialize, Deserialize)]
struct Reminder {
    to: String,
    text: String,
}

#[derive(Debug, Serialize, Deserialize, PartialEq)]
pub struct Sent {
    pub mail: Option<String>,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("{:?}", run("ledger.db").await?);
    Ok(())
}

pub async fn run(db: &str) -> Result<Sent, Box<dyn std::error::Error>> {
    // The program is a machine, and no machine can approve: this is a person's credential, created at the
    // first start.
    let secret = std::env::var("TENURE_TOKEN").unwrap_or_else(|_| "only for this example".to_owned());
    let tenure = Tenure::builder(db).config(TOOLS).admin_token(&secret).open().await?;

    let reminder = Reminder { to: "bob@example.com".to_owned(), text: "tomorrow at ten".to_owned() };
    let work = Ingest::typed(Source::manual("reminder-1"), "reminder", Disposition::Rerunnable, &reminder)?;
    let id = tenure.ingest(&work).await?.work.id;

    let person = tenure.with_token(&secret);
    let done = async {
        approve(&person).await?;
        tenure.work_at_end(&id, Duration::from_secs(60)).await
    };
    let mut ended = None;
    let stop = async { ended = Some(done.await) };
    worker::run(tenure.client(), worker::Options::new("mailer-1"), remind, stop).await;
    tenure.close().await?;
    let work = ended.ok_or("the worker stopped by itself")??;
    Ok(serde_json::from_value(work.result.unwrap_or_default())?)
}

/// The worker's side. It runs twice: the first run waits for the approval, and no worker is occupied
/// meanwhile.
async fn remind(job: Job) -> Result<Sent, Outcome> {
    let Reminder { to, text } = job.input()?;
    let mail = Intent::new("send_email", &to, json!({ "text": text }));
    let sent = job.command(mail, |command| async move {
        // From here on the effect may have happened. `Refused` and `Unsent` are only for effects that
        // certainly did not.
        match post(&command.idempotency_key).await {
            Ok(id) => Ok(Evidence::id(id)),
            Err(why) => Err(Trouble::Unknown(CallFailure::new(ErrorClass::Transport, why))),
        }
    });
    let command = sent.await?.or_end()?;
    Ok(Sent { mail: command.receipt.and_then(|receipt| receipt.external_id) })
}

/// The person's side: looks at the e-mail to be sent, and approves exactly that.
async fn approve(person: &Client) -> Result<(), Error> {
    loop {
        let blocked = CommandQuery { needs_approval: true, ..CommandQuery::default() };
        if let Some(command) = person.commands(&blocked).await?.items.into_iter().next() {
            let approve = ApproveCommand { reason: "he asked for it".to_owned(), seal: command.seal };
            return person.approve_command(&command.id, &approve).await.map(drop);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Simulates a provider with idempotency keys.
async fn post(key: &str) -> Result<String, String> {
    Ok(format!("message with key {key}"))
}
