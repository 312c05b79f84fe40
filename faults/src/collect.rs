//! Reads the whole ledger back over HTTP.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use tenure_api::{
    Client, Error,
    wire::{Command, CommandQuery, Event, EventQuery, Work, WorkQuery},
};

use crate::{
    clients::Load,
    history::Record,
    run::{Effect, Run, Seen},
};

const PAGE: Option<u32> = Some(500);
/// How long the feed may lag behind the rows.
const PATIENCE: Duration = Duration::from_secs(20);

/// Stops the load and returns the complete run.
pub async fn end(mut load: Load, client: &Client) -> Result<Run, String> {
    load.stop().await?;
    let (history, effects) = (load.history.records(), load.effects());
    let mut run = read(client, history, effects).await?;
    run.followed = load.followed(run.log.last().map(Seen::of)).await?;
    Ok(run)
}

/// The current ledger, together with the clients' records.
pub async fn read(client: &Client, history: Vec<Record>, effects: Vec<Effect>) -> Result<Run, String> {
    let failed = |error: Error| format!("the ledger cannot be read back: {error}");
    let works = works(client).await.map_err(failed)?;
    let log = log(client, &works).await.map_err(failed)?;
    let commands = commands(client).await.map_err(failed)?;
    let verified = client.verify().await.map_err(failed)?;
    let faults = verified.faults.iter().map(|fault| format!("{:?}: {}", fault.work, fault.what)).collect();
    Ok(Run { history, works, log, commands, effects, followed: Vec::new(), faults })
}

async fn works(client: &Client) -> Result<Vec<Work>, Error> {
    let (mut all, mut cursor) = (Vec::new(), None);
    loop {
        let query = WorkQuery { cursor, limit: PAGE, ..WorkQuery::default() };
        let page = client.works(&query).await?;
        all.extend(page.items);
        cursor = page.next;
        if cursor.is_none() {
            return Ok(all);
        }
    }
}

async fn commands(client: &Client) -> Result<Vec<Command>, Error> {
    let (mut all, mut cursor) = (Vec::new(), None);
    loop {
        let query = CommandQuery { cursor, limit: PAGE, ..CommandQuery::default() };
        let page = client.commands(&query).await?;
        all.extend(page.items);
        cursor = page.next;
        if cursor.is_none() {
            return Ok(all);
        }
    }
}

/// The feed from its beginning until it has reached every row.
async fn log(client: &Client, works: &[Work]) -> Result<Vec<Event>, Error> {
    let mut missing: HashMap<&str, u64> = works.iter().map(|work| (work.id.as_str(), work.seq)).collect();
    let (mut all, mut after, began) = (Vec::new(), None, Instant::now());
    loop {
        let query = EventQuery { after: after.clone(), limit: PAGE, ..EventQuery::default() };
        let page = client.events(&query).await?;
        for event in &page.items {
            if missing.get(event.work.as_str()).is_some_and(|seq| *seq <= event.seq) {
                missing.remove(event.work.as_str());
            }
        }
        if page.items.is_empty() {
            if missing.is_empty() || began.elapsed() > PATIENCE {
                return Ok(all);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        all.extend(page.items);
        after = Some(page.next);
    }
}
