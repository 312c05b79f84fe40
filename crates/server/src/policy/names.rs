//! The names that a policy can use. An unknown name would never be met, or always be an error, so it is
//! refused when the file is loaded. The shape of the arguments is not known here and not checked.

use serde_json::Value;
use tenure_core::PrincipalId;

pub const PERSON: &str = "Person";
pub const MACHINE: &str = "Machine";
pub const WORKER: &str = "Worker";
pub const SYSTEM: &str = "System";
pub const ACTION: &str = "Action";
pub const TARGET: &str = "Target";

const TYPES: [&str; 6] = [PERSON, MACHINE, WORKER, SYSTEM, ACTION, TARGET];

/// The known names below a name; None if any are possible.
fn below(path: &str) -> Option<&'static [&'static str]> {
    match path {
        "context" => Some(&["arguments", "tenant", "work", "time", "budget"]),
        "context.work" => Some(&["id", "kind", "source", "attempt"]),
        "context.time" => Some(&["unix_ms", "hour", "weekday"]),
        "context.budget" => Some(&["tokens", "micros"]),
        "resource" => Some(&["tool", "risk"]),
        "principal" | "action" => Some(&[]),
        _ => None,
    }
}

/// Refuses unknown names in a policy's JSON form.
pub fn check(policy: &Value) -> Result<(), String> {
    if let Some(path) = path(policy) {
        return names_of(&path);
    }
    match policy {
        Value::Array(items) => items.iter().try_for_each(check),
        Value::Object(fields) => {
            for (key, value) in fields {
                match key.as_str() {
                    "entity_type" => value.as_str().map_or(Ok(()), entity_type)?,
                    "entity" | "__entity" => entity(value)?,
                    "entities" => entities(value)?,
                    _ => {}
                }
                check(value)?;
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

fn entities(list: &Value) -> Result<(), String> {
    list.as_array().into_iter().flatten().try_for_each(entity)
}

/// Principals are identified by id: a policy with a display name would never be met.
fn entity(entity: &Value) -> Result<(), String> {
    let Some(kind) = entity["type"].as_str() else { return Ok(()) };
    entity_type(kind)?;
    match entity["id"].as_str() {
        Some(id) if [PERSON, WORKER].contains(&kind) && id.parse::<PrincipalId>().is_err() => Err(format!(
            "`{kind}::\"{id}\"` is never met: write the id of its principal, like `{kind}::\"p_…\"`. \
             `tenure token list` shows it"
        )),
        Some(_) | None => Ok(()),
    }
}

fn entity_type(name: &str) -> Result<(), String> {
    if TYPES.contains(&name) {
        return Ok(());
    }
    Err(format!("there is no entity type `{name}`{}", near(name, &TYPES)))
}

fn names_of(path: &[&str]) -> Result<(), String> {
    for (at, name) in path.iter().enumerate().skip(1) {
        let above = path[..at].join(".");
        if let Some(known) = below(&above)
            && !known.contains(name)
        {
            return Err(format!("`{above}` has no `{name}`{}", near(name, known)));
        }
    }
    Ok(())
}

/// A variable and the names below it that an expression follows, like `context.work.id`; None if it is not a
/// plain path. `has` tests for attributes the same way, and may name several at once.
pub fn path(expression: &Value) -> Option<Vec<&str>> {
    if let Some(variable) = expression.get("Var").and_then(Value::as_str) {
        return Some(vec![variable]);
    }
    let access = expression.get(".").or_else(|| expression.get("has"))?;
    let mut path = path(access.get("left")?)?;
    match access.get("attr")? {
        Value::Array(names) => path.extend(names.iter().map(Value::as_str).collect::<Option<Vec<_>>>()?),
        name => path.push(name.as_str()?),
    }
    Some(path)
}

fn near(name: &str, known: &[&str]) -> String {
    let nearest = known.iter().map(|other| (strsim::damerau_levenshtein(name, other), *other)).min();
    match nearest {
        Some((distance, other)) if distance <= other.len().min(name.len()) / 2 => {
            format!(": did you mean `{other}`?")
        }
        Some(_) => format!(
            ": there are {}",
            known.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
        ),
        None => ": it has no attributes".to_owned(),
    }
}
