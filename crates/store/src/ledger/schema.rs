//! JSON schemas of answers, checked at the door: a wait that says what its answer must look like gets no other.
//! It comes from a worker, and is used on what others send.

use jsonschema::Validator;
use serde_json::Value;
use tenure_core::{Code, Payload, Refusal};

use crate::schema::{TOLD, compile, shortened};

/// Refuses what is no schema.
pub(super) fn check_schema(schema: &Value) -> Result<(), Refusal> {
    compiled(schema).map(drop)
}

/// Refuses a value that does not fit.
pub(super) fn check(schema: &Value, value: &Value) -> Result<(), Refusal> {
    let validator = compiled(schema)?;
    let complaints: Vec<String> = validator
        .iter_errors(value)
        .take(TOLD)
        .map(|error| match error.instance_path().to_string() {
            root if root.is_empty() => error.to_string(),
            path => format!("{path}: {error}"),
        })
        .map(shortened)
        .collect();
    if complaints.is_empty() {
        return Ok(());
    }
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
    compile(schema).map_err(|told| {
        let detail = format!("`schema` is no JSON schema that can be used: {told}. Correct it.");
        Refusal::new(Code::Invalid, detail)
    })
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
    fn what_is_no_schema_is_refused() {
        assert_eq!(check_schema(&json!({ "type": "nonsense" })).unwrap_err().code, Code::Invalid);
    }
}
