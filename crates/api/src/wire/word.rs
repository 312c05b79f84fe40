//! Enumerations in JSON, and how a reader treats a word that it does not know yet.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// An enumeration whose members are words in JSON.
pub trait Words: Copy + Eq + FromStr<Err = NotAWord> + 'static {
    /// The word in JSON.
    fn as_str(self) -> &'static str;
}

/// A text that is not a word of its enumeration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotAWord {
    /// The text.
    pub text: String,
    /// The words of the enumeration.
    pub expected: Vec<&'static str>,
}

impl fmt::Display for NotAWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is not one of {}", self.text, self.expected.join(", "))
    }
}

impl std::error::Error for NotAWord {}

/// A word in a response: known, or added by a newer server. The OpenAPI schema lists the known words only.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Word<T> {
    /// A known word.
    Known(T),
    /// A word that this version does not know, unchanged.
    Other(String),
}

impl<T: Words> Word<T> {
    /// The word in JSON.
    pub fn as_str(&self) -> &str {
        match self {
            Word::Known(word) => word.as_str(),
            Word::Other(text) => text,
        }
    }

    /// The word, unless it is one that this version does not know.
    pub fn known(&self) -> Option<T> {
        match self {
            Word::Known(word) => Some(*word),
            Word::Other(_) => None,
        }
    }
}

impl<T> From<T> for Word<T> {
    fn from(word: T) -> Self {
        Word::Known(word)
    }
}

impl<T: Words> PartialEq<T> for Word<T> {
    fn eq(&self, other: &T) -> bool {
        self.known() == Some(*other)
    }
}

impl<T: Words> fmt::Display for Word<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl<T: Words> Serialize for Word<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.as_str())
    }
}

impl<'de, T: Words> Deserialize<'de> for Word<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        Ok(text.parse().map_or_else(|NotAWord { text, .. }| Word::Other(text), Word::Known))
    }
}

/// Declares an enumeration with its words. `|` adds words that are accepted but never written.
macro_rules! words {
    ($(#[$meta:meta])* $name:ident {
        $($(#[$doc:meta])* $variant:ident = $text:tt $(| $alias:tt)*,)*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[derive(serde::Serialize, serde::Deserialize)]
        #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
        pub enum $name {
            $($(#[$doc])* #[serde(rename = $text $(, alias = $alias)*)] $variant,)*
        }

        impl $name {
            /// Every member of the enumeration.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The word in JSON.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)*
                }
            }
        }

        impl $crate::wire::Words for $name {
            fn as_str(self) -> &'static str {
                self.as_str()
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::wire::NotAWord;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                match text {
                    $($text $(| $alias)* => Ok(Self::$variant),)*
                    _ => Err($crate::wire::NotAWord { text: text.to_owned(), expected: vec![$($text,)*] }),
                }
            }
        }
    };
}

pub(crate) use words;
