//! Events: the immutable facts of the log, and the feed.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{State, Timestamp, Unreadable, Word, WorkId, word::words};

words! {
    /// What kind of actor it is.
    ActorKind {
        /// A person.
        Person = "person",
        /// A program that says who it is without a token.
        Machine = "machine",
        /// A machine with a token, or the program that embeds the ledger.
        Worker = "worker",
        /// Tenure itself.
        System = "system",
    }
}

/// Who did it, known by its id. The name is a label for people.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Actor {
    /// What kind of actor it is.
    #[serde(rename = "type")]
    #[cfg_attr(feature = "openapi", schema(value_type = ActorKind))]
    pub kind: Word<ActorKind>,
    /// With a token, the id of its principal.
    pub id: String,
    /// Its display name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

impl Actor {
    /// What people read: its name, or else its id.
    pub fn label(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.id)
    }
}

/// A pointer to something outside that supports an event: a trace, a log line, a ticket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Evidence {
    /// What it points to, `traceparent` for one.
    pub kind: String,
    /// The pointer.
    #[serde(rename = "ref")]
    pub reference: String,
}

/// One entry of a work's log. Readers ignore types that they do not know.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Event {
    /// Its place in the feed: a cursor to go on from.
    pub position: String,
    /// The work that it belongs to.
    pub work: WorkId,
    /// The work's tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Gapless per work, from 1.
    pub seq: u64,
    /// When it was recorded, by the ledger's clock.
    pub at: Timestamp,
    /// What happened.
    #[serde(rename = "type")]
    pub kind: String,
    /// Absent at birth; equal to `to` where nothing moves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<State>))]
    pub from: Option<Word<State>>,
    /// The work's state after it.
    #[cfg_attr(feature = "openapi", schema(value_type = State))]
    pub to: Word<State>,
    /// Who did it.
    pub actor: Actor,
    /// The attempt during which it happened; 0 before the first.
    pub attempt: u32,
    /// The step that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// The fence of the lease under which it was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<u64>,
    /// The structured part, by type; times and durations as everywhere.
    #[serde(default)]
    pub data: Value,
    /// What was said with it, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// With the `payload` scope only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<Value>,
    /// Pointers to what supports it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<Evidence>,
    /// The `hash` of the event before it in its work's log.
    pub prev_hash: String,
    /// Over the event as it is stored, which is not this text: `verify` computes it anew.
    pub hash: String,
}

/// A page of the feed, with where to go on from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EventPage {
    /// The events, oldest first.
    pub items: Vec<Event>,
    /// Events of this page that are stored but cannot be read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<Unreadable>,
    /// The cursor to go on from.
    pub next: String,
}

/// Sent on a stream to a reader that fell behind: some events were left out; read them from `after`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Gap {
    /// The last position that the reader has got: `GET /v1/events?after=` goes on from there.
    pub after: String,
}

/// Where to read the feed from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub struct EventQuery {
    /// A cursor that the feed gave; left out, the beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// From 1 to 1,000; 100 unless told otherwise.
    #[cfg_attr(feature = "openapi", param(minimum = 1, maximum = 1000))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Only events of this tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
}

/// Where a stream begins, unless `Last-Event-ID` says so.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub struct StreamQuery {
    /// A cursor that the feed gave; left out, now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// Only events of this tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
}

/// Which of a work's events to read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub struct WorkEventQuery {
    /// Events after this number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<u64>,
    /// From 1 to 1,000; 100 unless told otherwise.
    #[cfg_attr(feature = "openapi", param(minimum = 1, maximum = 1000))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}
