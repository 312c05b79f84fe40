//! A tool's JSON schema, compiled once. Its errors name the location and never quote the value, which may be
//! a secret.

use serde_json::Value;
use tenure_core::{Code, Refusal};
use tenure_store::schema::{Compiled, compile};

#[derive(Debug)]
pub struct Schema {
    written: Value,
    compiled: Compiled,
}

impl PartialEq for Schema {
    fn eq(&self, other: &Self) -> bool {
        self.written == other.written
    }
}

impl Schema {
    pub fn new(written: Value) -> Result<Self, String> {
        let compiled = compile(&written)?;
        Ok(Self { written, compiled })
    }

    pub fn written(&self) -> &Value {
        &self.written
    }

    /// Whether the check is fast enough for the current thread.
    pub fn is_light(&self, arguments: &Value) -> bool {
        self.compiled.is_light(arguments)
    }

    pub fn check(&self, arguments: &Value) -> Result<(), Refusal> {
        let complaints = self.compiled.complaints(arguments, described)?;
        if complaints.is_empty() {
            return Ok(());
        }
        Err(Refusal::new(
            Code::Invalid,
            format!(
                "The arguments do not match the tool's schema: {}. Correct them and send them again.",
                complaints.join("; ")
            ),
        ))
    }
}

fn described(error: jsonschema::ValidationError<'_>) -> String {
    let place = match error.instance_path().to_string() {
        root if root.is_empty() => "the arguments".to_owned(),
        pointer => format!("`{pointer}`"),
    };
    let masked = error.masked_with(&place).to_string();
    if masked.contains(&place) { masked } else { format!("{place}: {masked}") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn complaints_are_few_and_short() {
        let schema = Schema::new(json!({ "additionalProperties": { "type": "string" } })).unwrap();
        let many: serde_json::Map<_, _> = (0..500).map(|n| ("k".repeat(500 + n), json!(n))).collect();
        let refusal = schema.check(&many.into()).unwrap_err();
        assert!(refusal.detail.chars().count() < 1_000, "{}", refusal.detail.len());
    }
}
