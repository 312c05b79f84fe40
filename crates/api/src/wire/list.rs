//! Lists, their filters, and long polls. Filters are query parameters named as the fields.

use serde::{Deserialize, Serialize};

use super::{Phase, State, Timestamp, WaitKind, WaitState, WorkId, word::words};

/// A page of a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Page<T> {
    /// The rows.
    pub items: Vec<T>,
    /// Rows of this page that are stored but cannot be read. `tenure verify` says more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<Unreadable>,
    /// The cursor of the next page; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A stored row that cannot be read. It never keeps a list from being shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Unreadable {
    /// Its id; of an event its work and number, of a schedule its tenant and name.
    pub id: String,
    /// Why it cannot be read.
    pub why: String,
}

/// Which works to list, newest first. What is left out does not restrict.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub struct WorkQuery {
    /// Several states are separated by commas.
    #[serde(default, with = "comma", skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "openapi", param(style = Form, explode = false))]
    pub state: Vec<State>,
    /// Only works in a state of this phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// Only works of this tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// `source.system`
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// `source.id`
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_id: Option<String>,
    /// Only works of this kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Only works of the workflow with this id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<String>,
    /// Only works of this session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The worker that holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Only parts of this work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<WorkId>,
    /// Only works with this correlation id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    /// Only works that were recorded later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_after: Option<Timestamp>,
    /// Only works that were recorded earlier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_before: Option<Timestamp>,
    /// Only works with a deadline before this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_before: Option<Timestamp>,
    /// The `next` of the page before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// From 1 to 1,000; 50 unless told otherwise.
    #[cfg_attr(feature = "openapi", param(minimum = 1, maximum = 1000))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

words! {
    /// What a long poll waits for.
    Until {
        /// The work has ended.
        Terminal = "terminal",
    }
}

/// How to get one work.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub struct WorkGet {
    /// Answers only once this holds, or the time is over; the work is returned either way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<Until>,
    /// 30 s unless told otherwise, at most 5 minutes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

/// Which waits to list.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub struct WaitQuery {
    /// Only waits of this work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<WorkId>,
    /// Only waits of works of this session.
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
    /// The last that ended, latest first, on one page; all by the time they were opened unless told.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub last_ended: bool,
    /// The `next` of the page before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// From 1 to 1,000; 50 unless told otherwise.
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
    /// The `next` of the page before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// From 1 to 1,000; 50 unless told otherwise.
    #[cfg_attr(feature = "openapi", param(minimum = 1, maximum = 1000))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// How much of a list that has no pages.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub struct LimitQuery {
    /// From 1 to 1,000; 100 unless told otherwise.
    #[cfg_attr(feature = "openapi", param(minimum = 1, maximum = 1000))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// A list in one query parameter.
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
