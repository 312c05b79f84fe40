//! Waits that are answered: by reference, by token, by a person, early, twice.

use serde_json::json;
use tenure_core::{
    Code, State, WaitId,
    action::{Failure, Tenants},
    model::{ErrorClass, OnTimeout, WaitKind, WaitState},
};
use tokio::task::JoinSet;

use super::{Bed, TENANT, any, claimant, external, job, payload, refused, said_in, success};
use crate::{Claimed, NewWait, NewWork, WaitFilter, Waiting};

fn user(reference: &str) -> NewWait {
    NewWait::new(WaitKind::User, reference)
}

/// A work item that waits for an answer on `reference`.
async fn waiting(bed: &Bed, id: &str, waits: Vec<NewWait>) -> (Claimed, Waiting) {
    let held = bed.held(job(id), "w").await;
    let waiting = bed.worker("w").wait(&held.lease, waits, None).await.unwrap();
    (held, waiting)
}

/// No worker is occupied meanwhile; the next one gets the answer.
pub async fn answered_by_reference(bed: &mut Bed) {
    let wait = NewWait {
        prompt: Some("Which of the two?".into()),
        assignee: Some("ada".into()),
        schema: Some(json!({ "type": "string" })),
        ..user("which")
    };
    let held = bed.held(job("one"), "w").await;
    let waiting = bed.worker("w").wait(&held.lease, vec![wait], Some("it is unclear")).await.unwrap();
    assert_eq!(waiting.ack.state, State::WaitingUser);
    let work = bed.work(held.work.id).await;
    assert_eq!((work.open_waits, &work.lease), (1, &None));
    assert_eq!(work.due_at, Some(bed.now() + 24 * 3_600_000), "a person has a day");
    assert_eq!(work.body.reason.as_ref().unwrap().message.as_deref(), Some("it is unclear"));
    let row = bed.waits(held.work.id).await.remove(0);
    assert_eq!((row.id, row.state, row.kind), (waiting.waits[0].0, WaitState::Open, WaitKind::User));
    assert_eq!(row.detail.prompt.as_deref(), Some("Which of the two?"));
    assert_eq!(row.detail.schema, Some(payload(json!({ "type": "string" }))));
    assert_eq!(refused(bed.worker("w").close_out(&held.lease, success()).await), Code::LeaseLost);

    bed.pass(1_000).await;
    let resolved = bed.machine().resolve(TENANT, "which", &json!("the first"), None).await.unwrap();
    assert!(!resolved.kept && resolved.lease.is_none());
    assert!(resolved.answers[0].0.first);
    bed.expect(held.work.id, State::Queued).await;
    let row = bed.waits(held.work.id).await.remove(0);
    assert_eq!((row.state, row.ended_at), (WaitState::Answered, Some(bed.now())));
    assert_eq!(&*row.detail.answered_by.unwrap().id, "gateway");

    let next = bed.take(held.work.id, "v").await;
    assert_eq!(next.answers[0].0.reference, "which");
    assert_eq!(next.answers[0].1, Some(payload(json!("the first"))));
    let again = bed.worker("v").wait(&next.lease, vec![user("which")], None).await.unwrap();
    assert_eq!(again.ack.state, State::Running, "an answered wait is answered at once");
    assert_eq!(again.answers[0].1, Some(payload(json!("the first"))));
    bed.worker("v").close_out(&next.lease, success()).await.unwrap();
}

/// A wait token answers its own wait and no other; a person needs none.
pub async fn answered_by_token_or_person(bed: &mut Bed) {
    let (one, first) = waiting(bed, "one", vec![user("q1")]).await;
    let (_, second) = waiting(bed, "two", vec![user("q2")]).await;
    let (id, token) = first.waits[0].clone();
    let (other, other_token) = second.waits[0].clone();
    let machine = bed.machine();
    assert_eq!(
        refused(machine.resolve_wait(id, Some(&other_token), None, &json!(1), None).await),
        Code::TokenRefused
    );
    assert_eq!(refused(machine.resolve_wait(id, None, None, &json!(1), None).await), Code::TokenRefused);
    let unknown = WaitId(uuid::Uuid::now_v7());
    assert_eq!(
        refused(bed.person().resolve_wait(unknown, None, None, &json!(1), None).await),
        Code::NotFound
    );
    bed.expect(one.work.id, State::WaitingUser).await;
    machine.resolve_wait(id, Some(&token), None, &json!("by token"), None).await.unwrap();
    bed.expect(one.work.id, State::Queued).await;
    bed.person().resolve_wait(other, None, None, &json!("by hand"), None).await.unwrap();
    let stranger = bed.person().within(vec!["acme".to_owned()]);
    assert_eq!(refused(stranger.resolve_wait(other, None, None, &json!(1), None).await), Code::NotFound);
}

