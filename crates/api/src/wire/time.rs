//! Timestamps on the wire: RFC 3339, UTC, milliseconds.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// Milliseconds since the Unix epoch. `2026-01-31T08:15:00.000Z` in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub i64);

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // RFC 3339 has no form for a time beyond year 9999; the nearest time that it can express is written.
        let nearest = if self.0 < 0 { jiff::Timestamp::MIN } else { jiff::Timestamp::MAX };
        let at = jiff::Timestamp::from_millisecond(self.0).unwrap_or(nearest);
        write!(f, "{at:.3}")
    }
}

impl FromStr for Timestamp {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse::<jiff::Timestamp>() {
            Ok(at) => Ok(Self(at.as_millisecond())),
            Err(_) => Err(format!("`{text}` is not an RFC 3339 time: write it as 2026-01-31T08:15:00.000Z")),
        }
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(feature = "openapi")]
mod schema {
    use utoipa::{
        PartialSchema, ToSchema,
        openapi::{
            RefOr,
            schema::{KnownFormat, ObjectBuilder, Schema, SchemaFormat, Type},
        },
    };

    use super::Timestamp;

    impl PartialSchema for Timestamp {
        fn schema() -> RefOr<Schema> {
            ObjectBuilder::new()
                .schema_type(Type::String)
                .format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime)))
                .description(Some("RFC 3339, UTC, milliseconds."))
                .into()
        }
    }

    impl ToSchema for Timestamp {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_in_utc_with_milliseconds() {
        assert_eq!(Timestamp(0).to_string(), "1970-01-01T00:00:00.000Z");
        assert_eq!(Timestamp(1_769_847_300_007).to_string(), "2026-01-31T08:15:00.007Z");
        for text in ["2026-01-31T08:15:00.007Z", "2026-01-31T09:15:00.007+01:00"] {
            assert_eq!(text.parse::<Timestamp>().unwrap(), Timestamp(1_769_847_300_007));
        }
        assert!("yesterday".parse::<Timestamp>().unwrap_err().contains("2026-01-31T08:15:00.000Z"));
    }

    #[test]
    fn a_time_beyond_rfc_3339_does_not_fail() {
        assert!(Timestamp(i64::MAX).to_string().starts_with("9999-"));
    }
}
