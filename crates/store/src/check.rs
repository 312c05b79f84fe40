//! Compares a stored schema with the one that the migrations create.

use std::{collections::BTreeMap, fmt::Display};

use crate::Error;

/// The definition of each object, by kind and name.
pub(crate) type Schema = BTreeMap<(String, String), String>;

/// Objects with an effect on other statements. An additional one could hide that another is missing.
const ACTING: [&str; 3] = ["trigger", "rule", "policy"];

/// The name of the first migration. It had another name in development versions.
pub(crate) const FIRST: &str = "schema";

/// Refuses a ledger whose first migration has another name.
pub(crate) fn refuse_older(first: Option<&str>, place: &dyn Display, instead: &str) -> Result<(), Error> {
    if first.is_none_or(|first| first == FIRST) {
        return Ok(());
    }
    Err(Error::Unusable(format!(
        "{place} has a ledger that was made by a development version, before the first schema. No migration leads \
         from there: {instead}, or use the version that made it"
    )))
}

/// Objects that are missing or differ, and additional ones that have an effect. Additional tables, columns
/// and indexes are allowed: they change no row.
pub(crate) fn differences(expected: &Schema, stored: &Schema) -> Vec<String> {
    let wrong = expected.iter().filter_map(|(object @ (kind, name), definition)| match stored.get(object) {
        None => Some(format!("the {kind} `{name}` is missing")),
        Some(other) if other != definition => Some(format!("the {kind} `{name}` was changed: {other}")),
        Some(_) => None,
    });
    let added = stored.keys().filter(|object| ACTING.contains(&&*object.0) && !expected.contains_key(object));
    wrong.chain(added.map(|(kind, name)| format!("the {kind} `{name}` is not the ledger's"))).collect()
}

/// This version cannot compare a schema that a later version extended.
pub(crate) fn unknown<N: PartialEq + Display>(applied: &[N], known: &[N]) -> Option<String> {
    let newer = applied.iter().find(|number| !known.contains(number))?;
    Some(format!(
        "the schema has migration {newer}, which this version does not know: verify it with the version that made it"
    ))
}
