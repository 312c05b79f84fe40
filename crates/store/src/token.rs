//! Unguessable tokens that nobody stores: a MAC over what they are for, under the ledger's own key.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use subtle::ConstantTimeEq;
use tenure_core::{CommandId, Identity, Millis, WaitId, WorkId, model::Source, payload::Digest};

/// The ledger's key: 32 random bytes, made with the ledger. Kept as a MAC that has taken it in.
#[derive(Clone)]
pub(crate) struct Key(Hmac<Sha256>);

impl Key {
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(Hmac::new_from_slice(&bytes).expect("HMAC takes a key of any length"))
    }

    /// The holder's token of one lease. It names the work, so nothing has to be read to learn which work a receipt is about.
    pub fn lease(&self, work: WorkId, fence: u64) -> String {
        format!("{work}.{}", self.mac(&[b"lease", work.0.as_bytes(), &fence.to_be_bytes()]))
    }

    /// Says how one of the relay's dispatches went.
    pub fn command(&self, command: CommandId, fence: u64) -> String {
        self.mac(&[b"command", command.0.as_bytes(), &fence.to_be_bytes()])
    }

    /// Answers one wait.
    pub fn wait(&self, wait: WaitId) -> String {
        self.mac(&[b"wait", wait.0.as_bytes()])
    }

    /// Says what one claimed lookup found.
    pub fn lookup(&self, command: CommandId, until: Millis) -> String {
        self.mac(&[b"lookup", command.0.as_bytes(), &until.to_be_bytes()])
    }

    /// Completes one externally owned work.
    pub fn complete(&self, work: WorkId) -> String {
        self.mac(&[b"complete", work.0.as_bytes()])
    }

    /// Stored instead of the hash of arguments that are not stored: the same for the same arguments of a tool in one work
    /// and its reruns. In any other work it is another, so that nobody's own commands tell what was in theirs.
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

/// The work that a lease's token names. Whether the token is genuine is another question.
pub(crate) fn work_of(token: &str) -> Option<WorkId> {
    token.split_once('.')?.0.parse().ok()
}

/// Compared in constant time: a token cannot be guessed byte by byte.
pub(crate) fn same(expected: &str, given: &str) -> bool {
    expected.as_bytes().ct_eq(given.as_bytes()).into()
}