/// Invariant 18: the first answer counts, and everybody gets that one.
pub async fn the_first_answer_counts(bed: &mut Bed) {
    let (held, waits) = waiting(bed, "one", vec![user("q")]).await;
    let mut answers = JoinSet::new();
    for i in 0..20 {
        let caller = bed.machine();
        answers.spawn(async move { caller.resolve(TENANT, "q", &json!(i), None).await.unwrap() });
    }
    let answers = answers.join_all().await;
    assert_eq!(answers.iter().filter(|one| one.answers[0].0.first).count(), 1);
    let told: Vec<_> = answers.iter().map(|one| one.answers[0].1.clone()).collect();
    assert!(told.iter().all(|one| one.is_some() && *one == told[0]), "all are told the first one");
    let (id, token) = &waits.waits[0];
    let late = bed.machine().resolve_wait(*id, Some(token), None, &json!("late"), None).await.unwrap();
    assert_eq!(late.answers[0].1, told[0]);
    assert_eq!(bed.story(held.work.id).await.iter().filter(|kind| **kind == "wait_resolved").count(), 1);
}

/// The work item continues when all are answered, and shows the most urgent one meanwhile.
pub async fn several_waits(bed: &mut Bed) {
    let waits = vec![
        NewWait::new(WaitKind::External, "webhook"),
        user("question"),
        NewWait::new(WaitKind::Approval, "consent"),
    ];
    let (held, waiting) = waiting(bed, "one", waits).await;
    assert_eq!(waiting.waits.len(), 3);
    let id = held.work.id;
    let due = bed.now() + 2 * 3_600_000;
    assert_eq!(bed.work(id).await.due_at, Some(due), "the earliest deadline");
    for (reference, state) in
        [("consent", State::WaitingUser), ("webhook", State::WaitingUser), ("question", State::Queued)]
    {
        let before = if reference == "consent" { State::WaitingApproval } else { State::WaitingUser };
        bed.expect(id, before).await;
        if reference == "consent" {
            let shown = bed.waits(id).await.into_iter().find(|wait| wait.reference == reference).unwrap();
            let (seal, yes) = (Some(shown.seal()), json!(reference));
            bed.person().resolve_wait(shown.id, None, seal, &yes, None).await.unwrap();
        } else {
            bed.person().resolve(TENANT, reference, &json!(reference), None).await.unwrap();
        }
        bed.expect(id, state).await;
    }
    let next = bed.take(id, "v").await;
    let mut answers: Vec<_> = next.answers.iter().map(|(wait, _)| wait.reference.as_str()).collect();
    answers.sort_unstable();
    assert_eq!(answers, ["consent", "question", "webhook"]);
    assert!(next.answers.iter().all(|(wait, answer)| *answer == Some(payload(json!(wait.reference)))));
    let v = bed.worker("v");
    assert_eq!(refused(v.wait(&next.lease, Vec::new(), None).await), Code::Invalid);
    assert_eq!(refused(v.wait(&next.lease, vec![user("a"), user("a")], None).await), Code::Invalid);
    let crowd = (0..98).map(|i| user(&format!("more {i}"))).collect();
    assert_eq!(refused(v.wait(&next.lease, crowd, None).await), Code::LimitReached);
}

/// An answer by reference goes to every open wait on it in its tenant.
pub async fn one_answer_for_many(bed: &mut Bed) {
    let mut works = Vec::new();
    for i in 0..3 {
        works.push(waiting(bed, &i.to_string(), vec![user("shared")]).await.0.work.id);
    }
    let acme = NewWork { tenant: "acme".to_owned(), ..job("acme") };
    let acme = bed.held(acme, "w").await;
    bed.worker("w").wait(&acme.lease, vec![user("shared")], None).await.unwrap();
    let resolved = bed.machine().resolve(TENANT, "shared", &json!(true), None).await.unwrap();
    assert_eq!(resolved.answers.len(), 3);
    for id in works {
        bed.expect(id, State::Queued).await;
    }
    bed.expect(acme.work.id, State::WaitingUser).await;
}

