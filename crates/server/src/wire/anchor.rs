//! Copies of the anchor.

use tenure_api::wire as w;
use tenure_core::{Code, Refusal};
use tenure_store::{Anchor, SignedAnchor};

use super::{at, digest};

pub(crate) fn anchor(signed: &SignedAnchor) -> w::Anchor {
    let Anchor { position, events, digest } = signed.anchor;
    w::Anchor {
        format: w::Anchor::FORMAT,
        ledger: signed.ledger.clone(),
        at: at(signed.at),
        position: position.to_string(),
        events,
        digest: digest.hex(),
        mac: signed.mac.hex(),
    }
}

pub(crate) fn signed_anchor(copy: w::Anchor) -> Result<SignedAnchor, Refusal> {
    if copy.format != w::Anchor::FORMAT {
        let detail = format!(
            "The anchor has the format {}, and this version reads format {}. Verify it with the version that made it.",
            copy.format,
            w::Anchor::FORMAT
        );
        return Err(Refusal::new(Code::Unsupported, detail));
    }
    let anchor = Anchor {
        position: copy.position.parse()?,
        events: copy.events,
        digest: digest("anchor.digest", &copy.digest)?,
    };
    let mac = digest("anchor.mac", &copy.mac)?;
    Ok(SignedAnchor { ledger: copy.ledger, at: copy.at.0, anchor, mac })
}
