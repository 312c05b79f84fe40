//! The part of a record that stores keep as one JSON text. Fields that a newer version added survive a change by this one.

use std::{
    fmt::{self, Debug, Formatter},
    ops::{Deref, DerefMut},
    sync::{Arc, OnceLock},
};

use serde::{
    Deserializer, Serialize,
    de::{DeserializeOwned, DeserializeSeed, Error, MapAccess, Visitor, value::StrDeserializer},
    forward_to_deserialize_any,
};
use serde_json::Value;

use crate::json;

/// Copy-on-write: most changes of a record leave the document alone, so clones share it and its text, and the
/// first write makes a copy.
#[derive(Clone, Default)]
pub struct Document<T>(Arc<Inner<T>>);

#[derive(Default)]
struct Inner<T> {
    part: T,
    /// Fields that this version does not know, as they follow the others in the text.
    unknown: Option<Arc<str>>,
    text: OnceLock<String>,
    /// The length of its last text, as an estimate for the next one.
    was: usize,
}

/// The capacity for the first text, and for what a change adds to one.
const FIRST: usize = 256;
const MORE: usize = 64;

impl<T: Serialize + DeserializeOwned> Document<T> {
    /// A document that was read back from a store.
    pub fn stored(text: &str) -> Result<Self, serde_json::Error> {
        let mut unknown = String::new();
        let mut json = serde_json::Deserializer::from_str(text);
        let part = T::deserialize(Keeping { from: &mut json, unknown: &mut unknown })?;
        json.end()?;
        let unknown = (!unknown.is_empty()).then(|| unknown.into());
        Ok(Self(Arc::new(Inner { part, unknown, text: OnceLock::from(text.to_owned()), was: 0 })))
    }

    /// Its stored form; serialized once, however often it is called.
    pub fn text(&self) -> &str {
        let room = if self.0.was == 0 { FIRST } else { self.0.was + MORE };
        self.0.text.get_or_init(|| {
            let text = json::text(&self.0.part, room);
            match self.0.unknown.as_deref() {
                None => text,
                Some(unknown) => with(&text, unknown),
            }
        })
    }
}

/// An object with more fields, each of which comes after a comma.
fn with(object: &str, unknown: &str) -> String {
    let known = object.strip_suffix('}').unwrap_or(object);
    let unknown = if known == "{" { &unknown[1..] } else { unknown };
    format!("{known}{unknown}}}")
}

/// A deserializer that keeps the fields that the struct does not have.
struct Keeping<'a, D> {
    from: D,
    unknown: &'a mut String,
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Keeping<'_, D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.from.deserialize_any(visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.from.deserialize_map(Keeper { inner: visitor, fields, unknown: self.unknown })
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

/// A visitor, access or seed that knows the names of the fields.
struct Keeper<'a, T> {
    inner: T,
    fields: &'static [&'static str],
    unknown: &'a mut String,
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Keeper<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.inner.expecting(f)
    }

    fn visit_map<A: MapAccess<'de>>(self, access: A) -> Result<V::Value, A::Error> {
        self.inner.visit_map(Keeper { inner: access, fields: self.fields, unknown: self.unknown })
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Keeper<'_, A> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, mut seed: S) -> Result<Option<S::Value>, A::Error> {
        loop {
            match self.inner.next_key_seed(Name { seed, fields: self.fields })? {
                None => return Ok(None),
                Some(Found::Known(name)) => return Ok(Some(name)),
                Some(Found::Unknown(unused, name)) => {
                    let value: Value = self.inner.next_value()?;
                    *self.unknown += &format!(",{}:{value}", Value::from(name));
                    seed = unused;
                }
            }
        }
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        self.inner.next_value_seed(seed)
    }
}

struct Name<S> {
    seed: S,
    fields: &'static [&'static str],
}

enum Found<S, T> {
    Known(T),
    /// With the seed, for the next name.
    Unknown(S, String),
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Name<S> {
    type Value = Found<S, S::Value>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_identifier(self)
    }
}

impl<'de, S: DeserializeSeed<'de>> Visitor<'de> for Name<S> {
    type Value = Found<S, S::Value>;

    fn expecting(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("a field's name")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
        if self.fields.contains(&name) {
            self.seed.deserialize(StrDeserializer::new(name)).map(Found::Known)
        } else {
            Ok(Found::Unknown(self.seed, name.to_owned()))
        }
    }
}

impl<T> From<T> for Document<T> {
    fn from(part: T) -> Self {
        Self(Arc::new(Inner { part, unknown: None, text: OnceLock::new(), was: 0 }))
    }
}

/// The cached text is not cloned, because it belongs to the value that it was written from.
impl<T: Clone> Clone for Inner<T> {
    fn clone(&self) -> Self {
        Self {
            part: self.part.clone(),
            unknown: self.unknown.clone(),
            text: OnceLock::new(),
            was: self.text.get().map_or(self.was, String::len),
        }
    }
}

impl<T: Debug> Debug for Document<T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.0.part.fmt(f)
    }
}

impl<T: PartialEq> PartialEq for Document<T> {
    fn eq(&self, other: &Self) -> bool {
        self.0.part == other.0.part
    }
}

impl<T: Eq> Eq for Document<T> {}

impl<T> Deref for Document<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0.part
    }
}

impl<T: Clone> DerefMut for Document<T> {
    fn deref_mut(&mut self) -> &mut T {
        let inner = Arc::make_mut(&mut self.0);
        if let Some(text) = inner.text.take() {
            inner.was = text.len();
        }
        &mut inner.part
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::Body;

    #[test]
    fn a_write_to_a_shared_document_makes_a_copy() {
        let first = Document::from(vec![1]);
        assert_eq!(first.text(), "[1]");
        let mut second = first.clone();
        second.push(2);
        assert_eq!((first.text(), second.text()), ("[1]", "[1,2]"));
        second.push(3);
        assert_eq!(second.text(), "[1,2,3]", "even if nobody shares it");
        assert_ne!(first, second);
    }

    #[test]
    fn a_stored_document_keeps_its_text() {
        let stored: Document<Vec<u8>> = Document::stored("[ 7 ]").unwrap();
        assert_eq!((&*stored, stored.text()), (&vec![7], "[ 7 ]"));
        assert!(Document::<Vec<u8>>::stored("[").is_err());
    }

    #[test]
    fn fields_of_a_newer_version_are_kept_when_the_part_is_written_anew() {
        let text = r#"{"tomorrow":{"a":[1,"\"}"]},"warnings":["w"],"day \"after\"":null}"#;
        let mut body: Document<Body> = Document::stored(text).unwrap();
        assert_eq!((body.text(), body.warnings.as_slice()), (text, ["w".to_owned()].as_slice()));
        let plain: Document<Body> = Document::stored(r#"{"warnings":["w"]}"#).unwrap();
        assert_eq!(body, plain, "they are not looked at");
        body.warnings.push("x".to_owned());
        let written: Value = serde_json::from_str(body.clone().text()).unwrap();
        assert_eq!(written["tomorrow"], json!({ "a": [1, "\"}"] }));
        assert_eq!(
            (&written["warnings"], written.get("day \"after\"")),
            (&json!(["w", "x"]), Some(&Value::Null))
        );
        assert_eq!(with("{}", ",\"a\":1"), r#"{"a":1}"#);
    }
}
