//! The hash chain: each event's hash covers its predecessor's, so that an edited, dropped or reordered
//! event shows. Free text and payloads enter as one salted digest and can be erased.

use serde::Serialize;
use sha2::{Digest as _, Sha256};

use crate::{
    event::{Content, Event, Evidence},
    ids::WorkId,
    payload::{Digest, Payload},
};

/// Room for the array of an event but for its data.
const USUAL_BYTES: usize = 512;

/// The salted digest of an event's erasable part. None where it has none.
pub fn content(
    message: Option<&str>,
    payload: Option<&Payload>,
    evidence: &[Evidence],
    seed: &[u8; 16],
    work: WorkId,
    seq: u64,
) -> Option<Content> {
    if message.is_none() && payload.is_none() && evidence.is_empty() {
        return None;
    }
    let mut salt = [0; 16];
    let derived = Sha256::new()
        .chain_update(seed)
        .chain_update(work.0.as_bytes())
        .chain_update(seq.to_be_bytes())
        .finalize();
    salt.copy_from_slice(&derived[..16]);
    Some(Content { digest: content_digest(&salt, message, payload, evidence), salt: Some(salt) })
}

fn content_digest(
    salt: &[u8; 16],
    message: Option<&str>,
    payload: Option<&Payload>,
    evidence: &[Evidence],
) -> Digest {
    let mut hash = Sha256::new().chain_update(salt);
    let parts = (message, payload.map(Payload::hash), evidence);
    hash.update(serde_json::to_vec(&parts).expect("strings and digests always serialise"));
    Digest(hash.finalize().into())
}

/// The hash of an event: SHA-256 over the RFC 8785 array of all its fields but the position. The array
/// holds only strings, integers and nulls; the structured data enters as its stored text.
pub fn hash(event: &Event) -> Digest {
    let mut array = Array::with_room(USUAL_BYTES + 2 * event.data.len());
    array.plain(WorkId::PREFIX, event.work.0.simple().encode_lower(&mut [0; 32]));
    array.value(&event.seq);
    array.value(&event.at);
    array.plain("", event.fact.kind());
    match event.from {
        Some(from) => array.plain("", from.as_str()),
        None => array.value(&()),
    }
    array.plain("", event.to.as_str());
    array.plain("", event.actor.kind.as_str());
    array.text(&event.actor.id);
    array.value(&event.attempt);
    match &event.step {
        Some(step) => array.text(step),
        None => array.value(&()),
    }
    array.value(&event.fence);
    array.text(&event.data);
    match event.content {
        Some(content) => array.plain("", content.digest.digits(&mut [0; 64])),
        None => array.value(&()),
    }
    array.plain("", event.prev_hash.digits(&mut [0; 64]));
    Digest::of(array.closed())
}

/// A JSON array being written. Every event is written so once: most of it is known to need no escapes, and what does is
/// full of quotes, for which the usual search from one to the next is slow.
struct Array(Vec<u8>);

impl Array {
    fn with_room(bytes: usize) -> Self {
        let mut text = Vec::with_capacity(bytes);
        text.push(b'[');
        Self(text)
    }

    fn closed(mut self) -> Vec<u8> {
        self.0.pop();
        self.0.push(b']');
        self.0
    }

    fn value(&mut self, value: &impl Serialize) {
        serde_json::to_writer(&mut self.0, value).expect("strings and integers always serialise");
        self.0.push(b',');
    }

    /// A string of letters, digits and underscores, in two parts.
    fn plain(&mut self, first: &str, rest: &str) {
        self.0.push(b'"');
        self.0.extend_from_slice(first.as_bytes());
        self.0.extend_from_slice(rest.as_bytes());
        self.0.extend_from_slice(b"\",");
    }

    fn text(&mut self, text: &str) {
        if text.bytes().any(|byte| byte < b' ') {
            return self.value(&text);
        }
        self.0.push(b'"');
        let mut end = self.0.len();
        // Without a branch: where the next quote is cannot be guessed.
        self.0.resize(end + 2 * text.len(), b'\\');
        for byte in text.bytes() {
            end += usize::from(byte == b'"' || byte == b'\\');
            self.0[end] = byte;
            end += 1;
        }
        self.0.truncate(end);
        self.0.extend_from_slice(b"\",");
    }
}

/// What is wrong with an event as it stands in a store, if anything.
pub fn fault(event: &Event, previous: Digest) -> Option<String> {
    if event.prev_hash != previous {
        return Some(format!("event {} does not follow the event before it", event.seq));
    }
    if hash(event) != event.hash {
        return Some(format!("event {} was changed after it was written", event.seq));
    }
    let kept = event.message.is_some() || event.payload.is_some() || !event.evidence.is_empty();
    match event.content {
        None if kept => Some(format!("event {} got content after it was written", event.seq)),
        Some(Content { digest, salt: Some(salt) })
            if content_digest(&salt, event.message.as_deref(), event.payload.as_ref(), &event.evidence)
                != digest =>
        {
            Some(format!("the content of event {} was changed after it was written", event.seq))
        }
        Some(Content { salt: None, .. }) if kept => {
            Some(format!("event {} has content but no salt: it was put back after an erasure", event.seq))
        }
        None | Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_array_is_written_as_serde_writes_it() {
        let texts =
            ["", "plain", "\"", "\\", "{\"a\":\"\\\"b\\\\\"}", "two\nlines\t\u{1}\"", "é😀\u{7f}\u{2028}\""];
        for text in texts {
            let mut array = Array::with_room(0);
            array.text(text);
            array.plain("w_", "7");
            array.value(&None::<u64>);
            array.text(text);
            let usual = serde_json::to_vec(&(text, "w_7", None::<u64>, text)).unwrap();
            assert_eq!(array.closed(), usual, "{text:?}");
        }
    }
}
