//! Rows that no event log covers. Each is stored with a MAC under the ledger's key, so that `verify` finds
//! rows that were added or changed by somebody without the key. An earlier state of a row that is restored
//! together with its MAC is not found.

use serde::{Deserialize, Serialize};
use tenure_core::{WorkId, action::Names, model::Kept, payload::Digest};

use crate::{Anchor, Credential, Error, Position, Pruning, retention::Tombstone, token::Key};

/// Every stored MAC depends on the form of `content`, which therefore must never change.
pub(crate) trait Unlogged {
    /// The name of the row in findings.
    fn name(&self) -> String;

    /// The whole content, as JSON.
    fn content(&self) -> Vec<u8>;
}

/// The position and the hash of a pruned event.
pub(crate) struct Link {
    pub position: Position,
    pub hash: Digest,
    pub work: Option<WorkId>,
}

/// The anchor as it is stored.
#[derive(Serialize, Deserialize)]
pub(crate) struct StoredAnchor {
    anchor: Anchor,
    mac: Digest,
}

impl Key {
    pub fn row_mac(&self, row: &dyn Unlogged) -> Digest {
        self.digest(&[b"row", &row.content()])
    }

    fn is_mac_of(&self, row: &dyn Unlogged, mac: Option<Digest>) -> bool {
        mac == Some(self.row_mac(row))
    }

    /// Returns a row if the ledger wrote it.
    pub fn genuine<T: Unlogged>(&self, row: T, mac: Option<Digest>) -> Option<T> {
        if self.is_mac_of(&row, mac) {
            return Some(row);
        }
        tracing::error!(row = row.name(), "a row that was not written by the ledger is ignored");
        None
    }

    /// The fault of a row with a wrong MAC.
    pub fn fault(&self, row: &dyn Unlogged, mac: Option<Digest>) -> Option<String> {
        let fault = || format!("{} was added or changed outside the ledger", row.name());
        (!self.is_mac_of(row, mac)).then(fault)
    }

    pub fn with_mac(&self, anchor: Anchor) -> StoredAnchor {
        StoredAnchor { anchor, mac: self.row_mac(&anchor) }
    }

    pub fn without_mac(&self, stored: Option<StoredAnchor>) -> Result<Anchor, Error> {
        let Some(StoredAnchor { anchor, mac }) = stored else {
            let what = "the anchor was deleted: compare the feed with a copy or a backup";
            return Err(Error::Corrupt(what.to_owned()));
        };
        self.fault(&anchor, Some(mac)).map_or(Ok(anchor), |fault| Err(Error::Corrupt(fault)))
    }
}

fn json(content: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(content).expect("strings, numbers and digests always serialise")
}

impl Unlogged for Credential {
    fn name(&self) -> String {
        format!("credential {}", self.id)
    }

    fn content(&self) -> Vec<u8> {
        let Self { id, name, principal, hash, scopes, tenants, kinds, .. } = self;
        let Self { worker, created_at, created_by, expires_at, revoked, .. } = self;
        let of = (principal.id, principal.kind, &principal.name);
        let revoked = revoked.as_ref().map(|revoked| (revoked.at, &revoked.by, &revoked.reason));
        let bounds = (scopes, only(tenants), only(kinds), worker, expires_at);
        json(&("credential", id, name, of, hash, bounds, created_at, created_by, revoked))
    }
}

fn only(names: &Names) -> Option<&[String]> {
    match names {
        Names::All => None,
        Names::Only(list) => Some(list),
    }
}

impl Unlogged for Kept {
    fn name(&self) -> String {
        format!("the answer kept for `{}` of tenant `{}`", self.reference, self.tenant)
    }

    fn content(&self) -> Vec<u8> {
        let Self { tenant, reference, payload, actor, evidence, kept_at } = self;
        json(&("kept", tenant, reference, payload.text(), actor, evidence, kept_at))
    }
}

impl Unlogged for Pruning {
    fn name(&self) -> String {
        format!("the record of the pruning at {}", self.at)
    }

    fn content(&self) -> Vec<u8> {
        let Self { at, actor, reason, ended_before, works } = self;
        json(&("pruning", at, actor, reason, ended_before, works))
    }
}

impl Unlogged for Tombstone {
    fn name(&self) -> String {
        format!("the tombstone of {}", self.work)
    }

    fn content(&self) -> Vec<u8> {
        let Self { work, identity, generation, pruned_at } = self;
        let source = &identity.source;
        let identity = (&identity.tenant, &source.system, &source.id, &source.run_id);
        json(&("tombstone", work, identity, generation, pruned_at))
    }
}

impl Unlogged for Link {
    fn name(&self) -> String {
        format!("the link of the pruned event at {}", self.position)
    }

    fn content(&self) -> Vec<u8> {
        json(&("link", self.position.to_string(), self.hash, self.work))
    }
}

impl Unlogged for Anchor {
    fn name(&self) -> String {
        "the anchor".to_owned()
    }

    fn content(&self) -> Vec<u8> {
        json(&("anchor", self.position.to_string(), self.events, self.digest))
    }
}
