//! Prefixed ids. The server checks whether an id is well formed.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
        #[serde(transparent)]
        pub struct $name(pub String);

        impl $name {
            /// The prefix of every id of this kind.
            pub const PREFIX: &'static str = $prefix;

            /// The id as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.to_owned())
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text)
            }
        }
    };
}

id!(
    /// A work item's id: `w_` and 32 hex digits.
    WorkId,
    "w_"
);
id!(
    /// A wait's id: `wt_` and 32 hex digits.
    WaitId,
    "wt_"
);
id!(
    /// A command's id: `c_` and 32 hex digits.
    CommandId,
    "c_"
);
id!(
    /// A principal's id: `p_` and 32 hex digits.
    PrincipalId,
    "p_"
);
id!(
    /// An access token's id: `cr_` and 32 hex digits. Not the secret.
    TokenId,
    "cr_"
);
