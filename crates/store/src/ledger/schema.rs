//! JSON schemas of answers, checked at the door: a wait that says what its answer must look like gets no other.
//!
//! A schema comes from a worker, and is used on what others send. So its patterns run in linear time, and it can
//! refer to nothing outside itself.

use jsonschema::{PatternOptions, Validator};
use serde_json::Value;
use tenure_core::{Code, Payload, Refusal};

/// Complaints that are told at once.
const TOLD: usize = 3;

/// Refuses what is no schema.
pub(super) fn check_schema(schema: &Value) -> Result<(), Refusal> {
    compiled(schema).map(drop)
}

/// Refuses a value that does not fit.
pub(super) fn check(schema: &Value, value: &Value) -> Result<(), Refusal> {
    let validator = compiled(schema)?;
    let mut complaints: Vec<String> = validator
        .iter_errors(value)
        .take(TOLD)
        .map(|error| match error.instance_path().to_string() {
            root if root.is_empty() => error.to_string(),
            path => format!("{path}: {error}"),
        })
        .collect();
    if complaints.is_empty() {
        return Ok(());
    }
    complaints.iter_mut().for_each(shorten);
    Err(Refusal::new(
        Code::AnswerMismatch,
        format!(
            "The answer does not fit the wait's schema: {}. Correct it and send it again.",
            complaints.join("; ")
        ),
    ))
}

/// The answers to open waits are checked against what each of them asks for.
pub(super) fn check_answer<'a>(
    schemas: impl Iterator<Item = &'a Payload>,
    value: &Value,
) -> Result<(), Refusal> {
    schemas.map(Payload::value).try_for_each(|schema| check(&schema, value))
}

fn compiled(schema: &Value) -> Result<Validator, Refusal> {
    let options = jsonschema::options().with_pattern_options(PatternOptions::regex());
    options.build(schema).map_err(|error| {
        let mut told = error.to_string();
        shorten(&mut told);
        Refusal::new(
            Code::Invalid,
            format!("`schema` is no JSON schema that can be used: {told}. Correct it."),
        )
    })
}

/// A complaint quotes the value, which may be long.
fn shorten(text: &mut String) {
    if let Some((end, _)) = text.char_indices().nth(200) {
        text.truncate(end);
        text.push('…');
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn complaints_say_where_and_are_short() {
        let schema = json!({
            "type": "object",
            "required": ["approved"],
            "properties": { "approved": { "type": "boolean" }, "note": { "maxLength": 5 } },
        });
        assert!(check(&schema, &json!({ "approved": true })).is_ok());
        let refusal = check(&schema, &json!({ "approved": "yes", "note": "x".repeat(1_000) })).unwrap_err();
        assert_eq!(refusal.code, Code::AnswerMismatch);
        assert!(refusal.detail.contains("/approved: \"yes\" is not of type"), "{}", refusal.detail);
        assert!(refusal.detail.chars().count() < 800, "{}", refusal.detail);
        assert!(check(&schema, &json!(1)).unwrap_err().detail.contains("is not of type \"object\""));
    }

    #[test]
    fn a_schema_runs_in_linear_time_and_fetches_nothing() {
        for wrong in [
            json!({ "type": "nonsense" }),
            json!(7),
            json!({ "$ref": "https://example.com/schema.json" }),
            json!({ "$ref": "file:///etc/passwd" }),
            json!({ "pattern": "^(a+)+\\1$" }),
        ] {
            assert_eq!(check_schema(&wrong).unwrap_err().code, Code::Invalid, "{wrong}");
        }
        let slow = json!({ "pattern": "^(a+)+$" });
        assert!(check(&slow, &json!(format!("{}!", "a".repeat(100_000)))).is_err());
    }
}
