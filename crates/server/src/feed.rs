//! Fans the feed out: one reader follows the ledger's log and passes each event to every stream, to the
//! metrics and to callers that wait for an end. A slow stream does not delay the others.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use axum::body::Bytes;
use tenure_api::wire::{self as w, Alert};
use tenure_core::{CommandState, WorkId, action::Tenants};
use tenure_store::{Error, Ledger, Position, StoredEvent};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use crate::{metrics::Metrics, wire};

/// The number of events that a stream may lag behind before it gets a gap.
pub const BUFFER: usize = 2_048;
/// The same in bytes: payloads are up to a mebibyte each, and two thousand of them would exhaust memory.
const BUFFER_BYTES: usize = 64 * 1024 * 1024;
/// Bytes given to a stream at once: many streams may each have that many in flight.
const CHUNK_BYTES: usize = 64 * 1024;
/// Events read at once.
const PAGE: usize = 1_000;
/// The pause between two looks without a notification: for events of other replicas and of the sweeper.
const IDLE: Duration = Duration::from_millis(250);
/// The shortest pause between two looks, so that a busy ledger is read in pages rather than event by event.
const BUSY: Duration = Duration::from_millis(20);

/// An item of the streams.
pub(crate) enum News {
    Event(Box<EventNews>),
    /// A stored event of a tenant that cannot be read.
    Unreadable(String, w::Unreadable),
    Alert(Alert),
}

impl News {
    /// An upper bound of its memory: its payload as stored, and again as sent.
    fn weight(&self) -> usize {
        match self {
            News::Event(news) => {
                let payload = news.stored.event.payload.as_ref();
                size_of::<EventNews>() + 2 * payload.map_or(0, |payload| payload.text().len())
            }
            News::Unreadable(..) | News::Alert(_) => size_of::<News>(),
        }
    }
}

/// An event of the log, serialized once for all readers with the same rights.
pub(crate) struct EventNews {
    pub tenant: String,
    pub stored: StoredEvent,
    plain: OnceLock<Bytes>,
    full: OnceLock<Bytes>,
}

impl EventNews {
    fn new(tenant: String, stored: StoredEvent) -> Self {
        Self { tenant, stored, plain: OnceLock::new(), full: OnceLock::new() }
    }

    /// The event as a stream message, with or without payloads.
    pub fn message(&self, payloads: bool) -> Bytes {
        let cell = if payloads { &self.full } else { &self.plain };
        cell.get_or_init(|| {
            let event = wire::event(&self.stored, &self.tenant, payloads);
            message("event", Some(&event.position), &event)
        })
        .clone()
    }
}

/// A page of the log, with the position to continue from.
pub(crate) struct NewsPage {
    pub events: Vec<EventNews>,
    /// Each with its tenant.
    pub unreadable: Vec<(String, w::Unreadable)>,
    pub next: Position,
    /// More may follow at once.
    pub full: bool,
}

/// The result of a look at the log.
#[derive(Debug, PartialEq, Eq)]
pub enum Look {
    Nothing,
    Some,
    /// A full page was read: there may be more.
    Full,
}

/// A server-sent event. JSON contains no line breaks.
pub(crate) fn message(kind: &str, id: Option<&str>, data: &impl serde::Serialize) -> Bytes {
    let data = serde_json::to_string(data).expect("wire types are plain JSON");
    let id = id.map(|id| format!("id: {id}\n")).unwrap_or_default();
    format!("{id}event: {kind}\ndata: {data}\n\n").into()
}

/// The reader was too slow: the events it needs are no longer in memory.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Behind;

/// Recent events, shared by all readers.
pub struct Feed {
    ledger: Ledger,
    recent: Mutex<Recent>,
    /// The total number of items published.
    published: watch::Sender<u64>,
    nudged: Notify,
    /// Notifies the relay of commands to send.
    pub(crate) to_send: Arc<Notify>,
    /// Notifies the reconciler, and callers that wait for a lookup.
    pub(crate) to_look_up: Arc<Notify>,
    pub(crate) doubted: Notify,
    awaited: Mutex<HashMap<WorkId, Arc<Notify>>>,
}

#[derive(Default)]
struct Recent {
    news: VecDeque<Arc<News>>,
    bytes: usize,
    published: u64,
    /// The position up to which the log has been read.
    position: Position,
}

