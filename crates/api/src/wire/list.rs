//! Lists, their filters, and long polls. Filters are query parameters named as the fields.

use serde::{Deserialize, Serialize};

use super::{Phase, State, Timestamp, WaitId, WaitKind, WaitState, Work, WorkId, word::words};

/// A page of a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Page<T> {
    /// The rows.
    pub items: Vec<T>,
    /// Rows of this page that are stored but cannot be read. Run `tenure verify` for details.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<Unreadable>,
    /// The cursor of the next page; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A page of work items.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WorkPage {
    /// The rows.
    pub items: Vec<Work>,
    /// Rows of this page that are stored but cannot be read. Run `tenure verify` for details.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<Unreadable>,
    /// The cursor of the next page; absent on the last. With `at`, a page may be short or empty although more follow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// The moment that the page shows, if `at` was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub as_of: Option<AsOf>,
}

/// A past moment, computed from the log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AsOf {
    /// The moment.
    pub at: Timestamp,
    /// Fields that the log does not record: they are absent, or as the last event before the moment left them.
    pub not_recorded: Vec<String>,
    /// Work items were pruned since the moment, so some may be missing from the list.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pruned_since: bool,
}

/// A stored row that cannot be read. The rest of the list is returned without it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Unreadable {
    /// The row's id: for an event its work item and number, for a schedule its tenant and name.
    pub id: String,
    /// Why it cannot be read.
    pub why: String,
}

/// Which work items to list, newest first. Omitted filters do not restrict.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub struct WorkQuery {
    /// Several states are separated by commas.
    #[serde(default, with = "comma", skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "openapi", param(style = Form, explode = false))]
    pub state: Vec<State>,
    /// Only work items in a state of this phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// Only work items of this tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// `source.system`
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// `source.id`
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_id: Option<String>,
    /// Only work items of this kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Only work items of the workflow with this id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<String>,
    /// Only work items of this session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The worker that holds its lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Only children of this work item.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<WorkId>,
    /// Only work items with this correlation id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    /// Only work items that were recorded after this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_after: Option<Timestamp>,
    /// Only work items that were recorded before this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_before: Option<Timestamp>,
    /// Only work items with a deadline before this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_before: Option<Timestamp>,
    /// The work items as of this past moment, from the log; the filters apply to their state then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    /// The `next` of the previous page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// From 1 to 1,000; default 50.
    #[cfg_attr(feature = "openapi", param(minimum = 1, maximum = 1000))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

words! {
    /// The condition of a long poll.
    Until {
        /// The work item has ended.
        Terminal = "terminal",
    }
}

/// How to read one work item.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub struct WorkGet {
    /// A long poll: responds once this condition is met or the time is over; the work item is returned either
    /// way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<Until>,
    /// The time limit of the long poll: default 30 s, at most 5 minutes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// The work item as of this past moment, from its log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
}

/// Which waits to list.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub struct WaitQuery {
    /// Only the wait with this id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<WaitId>,
    /// Only waits of this work item.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<WorkId>,
    /// Only waits of work items of this session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// Only waits on this reference.
    #[serde(default, rename = "ref", skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// Only waits of this kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<WaitKind>,
    /// Only waits in this state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<WaitState>,
    /// Only waits of this tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Lists the waits that ended last, latest first, on one page; by default all waits in the order in which
    /// they were opened.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub last_ended: bool,
    /// The `next` of the previous page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// From 1 to 1,000; default 50.
    #[cfg_attr(feature = "openapi", param(minimum = 1, maximum = 1000))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// Which page of a list without filters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub struct PageQuery {
    /// The `next` of the previous page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// From 1 to 1,000; default 50.
    #[cfg_attr(feature = "openapi", param(minimum = 1, maximum = 1000))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// How many rows of a list without pages.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub struct LimitQuery {
    /// From 1 to 1,000; default 100.
    #[cfg_attr(feature = "openapi", param(minimum = 1, maximum = 1000))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// Lists in one query parameter, separated by commas.
pub(super) mod comma {
    use std::{fmt::Display, str::FromStr};

    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub fn serialize<T: Display, S: Serializer>(list: &[T], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&list.iter().map(T::to_string).collect::<Vec<_>>().join(","))
    }

    pub fn deserialize<'de, T, D>(from: D) -> Result<Vec<T>, D::Error>
    where
        T: FromStr<Err: Display>,
        D: Deserializer<'de>,
    {
        let text = String::deserialize(from)?;
        let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
        words.map(|word| word.parse().map_err(D::Error::custom)).collect()
    }
}
