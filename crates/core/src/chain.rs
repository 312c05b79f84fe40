//! The hash chain: each event's hash covers the hash of the event before it, so that an edited, dropped or
//! reordered event is detected. Free text and payloads are hashed into one salted digest, so that they can be
//! erased without breaking the chain.

use sha2::{Digest as _, Sha256};

use crate::{
    event::{Content, Event, Evidence},
    ids::WorkId,
    payload::{Digest, Payload},
};

/// The capacity for the hashed array of an event with little data.
const USUAL_BYTES: usize = 512;

/// The salted digest of an event's erasable part. None if the event has no such part.
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

/// The hash of an event: SHA-256 over the RFC 8785 array of all its fields except the position. The array
/// holds only strings, integers and nulls; the structured data is included as its stored text.
pub fn hash(event: &Event) -> Digest {
    let fields = (
        event.work,
        event.seq,
        event.at,
        event.fact.kind(),
        event.from.map(|s| s.as_str()),
        event.to.as_str(),
        event.actor.kind,
        &event.actor.id,
        event.attempt,
        event.step.as_deref(),
        event.fence,
        &event.data,
        event.content.map(|c| c.digest),
        event.prev_hash,
    );
    let mut text = Vec::with_capacity(USUAL_BYTES);
    serde_json::to_writer(&mut text, &fields).expect("strings and integers always serialise");
    // The name comes last and only if there is one, so that events from before names were stored keep their
    // hash.
    if let Some(name) = &event.actor.name {
        text.pop();
        text.push(b',');
        serde_json::to_writer(&mut text, name).expect("strings always serialise");
        text.push(b']');
    }
    Digest::of(text)
}

/// The first fault of a stored event, if there is one.
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
