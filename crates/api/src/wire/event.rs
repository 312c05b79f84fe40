//! Events: the immutable records of the log, and the feed of all of them.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{State, Timestamp, Unreadable, Word, WorkId, word::words};

words! {
    /// The kind of actor.
    ActorKind {
        /// A person.
        Person = "person",
        /// A program that names itself, without an access token.
        Machine = "machine",
        /// A machine with an access token, or the program that embeds the ledger.
        Worker = "worker",
        /// Tenure itself.
        System = "system",
    }
}

/// The actor, identified by its id. The name is a label for people.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Actor {
    /// The kind of actor.
    #[serde(rename = "type")]
    #[cfg_attr(feature = "openapi", schema(value_type = ActorKind))]
    pub kind: Word<ActorKind>,
    /// The id of the principal, if the caller used an access token.
    pub id: String,
    /// Its display name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

impl Actor {
    /// A label for people: the name, or else the id.
    pub fn label(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.id)
    }
}

/// A pointer to external evidence for an event: a trace, a log line, a ticket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Evidence {
    /// The kind of pointer, for example `traceparent`.
    pub kind: String,
    /// The pointer.
    #[serde(rename = "ref")]
    pub reference: String,
}

/// One entry of a work item's log. Readers ignore types that they do not know.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Event {
    /// Its position in the feed, usable as a cursor.
    pub position: String,
    /// The work item that it belongs to.
    pub work: WorkId,
    /// The work item's tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Its number in the work item's log: from 1, without gaps.
    pub seq: u64,
    /// When it was recorded, by the ledger's clock.
    pub at: Timestamp,
    /// The type of event.
    #[serde(rename = "type")]
    pub kind: String,
    /// Absent in the first event; equal to `to` if the state did not change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<State>))]
    pub from: Option<Word<State>>,
    /// The work item's state after it.
    #[cfg_attr(feature = "openapi", schema(value_type = State))]
    pub to: Word<State>,
    /// The actor.
    pub actor: Actor,
    /// The attempt during which it happened; 0 before the first.
    pub attempt: u32,
    /// The step that it concerns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// The fence of the lease under which it was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<u64>,
    /// The structured part; its fields depend on the type.
    #[serde(default)]
    pub data: Value,
    /// The message that was given with it, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The payload; returned only with the `payload` scope.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<Value>,
    /// Evidence: pointers to traces, logs or tickets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<Evidence>,
    /// Its message, payload and evidence were erased.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub erased: bool,
    /// The `hash` of the previous event in the work item's log.
    pub prev_hash: String,
    /// The hash of the event as it is stored, which is not this JSON: `verify` recomputes it.
    pub hash: String,
}

/// A page of the feed, and the cursor to continue from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EventPage {
    /// The events, oldest first.
    pub items: Vec<Event>,
    /// Events of this page that are stored but cannot be read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<Unreadable>,
    /// The cursor to continue from.
    pub next: String,
}

/// Sent on a stream to a reader that fell behind: some events were omitted; read them from `after`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Gap {
    /// The last position that the reader received: continue with `GET /v1/events?after=`.
    pub after: String,
}

/// Where to start reading the feed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub struct EventQuery {
    /// A cursor from the feed; omitted: from the beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// From 1 to 1,000; default 100.
    #[cfg_attr(feature = "openapi", param(minimum = 1, maximum = 1000))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Only events of this tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
}

/// Where a stream starts, unless `Last-Event-ID` is given.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub struct StreamQuery {
    /// A cursor from the feed; omitted: from now on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// Only events of this tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
}

/// Which events of a work item to read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub struct WorkEventQuery {
    /// Only events with a greater `seq`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<u64>,
    /// From 1 to 1,000; default 100.
    #[cfg_attr(feature = "openapi", param(minimum = 1, maximum = 1000))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}
