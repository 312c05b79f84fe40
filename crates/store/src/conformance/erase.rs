//! Erasure: content goes, the log and its hashes stay.

use serde_json::json;
use tenure_core::{
    Actor, Code, Event, Fact, State, WorkId,
    action::{CloseOut, Failure},
    command::{Arguments, Effect, Evaluation, Executor, Intent, PolicyDecision, Proof, ToolFacts},
    event::ContentErased,
    model::{ErrorClass, WaitKind},
};

use super::{Bed, TENANT, job, payload, refused, said_in, success};
use crate::{Anchor, Claimed, NewWait, NewWork, Position};

const SECRET: &str = "canary";

fn evaluation() -> Evaluation {
    Evaluation::new(PolicyDecision::new(Effect::Allow, "p"), ToolFacts::default())
}

fn intent(text: &str) -> Intent {
    let arguments = Arguments::whole(payload(json!({ "text": text })));
    Intent::new("mail", "bob", arguments, evaluation())
}

/// An ended work item with content in every place that can have some.
async fn told(bed: &mut Bed, new: NewWork) -> WorkId {
    let held = bed.held(NewWork { input: json!({ "ask": SECRET }), ..new }, "w").await;
    let (id, worker) = (held.work.id, bed.worker("w"));
    worker.progress(&held.lease, &json!(SECRET), None).await.unwrap();
    worker.fail(&held.lease, Failure::new(ErrorClass::Transport, SECRET)).await.unwrap();
    bed.skip(10_000).await;
    let held = bed.take(id, "w").await;
    worker.begin_step(&held.lease, "s", &json!(1), false).await.unwrap();
    worker.complete_step(&held.lease, "s", &json!(1), &json!(SECRET)).await.unwrap();
    let command = worker.reserve(&held.lease, intent(SECRET)).await.unwrap().command.id;
    worker.dispatch(&held.lease, command, evaluation(), None).await.unwrap();
    let proof = Proof { response: Some(payload(json!(SECRET))), ..Proof::provider("m-1") };
    worker.receipt(&held.lease, command, proof).await.unwrap();
    let ask = NewWait {
        prompt: Some(SECRET.into()),
        schema: Some(json!({ "title": SECRET })),
        ..NewWait::new(WaitKind::User, &format!("q-{id}"))
    };
    worker.wait(&held.lease, vec![ask], Some(SECRET)).await.unwrap();
    bed.machine().resolve(TENANT, &format!("q-{id}"), &json!(SECRET), None).await.unwrap();
    let held = bed.take(id, "w").await;
    let close = CloseOut::succeeded(payload(json!(SECRET)));
    worker.close_out(&held.lease, close).await.unwrap();
    id
}

/// Everything that can be read of a work item, as text.
async fn everything(bed: &Bed, id: WorkId) -> String {
    let work = bed.work(id).await;
    let events: Vec<Event> = bed.events(id).await.into_iter().map(|stored| stored.event).collect();
    let mut payloads = Vec::new();
    for event in &events {
        payloads.push(bed.ledger.payload(id, event.seq).await.unwrap());
    }
    let attempts = bed.ledger.attempts(id).await.unwrap();
    let commands = bed.ledger.commands_of(id).await.unwrap();
    format!("{work:?} {events:?} {payloads:?} {attempts:?} {commands:?} {:?}", bed.waits(id).await)
}

pub async fn erased_content_is_gone_and_the_log_stays(bed: &mut Bed) {
    let id = told(bed, job("one")).await;
    let before = bed.events(id).await;
    bed.settled(Position::default(), before.len()).await;
    let anchor = bed.ledger.extend_anchor(Anchor::default()).await.unwrap();
    assert!(everything(bed, id).await.matches(SECRET).count() > 8, "it is everywhere");
    let tried = bed.person().trying(true).erase(id, "their wish").await.unwrap();
    assert_eq!(tried.seq, before.len() as u64 + 1);
    assert!(everything(bed, id).await.contains(SECRET), "a dry run erases nothing");

    bed.skip(1_000).await;
    let erased = bed.person().erase(id, "their wish").await.unwrap();
    assert_eq!((erased.state, erased.seq), (State::Succeeded, before.len() as u64 + 1));
    let left = everything(bed, id).await;
    assert!(!left.contains(SECRET), "{left}");
    let after = bed.events(id).await;
    let hashes =
        |events: &[crate::StoredEvent]| events.iter().map(|stored| stored.event.hash).collect::<Vec<_>>();
    assert_eq!(hashes(&after)[..before.len()], hashes(&before), "the events are the same");
    let record = &after.last().unwrap().event;
    assert_eq!(record.fact, Fact::ContentErased(ContentErased { before: record.seq }));
    assert_eq!((&*record.actor.id, record.message.as_deref()), ("ada", Some("their wish")));
    let work = bed.work(id).await;
    assert_eq!(work.body.erased_at, Some(bed.now()));
    assert_eq!(bed.ledger.verify().await.unwrap().faults, []);
    assert!(bed.ledger.verify_anchor(&anchor).await.unwrap(), "an anchor from before still holds");

    let again = bed.person().erase(id, "once more").await.unwrap();
    assert_eq!(again.seq, erased.seq, "nothing is left to erase");
    let rerun = bed.person().rerun(id, None, "again").await.map(drop);
    assert_eq!(refused(rerun), Code::NotFound, "its input is gone");
    let past = bed.person().work_at(id, bed.now()).await.unwrap();
    assert_eq!(past.work.body.erased_at, work.body.erased_at);
}

