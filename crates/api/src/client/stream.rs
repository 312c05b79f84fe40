//! The live feed: reconnects where it was cut, and reports gaps.

use std::{collections::VecDeque, time::Duration};

use futures_util::StreamExt;

use super::{Client, Error, call::Call, sse::Frame, sse::Parser, transport::Body, transport::BodyError};
use crate::{
    tolerant,
    wire::{Alert, Event, EventQuery, Gap, Unreadable},
};

/// The server sends a comment more often than this; a connection that is silent for longer is dead.
const SILENCE: Duration = Duration::from_secs(60);
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// An item of the stream. Kinds that this client does not know are skipped.
#[derive(Clone, Debug, PartialEq)]
pub enum Streamed {
    /// An event of the feed.
    Event(Box<Event>),
    /// A threshold is exceeded.
    Alert(Alert),
    /// An event that is stored but cannot be read.
    Unreadable(Unreadable),
    /// This reader was too slow: the stream continues from the gap's cursor, so that nothing is missed.
    Gap(Gap),
}

/// A stream of events. Reconnects automatically; ends when it is dropped.
pub struct EventStream {
    client: Client,
    query: EventQuery,
    /// The cursor of the last item.
    last: Option<String>,
    open: Option<(Body, Parser)>,
    ready: VecDeque<Frame>,
    pause: Duration,
}

impl Client {
    /// Events as they happen, from `query.after` on, or from now on without it.
    pub fn stream(&self, query: EventQuery) -> EventStream {
        let client = self.clone();
        EventStream { client, query, last: None, open: None, ready: VecDeque::new(), pause: PAUSE_MIN }
    }
}

impl EventStream {
    /// The next item. Fails only if reconnecting cannot help.
    pub async fn next(&mut self) -> Result<Streamed, Error> {
        loop {
            while let Some(frame) = self.ready.pop_front() {
                if let Some(streamed) = self.take(frame)? {
                    return Ok(streamed);
                }
            }
            match self.read().await {
                Ok(()) => {}
                Err(error) if error.is_terminal() => return Err(error),
                Err(error) => {
                    tracing::debug!(%error, "the event stream was cut; connecting again");
                    self.open = None;
                    tokio::time::sleep(self.pause).await;
                    self.pause = (self.pause * 2).min(PAUSE_MAX);
                }
            }
        }
    }

    /// The cursor to continue from in another stream.
    pub fn cursor(&self) -> Option<&str> {
        self.last.as_deref().or(self.query.after.as_deref())
    }

    fn take(&mut self, frame: Frame) -> Result<Option<Streamed>, Error> {
        let read = |cause| Error::unreadable("an event that cannot be read", cause);
        let streamed = match frame.event.as_str() {
            "event" | "" => Streamed::Event(tolerant::from_slice(frame.data.as_bytes()).map_err(read)?),
            "alert" => Streamed::Alert(tolerant::from_slice(frame.data.as_bytes()).map_err(read)?),
            "unreadable" => Streamed::Unreadable(tolerant::from_slice(frame.data.as_bytes()).map_err(read)?),
            "gap" => {
                let gap: Gap = tolerant::from_slice(frame.data.as_bytes()).map_err(read)?;
                self.last = Some(gap.after.clone());
                self.open = None;
                self.ready.clear();
                return Ok(Some(Streamed::Gap(gap)));
            }
            _ => return Ok(None),
        };
        if frame.id.is_some() {
            self.last = frame.id;
        }
        Ok(Some(streamed))
    }

    async fn read(&mut self) -> Result<(), Error> {
        let cut = |cause: BodyError| Error::no_response("the event stream", cause);
        if self.open.is_none() {
            let call = Call::get("/v1/events/stream").query(&self.query).last_event(self.last.clone());
            let opened = tokio::time::timeout(SILENCE, self.client.open(&call)).await;
            let response = opened.map_err(|_| cut("it did not begin".into()))??;
            self.open = Some((response.into_body(), Parser::default()));
        }
        let Some((body, parser)) = &mut self.open else { return Ok(()) };
        let read = tokio::time::timeout(SILENCE, body.next()).await;
        let bytes = read
            .map_err(|_| cut("it went silent".into()))?
            .ok_or_else(|| cut("it was closed".into()))?
            .map_err(cut)?;
        self.ready.extend(parser.push(&bytes).map_err(Error::protocol)?);
        self.pause = PAUSE_MIN;
        Ok(())
    }
}
