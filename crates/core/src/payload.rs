//! A caller's JSON, checked once on entry and stored in RFC 8785 form with its digest.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::{
    limits,
    refusal::{Code, Refusal},
};

/// A SHA-256 digest; hexadecimal in JSON.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    pub fn of(bytes: impl AsRef<[u8]>) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    pub fn hex(&self) -> String {
        let mut digits = [0; 64];
        self.digits(&mut digits).to_owned()
    }

    fn digits<'b>(&self, digits: &'b mut [u8; 64]) -> &'b str {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        for (pair, byte) in digits.chunks_exact_mut(2).zip(self.0) {
            pair[0] = DIGITS[usize::from(byte >> 4)];
            pair[1] = DIGITS[usize::from(byte & 15)];
        }
        str::from_utf8(digits).expect("hexadecimal digits are ASCII")
    }

    fn parse(text: &str) -> Option<Self> {
        let mut bytes = [0; 32];
        if text.len() != 64 || !text.is_ascii() {
            return None;
        }
        for (i, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * i..2 * i + 2], 16).ok()?;
        }
        Some(Self(bytes))
    }
}

impl std::fmt::Debug for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.hex())
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.digits(&mut [0; 64]))
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        Self::parse(&text).ok_or_else(|| serde::de::Error::custom("a digest is 64 hex digits"))
    }
}

/// JSON in canonical form, cheap to clone. Only [`Payload::new`] checks a caller's JSON; reading a stored
/// payload back does not check it again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Payload {
    text: Arc<str>,
    hash: Digest,
}

impl Payload {
    pub fn new(value: &Value) -> Result<Self, Refusal> {
        let plain = check(value, 0)?;
        let text =
            if plain { serde_json::to_string(value) } else { serde_json_canonicalizer::to_string(value) }
                .map_err(|e| refused(format!("The payload cannot be written as canonical JSON: {e}.")))?;
        if text.len() > limits::PAYLOAD_BYTES {
            return Err(refused(format!(
                "The payload has {} bytes; at most {} are allowed. Store it elsewhere and send a reference.",
                text.len(),
                limits::PAYLOAD_BYTES
            )));
        }
        Ok(Self::stored(text))
    }

    /// A text that was read back from a store, which contains canonical forms only. It is not checked again:
    /// a rule that was added later must not make a stored row unreadable.
    pub fn stored(text: String) -> Self {
        let hash = Digest::of(&text);
        Self { text: text.into(), hash }
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// The size of its text in bytes.
    pub fn bytes(&self) -> u32 {
        self.text.len() as u32
    }

    pub fn hash(&self) -> Digest {
        self.hash
    }

    pub fn value(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or(Value::Null)
    }
}

impl Serialize for Payload {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.value().serialize(to)
    }
}

/// Part of a stored record; like [`Payload::stored`], not checked again.
impl<'de> Deserialize<'de> for Payload {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = serde_json_canonicalizer::to_string(&Value::deserialize(from)?);
        text.map(Self::stored).map_err(serde::de::Error::custom)
    }
}

/// A field that is present, even if its value is null: serde alone would treat a null as an absent field.
pub(crate) fn present<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Payload>, D::Error> {
    Payload::deserialize(from).map(Some)
}

fn refused(detail: String) -> Refusal {
    Refusal::new(Code::PayloadRefused, detail)
}

/// Refuses JSON that cannot be stored. Returns true if plain JSON is canonical JSON: ASCII keys sorted by
/// bytes are in RFC 8785's order, and integers and strings are written alike. Any crate in the program can
/// change whether serde's maps are sorted (`serde_json/preserve_order`), so the order is checked here.
fn check(value: &Value, depth: usize) -> Result<bool, Refusal> {
    if depth > limits::JSON_DEPTH {
        return Err(refused(format!(
            "The payload is nested deeper than {}. Flatten it.",
            limits::JSON_DEPTH
        )));
    }
    match value {
        Value::Null | Value::Bool(_) => Ok(true),
        Value::Number(number) => {
            if is_unsafe_integer(number) {
                return Err(refused(format!(
                    "The number {number} is an integer beyond 2^53, and JSON readers would round it. Send it as a string."
                )));
            }
            Ok(!number.is_f64())
        }
        Value::String(text) => nul(text).map(|()| true),
        Value::Array(items) => {
            items.iter().try_fold(true, |plain, item| Ok(check(item, depth + 1)? && plain))
        }
        Value::Object(fields) => {
            let sorted = fields.keys().is_sorted();
            fields.iter().try_fold(sorted, |plain, (key, item)| {
                nul(key)?;
                Ok(check(item, depth + 1)? && plain && key.is_ascii())
            })
        }
    }
}

