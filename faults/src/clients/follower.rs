//! Readers of the feed: one reads pages, one keeps a stream. Both continue from their position after every
//! outage.

use std::time::Duration;

use tenure_api::{Client, client::Streamed, wire::EventQuery};
use tokio::sync::watch;

use super::PAUSE;
use crate::run::Seen;

type Goal = watch::Receiver<Option<Seen>>;

/// How long a reader looks for the last event after the load has ended.
const PATIENCE: Duration = Duration::from_secs(20);
const PAGE: Option<u32> = Some(100);

pub async fn pages(client: Client, goal: Goal) -> Vec<Seen> {
    let (mut seen, mut after) = (Vec::new(), None);
    let reading = async {
        loop {
            let query = EventQuery { after: after.clone(), limit: PAGE, ..EventQuery::default() };
            match client.events(&query).await {
                Ok(page) if !page.items.is_empty() => {
                    seen.extend(page.items.iter().map(Seen::of));
                    after = Some(page.next);
                }
                _ => {
                    if goal.borrow().as_ref().is_some_and(|last| seen.contains(last)) {
                        return;
                    }
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    };
    tokio::select! {
        () = reading => {}
        () = overdue(goal.clone()) => {}
    }
    seen
}

pub async fn stream(client: Client, mut goal: Goal) -> Vec<Seen> {
    let mut seen = Vec::new();
    // From the first event rather than from now.
    let after = loop {
        match client.events(&EventQuery { limit: PAGE, ..EventQuery::default() }).await {
            Ok(page) if !page.items.is_empty() => {
                seen.extend(page.items.iter().map(Seen::of));
                break page.next;
            }
            _ if goal.borrow().is_some() => return seen,
            _ => tokio::time::sleep(PAUSE).await,
        }
    };
    let mut stream = client.stream(EventQuery { after: Some(after), ..EventQuery::default() });
    let overdue = overdue(goal.clone());
    tokio::pin!(overdue);
    while !goal.borrow().as_ref().is_some_and(|last| seen.contains(last)) {
        tokio::select! {
            next = stream.next() => match next {
                Ok(Streamed::Event(event)) => seen.push(Seen::of(&event)),
                Ok(_) => {}
                Err(_) => tokio::time::sleep(PAUSE).await,
            },
            // Then it checks again whether it has seen everything.
            _ = goal.changed() => {}
            () = &mut overdue => break,
        }
    }
    seen
}

/// Ends some time after the goal is known.
async fn overdue(mut goal: Goal) {
    if goal.wait_for(Option::is_some).await.is_ok() {
        tokio::time::sleep(PATIENCE).await;
    }
}