/// Kept until its wait opens, used once, and deleted after a day.
pub async fn an_early_answer_is_kept(bed: &mut Bed) {
    let machine = bed.machine();
    let early = machine.resolve(TENANT, "early", &json!("first"), None).await.unwrap();
    assert!(early.kept && early.answers.is_empty());
    assert!(machine.resolve(TENANT, "early", &json!("second"), None).await.unwrap().kept);

    let held = bed.held(job("one"), "w").await;
    let waiting = bed.worker("w").wait(&held.lease, vec![user("early")], None).await.unwrap();
    assert_eq!(waiting.ack.state, State::Running, "all answers exist: the lease goes on");
    assert_eq!(waiting.answers[0].1, Some(payload(json!("first"))));
    assert_eq!(bed.waits(held.work.id).await[0].state, WaitState::Answered);
    bed.worker("w").progress(&held.lease, &json!(1), None).await.unwrap();

    let other = bed.held(job("two"), "w").await;
    let waits = vec![user("early"), user("another")];
    let waiting = bed.worker("w").wait(&other.lease, waits, None).await.unwrap();
    assert_eq!(waiting.ack.state, State::WaitingUser, "it was matched once");
    assert!(waiting.answers.is_empty());

    machine.resolve(TENANT, "stale", &json!("old"), None).await.unwrap();
    machine.resolve(TENANT, "half", &json!("here"), None).await.unwrap();
    let third = bed.held(job("three"), "w").await;
    let waits = vec![user("half"), user("open")];
    let waiting = bed.worker("w").wait(&third.lease, waits, None).await.unwrap();
    assert_eq!((waiting.ack.state, waiting.answers.len()), (State::WaitingUser, 1));
    assert_eq!(bed.work(third.work.id).await.open_waits, 1);
    bed.skip(24 * 3_600_000).await;
    let fourth = bed.held(job("four"), "w").await;
    let waiting = bed.worker("w").wait(&fourth.lease, vec![user("stale")], None).await.unwrap();
    assert_eq!(waiting.ack.state, State::WaitingUser, "no answer is kept for ever");
}

/// A wait that is answered at once keeps its lease; the attempt may end for another reason in the same millisecond.
pub async fn an_attempt_ends_in_the_moment_of_an_answered_wait(bed: &mut Bed) {
    bed.machine().resolve(TENANT, "early", &json!("go"), None).await.unwrap();
    let held = bed.held(job("one"), "w").await;
    let waiting = bed.worker("w").wait(&held.lease, vec![user("early")], None).await.unwrap();
    assert_eq!(waiting.ack.state, State::Running);
    let quarantined = bed.person().quarantine(held.work.id, "odd").await.unwrap();
    assert_eq!(quarantined.state, State::Quarantined);
    bed.verify().await;
}

/// The answer and the claim are one transaction: no other claim can come in between.
pub async fn resolve_and_claim_in_one_act(bed: &mut Bed) {
    let (held, _) = waiting(bed, "one", vec![user("q")]).await;
    let claim = || Some(claimant("v", "with the answer"));
    let resolved = bed.machine().resolve(TENANT, "q", &json!("go"), claim()).await.unwrap();
    let lease = resolved.lease.expect("it can go on at once");
    assert_eq!(lease.work.state, State::Running);
    assert_eq!(lease.answers[0].1, Some(payload(json!("go"))));
    assert_eq!(lease.input, Some(payload(json!({ "ask": "one" }))));
    let story = bed.story(held.work.id).await;
    assert_eq!(story, ["work_created", "claimed", "waiting_set", "wait_resolved", "claimed"]);
    let again = bed.machine().resolve(TENANT, "q", &json!("go"), claim()).await.unwrap();
    assert_eq!(again.lease.expect("the same request gets its lease again").lease, lease.lease);
    bed.worker("v").close_out(&lease.lease, success()).await.unwrap();

    // One of two answers is not enough, and an occupied session prevents the claim.
    waiting(bed, "two", vec![user("a"), user("b")]).await;
    let half = bed.machine().resolve(TENANT, "a", &json!(1), Some(claimant("v", "a"))).await.unwrap();
    assert!(half.lease.is_none());
    let chat = bed.held(said_in("chat", "1"), "w").await;
    bed.worker("w").wait(&chat.lease, vec![user("c")], None).await.unwrap();
    bed.held(said_in("chat", "2"), "x").await;
    let busy = bed.machine().resolve(TENANT, "c", &json!(1), Some(claimant("v", "c"))).await.unwrap();
    assert!(busy.lease.is_none() && busy.answers[0].0.first);
    bed.expect(chat.work.id, State::Queued).await;
}

