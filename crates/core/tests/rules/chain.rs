//! The chain: every edit, deletion, move or restoration in a log is detected.

use tenure_core::{
    Actor, Event, Evidence, State, chain,
    command::{self, Effect},
    event::Content,
    fold::{GENESIS, fold, matches},
    model::ErrorClass,
    payload::Digest,
};

use crate::common::*;

/// A log of three events; the last has a message, a payload and evidence.
fn log() -> Vec<Event> {
    let mut w = World::default();
    let id = w.ingest_with("a", |i| {
        external(i);
        i.evidence = vec![Evidence { kind: "trace".into(), reference: "t-1".into() }];
    });
    w.quarantine(id).unwrap();
    w.decide(id, tenure_core::action::Decide::Close(Box::new(close(State::Succeeded)))).unwrap();
    w.log.remove(&id).expect("three events")
}

fn fault(log: &[Event]) -> Option<String> {
    let mut previous = GENESIS;
    log.iter().find_map(|event| {
        let fault = chain::fault(event, previous);
        previous = event.hash;
        fault
    })
}

#[test]
fn an_untouched_log_is_whole() {
    assert_eq!(fault(&log()), None);
}

/// The stored hashes of existing ledgers depend on every byte of this form.
#[test]
fn a_hash_covers_the_array_of_all_fields() {
    let [first, second, mut last] = <[Event; 3]>::try_from(log()).expect("three events");
    last.step = Some("a \"step\"\n\u{7f}".into());
    last.fence = Some(u64::MAX);
    last.at = -1;
    for event in [first, second, last] {
        let array = (
            event.work,
            event.seq,
            event.at,
            event.fact.kind(),
            event.from.map(State::as_str),
            event.to.as_str(),
            event.actor.kind,
            &event.actor.id,
            event.attempt,
            event.step.as_deref(),
            event.fence,
            &event.data,
            event.content.map(|content| content.digest),
            event.prev_hash,
        );
        let text = serde_json::to_string(&array).unwrap();
        assert_eq!(chain::hash(&event), Digest::of(&text), "{event:?}");
        // The name of an actor comes last, and only if there is one.
        let mut named = event.clone();
        named.actor = event.actor.clone().named("a \"name\"");
        let with_name = text.replace(']', ",\"a \\\"name\\\"\"]");
        assert_eq!(chain::hash(&named), Digest::of(with_name), "{named:?}");
    }
}

#[test]
fn every_field_is_covered() {
    type Edit = fn(&mut Event);
    let edits: [(&str, Edit); 14] = [
        ("work", |e| e.work.0 = uuid::Uuid::from_u128(99)),
        ("seq", |e| e.seq += 1),
        ("at", |e| e.at += 1),
        ("from", |e| e.from = Some(State::Running)),
        ("to", |e| e.to = State::Failed),
        ("actor", |e| e.actor = Actor::person("eve")),
        ("actor's kind", |e| e.actor = Actor::machine("ana")),
        ("attempt", |e| e.attempt += 1),
        ("step", |e| e.step = Some("s".into())),
        ("fence", |e| e.fence = Some(1)),
        ("data", |e| e.data.push(' ')),
        ("message", |e| e.message = Some("another".into())),
        ("payload", |e| e.payload = Some(payload("another"))),
        ("evidence", |e| e.evidence.push(Evidence { kind: "k".into(), reference: "r".into() })),
    ];
    for (field, edit) in edits {
        let mut log = log();
        edit(&mut log[2]);
        assert!(fault(&log).is_some(), "{field}");
    }
}

#[test]
fn a_rehashed_edit_breaks_the_next_event() {
    let mut forged = log();
    forged[1].at += 1;
    forged[1].hash = chain::hash(&forged[1]);
    assert!(fault(&forged).is_some_and(|fault| fault.contains("event 3 does not follow")));
    forged[2].prev_hash = forged[1].hash;
    assert!(
        fault(&forged).is_some_and(|fault| fault.contains("event 3 was changed")),
        "the previous hash is covered"
    );
}

#[test]
fn a_dropped_or_moved_event_is_detected() {
    let mut dropped = log();
    dropped.remove(1);
    let mut moved = log();
    moved.swap(1, 2);
    assert!(fault(&dropped).is_some() && fault(&moved).is_some());
}

#[test]
fn an_erasure_keeps_the_chain_and_undoing_it_is_detected() {
    let mut log = log();
    let event = &mut log[2];
    let (message, kept) = (event.message.take(), event.payload.take());
    let content = event.content.expect("it has content");
    event.content = Some(Content { salt: None, ..content });
    assert_eq!(fault(&log), None);
    log[2].payload = kept;
    log[2].message = message;
    assert!(fault(&log).is_some_and(|fault| fault.contains("no salt")));
}

#[test]
fn a_text_erased_from_the_log_cannot_remain_in_a_command() {
    let mut w = World::default();
    let lease = w.held("a");
    let id = w.dispatched(&lease, lookup());
    w.call_failed(id, ErrorClass::Validation, false).unwrap();
    let mut erased = w.log[&lease.work].clone();
    for event in &mut erased {
        (event.message, event.payload, event.evidence) = (None, None, Vec::new());
        event.content = event.content.map(|content| Content { salt: None, ..content });
    }
    assert_eq!(fault(&erased), None);
    let row = w.command(id);
    let (arguments, words) = ("\"hi\"", "the line broke");
    assert!(!row.body.text().contains(arguments), "arguments are in the log alone");
    let folded = &command::fold::fold(&erased)[&id];
    assert!(row.body.text().contains(words) && !command::fold::matches(row, folded), "`verify` reports it");
    assert!(!folded.body.text().contains(words), "no other part of a command has them");
}

/// Rows that were written before dispatches had numbers lack some of them, and are valid.
#[test]
fn commands_of_older_versions_verify() {
    let mut w = World::default();
    let lease = w.held("a");
    let id = w.dispatched(&lease, native());
    for _ in 0..2 {
        w.uncertain(id).unwrap();
        w.try_dispatch(&lease, id, evaluation(Effect::Allow, native())).unwrap();
    }
    let folded = &command::fold::fold(&w.log[&lease.work])[&id];
    let mut older = w.command(id).clone();
    for _ in 0..3 {
        assert!(command::fold::matches(&older, folded));
        older.body.earlier = older.body.earlier.get(1..).unwrap_or_default().to_vec();
    }
    older.body.earlier = vec![7];
    assert!(!command::fold::matches(&older, folded));
}

#[test]
fn added_content_is_detected() {
    let mut w = World::default();
    let lease = w.held("a");
    let log = w.log.get_mut(&lease.work).unwrap();
    assert_eq!(log[1].content, None, "a claim has no message");
    log[1].message = Some("added".into());
    assert!(fault(log).is_some_and(|fault| fault.contains("got content")));
}

#[test]
fn equal_contents_have_unequal_digests() {
    let mut w = World::default();
    let (a, b) = (w.ingest("a"), w.ingest("b"));
    let digest = |id| w.log[&id][0].content.map(|content| content.digest);
    assert_ne!(digest(a), digest(b), "salted: one cannot be guessed from the other");
    assert_ne!(digest(a), Some(Digest::default()));
}

/// Rows that were written before the time in a state was stored lack it, and are valid.
#[test]
fn rows_of_older_versions_verify() {
    let log = log();
    let folded = fold(&log).unwrap();
    assert_eq!(folded.body.state_since, Some(log[2].at));
    let mut older = folded.clone();
    older.body.state_since = None;
    assert!(matches(&older, &folded));
    older.body.state_since = Some(log[2].at - 1);
    assert!(!matches(&older, &folded));
}
