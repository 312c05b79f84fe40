//! The feed as server-sent events, resumed by `Last-Event-ID`. A slow reader never delays the others.
//!
//! A reader that is far behind is served from the ledger, page by page; one that has caught up is served from
//! the recent events in memory. If it falls further behind than those reach, it gets the position to continue
//! from, and the stream ends.

use std::{collections::VecDeque, convert::Infallible, sync::Arc, time::Duration};

use axum::{
    body::{Body, Bytes},
    extract::State,
    http::{HeaderMap, header},
    response::{IntoResponse, Response},
};
use futures_util::{Stream, stream};
use tenure_api::wire::{self as w, Scope};
use tenure_core::action::Tenants;
use tenure_store::{Position, fair};
use tokio::sync::watch;

use super::{App, Params, Problem, Who, error::Problems, events::tenants};
use crate::{
    auth::OpenCall,
    feed::{Behind, News, NewsPage, message},
    metrics::StreamGuard,
    quotas::InUse,
};

/// The number and total size of events read at once: the memory kept for each reader that does not read.
const CHUNK: usize = 64;
const CHUNK_BYTES: usize = 64 * 1024;
/// Small messages are sent together up to this size: the connection of a reader that does not read buffers up
/// to sixteen such pieces.
const PIECE: usize = 4 * 1024;
/// A comment keeps proxies from closing an idle stream.
const HEARTBEAT: Duration = Duration::from_secs(15);
const BEAT: Bytes = Bytes::from_static(b": alive\n\n");
const DENIED: Bytes = Bytes::from_static(b": this token was revoked or has expired\n\n");
const STOPPING: Bytes = Bytes::from_static(b": the daemon is stopping; connect again\n\n");

/// Streams events as they happen: after `Last-Event-ID` or `after`, or from now. Messages are `event`,
/// `alert`, `unreadable` for a stored event that cannot be read, and `gap` for a reader that fell behind.
#[utoipa::path(get, path = "/v1/events/stream", tag = "event", params(w::StreamQuery), security(("token" = ["view"])),
    responses((status = 200, description = "Server-sent events.", content_type = "text/event-stream", body = String), Problems))]
pub(crate) async fn stream(
    State(app): State<Arc<App>>,
    who: Who,
    headers: HeaderMap,
    Params(query): Params<w::StreamQuery>,
) -> Result<Response, Problem> {
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok()).map(str::to_owned);
    let after: Option<Position> = last.or(query.after).map(|after| after.parse()).transpose()?;
    let (published, now) = app.feed.now();
    let tenants = tenants(&who.session, query.tenant)?;
    let place = app.usage.stream(&who.session.tenants, &app.live.borrow().quotas)?;
    let reader = Reader {
        place: if after.is_some() { StreamState::Behind } else { StreamState::Live { next: published } },
        cursor: after.unwrap_or(now),
        tenants,
        _place: place,
        payloads: who.session.may(Scope::Payload),
        news: app.feed.follow(),
        open: app.auth.open_call(&who.session),
        pending: VecDeque::new(),
        _counted: app.metrics.stream_opened(),
        app,
    };
    let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-cache")];
    Ok((headers, Body::from_stream(chunks(reader))).into_response())
}

enum StreamState {
    /// Reading from the ledger.
    Behind,
    /// Reading the recent events in memory, from this number on.
    Live {
        next: u64,
    },
    Over,
}

struct Reader {
    app: Arc<App>,
    place: StreamState,
    /// The last event that was sent or skipped.
    cursor: Position,
    tenants: Tenants,
    payloads: bool,
    news: watch::Receiver<u64>,
    /// The stream ends when its credential does.
    open: OpenCall,
    /// Messages to be sent, shared with all readers of the same events.
    pending: VecDeque<Bytes>,
    _counted: StreamGuard,
    _place: Option<InUse>,
}

fn chunks(reader: Reader) -> impl Stream<Item = Result<Bytes, Infallible>> {
    stream::unfold(reader, |mut reader| async move {
        let chunk = reader.chunk().await?;
        Some((Ok(chunk), reader))
    })
}

