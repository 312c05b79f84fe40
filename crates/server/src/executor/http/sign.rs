//! Standard Webhooks: a stable id, a timestamp, and an HMAC over both and the body.

use std::{fmt, str::FromStr};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// The key for signatures. Never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct WebhookSecret(Vec<u8>);

impl FromStr for WebhookSecret {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let key = text.trim().strip_prefix("whsec_").and_then(|encoded| STANDARD.decode(encoded).ok());
        match key {
            Some(key) if (24..=64).contains(&key.len()) => Ok(Self(key)),
            _ => Err("it is not a webhook secret: write whsec_ and 24 to 64 bytes in base64".to_owned()),
        }
    }
}

impl fmt::Debug for WebhookSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("whsec_…")
    }
}

impl WebhookSecret {
    /// The value of `webhook-signature`.
    pub fn sign(&self, id: &str, unix_s: i64, body: &[u8]) -> String {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes keys of any length");
        mac.update(format!("{id}.{unix_s}.").as_bytes());
        mac.update(body);
        format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    #[test]
    fn signatures_match_the_reference_implementation() {
        let (id, at, body) = ("tenure-1", 1_700_000_000, br#"{"type":"notify"}"#);
        let oracle = standardwebhooks::Webhook::new(SECRET).unwrap();
        let ours = SECRET.parse::<WebhookSecret>().unwrap().sign(id, at, body);
        assert_eq!(ours, oracle.sign(id, at, body).unwrap());
    }

    #[test]
    fn a_secret_is_one_and_is_never_shown() {
        for wrong in ["", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_!!!", "whsec_c2hvcnQ="] {
            assert!(wrong.parse::<WebhookSecret>().unwrap_err().contains("whsec_"), "{wrong}");
        }
        assert_eq!(format!("{:?}", SECRET.parse::<WebhookSecret>().unwrap()), "whsec_…");
    }
}
