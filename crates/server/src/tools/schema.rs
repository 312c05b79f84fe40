//! A tool's JSON schema, compiled once. It runs in linear time and can refer to nothing outside itself; what it
//! complains of names the place and never quotes the value, which may be a secret.

use jsonschema::{PatternOptions, Validator};
use serde_json::Value;
use tenure_core::{Code, Refusal};

/// Complaints that are told at once, and how long each may be.
const TOLD: usize = 3;
const TOLD_CHARS: usize = 200;

#[derive(Debug)]
pub struct Schema {
    written: Value,
    compiled: Validator,
}

impl PartialEq for Schema {
    fn eq(&self, other: &Self) -> bool {
        self.written == other.written
    }
}

impl Schema {
    pub fn new(written: Value) -> Result<Self, String> {
        let options = jsonschema::options().with_pattern_options(PatternOptions::regex());
        match options.build(&written) {
            Ok(compiled) => Ok(Self { written, compiled }),
            Err(error) => Err(shortened(error.to_string())),
        }
    }

    pub fn written(&self) -> &Value {
        &self.written
    }

    pub fn check(&self, arguments: &Value) -> Result<(), Refusal> {
        let complaints: Vec<String> = self.compiled.iter_errors(arguments).take(TOLD).map(told).collect();
        if complaints.is_empty() {
            return Ok(());
        }
        Err(Refusal::new(
            Code::Invalid,
            format!(
                "The arguments do not fit the tool's schema: {}. Correct them and send them again.",
                complaints.join("; ")
            ),
        ))
    }
}

fn told(error: jsonschema::ValidationError<'_>) -> String {
    let place = match error.instance_path().to_string() {
        root if root.is_empty() => "the arguments".to_owned(),
        pointer => format!("`{pointer}`"),
    };
    let masked = error.masked_with(&place).to_string();
    let complaint = if masked.contains(&place) { masked } else { format!("{place}: {masked}") };
    shortened(complaint)
}

fn shortened(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(TOLD_CHARS) {
        text.truncate(end);
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_schema_runs_in_linear_time_and_fetches_nothing() {
        for wrong in [
            json!({ "type": "nonsense" }),
            json!(7),
            json!({ "$ref": "https://example.com/schema.json" }),
            json!({ "$ref": "file:///etc/passwd" }),
            json!({ "pattern": "^(a+)+\\1$" }),
        ] {
            assert!(Schema::new(wrong.clone()).is_err(), "{wrong}");
        }
        let slow = Schema::new(json!({ "pattern": "^(a+)+$" })).unwrap();
        assert!(slow.check(&json!(format!("{}!", "a".repeat(100_000)))).is_err());
    }

    #[test]
    fn complaints_are_few_and_short() {
        let schema = Schema::new(json!({ "additionalProperties": { "type": "string" } })).unwrap();
        let many: serde_json::Map<_, _> = (0..500).map(|n| ("k".repeat(500 + n), json!(n))).collect();
        let refusal = schema.check(&many.into()).unwrap_err();
        assert!(refusal.detail.chars().count() < 1_000, "{}", refusal.detail.len());
    }
}
