//! JSON as a client reads it: fields that a newer server has added are ignored at every depth. Types that travel both ways
//! refuse them for the server's sake, so what does not fit is read again without them.

use serde::{
    de::{
        DeserializeOwned, Deserializer, IntoDeserializer, Visitor,
        value::{MapDeserializer, SeqDeserializer},
    },
    forward_to_deserialize_any,
};
use serde_json::{Error, Value};

/// Reads a whole text. The error is that of the first reading.
pub(crate) fn from_slice<T: DeserializeOwned>(text: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(text).or_else(|error| {
        let again = || T::deserialize(Tolerant(serde_json::from_slice(text)?));
        if error.is_data() { again().map_err(|_: Error| error) } else { Err(error) }
    })
}

struct Tolerant(Value);

impl IntoDeserializer<'_, Error> for Tolerant {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Tolerant {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::Object(fields) => visitor
                .visit_map(MapDeserializer::new(fields.into_iter().map(|(name, value)| (name, Self(value))))),
            Value::Array(items) => visitor.visit_seq(SeqDeserializer::new(items.into_iter().map(Self))),
            plain => plain.deserialize_any(visitor),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self.0 {
            Value::Object(mut object) => {
                object.retain(|name, _| fields.contains(&name.as_str()));
                Self(Value::Object(object)).deserialize_any(visitor)
            }
            other => Self(other).deserialize_any(visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.0.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.0.deserialize_enum(name, variants, visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::from_slice;
    use crate::wire::{EventPage, Source, Usage};

    #[test]
    fn what_a_newer_server_adds_is_ignored_at_every_depth() {
        let event = json!({
            "position": "1", "work": "w_1", "seq": 1, "at": "2026-01-01T00:00:00.000Z", "type": "of_tomorrow",
            "to": "frozen", "actor": { "type": "robot", "id": "r", "shoe_size": 44 }, "attempt": 0,
            "evidence": [{ "kind": "log", "ref": "x", "added": [1, { "a": null }] }],
            "prev_hash": "", "hash": "", "added": 1.5,
        });
        let text = json!({ "items": [event], "next": "1", "added": {} }).to_string();
        let page: EventPage = from_slice(text.as_bytes()).unwrap();
        let event = &page.items[0];
        assert_eq!(
            (event.kind.as_str(), event.to.as_str(), event.to.known()),
            ("of_tomorrow", "frozen", None)
        );
        assert_eq!((event.actor.kind.as_str(), event.evidence[0].reference.as_str()), ("robot", "x"));
        let source: Source = from_slice(br#"{"system":"s","id":"1","added":true}"#).unwrap();
        assert_eq!((source.system.as_str(), source.id.as_str()), ("s", "1"));
        let used: Vec<Usage> = from_slice(br#"[{"input_tokens":7,"added":1}]"#).unwrap();
        assert_eq!(used[0].input_tokens, 7);
        let wrong = from_slice::<Source>(br#"{"system":1,"id":"1","added":true}"#).unwrap_err().to_string();
        assert!(wrong.contains("invalid type"), "{wrong}");
    }
}
