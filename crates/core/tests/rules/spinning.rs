//! A holder that renews and shows nothing else, where its source has its renewals refused.

use tenure_core::{
    Action, Actor, Code, State,
    command::{Idempotency, Risk},
    model::Disposition,
    policy::{OnExpiry, OnSpinning, Spinning, WorkPolicy},
};

use crate::common::*;

const AFTER: i64 = 60 * SECOND;

fn judged(then: OnSpinning) -> WorkPolicy {
    WorkPolicy { spinning: Some(Spinning { after_ms: AFTER as u64, then }), ..policy() }
}

/// Held, and renewed without anything else until it is spinning.
fn spun(w: &mut World, disposition: Disposition, then: OnSpinning) -> Lease {
    let lease = w.held_with("a", |i| {
        i.disposition = disposition;
        i.policy = judged(then);
    });
    for _ in 0..3 {
        w.pass(15 * SECOND);
        w.renew(&lease).unwrap();
    }
    w.pass(15 * SECOND);
    lease
}

#[test]
fn only_what_says_so_has_its_renewals_refused() {
    for (then, refused) in
        [(OnSpinning::Mark, false), (OnSpinning::Alert, false), (OnSpinning::StopRenewing, true)]
    {
        let mut w = World::default();
        let lease = spun(&mut w, Disposition::Rerunnable, then);
        let events = w.events();
        let renewed = w.renew(&lease);
        assert_eq!(renewed.as_ref().err().map(|refusal| refusal.code), refused.then_some(Code::Spinning));
        assert_eq!(w.events(), events, "a renewal appends no event, and neither does its refusal");
    }
}

#[test]
fn a_refused_renewal_lets_the_lease_lapse_and_recovery_decides() {
    let mut w = World::default();
    let lease = spun(&mut w, Disposition::Rerunnable, OnSpinning::StopRenewing);
    let refusal = w.renew(&lease).unwrap_err();
    assert!(refusal.detail.contains("Send new `progress`"), "{}", refusal.detail);
    w.pass(LAPSE);
    w.tick(lease.work);
    assert_eq!(w.state(lease.work), State::Queued);
    // It does not take the item back by renewing on; another worker gets it.
    assert_eq!(w.renew(&lease).unwrap_err().code, Code::Spinning);
    let other = w.claim(lease.work, &w2());
    w.renew(&other).unwrap();
    assert_eq!(w.renew(&lease).unwrap_err().code, Code::LeaseLost);
}

#[test]
fn started_owner_bound_work_stalls_and_goes_on_with_its_owner() {
    let mut w = World::default();
    let lease = spun(&mut w, Disposition::OwnerBound, OnSpinning::StopRenewing);
    assert_eq!(w.row(lease.work).spec.policy.on_expiry, OnExpiry::Leave);
    assert_eq!(w.renew(&lease).unwrap_err().code, Code::Spinning);
    w.pass(LAPSE);
    w.tick(lease.work);
    assert_eq!(w.state(lease.work), State::Stalled, "nothing ends, and nobody else may take it");
    w.pass(HOUR);
    assert_eq!(w.renew(&lease).unwrap_err().code, Code::Spinning, "a renewal alone still shows nothing");
    w.renew_with(&lease, payload("page 3 of 9")).unwrap();
    assert_eq!(w.state(lease.work), State::Running);
    w.renew(&lease).unwrap();
    w.close(&lease, State::Succeeded).unwrap();
}

#[test]
fn each_sign_of_work_keeps_the_lease() {
    let mut w = World::default();
    let lease = spun(&mut w, Disposition::Rerunnable, OnSpinning::StopRenewing);
    w.renew_with(&lease, payload("one")).unwrap();
    w.pass(AFTER - SECOND);
    w.renew(&lease).unwrap();
    w.pass(SECOND);
    assert_eq!(w.renew(&lease).unwrap_err().code, Code::Spinning);
    assert_eq!(
        w.renew_with(&lease, payload("one")).unwrap_err().code,
        Code::Spinning,
        "that was said before"
    );
    // The verbs are not refused, and count.
    w.progress(&lease, None).unwrap();
    w.renew(&lease).unwrap();
    // A verb of an operator is no sign of its holder's work.
    w.pass(AFTER);
    let action = Action::RequestRelease { work: lease.work, reason: "too slow".to_owned() };
    w.submit(Actor::person("ana"), action).unwrap();
    assert_eq!(w.renew(&lease).unwrap_err().code, Code::Spinning);
}

/// A lapse would put a command in doubt that its holder is only waiting for.
#[test]
fn a_dispatched_command_keeps_the_lease() {
    let mut w = World::default();
    let lease = w.held_with("a", |i| i.policy = judged(OnSpinning::StopRenewing));
    let command = w.dispatched(&lease, tool(Idempotency::None, Risk::Low));
    for _ in 0..8 {
        w.pass(15 * SECOND);
        w.renew(&lease).unwrap();
    }
    assert!(tenure_core::activity::spinning(w.row(lease.work), w.now).is_some(), "it is shown all the same");
    w.receipt(command).unwrap();
    w.pass(AFTER);
    assert_eq!(w.renew(&lease).unwrap_err().code, Code::Spinning);
}

/// It was asked to stop: its cancel has a deadline of its own.
#[test]
fn a_requested_cancel_goes_by_its_own_deadline() {
    let mut w = World::default();
    let lease = spun(&mut w, Disposition::Rerunnable, OnSpinning::StopRenewing);
    w.cancel(lease.work).unwrap();
    w.renew(&lease).unwrap();
}
