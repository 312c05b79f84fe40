//! The secret of a credential: 256 random bits, shown once.

use std::fmt;

use tenure_core::payload::Digest;
use tenure_store::Error;

const PREFIX: &str = "tn_";

#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub fn generate() -> Result<Self, Error> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).map_err(|e| Error::Unavailable(format!("no random numbers: {e}")))?;
        Ok(Self(format!("{PREFIX}{}", Digest(bytes).hex())))
    }

    /// A secret that an operator chose.
    pub fn given(text: String) -> Self {
        Self(text)
    }

    pub fn hash(&self) -> Digest {
        Self::hash_of(&self.0)
    }

    pub fn hash_of(token: &str) -> Digest {
        Digest::of(token)
    }

    /// The text, for the one response or file that shows it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

/// Never shown in a log.
impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}
