//! The structured part of an event as readers see it. Stores keep it in the core's own units, because the hash covers
//! that text; here moments become RFC 3339, factors numbers, and what only the ledger understands is left out.

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
        // A claim request's key: 64 bits of a hash, by which the ledger knows a repeat.
        ("request", Some(_)) => None,
        ("multiplier_permille", Some(permille)) => {
            Some(("multiplier".to_owned(), json!(permille as f64 / 1_000.0)))
        }
        (moment, Some(ms)) if is_moment(moment) => Some((name, json!(at(ms)))),
        _ => Some((name, shown(value))),
    }
}

/// By name: facts hold no maps with keys of users, and a test holds the core's fields against this.
fn is_moment(name: &str) -> bool {
    name == "at" || name.ends_with("_at") || matches!(name, "wait_due" | "bound_until")
}

/// Most readers of JSON would round what lies beyond, so it travels as text.
fn exact(number: serde_json::Number) -> Value {
    let beyond = number.as_u64().is_some_and(|n| n > SAFE_INTEGER)
        || number.as_i64().is_some_and(|n| n.unsigned_abs() > SAFE_INTEGER);
    if beyond { Value::String(number.to_string()) } else { Value::Number(number) }
}

#[cfg(test)]
mod tests;