/// Judged by the canonical text: RFC 8785 writes a float below 1e21 without a fraction as an integer.
fn is_unsafe_integer(number: &serde_json::Number) -> bool {
    const WRITTEN_AS_INTEGER: f64 = 1e21;
    match (number.as_u64(), number.as_i64(), number.as_f64()) {
        (Some(n), _, _) => n > limits::SAFE_INTEGER,
        (_, Some(n), _) => n.unsigned_abs() > limits::SAFE_INTEGER,
        (_, _, Some(n)) => n.abs() > limits::SAFE_INTEGER as f64 && n.abs() < WRITTEN_AS_INTEGER,
        (None, None, None) => false,
    }
}

fn nul(text: &str) -> Result<(), Refusal> {
    if text.contains('\0') {
        return Err(refused("The payload has a NUL character in a string. Remove or encode it.".into()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn key_order_does_not_change_the_digest() {
        let a: Value = serde_json::from_str(r#"{"b":1.0,"a":[true,null]}"#).unwrap();
        let b: Value = serde_json::from_str(r#"{ "a": [true, null], "b": 1 }"#).unwrap();
        assert_eq!(Payload::new(&a).unwrap(), Payload::new(&b).unwrap());
        assert_eq!(Payload::new(&a).unwrap().text(), r#"{"a":[true,null],"b":1}"#);
        // Only strings and integers: the form that is written without the canonicalizer.
        let plain: Value = serde_json::from_str(r#"{"b":{"d":1,"c":2},"a":"x"}"#).unwrap();
        assert_eq!(Payload::new(&plain).unwrap().text(), r#"{"a":"x","b":{"c":2,"d":1}}"#);
    }

    #[test]
    fn plain_json_is_written_as_the_canonical_form_is() {
        let mut odd = serde_json::Map::new();
        let words = [
            "",
            "a",
            "b\"\\/",
            "é",
            "\u{1F980}",
            "\u{e000}",
            "\u{1}\u{8}\t\n\u{c}\r\u{1f}\u{7f}",
            "\u{2028}",
        ];
        for (n, word) in words.iter().enumerate() {
            odd.insert(
                (*word).to_owned(),
                json!([word, n, -(n as i64), n % 2 == 0, null, { "z": word, "A": n }]),
            );
        }
        let floats = json!({ "f": [1.0, 1e21, 1.5e-9, -0.0, 0.1], "k": odd.clone() });
        let ascii: serde_json::Map<_, _> =
            odd.clone().into_iter().filter(|(key, _)| key.is_ascii()).collect();
        for value in [json!(odd), floats, json!(ascii), json!([1, "x", {}]), json!(7)] {
            let canonical = serde_json_canonicalizer::to_string(&value).unwrap();
            assert_eq!(Payload::new(&value).unwrap().text(), canonical);
        }
    }

    #[test]
    fn values_that_json_cannot_carry_exactly_are_refused() {
        let mut deep = json!(1);
        for _ in 0..65 {
            deep = json!([deep]);
        }
        for value in [
            json!(9_007_199_254_740_993_u64),
            json!(-9_007_199_254_740_993_i64),
            json!(1e17),
            json!({ "maximum": -1e20 }),
            json!(9_007_199_254_740_994.0),
            deep,
            json!("x".repeat(1 << 20)),
        ] {
            assert_eq!(Payload::new(&value).unwrap_err().code, Code::PayloadRefused);
        }
        assert!(Payload::new(&json!(9_007_199_254_740_992_u64)).is_ok());
        assert!(Payload::new(&json!([9_007_199_254_740_992.0, 1e21, -1e300])).is_ok());
        assert!(Payload::new(&json!("a\u{0}b")).is_err());
    }

    /// As in a file that was written before such values were refused.
    #[test]
    fn stored_data_is_not_judged_again() {
        let mut deep = "1".to_owned();
        for _ in 0..100 {
            deep = format!("[{deep}]");
        }
        for text in ["100000000000000000", r#"{"maximum":100000000000000000}"#, r#""a\u0000b""#, &deep] {
            let payload: Payload = serde_json::from_str(text).unwrap();
            assert_eq!((payload.text(), payload.hash()), (text, Digest::of(text)));
        }
    }

    #[test]
    fn digests_survive_json() {
        let digest = Digest::of("x");
        let text = serde_json::to_string(&digest).unwrap();
        assert_eq!(serde_json::from_str::<Digest>(&text).unwrap(), digest);
    }
}
