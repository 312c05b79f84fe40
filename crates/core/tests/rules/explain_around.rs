//! The parts of an explanation from outside the work item's own row: its session, its commands, its last
//! refusal.

use tenure_core::{
    Actor, Code, CommandState, Refusal, State, WorkId,
    action::{Decide, Target, TokenCheck},
    command::{self, Effect, Evaluation, Idempotency, Proof, Recorded, Risk},
    model::{ErrorClass, WaitKind},
    next::Next,
};

use crate::common::*;

fn blind() -> command::ToolFacts {
    tool(Idempotency::None, Risk::Low)
}

fn allow(facts: command::ToolFacts) -> Evaluation {
    evaluation(Effect::Allow, facts)
}

/// The sentence, and the advice with its commands, the ids replaced.
fn said(w: &World, id: WorkId, names: &[(String, &str)]) -> (String, String) {
    let found = w.explain(id);
    let plain = |text: String| names.iter().fold(text, |text, (id, name)| text.replace(id, name));
    let next = found.next.iter().map(|next| format!(" | {next}"));
    (plain(found.sentence), plain(format!("{}{}", found.advice, next.collect::<String>())))
}

#[test]
fn the_holder_of_the_session_is_named() {
    let mut w = World::default();
    let lease = w.held_with("a", in_session);
    let (second, third) = (w.ingest_with("b", in_session), w.ingest_with("c", in_session));
    w.pass(300 * SECOND);
    w.renew(&lease).unwrap();
    let names = [(lease.work.to_string(), "A"), (second.to_string(), "B")];
    let session = w.row(second).spec.session.clone().unwrap();
    for id in [second, third] {
        let (sentence, next) = said(&w, id, &names);
        assert_eq!(
            sentence,
            format!("Queued 5 m: w1 holds its session `{session}` with A, which is running.")
        );
        assert_eq!(next, "nothing: it is claimed once A releases the session | tenure explain A");
    }
    w.close(&lease, State::Succeeded).unwrap();
    assert!(said(&w, second, &names).1.starts_with("nothing: the next worker"));
    let (sentence, next) = said(&w, third, &names);
    assert_eq!(
        sentence,
        format!("Queued 5 m: B is older, queued, and comes first in its session `{session}`.")
    );
    assert_eq!(next, "nothing: it is claimed once B is done | tenure explain B");
}

#[test]
fn an_ended_work_names_the_needs_of_its_commands() {
    let mut w = World::default();
    let lease = w.held("a");
    let mut ids = Vec::new();
    for slot in ["1", "2", "3"] {
        let mut wish = intent(w.command_id(), "hi", allow(relay(blind())));
        wish.1.slot = Some(slot.to_owned());
        ids.push(w.try_reserve(&lease, wish).unwrap().id);
    }
    w.close(&lease, State::Succeeded).unwrap();
    let names = [(lease.work.to_string(), "W"), (ids[0].to_string(), "C1"), (ids[1].to_string(), "C2")];
    let over = "Succeeded 0 s ago in one attempt: its result is in event 6";
    let (sentence, next) = said(&w, lease.work, &names);
    assert_eq!(sentence, format!("{over}; 3 of its commands are still to be executed."));
    assert_eq!(next, "nothing: it is over | tenure commands list --work W");
    for id in &ids[..2] {
        w.relay_dispatch(*id, allow(relay(blind()))).unwrap();
        w.uncertain(*id).unwrap();
        assert!(w.command(*id).body.needs_person);
    }
    let (sentence, next) = said(&w, lease.work, &names);
    assert_eq!(
        sentence,
        format!(
            "{over}; it is unknown whether 2 of its commands happened, and only a person can find out; one of its \
             commands is still to be executed."
        )
    );
    assert_eq!(
        next,
        "find out whether it happened, and record it | tenure commands record C1 --happened | \
         tenure commands record C1 --did-not-happen | tenure commands list --work W"
    );
    for id in &ids[..2] {
        w.record(*id, Recorded::Happened(Proof::provider("x"))).unwrap();
    }
    w.relay_dispatch(ids[2], allow(relay(blind()))).unwrap();
    w.receipt(ids[2]).unwrap();
    assert_eq!(said(&w, lease.work, &names), (format!("{over}."), "nothing: it is over".to_owned()));
}

#[test]
fn failed_and_running_work_names_the_needs_of_its_commands() {
    let mut w = World::default();
    let lease = w.held("a");
    let id = w.reserve(&lease, evaluation(Effect::NeedsApproval, lookup()));
    let names = [(lease.work.to_string(), "W"), (id.to_string(), "C")];
    let (sentence, next) = said(&w, lease.work, &names);
    assert!(sentence.ends_with("renewed 0 s ago; one of its commands waits for an approval."), "{sentence}");
    assert_eq!(
        next,
        "approve exactly this command, or reject it; otherwise nothing: it is being worked on | \
         tenure approve C | tenure reject C | tenure cancel W"
    );

    let lease = w.held("b");
    let id = w.dispatched(&lease, blind());
    w.close(&lease, State::Failed).unwrap();
    let names = [(lease.work.to_string(), "W"), (id.to_string(), "C")];
    let (sentence, next) = said(&w, lease.work, &names);
    assert!(
        sentence
            .ends_with("it is unknown whether one of its commands happened, and only a person can find out.")
    );
    assert_eq!(
        next,
        "find out whether it happened, and record it | tenure commands record C --happened | \
         tenure commands record C --did-not-happen | tenure rerun W"
    );
}

