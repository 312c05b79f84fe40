//! Redaction: the values at declared paths are replaced before anything is stored.

use std::{fmt, str::FromStr};

use serde_json::Value;

/// Replaces a redacted value.
pub const REDACTED: &str = "[redacted]";

/// A JSON pointer (RFC 6901) to something inside the arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pointer(String);

impl FromStr for Pointer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let escapes_are_sound = text.split('~').skip(1).all(|rest| rest.starts_with(['0', '1']));
        if !text.starts_with('/') || !escapes_are_sound {
            return Err(format!(
                "`{text}` is not a JSON pointer: write a path like \"/card/number\", with ~1 for a slash in a name"
            ));
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Pointer {
    /// The value at this path.
    pub fn find<'v>(&self, value: &'v Value) -> Option<&'v Value> {
        value.pointer(&self.0)
    }
}

pub fn redacted(value: &Value, paths: &[Pointer]) -> Value {
    let mut kept = value.clone();
    for path in paths {
        if let Some(secret) = kept.pointer_mut(&path.0) {
            *secret = REDACTED.into();
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_the_values_at_the_paths_are_redacted() {
        let paths = ["/card/number", "/people/0/a~1b", "/absent"].map(|path| path.parse().unwrap());
        let value = json!({ "card": { "number": { "deep": 1 }, "name": "ana" }, "people": [{ "a/b": "x" }] });
        let kept = redacted(&value, &paths);
        let expected =
            json!({ "card": { "number": REDACTED, "name": "ana" }, "people": [{ "a/b": REDACTED }] });
        assert_eq!(kept, expected);
    }

    #[test]
    fn a_pointer_is_written_as_one() {
        for wrong in ["", "card", "/a~2", "/a~"] {
            assert!(wrong.parse::<Pointer>().unwrap_err().contains("JSON pointer"), "{wrong}");
        }
    }
}
