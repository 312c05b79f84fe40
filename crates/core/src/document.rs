//! The part of a record that stores keep as one JSON text.

use std::{
    fmt::{self, Debug, Formatter},
    ops::{Deref, DerefMut},
    sync::{Arc, OnceLock},
};

use serde::{Serialize, de::DeserializeOwned};

use crate::json;

/// Copy-on-write: most changes of a record leave the document alone, so clones share it and its text, and the
/// first write makes a copy.
#[derive(Clone, Default)]
pub struct Document<T>(Arc<Inner<T>>);

#[derive(Default)]
struct Inner<T> {
    part: T,
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
        let part = serde_json::from_str(text)?;
        Ok(Self(Arc::new(Inner { part, text: OnceLock::from(text.to_owned()), was: 0 })))
    }

    /// Its stored form; serialized once, however often it is called.
    pub fn text(&self) -> &str {
        let room = if self.0.was == 0 { FIRST } else { self.0.was + MORE };
        self.0.text.get_or_init(|| json::text(&self.0.part, room))
    }
}

impl<T> From<T> for Document<T> {
    fn from(part: T) -> Self {
        Self(Arc::new(Inner { part, text: OnceLock::new(), was: 0 }))
    }
}

/// The cached text is not cloned, because it belongs to the value that it was written from.
impl<T: Clone> Clone for Inner<T> {
    fn clone(&self) -> Self {
        Self {
            part: self.part.clone(),
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
    use super::*;

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
}
