//! A configuration error: where it is, what is wrong, and the fix.

use std::{fmt, ops::Range};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The file, or the flag.
    pub place: String,
    pub line: Option<usize>,
    pub message: String,
}

impl ConfigError {
    pub(super) fn flag(flag: &str, message: impl fmt::Display) -> Self {
        Self { place: flag.to_owned(), line: None, message: message.to_string() }
    }

    pub(super) fn file(name: &str, message: impl fmt::Display) -> Self {
        Self::flag(name, message)
    }

    pub(super) fn toml(name: &str, text: &str, error: &toml::de::Error) -> Self {
        Self {
            place: name.to_owned(),
            line: error.span().map(|span| line_of(text, &span)),
            message: with_key(text, error.span(), &with_suggestion(error.message())),
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.place, self.message),
            None => write!(f, "{}: {}", self.place, self.message),
        }
    }
}

impl std::error::Error for ConfigError {}

pub(super) fn line_of(text: &str, span: &Range<usize>) -> usize {
    text.bytes().take(span.start).filter(|byte| *byte == b'\n').count() + 1
}

/// The parser reports the wrong value; this adds its key.
fn with_key(text: &str, span: Option<Range<usize>>, message: &str) -> String {
    let message = message.replace("missing field", "missing key").replace("unknown variant", "unknown value");
    let about_value =
        ["unknown value", "invalid type", "invalid value"].iter().any(|begin| message.starts_with(begin));
    match span.filter(|_| about_value).and_then(|span| key_before(text, span.start)) {
        Some(key) => format!("`{key}`: {message}"),
        None => message,
    }
}

/// The key of the value that begins at this offset, if there is one.
fn key_before(text: &str, value: usize) -> Option<&str> {
    let key = text.get(..value)?.trim_end().strip_suffix('=')?.trim_end();
    let begin =
        key.rfind(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '-' | '.'))).map_or(0, |at| at + 1);
    Some(&key[begin..]).filter(|key| !key.is_empty())
}

/// The parser names the unknown key first and then the known ones, each in backquotes.
fn with_suggestion(message: &str) -> String {
    let mut names = message.split('`').skip(1).step_by(2);
    let (Some(unknown), true) = (names.next(), message.starts_with("unknown field")) else {
        return message.to_owned();
    };
    let near = names.map(|name| (strsim::damerau_levenshtein(unknown, name), name)).min();
    match near {
        Some((distance, name)) if distance <= name.len().min(unknown.len()) / 2 => {
            format!("unknown key `{unknown}`: did you mean `{name}`?")
        }
        _ => message.replacen("unknown field", "unknown key", 1),
    }
}
