//! Unguessable tokens that are not stored: a MAC of their purpose under the ledger's own key.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use subtle::ConstantTimeEq;
use tenure_core::{
    CommandId, Identity, Millis, WaitId, WorkId, model::Source, payload::Digest, recovery::Verdict,
    work::plan::PlanRow,
};

/// The ledger's key: 32 random bytes, created with the ledger. Kept as an initialised MAC.
#[derive(Clone)]
pub(crate) struct Key(Hmac<Sha256>);

impl Key {
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(Hmac::new_from_slice(&bytes).expect("HMAC takes a key of any length"))
    }

    /// The lease token. It contains the work item's id, so that a receipt needs no lookup to find its work
    /// item.
    pub fn lease(&self, work: WorkId, fence: u64) -> String {
        format!("{work}.{}", self.mac(&[b"lease", work.0.as_bytes(), &fence.to_be_bytes()]))
    }

    /// The token that authorises a report on a dispatch by the relay.
    pub fn command(&self, command: CommandId, fence: u64) -> String {
        self.mac(&[b"command", command.0.as_bytes(), &fence.to_be_bytes()])
    }

    /// The wait token.
    pub fn wait(&self, wait: WaitId) -> String {
        self.mac(&[b"wait", wait.0.as_bytes()])
    }

    /// The token that authorises the result of a claimed lookup.
    pub fn lookup(&self, command: CommandId, until: Millis) -> String {
        self.mac(&[b"lookup", command.0.as_bytes(), &until.to_be_bytes()])
    }

    /// The completion token of an externally owned work item.
    pub fn complete(&self, work: WorkId) -> String {
        self.mac(&[b"complete", work.0.as_bytes()])
    }

    /// The id of a recovery plan: the hash of its rows, under the key of this ledger. Another ledger's plan never has it.
    pub fn plan<'a>(&self, rows: impl Iterator<Item = &'a PlanRow>) -> String {
        let rows: Vec<String> = rows
            .map(|row| {
                let verdict = row.verdict.map_or("none", Verdict::as_str);
                format!("{} {} {verdict} {}", row.work, row.seq, row.to)
            })
            .collect();
        format!("p_{}", &self.mac(&[b"recovery plan", rows.join("\n").as_bytes()])[..32])
    }

    /// Stored instead of the hash of redacted arguments: equal for equal arguments of a tool in one work item
    /// and its reruns. In other work items it differs, so that nobody can test guesses with commands of their
    /// own.
    pub fn redacted(&self, identity: &Identity, tool: &str, arguments: Digest) -> Digest {
        let Identity { tenant, source: Source { system, id, run_id } } = identity;
        let [tenant, system, id, run_id, tool] =
            [tenant, system, id, run_id, tool].map(|name: &str| name.as_bytes());
        self.digest(&[b"redacted", tenant, system, id, run_id, tool, &arguments.0])
    }

    fn mac(&self, parts: &[&[u8]]) -> String {
        self.digest(parts).hex()
    }

    pub(crate) fn digest(&self, parts: &[&[u8]]) -> Digest {
        let mut mac = self.0.clone();
        parts.iter().for_each(|part| {
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part);
        });
        Digest(mac.finalize().into_bytes().into())
    }
}

/// The work item in a lease token, which is not authenticated yet.
pub(crate) fn work_of(token: &str) -> Option<WorkId> {
    token.split_once('.')?.0.parse().ok()
}

/// Compared in constant time: a token cannot be guessed byte by byte.
pub(crate) fn same(expected: &str, given: &str) -> bool {
    expected.as_bytes().ct_eq(given.as_bytes()).into()
}
