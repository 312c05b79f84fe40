//! JSON schemas that come from elsewhere, compiled in one way whoever uses them: patterns run in linear time, nothing
//! outside is referred to, and complaints are few and short.

use jsonschema::{PatternOptions, Validator};
use serde_json::Value;

/// Complaints that are told at once, and how long each may be.
pub const TOLD: usize = 3;
const TOLD_CHARS: usize = 200;

/// What is no schema that can be used is told with why.
pub fn compile(schema: &Value) -> Result<Validator, String> {
    let options = jsonschema::options().with_pattern_options(PatternOptions::regex());
    options.build(schema).map_err(|error| shortened(error.to_string()))
}

/// A complaint may quote a value, and be as long as that.
pub fn shortened(mut text: String) -> String {
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
            assert!(compile(&wrong).is_err(), "{wrong}");
        }
        let slow = compile(&json!({ "pattern": "^(a+)+$" })).unwrap();
        assert!(!slow.is_valid(&json!(format!("{}!", "a".repeat(100_000)))));
    }
}
