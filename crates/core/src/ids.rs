//! Prefixed ids over UUIDv7. The core parses and prints them; only callers generate new ones.

use std::{fmt, str::FromStr};

use rustc_hash::FxHashMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::Uuid;

use crate::refusal::{Code, Refusal};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub Uuid);

        impl $name {
            pub const PREFIX: &'static str = $prefix;
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0.simple())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = Refusal;
            fn from_str(text: &str) -> Result<Self, Refusal> {
                text.strip_prefix($prefix)
                    .filter(|hex| hex.len() == 32)
                    .and_then(|hex| Uuid::try_parse(hex).ok())
                    .map(Self)
                    .ok_or_else(|| {
                        Refusal::new(
                            Code::Invalid,
                            format!(concat!("`{}` is not an id: expected ", $prefix, " and 32 hex digits."), text),
                        )
                    })
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let text = String::deserialize(from)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

id!(
    /// A work item's id.
    WorkId,
    "w_"
);
id!(
    /// A wait's id.
    WaitId,
    "wt_"
);
id!(
    /// A command's id.
    CommandId,
    "c_"
);
id!(
    /// A credential's id.
    CredentialId,
    "cr_"
);
id!(
    /// A principal's id.
    PrincipalId,
    "p_"
);

impl WorkId {
    /// The range of ids with this prefix: `w_` and at least one hex digit.
    pub fn beginning_with(text: &str) -> Result<(Self, Self), Refusal> {
        beginning(Self::PREFIX, text).map(|(first, last)| (Self(first), Self(last)))
    }
}

impl CommandId {
    /// The range of ids with this prefix: `c_` and at least one hex digit.
    pub fn beginning_with(text: &str) -> Result<(Self, Self), Refusal> {
        beginning(Self::PREFIX, text).map(|(first, last)| (Self(first), Self(last)))
    }
}

fn beginning(prefix: &str, text: &str) -> Result<(Uuid, Uuid), Refusal> {
    let digits = text
        .strip_prefix(prefix)
        .filter(|hex| (1..=32).contains(&hex.len()) && hex.bytes().all(|b| b.is_ascii_hexdigit()));
    let filled = |digit: &str| {
        let hex = digits?;
        let rest = digit.repeat(32 - hex.len());
        Uuid::try_parse(&format!("{hex}{rest}")).ok()
    };
    filled("0").zip(filled("f")).ok_or_else(|| {
        Refusal::new(
            Code::Invalid,
            format!("`{text}` is not a prefix of an id: expected {prefix} and up to 32 hex digits."),
        )
    })
}

/// A map by work item id. Ids are random enough for a trivial hash.
pub type ByWork<T> = FxHashMap<WorkId, T>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_a_range() {
        let (first, last) = WorkId::beginning_with("w_0198aB").unwrap();
        assert_eq!(first.to_string(), format!("w_0198ab{}", "0".repeat(26)));
        assert_eq!(last.to_string(), format!("w_0198ab{}", "f".repeat(26)));
        let whole = first.to_string();
        assert_eq!(WorkId::beginning_with(&whole).unwrap(), (first, first));
        for wrong in ["", "w_", "0198", "w_x", "w_-198", "wt_01", &format!("{whole}0"), "w_é"] {
            assert_eq!(WorkId::beginning_with(wrong).unwrap_err().code, Code::Invalid, "{wrong}");
        }
        assert!(CommandId::beginning_with("c_01").is_ok());
        let refusal = CommandId::beginning_with("w_01").unwrap_err();
        assert!(refusal.detail.contains("expected c_"), "{}", refusal.detail);
    }

    #[test]
    fn ids_print_and_parse_with_their_prefix() {
        let id = WorkId(Uuid::from_u128(7));
        assert_eq!(id.to_string(), "w_00000000000000000000000000000007");
        assert_eq!(id.to_string().parse::<WorkId>().unwrap(), id);
        assert!("wt_00000000000000000000000000000007".parse::<WorkId>().is_err());
        assert!("w_0000".parse::<WorkId>().is_err());
        assert_eq!(serde_json::to_string(&id).unwrap(), "\"w_00000000000000000000000000000007\"");
    }
}
