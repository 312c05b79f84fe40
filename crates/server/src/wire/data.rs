//! The structured part of an event as readers see it. Stores keep the core's own units, because the hash
//! covers that text; here times become RFC 3339, factors become numbers, and internal fields are left out.

use serde_json::{Map, Value, json};
use tenure_core::limits::SAFE_INTEGER;

use super::at;

pub(super) fn data(stored: &str) -> Value {
    shown(serde_json::from_str(stored).unwrap_or(Value::Null))
}

fn shown(value: Value) -> Value {
    match value {
        Value::Object(fields) => Value::Object(fields.into_iter().filter_map(field).collect::<Map<_, _>>()),
        Value::Array(items) => Value::Array(items.into_iter().map(shown).collect()),
        Value::Number(number) => exact(number),
        other => other,
    }
}

fn field((name, value): (String, Value)) -> Option<(String, Value)> {
    match (name.as_str(), value.as_i64()) {
        // The key of a claim request: 64 bits of a hash, which identifies a repeated request.
        ("request", Some(_)) => None,
        ("multiplier_permille", Some(permille)) => {
            Some(("multiplier".to_owned(), json!(permille as f64 / 1_000.0)))
        }
        (moment, Some(ms)) if is_moment(moment) => Some((name, json!(at(ms)))),
        _ => Some((name, shown(value))),
    }
}

/// Decided by name: facts contain no maps with keys chosen by users, and a test compares the core's fields
/// with this list.
fn is_moment(name: &str) -> bool {
    name == "at" || name.ends_with("_at") || matches!(name, "wait_due" | "bound_until")
}

/// Most JSON readers would round larger numbers, so they are written as text.
fn exact(number: serde_json::Number) -> Value {
    let beyond = number.as_u64().is_some_and(|n| n > SAFE_INTEGER)
        || number.as_i64().is_some_and(|n| n.unsigned_abs() > SAFE_INTEGER);
    if beyond { Value::String(number.to_string()) } else { Value::Number(number) }
}

#[cfg(test)]
mod tests;