impl Recent {
    fn push(&mut self, one: News) {
        self.bytes += one.weight();
        self.news.push_back(Arc::new(one));
        self.published += 1;
        while self.news.len() > BUFFER || self.bytes > BUFFER_BYTES {
            let Some(oldest) = self.news.pop_front() else { return };
            self.bytes -= oldest.weight();
        }
    }
}

impl Feed {
    pub fn new(ledger: Ledger) -> Self {
        Self {
            ledger,
            recent: Mutex::default(),
            published: watch::Sender::new(0),
            nudged: Notify::new(),
            to_send: Arc::default(),
            to_look_up: Arc::default(),
            doubted: Notify::new(),
            awaited: Mutex::default(),
        }
    }

    /// Something was written here: look at once.
    pub fn nudge(&self) {
        self.nudged.notify_one();
    }

    /// A page of the log with each event's tenant, as far as a credential may see it.
    pub(crate) async fn page(
        &self,
        after: Position,
        limit: usize,
        tenants: &Tenants,
    ) -> Result<NewsPage, Error> {
        let page = self.ledger.feed_of(tenants, after, limit).await?;
        let owners = self.ledger.tenants_of(&page.works()).await?;
        let news = page
            .events
            .into_iter()
            .filter_map(|stored| Some(EventNews::new(owners.get(&stored.event.work)?.clone(), stored)));
        let unreadable = page.unreadable.iter().filter_map(|event| {
            let shown = w::Unreadable { id: event.id.clone(), why: event.why.clone() };
            Some((owners.get(&event.work?)?.clone(), shown))
        });
        let unreadable = unreadable.collect();
        Ok(NewsPage { events: news.collect(), unreadable, next: page.next, full: page.full })
    }

    /// The start of a stream that wants only new events.
    pub(crate) fn now(&self) -> (u64, Position) {
        let recent = self.recent();
        (recent.published, recent.position)
    }

    pub(crate) fn follow(&self) -> watch::Receiver<u64> {
        self.published.subscribe()
    }

    /// Up to `limit` items from number `from` on; fewer if they are large.
    pub(crate) fn since(&self, from: u64, limit: usize) -> Result<Vec<Arc<News>>, Behind> {
        let recent = self.recent();
        let first = recent.published - recent.news.len() as u64;
        let skip = from.checked_sub(first).ok_or(Behind)?;
        let mut weight = 0;
        let light = |one: &&Arc<News>| {
            let first = weight == 0;
            weight += one.weight();
            first || weight <= CHUNK_BYTES
        };
        Ok(recent.news.iter().skip(skip as usize).take(limit).take_while(light).cloned().collect())
    }

    pub(crate) fn publish(&self, news: Vec<News>) {
        if news.is_empty() {
            return;
        }
        let published = {
            let mut recent = self.recent();
            for one in news {
                recent.push(one);
            }
            recent.published
        };
        self.published.send_replace(published);
    }

    /// Resolves when the work item may have ended. Must be requested before looking at it.
    pub(crate) fn ended(self: &Arc<Self>, work: WorkId) -> Awaited {
        let mut awaited = self.awaited.lock().unwrap_or_else(PoisonError::into_inner);
        let notify = awaited.entry(work).or_default().clone();
        Awaited { feed: self.clone(), work, notify }
    }

    fn wake(&self, work: WorkId) {
        let awaited = self.awaited.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(notify) = awaited.get(&work) {
            notify.notify_waiters();
        }
    }

    /// Notifies the relay and the reconciler of commands that may be theirs now.
    fn wake_senders(&self, events: &[EventNews]) {
        let moves = events.iter().filter_map(|news| news.stored.event.fact.command());
        let (mut send, mut look_up) = (false, false);
        for moved in moves {
            match moved.now {
                CommandState::Pending | CommandState::Approved => send |= moved.executor.is_relay(),
                CommandState::Uncertain => (send, look_up) = (send | moved.executor.is_relay(), true),
                // The command left its queue: the next ordered one may be sent.
                CommandState::Succeeded | CommandState::Failed | CommandState::Cancelled => {
                    send |= moved.executor.is_relay();
                }
                CommandState::Blocked | CommandState::Dispatched => {}
            }
        }
        // `notify_one` stores a permit for a busy receiver, so nothing is missed.
        if send {
            self.to_send.notify_one();
        }
        if look_up {
            self.to_look_up.notify_one();
            self.doubted.notify_waiters();
        }
    }

