//! The anchor: a running digest of the feed. The ledger's own is advanced by the sweeper. A signed copy that is stored
//! elsewhere shows later whether the ledger still has every event that it had then.

use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq;
use tenure_core::{Code, Millis, Refusal, payload::Digest};

use crate::{Error, Ledger, Position, token::Key};

const PAGE: usize = 500;

/// The limit on events that the sweeper anchors at a time: enough to keep up with a busy ledger, and few
/// enough to have no noticeable cost.
const ADVANCE: u64 = 10_000;

/// A running digest of the feed. A copy that is stored elsewhere reveals deleted work items and a truncated
/// feed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Anchor {
    /// The feed position that it covers.
    pub position: Position,
    /// The number of events that it covers.
    pub events: u64,
    /// The running digest over these events.
    pub digest: Digest,
}

/// A copy of the anchor to be stored elsewhere. Its MAC is under the ledger's key, so only this ledger makes and accepts it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedAnchor {
    /// The id of the ledger: it shows of which one this is the anchor.
    pub ledger: String,
    /// When the copy was made.
    pub at: Millis,
    /// The anchor.
    pub anchor: Anchor,
    /// HMAC-SHA256 over the other fields.
    pub mac: Digest,
}

impl Key {
    /// Names the ledger and reveals nothing of its key. Copies of a ledger have the same id.
    pub fn ledger_id(&self) -> String {
        let mut id = self.digest(&[b"ledger"]).hex();
        id.truncate(32);
        format!("l_{id}")
    }

    fn sign(&self, ledger: &str, at: Millis, anchor: &Anchor) -> Digest {
        let content = (ledger, at, anchor.position.to_string(), anchor.events, anchor.digest);
        let content = serde_json::to_vec(&content).expect("strings, numbers and digests always serialise");
        self.digest(&[b"signed anchor", &content])
    }
}

impl Anchor {
    fn add(&mut self, position: Position, hash: Digest) {
        let mut bytes = self.digest.0.to_vec();
        bytes.extend(position.to_string().into_bytes());
        bytes.extend(hash.0);
        self.digest = Digest::of(bytes);
        self.events += 1;
        self.position = position;
    }
}

impl Ledger {
    /// The id of this ledger. A copy of it has the same.
    pub fn id(&self) -> String {
        self.store().key().ledger_id()
    }

    /// The ledger's own anchor, as far as sweepers have advanced it.
    pub async fn anchor(&self) -> Result<Anchor, Error> {
        self.store().anchor().await
    }

    /// A signed copy of the anchor over everything that is settled by now, to be stored outside the database.
    pub async fn signed_anchor(&self) -> Result<SignedAnchor, Error> {
        let anchor = self.extend_anchor(self.anchor().await?).await?;
        let (ledger, at) = (self.id(), self.now().await?);
        let mac = self.store().key().sign(&ledger, at, &anchor);
        Ok(SignedAnchor { ledger, at, anchor, mac })
    }

    /// Refuses a copy that is not of this ledger, or that this ledger did not sign.
    pub fn check_signature(&self, copy: &SignedAnchor) -> Result<(), Error> {
        let own = self.id();
        if copy.ledger != own {
            let detail = format!(
                "This is an anchor of the ledger {}, and this ledger is {own}. Check it against the ledger that made it.",
                copy.ledger
            );
            return Err(Refusal::new(Code::OtherLedger, detail).into());
        }
        let mac = self.store().key().sign(&copy.ledger, copy.at, &copy.anchor);
        if bool::from(mac.0.ct_eq(&copy.mac.0)) {
            return Ok(());
        }
        let detail = "The MAC of this anchor is wrong: it was changed after this ledger made it, or was made without \
                      the ledger's key. Use another copy.";
        Err(Refusal::new(Code::AnchorForged, detail).into())
    }