/// All questions of a session are revoked; the work items continue and see them cancelled.
pub async fn a_sessions_waits_are_revoked(bed: &mut Bed) {
    let mut works = Vec::new();
    for i in 0..2 {
        let held = bed.held(said_in("chat", &i.to_string()), "w").await;
        let waits = vec![user(&format!("a{i}")), user(&format!("b{i}"))];
        bed.worker("w").wait(&held.lease, waits, None).await.unwrap();
        works.push(held.work.id);
    }
    let (elsewhere, _) = waiting(bed, "elsewhere", vec![user("e")]).await;
    let acme = bed.person().within(vec!["acme".to_owned()]);
    for session in ["chat", "no such session"] {
        let foreign = acme.revoke_session_waits(TENANT, session, "why not").await;
        assert_eq!(refused(foreign), Code::NotFound, "whether it has waits is not told");
    }
    let acks = bed.person().revoke_session_waits(TENANT, "chat", "the user left").await.unwrap();
    assert_eq!(acks.len(), 2);
    for id in &works {
        bed.expect(*id, State::Queued).await;
        assert!(bed.waits(*id).await.iter().all(|wait| wait.state == WaitState::Cancelled));
    }
    bed.expect(elsewhere.work.id, State::WaitingUser).await;
    let next = bed.claim("w", any(5)).await;
    assert_eq!(next[0].answers.len(), 2);
    assert!(
        next[0]
            .answers
            .iter()
            .all(|(wait, answer)| { wait.state == WaitState::Cancelled && answer.is_none() })
    );
    let late = bed.machine().resolve(TENANT, "a0", &json!(1), None).await.unwrap();
    assert!(late.kept, "no wait is open and none was answered");
    assert!(bed.person().revoke_session_waits(TENANT, "chat", "again").await.unwrap().is_empty());
}

pub async fn reserved_references_are_refused(bed: &mut Bed) {
    let held = bed.held(job("one"), "w").await;
    let w = bed.worker("w");
    for reference in ["work:", "work:w_0", "command:c_1"] {
        let waits = vec![user(reference)];
        assert_eq!(refused(w.wait(&held.lease, waits, None).await), Code::ReferenceReserved);
        let answer = bed.machine().resolve(TENANT, reference, &json!(1), None).await;
        assert_eq!(refused(answer), Code::ReferenceReserved);
    }
    for name in ["a\0b", "a\nb"] {
        assert_eq!(refused(w.wait(&held.lease, vec![user(name)], None).await), Code::Invalid);
        assert_eq!(refused(bed.machine().resolve(TENANT, name, &json!(1), None).await), Code::Invalid);
        assert_eq!(refused(bed.machine().resolve(name, "q", &json!(1), None).await), Code::Invalid);
    }
    let own = vec![user(&format!("work:{}", held.work.id))];
    assert_eq!(refused(w.wait(&held.lease, own, None).await), Code::NotFound);
    let endless = NewWait { endless: true, timeout_ms: Some(1), ..user("x") };
    assert_eq!(refused(w.wait(&held.lease, vec![endless], None).await), Code::ImpossibleTimings);
    let mute = NewWait { on_timeout: OnTimeout::Default, ..user("x") };
    assert_eq!(refused(w.wait(&held.lease, vec![mute], None).await), Code::Invalid);
}

