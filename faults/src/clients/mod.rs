//! The load: seeded clients over HTTP that submit, work, answer and read during all faults.

mod follower;
mod operator;
mod provider;
mod submitter;
mod worker;

use std::{
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use serde::Serialize;
use tenure_api::{Client, Error, wire::Code};
use tokio::{sync::watch, task::JoinHandle};

use crate::{
    dice::Dice,
    history::{Call, History, Miss},
    run::{Effect, Seen},
};
pub use provider::Shop;

/// How long a client waits before it checks whether the daemon is back.
const PAUSE: Duration = Duration::from_millis(20);

/// The number of clients of each kind.
#[derive(Clone, Copy, Debug)]
pub struct Mix {
    pub submitters: usize,
    pub workers: usize,
}

impl Default for Mix {
    fn default() -> Self {
        Self { submitters: 2, workers: 4 }
    }
}

/// All clients of one run.
pub struct Load {
    pub history: Arc<History>,
    shop: Arc<Shop>,
    stop: watch::Sender<bool>,
    goal: watch::Sender<Option<Seen>>,
    clients: Vec<JoinHandle<()>>,
    readers: Vec<JoinHandle<Vec<Seen>>>,
}

impl Load {
    pub fn start(client: &Client, history: Arc<History>, mix: Mix, seed: u64) -> Self {
        let shop = Arc::new(Shop::open());
        let (stop, stopped) = watch::channel(false);
        let (goal, reached) = watch::channel(None);
        // Submitters stay ahead of the workers, but not by much.
        let open = Arc::new(AtomicU64::new(0));
        let new = |name: String| Hand {
            dice: Dice::of(seed, &name),
            client: client.clone(),
            name,
            history: history.clone(),
            shop: shop.clone(),
            stopped: stopped.clone(),
            open: open.clone(),
        };
        let mut clients: Vec<JoinHandle<()>> = Vec::new();
        clients
            .extend((0..mix.submitters).map(|n| tokio::spawn(submitter::run(new(format!("submitter-{n}"))))));
        clients.extend((0..mix.workers).map(|n| tokio::spawn(worker::run(new(format!("worker-{n}"))))));
        clients.push(tokio::spawn(operator::run(new("operator".to_owned()))));
        let readers = vec![
            tokio::spawn(follower::pages(client.clone(), reached.clone())),
            tokio::spawn(follower::stream(client.clone(), reached)),
        ];
        Self { history, shop, stop, goal, clients, readers }
    }

    /// Stops all writing clients, and waits until they have ended.
    pub async fn stop(&mut self) -> Result<(), String> {
        self.stop.send_replace(true);
        for client in self.clients.drain(..) {
            client.await.map_err(|error| format!("a client panicked: {error}"))?;
        }
        Ok(())
    }

    /// Every call that reached the provider.
    pub fn effects(&self) -> Vec<Effect> {
        self.shop.effects()
    }

    /// Lets the readers continue until they have seen the last event of the log, and returns the events they
    /// saw.
    pub async fn followed(&mut self, last: Option<Seen>) -> Result<Vec<Vec<Seen>>, String> {
        self.goal.send_replace(last.clone());
        let mut all = Vec::new();
        for reader in self.readers.drain(..) {
            let mut seen = reader.await.map_err(|error| format!("a reader panicked: {error}"))?;
            if let Some(end) = seen.iter().rposition(|seen| Some(seen) == last.as_ref()) {
                seen.truncate(end + 1);
            }
            all.push(seen);
        }
        Ok(all)
    }
}

/// State shared by all clients.
struct Hand {
    name: String,
    dice: Dice,
    client: Client,
    history: Arc<History>,
    shop: Arc<Shop>,
    stopped: watch::Receiver<bool>,
    open: Arc<AtomicU64>,
}

impl Hand {
    fn is_stopped(&self) -> bool {
        *self.stopped.borrow()
    }

    async fn pause(&self) {
        tokio::time::sleep(PAUSE).await;
    }

    /// Sends a call until its outcome is known; `None` if it was refused, or after an unknown outcome that
    /// this client does not follow up.
    async fn insist<T: Serialize, F: Future<Output = Result<T, Error>>>(
        &mut self,
        call: Call,
        ask: impl Fn() -> F,
    ) -> Option<T> {
        while !self.is_stopped() {
            match self.history.call(&self.name, call.clone(), ask()).await {
                Ok(answer) => return Some(answer),
                Err(Miss::Away | Miss::Refused(Code::Unavailable | Code::Stopped | Code::RateLimited)) => {
                    self.pause().await;
                }
                Err(Miss::Unknown) if self.dice.one_in(4) => return None,
                Err(Miss::Unknown) => self.pause().await,
                Err(Miss::Refused(_)) => return None,
            }
        }
        None
    }
}
