//! Invariant 24: a refused action changes nothing, in any state of the work item.

use serde_json::json;
use tenure_core::{
    Code, State, WorkId,
    action::{CloseOut, Decide, Failure},
    model::{AcceptStrength, ErrorClass, WaitKind},
};

use super::{Bed, LAPSE_MS, claimant, external, job, owner_bound, refused, success};
use crate::{Caller, Error, LeaseRef, NewWait, Position};

/// Every verb that names a work item, by a worker whose lease is over, by a stranger, or without a reason.
pub async fn refused_actions_change_nothing(bed: &mut Bed) {
    let works = one_in_each_state(bed).await;
    let before = bed.snapshot().await;
    let events = bed.all().await.iter().map(|work| work.seq as usize).sum();
    let feed = bed.settled(Position::default(), events).await;
    let acme = bed.person().within(vec!["acme".to_owned()]);
    for (id, state) in &works {
        let stale = LeaseRef { work: *id, fence: 1, token: "0".repeat(64) };
        holders_verbs(&bed.worker("w"), &stale).await;
        operators_verbs(&acme, *id, "theirs").await;
        operators_verbs(&bed.person(), *id, "  ").await;
        if *state != State::Queued {
            refused(bed.worker("z").claim_ids(claimant("z", "ids"), vec![*id]).await);
        }
        let completes = bed.machine().complete(*id, "guess", success()).await;
        assert_eq!(refused(completes), Code::TokenRefused);
    }
    assert_eq!(bed.snapshot().await, before);
    let after = bed.settled(Position::default(), events).await;
    assert_eq!(after, feed);
    assert!(bed.ledger.feed(feed.last().unwrap().position, 10).await.unwrap().events.is_empty());
}

/// The operators' verbs that do not apply in a state, each with its code.
pub async fn verbs_that_do_not_apply(bed: &mut Bed) {
    let works = one_in_each_state(bed).await;
    let before = bed.snapshot().await;
    let ada = bed.person();
    for (id, state) in works {
        let over = state.is_terminal();
        let expected = if over { Code::Terminal } else { Code::IllegalState };
        if state != State::RetryScheduled {
            assert_eq!(refused(ada.retry_now(id, "why").await), expected, "retry of {state}");
        }
        if state != State::Quarantined {
            assert_eq!(refused(ada.decide(id, "why", Decide::Requeue).await), expected, "decide on {state}");
        }
        if over && state != State::Cancelled || state == State::Quarantined {
            assert_eq!(refused(ada.cancel(id, "why", None).await), expected, "cancel of {state}");
        }
        if over || state == State::CancelRequested {
            assert_eq!(refused(ada.quarantine(id, "why").await), expected, "quarantine of {state}");
        }
        if !over {
            assert_eq!(refused(ada.rerun(id, None, "why").await), Code::IllegalState, "rerun of {state}");
        }
    }
    assert_eq!(bed.snapshot().await, before);
}

async fn holders_verbs(w: &Caller, lease: &LeaseRef) {
    let wait = vec![NewWait::new(WaitKind::User, "q")];
    for result in [
        w.accept(lease, AcceptStrength::Strong).await,
        w.progress(lease, &json!(1), None).await,
        w.wait(lease, wait, None).await.map(|waiting| waiting.ack),
        w.fail(lease, Failure::new(ErrorClass::Unknown, "x")).await,
        w.release(lease, None).await,
        w.close_out(lease, success()).await,
        w.close_out(lease, CloseOut::new(State::Cancelled)).await,
        w.abandon_own(lease, "draining").await,
    ] {
        assert_eq!(refused(result), Code::LeaseLost);
    }
    assert_eq!(refused(w.begin_step(lease, "s", &json!(1), false).await), Code::LeaseLost);
    assert_eq!(refused(w.complete_step(lease, "s", &json!(1), &json!(1)).await), Code::LeaseLost);
    let renewal = w.renew(&[(lease.clone(), Some(json!(1)))]).await.unwrap().remove(0);
    assert_eq!(renewal.outcome.unwrap_err().code, Code::LeaseLost);
}

async fn operators_verbs(caller: &Caller, id: WorkId, reason: &str) {
    let results: [Result<tenure_core::Ack, Error>; 5] = [
        caller.cancel(id, reason, None).await,
        caller.request_abandon(id, reason).await,
        caller.retry_now(id, reason).await,
        caller.quarantine(id, reason).await,
        caller.decide(id, reason, Decide::Requeue).await,
    ];
    let codes = results.map(refused);
    let expected = if reason.trim().is_empty() { Code::ReasonMissing } else { Code::NotFound };
    assert_eq!(codes, [expected; 5]);
    assert_eq!(refused(caller.rerun(id, None, reason).await), expected);
}

/// A work item in each state.
async fn one_in_each_state(bed: &mut Bed) -> Vec<(WorkId, State)> {
    let (w, ada) = (bed.worker("w"), bed.person());
    let stalled = bed.held(owner_bound("stalled"), "w").await.work.id;
    bed.pass(LAPSE_MS).await;
    let mut works = vec![(stalled, State::Stalled)];
    works.push((bed.ingest(job("queued")).await.id, State::Queued));
    works.push((bed.held(job("running"), "w").await.work.id, State::Running));
    for (kind, state) in [
        (WaitKind::User, State::WaitingUser),
        (WaitKind::Approval, State::WaitingApproval),
        (WaitKind::Auth, State::WaitingAuth),
        (WaitKind::Tool, State::WaitingTool),
    ] {
        let held = bed.held(job(&format!("{kind:?}")), "w").await;
        let waits = vec![NewWait::new(kind, &format!("for {kind:?}"))];
        w.wait(&held.lease, waits, None).await.unwrap();
        works.push((held.work.id, state));
    }
    works.push((bed.ingest(external("outside")).await.id, State::WaitingExternal));
    let retrying = bed.held(job("retrying"), "w").await;
    w.fail(&retrying.lease, Failure::new(ErrorClass::Transport, "reset")).await.unwrap();
    works.push((retrying.work.id, State::RetryScheduled));
    let asked = bed.held(job("asked"), "w").await.work.id;
    ada.cancel(asked, "stop", None).await.unwrap();
    works.push((asked, State::CancelRequested));
    let set_aside = bed.ingest(job("set aside")).await.id;
    ada.quarantine(set_aside, "odd").await.unwrap();
    works.push((set_aside, State::Quarantined));
    let warned = CloseOut {
        no_output: true,
        warnings: vec!["careful".to_owned()],
        ..CloseOut::new(State::CompletedWithWarnings)
    };
    for close in [success(), warned, CloseOut::new(State::Failed), CloseOut::new(State::TimedOut)] {
        let state = close.state;
        let held = bed.held(job(state.as_str()), "w").await;
        w.close_out(&held.lease, close).await.unwrap();
        works.push((held.work.id, state));
    }
    let cancelled = bed.ingest(job("cancelled")).await.id;
    ada.cancel(cancelled, "not needed", None).await.unwrap();
    works.push((cancelled, State::Cancelled));
    let given_up = bed.held(owner_bound("given up"), "w").await;
    w.abandon_own(&given_up.lease, "draining").await.unwrap();
    works.push((given_up.work.id, State::Abandoned));
    for (id, state) in &works {
        bed.expect(*id, *state).await;
    }
    assert_eq!(works.len(), State::ALL.len());
    works
}
