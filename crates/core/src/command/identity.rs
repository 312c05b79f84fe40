//! The identity of a command: keys that the ledger derives, and never a model.

use crate::{ids::WorkId, payload::Digest};

use super::model::{Command, CommandSpec};

/// The key of an intended effect: where and what, without the arguments. A retry that words its arguments
/// differently is still the same intent.
pub fn command_key(step: Option<&str>, tool: &str, target: &str, slot: Option<&str>) -> Digest {
    digest(&(step, tool, target, slot))
}

/// The hash that an approval is bound to. One changed byte is another seal.
pub fn seal(work: WorkId, spec: &CommandSpec) -> Digest {
    digest(&(work, &spec.tool, &spec.target, spec.input_hash))
}

/// The key that is sent to the provider: always the same for the same command.
pub fn idempotency_key(work: WorkId, spec: &CommandSpec) -> String {
    let digest = digest(&(work, spec.key, spec.input_hash)).hex();
    format!("tenure-{}", &digest[..40])
}

impl Command {
    pub fn seal(&self) -> Digest {
        seal(self.work, &self.spec)
    }

    pub fn idempotency_key(&self) -> String {
        idempotency_key(self.work, &self.spec)
    }
}

fn digest(parts: &impl serde::Serialize) -> Digest {
    Digest::of(serde_json::to_vec(parts).expect("strings and digests always serialise"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_distinguishes_its_parts() {
        let keys = [
            command_key(None, "mail", "bob", None),
            command_key(Some("mail"), "bob", "", None),
            command_key(None, "mail", "bob", Some("")),
            command_key(None, "mailbob", "", None),
            command_key(None, "mail", "bo", Some("b")),
        ];
        for (i, key) in keys.iter().enumerate() {
            assert!(!keys[..i].contains(key), "{i}");
        }
        assert_eq!(keys[0], command_key(None, "mail", "bob", None));
    }
}