impl Reader {
    /// The messages to be sent together: small ones copied into one piece, a large one alone and shared with
    /// all readers.
    fn piece(&mut self) -> Option<Bytes> {
        let first = self.pending.pop_front()?;
        if self.pending.front().is_none_or(|next| first.len() + next.len() > PIECE) {
            return Some(first);
        }
        let mut piece = first.to_vec();
        while let Some(next) = self.pending.front().filter(|next| piece.len() + next.len() <= PIECE) {
            piece.extend_from_slice(next);
            self.pending.pop_front();
        }
        Some(piece.into())
    }

    /// The next piece of the stream; None at its end.
    async fn chunk(&mut self) -> Option<Bytes> {
        loop {
            if let Some(piece) = self.piece() {
                return Some(piece);
            }
            match self.place {
                StreamState::Over => return None,
                _ if self.app.stopping.is_cancelled() => self.end(STOPPING),
                _ if self.open.is_ended() => self.end(DENIED),
                StreamState::Behind => self.catch_up().await,
                StreamState::Live { next } => self.live(next).await,
            }
        }
    }

    /// Reads a page of the ledger. Events published meanwhile are also among the recent ones, and skipped
    /// there.
    async fn catch_up(&mut self) {
        let (published, _) = self.app.feed.now();
        let before = self.cursor;
        let page = self.app.feed.page(self.cursor, CHUNK, &self.tenants);
        match fair::on_behalf_of(fair::key_of(&self.tenants), page).await {
            Ok(NewsPage { events, unreadable, next, .. }) => {
                let mut weight = 0;
                for event in &events {
                    let message = event.message(self.payloads);
                    weight += message.len();
                    self.pending.push_back(message);
                    self.cursor = event.stored.position;
                    if weight >= CHUNK_BYTES && unreadable.is_empty() {
                        // The rest of the page is read again.
                        return;
                    }
                }
                let unreadable = unreadable.iter().map(|(_, event)| message("unreadable", None, event));
                self.pending.extend(unreadable);
                if next == before {
                    self.place = StreamState::Live { next: published };
                }
                self.cursor = next;
            }
            Err(error) => {
                tracing::warn!(%error, "a stream could not read the ledger");
                self.gap();
            }
        }
    }

    /// Waits for recent events, or for the next heartbeat.
    async fn live(&mut self, next: u64) {
        if *self.news.borrow_and_update() <= next {
            tokio::select! {
                _ = self.news.changed() => {}
                () = self.app.stopping.cancelled() => return,
                _ = self.open.ended() => return,
                () = tokio::time::sleep(HEARTBEAT) => return self.pending.push_back(BEAT),
            }
        }
        let news = match self.app.feed.since(next, CHUNK) {
            Ok(news) => news,
            Err(Behind) => return self.gap(),
        };
        self.place = StreamState::Live { next: next + news.len() as u64 };
        for one in &news {
            match &**one {
                News::Event(event) if event.stored.position > self.cursor => {
                    self.cursor = event.stored.position;
                    if self.tenants.allow(&event.tenant) {
                        self.pending.push_back(event.message(self.payloads));
                    }
                }
                News::Event(_) => {}
                News::Unreadable(tenant, event) if self.tenants.allow(tenant) => {
                    self.pending.push_back(message("unreadable", None, event));
                }
                News::Unreadable(..) => {}
                // Alerts cover all tenants.
                News::Alert(alert) if self.tenants == Tenants::All => {
                    self.pending.push_back(message("alert", None, alert));
                }
                News::Alert(_) => {}
            }
        }
    }

    fn end(&mut self, last: Bytes) {
        self.place = StreamState::Over;
        self.pending.push_back(last);
    }

    /// The reader was too slow: its last message is the position to continue from.
    fn gap(&mut self) {
        let after = self.cursor.to_string();
        self.end(message("gap", Some(&after), &w::Gap { after: after.clone() }));
    }
}