pub async fn waits_are_listed(bed: &mut Bed) {
    let (one, _) = waiting(bed, "one", vec![user("q1"), NewWait::new(WaitKind::Tool, "q2")]).await;
    bed.clock.advance(5);
    let chat = bed.held(said_in("chat", "two"), "w").await;
    bed.worker("w").wait(&chat.lease, vec![user("q3")], None).await.unwrap();
    bed.clock.advance(5);
    let acme = NewWork { tenant: "acme".to_owned(), ..said_in("chat", "three") };
    let acme = bed.held(acme, "w").await;
    bed.worker("w").wait(&acme.lease, vec![user("q1")], None).await.unwrap();
    bed.ingest(external("no wait row")).await;
    bed.machine().resolve(TENANT, "q2", &json!(1), None).await.unwrap();

    let listed = async |filter: WaitFilter| -> Vec<String> {
        let waits = bed.ledger.waits(&filter, 10).await.unwrap();
        waits.into_iter().map(|wait| wait.reference).collect()
    };
    let all = WaitFilter::default;
    assert_eq!(listed(all()).await, ["q1", "q2", "q3", "q1"], "in the order in which they were opened");
    assert_eq!(listed(WaitFilter { work: Some(one.work.id), ..all() }).await, ["q1", "q2"]);
    let ended = WaitFilter { last_ended: true, ..all() };
    assert_eq!(listed(ended.clone()).await, ["q2"], "the others are open");
    assert_eq!(listed(WaitFilter { session: Some("chat".into()), ..all() }).await, ["q3", "q1"]);
    assert_eq!(listed(WaitFilter { reference: Some("q1".into()), ..all() }).await, ["q1", "q1"]);
    assert_eq!(listed(WaitFilter { kind: Some(WaitKind::Tool), ..all() }).await, ["q2"]);
    let open = WaitFilter { state: Some(WaitState::Open), ..all() };
    assert_eq!(listed(open.clone()).await, ["q1", "q3", "q1"]);
    let tenants = Some(Tenants::Only(vec!["acme".to_owned()]));
    assert_eq!(listed(WaitFilter { tenants, ..open }).await, ["q1"]);
    assert_eq!(listed(WaitFilter { tenants: Some(Tenants::Only(Vec::new())), ..all() }).await.len(), 0);
    assert_eq!(bed.ledger.waits(&all(), 2).await.unwrap().len(), 2);
    bed.clock.advance(5);
    bed.machine().resolve(TENANT, "q1", &json!(1), None).await.unwrap();
    assert_eq!(listed(ended).await, ["q1", "q2"], "what ended last comes first");
}

pub async fn an_answer_fits_its_schema(bed: &mut Bed) {
    let schema = Some(json!({ "type": "object", "required": ["approved"] }));
    let ask = |reference: &str| NewWait { schema: schema.clone(), ..NewWait::new(WaitKind::User, reference) };
    let held = bed.held(job("asks"), "w").await;
    let worker = bed.worker("w");
    let nonsense = NewWait { schema: Some(json!({ "type": 7 })), ..ask("q") };
    assert_eq!(refused(worker.wait(&held.lease, vec![nonsense], None).await), Code::Invalid);
    let default = NewWait { on_timeout: OnTimeout::Default, default: Some(json!(1)), ..ask("q") };
    assert_eq!(refused(worker.wait(&held.lease, vec![default], None).await), Code::AnswerMismatch);
    let waiting = worker.wait(&held.lease, vec![ask("q"), ask("r")], None).await.unwrap();

    let person = bed.person();
    assert_eq!(refused(person.resolve("default", "q", &json!("yes"), None).await), Code::AnswerMismatch);
    let (id, token) = &waiting.waits[1];
    let machine = bed.machine();
    assert_eq!(
        refused(machine.resolve_wait(*id, Some(token), None, &json!([]), None).await),
        Code::AnswerMismatch
    );
    let unknown = machine.resolve_wait(*id, Some("guess"), None, &json!([]), None).await;
    assert_eq!(refused(unknown), Code::TokenRefused, "nothing is told to whoever may not answer");
    bed.expect(held.work.id, State::WaitingUser).await;

    let answer = json!({ "approved": true });
    person.resolve("default", "q", &answer, None).await.unwrap();
    machine.resolve_wait(*id, Some(token), None, &answer, None).await.unwrap();
    bed.expect(held.work.id, State::Queued).await;
    let again = person.resolve("default", "q", &json!("late"), None).await.unwrap();
    assert!(!again.answers[0].0.first, "the first answer counts, and this one is not used");
}

