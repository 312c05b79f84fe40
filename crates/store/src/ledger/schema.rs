//! JSON schemas of answers: a wait with a schema accepts only matching answers. The schema comes from a
//! worker and is applied to input of others, so its cost is limited.

use std::collections::BTreeMap;

use serde_json::Value;
use tenure_core::{Code, Payload, Refusal, payload::Digest};

use super::NewWait;
use crate::schema::{Compiled, aside, compile};

/// Refuses waits with an unusable schema, or with a default that does not match it.
pub(super) async fn check_new(waits: &[NewWait]) -> Result<(), Refusal> {
    let with_schema = waits.iter().filter_map(|wait| Some((wait.schema.clone()?, wait.default.clone())));
    let asked: Vec<(Value, Option<Value>)> = with_schema.collect();
    if asked.is_empty() {
        return Ok(());
    }
    let check = |(schema, default): &(Value, Option<Value>)| {
        let compiled = compiled(schema)?;
        default.iter().try_for_each(|default| fits(&compiled, default))
    };
    aside(move || asked.iter().try_for_each(check)).await?
}

/// Refuses an answer that does not match one of these schemas.
pub(super) async fn check_answer(
    schemas: impl Iterator<Item = &Payload>,
    answer: impl FnOnce() -> Value,
) -> Result<(), Refusal> {
    // Many waits have the same schema.
    let schemas: BTreeMap<Digest, Payload> = schemas.map(|schema| (schema.hash(), schema.clone())).collect();
    if schemas.is_empty() {
        return Ok(());
    }
    let answer = answer();
    aside(move || schemas.values().try_for_each(|schema| check(&schema.value(), &answer))).await?
}

fn check(schema: &Value, value: &Value) -> Result<(), Refusal> {
    fits(&compiled(schema)?, value)
}

fn fits(compiled: &Compiled, value: &Value) -> Result<(), Refusal> {
    let complaints = compiled.complaints(value, |error| match error.instance_path().to_string() {
        root if root.is_empty() => error.to_string(),
        path => format!("{path}: {error}"),
    })?;
    if complaints.is_empty() {
        return Ok(());
    }
    Err(Refusal::new(
        Code::AnswerMismatch,
        format!(
            "The answer does not match the wait's schema: {}. Correct it and send it again.",
            complaints.join("; ")
        ),
    ))
}

fn compiled(schema: &Value) -> Result<Compiled, Refusal> {
    compile(schema).map_err(|told| {
        let detail = format!("`schema` is no JSON schema that can be used: {told}. Correct it.");
        Refusal::new(Code::Invalid, detail)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tenure_core::model::WaitKind;

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

    #[tokio::test]
    async fn a_schema_that_cannot_be_used_is_refused() {
        let wait = |schema| NewWait { schema: Some(schema), ..NewWait::new(WaitKind::User, "r") };
        for schema in [json!({ "type": "nonsense" }), json!({ "$ref": "#" })] {
            let refusal = check_new(&[wait(json!({})), wait(schema)]).await.unwrap_err();
            assert_eq!(refusal.code, Code::Invalid, "{}", refusal.detail);
        }
        let unfit = NewWait { default: Some(json!(1)), ..wait(json!({ "type": "string" })) };
        assert_eq!(check_new(&[unfit]).await.unwrap_err().code, Code::AnswerMismatch);
    }
}
