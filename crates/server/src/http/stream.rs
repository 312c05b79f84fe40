//! The feed as a stream of server-sent events: resumed by `Last-Event-ID`, never holding anybody up.
//!
//! A reader that is far behind is served from the ledger, page by page; one that has caught up is served from
//! the recent news in memory. If it then falls further behind than those reach, it is told from where to go on,
//! and the stream ends.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    body::{Body, Bytes},
    extract::State,
    http::{HeaderMap, header},
    response::{IntoResponse, Response},
};
use futures_util::{Stream, stream};
use tenure_api::wire::{self as w, Scope};
use tenure_core::action::Tenants;
use tenure_store::Position;
use tokio::sync::watch;

use super::{App, Params, Problem, Who, error::Problems, events::tenants};
use crate::{
    feed::{Behind, News, NewsPage, message},
    metrics::StreamGuard,
};

/// Events that are sent at once.
const CHUNK: usize = 256;
/// A comment in between keeps proxies from closing a quiet stream.
const HEARTBEAT: Duration = Duration::from_secs(15);
const BEAT: Bytes = Bytes::from_static(b": alive\n\n");
const STOPPING: Bytes = Bytes::from_static(b": the daemon is stopping; connect again\n\n");

/// Streams events as they happen: from `Last-Event-ID` or `after` on, or from now. Messages are `event`, `alert`,
/// and `gap` for a reader that fell behind.
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
    let (told, now) = app.feed.now();
    let reader = Reader {
        place: if after.is_some() { Place::Behind } else { Place::Live { next: told } },
        cursor: after.unwrap_or(now),
        tenants: tenants(&who.session, query.tenant)?,
        payloads: who.session.may(Scope::Payload),
        news: app.feed.follow(),
        _counted: app.metrics.stream_opened(),
        app,
    };
    let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-cache")];
    Ok((headers, Body::from_stream(chunks(reader))).into_response())
}

enum Place {
    /// Reading the ledger.
    Behind,
    /// Reading the news, from this number on.
    Live {
        next: u64,
    },
    Over,
}

struct Reader {
    app: Arc<App>,
    place: Place,
    /// The last event that was sent or passed over.
    cursor: Position,
    tenants: Tenants,
    payloads: bool,
    news: watch::Receiver<u64>,
    _counted: StreamGuard,
}

fn chunks(reader: Reader) -> impl Stream<Item = Result<Bytes, Infallible>> {
    stream::unfold(reader, |mut reader| async move {
        let chunk = reader.chunk().await?;
        Some((Ok(chunk), reader))
    })
}

impl Reader {
    /// The next piece of the stream; None at its end.
    async fn chunk(&mut self) -> Option<Bytes> {
        loop {
            let chunk = match self.place {
                Place::Over => return None,
                _ if self.app.stopping.is_cancelled() => {
                    self.place = Place::Over;
                    STOPPING
                }
                Place::Behind => self.catch_up().await,
                Place::Live { next } => self.live(next).await,
            };
            if !chunk.is_empty() {
                return Some(chunk);
            }
        }
    }

    /// A page of the ledger. What is told while it is read is among the news, and passed over there.
    async fn catch_up(&mut self) -> Bytes {
        let (told, _) = self.app.feed.now();
        match self.app.feed.page(self.cursor, CHUNK, &self.tenants).await {
            Ok(NewsPage { events, next, .. }) => {
                if next == self.cursor {
                    self.place = Place::Live { next: told };
                }
                self.cursor = next;
                joined(events.iter().map(|event| event.message(self.payloads)))
            }
            Err(error) => {
                tracing::warn!(%error, "a stream could not read the ledger");
                self.gap()
            }
        }
    }

    /// The news since, or a sign of life.
    async fn live(&mut self, next: u64) -> Bytes {
        if *self.news.borrow_and_update() <= next {
            tokio::select! {
                _ = self.news.changed() => {}
                () = self.app.stopping.cancelled() => return Bytes::new(),
                () = tokio::time::sleep(HEARTBEAT) => return BEAT,
            }
        }
        let news = match self.app.feed.since(next, CHUNK) {
            Ok(news) => news,
            Err(Behind) => return self.gap(),
        };
        self.place = Place::Live { next: next + news.len() as u64 };
        let mut messages = Vec::with_capacity(news.len());
        for one in &news {
            match &**one {
                News::Event(event) if event.stored.position > self.cursor => {
                    self.cursor = event.stored.position;
                    if self.tenants.allow(&event.tenant) {
                        messages.push(event.message(self.payloads));
                    }
                }
                News::Event(_) => {}
                // Alerts are about everybody.
                News::Alert(alert) if self.tenants == Tenants::All => {
                    messages.push(message("alert", None, alert))
                }
                News::Alert(_) => {}
            }
        }
        joined(messages.into_iter())
    }

    /// Too slow: the last word is where to go on from.
    fn gap(&mut self) -> Bytes {
        self.place = Place::Over;
        let after = self.cursor.to_string();
        message("gap", Some(&after), &w::Gap { after: after.clone() })
    }
}

fn joined(messages: impl Iterator<Item = Bytes>) -> Bytes {
    messages
        .fold(Vec::new(), |mut all, message| {
            all.extend_from_slice(&message);
            all
        })
        .into()
}