#[test]
fn a_settled_doubt_is_not_explained_as_open() {
    let mut w = World::default();
    let lease = w.held("a");
    let id = w.dispatched(&lease, blind());
    w.after(LAPSE, lease.work);
    assert_eq!(w.state(lease.work), State::Quarantined);
    let names = [(lease.work.to_string(), "W"), (id.to_string(), "C")];
    let (sentence, next) = said(&w, lease.work, &names);
    assert!(
        sentence.starts_with(
            "Quarantined 0 s: a side effect is in doubt (it is unknown whether this happened: mail to"
        ),
        "{sentence}"
    );
    assert_eq!(
        next,
        "find out what happened, and record it; then decide on the work item | \
         tenure commands record C --happened | tenure commands record C --did-not-happen | \
         tenure commands list --work W"
    );
    w.receipt(id).unwrap();
    assert_eq!(
        said(&w, lease.work, &names),
        (
            "Quarantined 0 s: a side effect was in doubt (nothing is in doubt any more); it stays until a person \
             decides."
                .to_owned(),
            "decide whether it runs again or has ended | tenure requeue W | tenure decide W failed".to_owned()
        )
    );
    w.decide(lease.work, Decide::Requeue).unwrap();
}

#[test]
fn a_command_handed_to_a_wait_is_explained_by_the_wait() {
    let mut w = World::default();
    let lease = w.held("a");
    let id = w.dispatched(&lease, lookup());
    let mut spec = w.spec("the bank calls", WaitKind::Tool);
    spec.command = Some(id);
    w.wait_for(&lease, vec![spec]).unwrap();
    let wait = w.records.waits[&lease.work][0].clone();
    let said = command::explain(w.command(id), Some(&wait), w.now);
    assert!(
        said.sentence.ends_with(
            "dispatched 0 s ago by w1 and handed over to the wait `the bank calls`, whose answer is its receipt; \
             unanswered, it is uncertain in 2 h."
        ),
        "{}",
        said.sentence
    );
    assert_eq!(said.advice, "answer it once its outcome is known");
    assert_eq!(said.next, [Next::Answer("the bank calls".to_owned())]);
}

/// No sentence contains a number of milliseconds, JSON, or a name from the code.
fn says(refusal: Refusal, code: Code, words: &[&str]) {
    assert_eq!(refusal.code, code, "{}", refusal.detail);
    let detail = refusal.detail;
    for word in words {
        assert!(detail.contains(word), "{word}: {detail}");
    }
    let raw = |word: &str| word.trim_matches('.').parse::<u64>().is_ok_and(|number| number > 1_000_000);
    assert!(!detail.contains('{') && !detail.split(' ').any(raw), "{detail}");
}

#[test]
fn refusals_say_what_to_do_next_in_words() {
    let mut w = World::default();
    let lease = w.held("a");
    let busy = w.try_claim(lease.work, &w2()).unwrap_err();
    says(busy, Code::Busy, &["held by w1 until ", "Z, unless it renews. Try again later."]);
    w.close(&lease, State::Failed).unwrap();
    let again = w.close(&lease, State::Succeeded).unwrap_err();
    says(again, Code::LeaseLost, &["has ended as failed", "to run it again, rerun it"]);

    let id = w.ingest("q");
    w.quarantine(id).unwrap();
    let aside = w.try_claim(id, &w1()).unwrap_err();
    says(aside, Code::NotClaimable, &["a person decides on it first", &format!("`tenure requeue {id}`")]);

    let lease = w.held_with("r", |i| i.policy.retry.initial_ms = 300_000);
    w.fail(&lease, ErrorClass::RateLimited, "slow down").unwrap();
    let early = w.try_claim(lease.work, &w1()).unwrap_err();
    says(early, Code::NotClaimable, &["queued again at ", &format!("`tenure retry {}`", lease.work)]);

    let lease = w.held("w");
    w.wait(&lease, "ref");
    says(
        w.try_claim(lease.work, &w1()).unwrap_err(),
        Code::NotClaimable,
        &["once it is answered", "tenure explain"],
    );
    says(w.close(&lease, State::Succeeded).unwrap_err(), Code::LeaseLost, &["once its waits are answered"]);
    w.cancel(lease.work).unwrap();
    let late = w.resolve_as(
        Actor::person("ana"),
        Target::Wait { id: w.records.waits[&lease.work][0].id, token: TokenCheck::Genuine, seal: None },
        "x",
        None,
    );
    says(late.unwrap_err(), Code::IllegalState, &["`ref` is over: it was cancelled", "tenure explain"]);

    let lease = w.held("c");
    let id = w.dispatched(&lease, lookup());
    w.uncertain(id).unwrap();
    let absent = w.reconcile(id, command::Finding::Absent).unwrap_err();
    says(absent, Code::NotDue, &["`absent` counts in 10 s"]);
    let nothing = Proof::new(command::EvidenceKind::Person);
    let bare = w.record(id, Recorded::Happened(nothing)).unwrap_err();
    says(bare, Code::EvidenceMissing, &["`--external-id`", "`--ref`", "`--response`"]);
    assert_eq!(w.command_state(id), CommandState::Uncertain);

    let lease = w.held("d");
    let id = w.dispatched(&lease, lookup());
    w.call_failed(id, ErrorClass::Unavailable, true).unwrap();
    let early = w.try_dispatch(&lease, id, allow(lookup())).unwrap_err();
    says(early, Code::NotDue, &["is retried in "]);
}