pub async fn only_a_person_erases_what_has_ended(bed: &mut Bed) {
    let Claimed { work, lease, .. } = bed.held(job("open"), "w").await;
    assert_eq!(refused(bed.person().erase(work.id, "too early").await), Code::IllegalState);
    let facts = ToolFacts { executor: Executor::Http, ..ToolFacts::default() };
    let evaluation = Evaluation::new(PolicyDecision::new(Effect::Allow, "p"), facts);
    let sent_by_the_relay = Intent { evaluation, ..intent(SECRET) };
    let (id, outgoing) = bed.worker("w").outgoing(work.id, sent_by_the_relay).await.unwrap();
    let close =
        CloseOut { commands: vec![(id, outgoing)], no_output: true, ..CloseOut::new(State::Succeeded) };
    bed.worker("w").close_out(&lease, close).await.unwrap();
    assert_eq!(refused(bed.machine().erase(work.id, "a machine").await), Code::PersonRequired);
    assert_eq!(refused(bed.person().erase(work.id, " ").await), Code::ReasonMissing);
    assert_eq!(refused(bed.person().erase(work.id, "unsent").await), Code::CommandsOpen);
    assert!(everything(bed, work.id).await.contains(SECRET), "its command is still to be sent");
    let foreign = bed.ledger.caller(Actor::person("eve")).within(vec!["acme".to_owned()]);
    assert_eq!(refused(foreign.erase(work.id, "theirs").await), Code::NotFound);
}

pub async fn a_session_or_a_tenant_is_erased_page_by_page(bed: &mut Bed) {
    let mut chat = Vec::new();
    for name in ["a", "b"] {
        chat.push(told(bed, said_in("chat", name)).await);
    }
    let other = told(bed, job("other")).await;
    let open = bed.ingest(said_in("chat", "open")).await;
    bed.machine().resolve(TENANT, "early", &json!(SECRET), None).await.unwrap();
    let person = bed.person();
    let first = person.erase_of(TENANT, Some("chat"), None, 2, "their wish").await.unwrap();
    assert_eq!(
        (first.works, first.kept, first.early_answers),
        (1, 1, 0),
        "newest first: the open one keeps its own"
    );
    let second = person.erase_of(TENANT, Some("chat"), first.next, 2, "their wish").await.unwrap();
    assert_eq!(second.works, 1);
    for id in &chat {
        assert!(!everything(bed, *id).await.contains(SECRET));
    }
    assert!(everything(bed, other).await.contains(SECRET), "another session's is left alone");
    let foreign = bed.ledger.caller(Actor::person("eve")).within(vec!["acme".to_owned()]);
    let nothing = foreign.erase_of(TENANT, None, None, 100, "theirs").await.unwrap();
    assert_eq!((nothing.works, nothing.early_answers), (0, 0));
    let all = person.trying(true).erase_of(TENANT, None, None, 100, "gone").await.unwrap();
    assert_eq!((all.works, all.kept, all.early_answers, all.next), (1, 1, 0, None), "a dry run counts");
    let all = bed.person().erase_of(TENANT, None, None, 100, "gone").await.unwrap();
    assert_eq!((all.works, all.kept, all.early_answers), (1, 1, 1), "what is erased already does not count");
    assert!(!everything(bed, other).await.contains(SECRET));
    bed.ledger.overwrite_erased().await.unwrap();
    let held = bed.take(open.id, "w").await;
    bed.worker("w").close_out(&held.lease, success()).await.unwrap();
    assert_eq!(bed.person().erase_of(TENANT, None, None, 100, "gone").await.unwrap().works, 1);
}