/// An early answer that does not match its wait is dropped, and the log records it.
pub async fn an_early_answer_that_does_not_fit_is_refused(bed: &mut Bed) {
    let schema = Some(json!({ "type": "string" }));
    let refusals = |story: &[&str]| story.iter().filter(|kind| **kind == "early_answer_refused").count();
    let held = bed.held(job("asks"), "w").await;
    let worker = bed.worker("w");
    let person = bed.person();
    person.resolve(TENANT, "number", &json!(7), None).await.unwrap();
    person.resolve(TENANT, "word", &json!("yes"), None).await.unwrap();
    // An approval before the question is not possible.
    bed.machine().resolve(TENANT, "machine", &json!(true), None).await.unwrap();
    person.resolve(TENANT, "boss", &json!(true), None).await.unwrap();

    let mut waits: Vec<NewWait> =
        ["number", "word"].map(|name| NewWait { schema: schema.clone(), ..user(name) }).into();
    waits.extend(["machine", "boss"].map(|name| NewWait::new(WaitKind::Approval, name)));
    let waiting = worker.wait(&held.lease, waits, None).await.unwrap();
    assert_eq!(waiting.ack.state, State::WaitingApproval);
    let open: Vec<String> = bed
        .waits(held.work.id)
        .await
        .into_iter()
        .filter(|wait| wait.state == WaitState::Open)
        .map(|wait| wait.reference)
        .collect();
    assert_eq!(open, ["number", "machine", "boss"]);
    assert_eq!(refusals(&bed.story(held.work.id).await), 3);
    let told = bed.events(held.work.id).await;
    let first = &told.iter().find(|stored| stored.event.fact.kind() == "early_answer_refused").unwrap().event;
    assert_eq!(first.payload, Some(payload(json!(7))), "what was not used is there to be read");

    person.resolve(TENANT, "number", &json!("seven"), None).await.unwrap();
    bed.expect(held.work.id, State::WaitingApproval).await;
}

/// By a person, by its id, with the seal of what was shown.
pub async fn an_approval_is_of_what_was_shown(bed: &mut Bed) {
    let ask = NewWait { prompt: Some("Ship it?".into()), ..NewWait::new(WaitKind::Approval, "ship") };
    let (held, _) = waiting(bed, "asks", vec![ask]).await;
    let shown = bed.waits(held.work.id).await.remove(0);
    let (yes, seal) = (json!(true), Some(shown.seal()));
    let (person, clerk) = (bed.person(), bed.person().who_approves(false));
    assert_eq!(refused(person.resolve(TENANT, "ship", &yes, None).await), Code::SealBroken);
    assert_eq!(refused(person.resolve_wait(shown.id, None, None, &yes, None).await), Code::SealBroken);
    let wrong = Some(payload(json!("x")).hash());
    assert_eq!(refused(person.resolve_wait(shown.id, None, wrong, &yes, None).await), Code::SealBroken);
    assert_eq!(refused(clerk.resolve_wait(shown.id, None, seal, &yes, None).await), Code::PersonRequired);
    let guess = person.resolve_wait(shown.id, Some("guess"), seal, &yes, None).await;
    assert_eq!(refused(guess), Code::TokenRefused, "a wrong token is refused whoever sends it");
    bed.expect(held.work.id, State::WaitingApproval).await;
    person.resolve_wait(shown.id, None, seal, &yes, None).await.unwrap();
    bed.expect(held.work.id, State::Queued).await;
}

/// An answer that arrives between the check of kept answers and the decision is checked as well, for every
/// verb that waits.
pub async fn an_answer_that_comes_meanwhile_is_looked_at(bed: &mut Bed) {
    let (worker, person) = (bed.worker("w"), bed.person());
    for round in 0..60 {
        let held = bed.held(job(&format!("asks-{round}")), "w").await;
        let reference = format!("login-{round}");
        let asks =
            |kind| NewWait { schema: Some(json!({ "type": "string" })), ..NewWait::new(kind, &reference) };
        let waits = async {
            if round % 2 == 0 {
                let error = Failure::new(ErrorClass::Auth, "expired");
                worker.fail_until(&held.lease, error, asks(WaitKind::Auth)).await.map(drop)
            } else {
                worker.wait(&held.lease, vec![asks(WaitKind::User)], None).await.map(drop)
            }
        };
        let answer = json!("yes");
        let (waited, answered) = tokio::join!(waits, person.resolve(TENANT, &reference, &answer, None));
        waited.unwrap();
        answered.unwrap();
    }
}

pub async fn an_approval_is_not_reused_for_another_prompt(bed: &mut Bed) {
    let ask =
        |prompt: &str| NewWait { prompt: Some(prompt.into()), ..NewWait::new(WaitKind::Approval, "ship") };
    let (held, _) = waiting(bed, "asks", vec![ask("Ship staging?")]).await;
    let shown = bed.waits(held.work.id).await.remove(0);
    bed.person().resolve_wait(shown.id, None, Some(shown.seal()), &json!(true), None).await.unwrap();
    let next = bed.take(held.work.id, "w").await;
    let other = bed.worker("w").wait(&next.lease, vec![ask("Ship prod?")], None).await;
    assert_eq!(refused(other), Code::IdempotencyMismatch);
    let same = bed.worker("w").wait(&next.lease, vec![ask("Ship staging?")], None).await.unwrap();
    assert_eq!(same.answers.len(), 1);
}