    fn recent(&self) -> std::sync::MutexGuard<'_, Recent> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A caller that waits for a work item's end.
pub(crate) struct Awaited {
    feed: Arc<Feed>,
    work: WorkId,
    pub notify: Arc<Notify>,
}

impl Drop for Awaited {
    fn drop(&mut self) {
        let mut awaited = self.feed.awaited.lock().unwrap_or_else(PoisonError::into_inner);
        // The map's reference and this one: nobody else waits.
        if awaited.get(&self.work).is_some_and(|notify| Arc::strong_count(notify) == 2) {
            awaited.remove(&self.work);
        }
    }
}

/// Follows the log from its current end.
pub struct FeedReader {
    feed: Arc<Feed>,
    metrics: Arc<Metrics>,
    cursor: Option<Position>,
}

impl FeedReader {
    pub fn new(feed: Arc<Feed>, metrics: Arc<Metrics>) -> Self {
        Self { feed, metrics, cursor: None }
    }

    /// Reads a page and publishes it.
    pub async fn run_once(&mut self) -> Result<Look, Error> {
        let Some(cursor) = self.cursor else {
            let tail = self.feed.ledger.tail().await?;
            self.feed.recent().position = tail;
            self.cursor = Some(tail);
            return Ok(Look::Nothing);
        };
        let NewsPage { events, unreadable, next, full } = self.feed.page(cursor, PAGE, &Tenants::All).await?;
        let look = match (next == cursor, full) {
            (true, _) => Look::Nothing,
            (false, false) => Look::Some,
            (false, true) => Look::Full,
        };
        self.feed.wake_senders(&events);
        self.metrics.observe(&self.feed.ledger, &events).await?;
        let ended: Vec<WorkId> = events
            .iter()
            .filter(|news| news.stored.event.to.is_terminal())
            .map(|news| news.stored.event.work)
            .collect();
        self.feed.recent().position = next;
        let events = events.into_iter().map(|event| News::Event(Box::new(event)));
        let unreadable = unreadable.into_iter().map(|(tenant, event)| News::Unreadable(tenant, event));
        self.feed.publish(events.chain(unreadable).collect());
        ended.into_iter().for_each(|work| self.feed.wake(work));
        self.cursor = Some(next);
        Ok(look)
    }

    /// Runs until shutdown.
    pub async fn run(mut self, stopping: CancellationToken) {
        loop {
            let pause = match self.run_once().await {
                Ok(Look::Full) => continue,
                Ok(Look::Nothing) => IDLE,
                Ok(Look::Some) => BUSY,
                Err(error) => {
                    tracing::warn!(%error, "the feed cannot be read; retrying");
                    Duration::from_secs(1)
                }
            };
            let nudged = async {
                if pause == IDLE {
                    self.feed.nudged.notified().await;
                } else {
                    std::future::pending::<()>().await;
                }
            };
            tokio::select! {
                () = stopping.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
                () = nudged => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tenure_core::{Actor, model::Disposition};
    use tenure_store::{NewWork, Options};

    use super::*;

    #[tokio::test]
    async fn large_payloads_do_not_pile_up() {
        const TOLD: u64 = 40;
        let ledger = Ledger::open_memory(Options { sweep: false, ..Options::default() }).await.unwrap();
        let feed = Arc::new(Feed::new(ledger.clone()));
        let mut reader = FeedReader::new(feed.clone(), Arc::new(Metrics::default()));
        reader.run_once().await.unwrap();
        let caller = ledger.caller(Actor::machine("gateway"));
        for n in 0..TOLD {
            let input = json!("x".repeat(1_000_000));
            let new = NewWork::new("manual", &n.to_string(), "job", Disposition::Rerunnable, input);
            caller.ingest(new).await.unwrap();
        }
        assert_eq!(reader.run_once().await.unwrap(), Look::Full, "not all in one page");
        while reader.run_once().await.unwrap() != Look::Nothing {}
        assert_eq!(feed.since(0, 100).err(), Some(Behind), "the oldest were dropped");
        assert_eq!(
            feed.since(TOLD - 30, 100).map(|news| news.len()),
            Ok(1),
            "the newest are available, in chunks"
        );
        assert!(feed.recent().bytes <= BUFFER_BYTES);
    }
}