    /// The part of a copy's events that the feed lacks, in a sentence. None: it still begins with exactly these events.
    pub(crate) async fn copy_fault(&self, copy: &SignedAnchor) -> Result<Option<String>, Error> {
        let Some(fault) = self.prefix_fault(&copy.anchor).await? else { return Ok(None) };
        // The own anchor was written by this database, so an older copy of it agrees with itself.
        let older = match self.anchor().await {
            Ok(own) => own.events < copy.anchor.events && self.verify_anchor(&own).await?,
            Err(Error::Corrupt(_)) => false,
            Err(error) => return Err(error),
        };
        let made = tenure_core::schedule::rfc3339(copy.at);
        let hint = match (&fault, older) {
            (PrefixFault::Ends { .. }, true) => {
                ". The ledger's own anchor agrees with what is there: this is an older copy of the ledger, or its newest \
                 events were cut off before they were anchored"
            }
            (PrefixFault::Ends { .. }, false) => ": its newest events were cut off",
            (PrefixFault::Differs { .. }, _) => {
                ": an event was edited or replaced, or this is an older copy of the ledger that was written to since"
            }
            (PrefixFault::Lacks { .. }, _) => {
                ": events or whole work items were deleted without being pruned, or this is an older copy of the ledger that was \
                 written to since"
            }
            (PrefixFault::Exceeds { .. }, _) => ": events were inserted",
        };
        Ok(Some(format!("the feed does not match the anchor of {made}: {fault}{hint}")))
    }

    /// Advances the ledger's own anchor over some of the events that have settled since.
    pub(crate) async fn advance_anchor(&self) -> Result<(), Error> {
        let from = self.anchor().await?;
        let to = self.anchored(from, from.events + ADVANCE).await?;
        if to == from {
            return Ok(());
        }
        self.store().set_anchor(to).await
    }

    /// Extends an anchor over everything that is settled by now.
    pub async fn extend_anchor(&self, from: Anchor) -> Result<Anchor, Error> {
        self.anchored(from, u64::MAX).await
    }

    /// Whether the feed still begins with exactly the events that an anchor covers.
    pub async fn verify_anchor(&self, anchor: &Anchor) -> Result<bool, Error> {
        Ok(self.prefix_fault(anchor).await?.is_none())
    }

    /// How the feed up to an anchor's position differs from what the anchor covers.
    pub(crate) async fn prefix_fault(&self, anchor: &Anchor) -> Result<Option<PrefixFault>, Error> {
        let mut found = Anchor::default();
        let mut goes_on = false;
        while !goes_on {
            let links = self.store().links(found.position, PAGE).await?;
            if links.is_empty() {
                break;
            }
            for (position, hash) in links {
                if position > anchor.position {
                    goes_on = true;
                    break;
                }
                found.add(position, hash);
            }
        }
        let (events, covered) = (found.events, anchor.events);
        Ok(if found == *anchor {
            None
        } else if events < covered && !goes_on && found.position < anchor.position {
            Some(PrefixFault::Ends { events, covered })
        } else if events < covered {
            Some(PrefixFault::Lacks { missing: covered - events, covered })
        } else if events > covered {
            Some(PrefixFault::Exceeds { added: events - covered, covered })
        } else {
            Some(PrefixFault::Differs { covered })
        })
    }

    async fn anchored(&self, mut anchor: Anchor, until: u64) -> Result<Anchor, Error> {
        loop {
            let left = usize::try_from(until - anchor.events).unwrap_or(usize::MAX);
            let links = self.store().links(anchor.position, PAGE.min(left)).await?;
            if links.is_empty() {
                return Ok(anchor);
            }
            links.into_iter().for_each(|(position, hash)| anchor.add(position, hash));
        }
    }
}

/// How the feed differs from what an anchor covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PrefixFault {
    #[error("the feed ends after {events} of the {covered} events that it covers")]
    Ends { events: u64, covered: u64 },
    #[error("{missing} of the {covered} events that it covers are missing, and later ones are there")]
    Lacks { missing: u64, covered: u64 },
    #[error("there are {added} more events than the {covered} that it covers")]
    Exceeds { added: u64, covered: u64 },
    #[error("there are as many events as it covers ({covered}), but not the same ones")]
    Differs { covered: u64 },
}
