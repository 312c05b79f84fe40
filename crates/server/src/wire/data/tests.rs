//! Every kind of fact, with every possible field, in its public form.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tenure_core::event::Fact;

use super::{data, is_moment};

const MS: i64 = 1_769_847_300_007;
const RFC: &str = "2026-01-31T08:15:00.007Z";
const HASH: &str = "00000000000000000000000000000000000000000000000000000000000000aa";
const WORK: &str = "w_0198aabbccddeeff0198aabbccddeeff";
const COMMAND: &str = "c_0198aabbccddeeff0198aabbccddeeff";
const WAIT: &str = "wt_0198aabbccddeeff0198aabbccddeeff";

fn moved() -> Value {
    json!({ "command": COMMAND, "executor": "worker", "was": "pending", "now": "dispatched" })
}

fn with(mut base: Value, more: Value) -> Value {
    let Value::Object(more) = more else { unreachable!() };
    base.as_object_mut().unwrap().extend(more);
    base
}

fn usage() -> Value {
    json!([{ "source": "acme", "model": "m1", "input_tokens": 5, "cost_micros": 7, "currency": "EUR" }])
}

fn receipt() -> Value {
    json!({ "at": MS, "evidence": "provider", "external_id": "ch_1", "ref": "r", "response": [WORK, 4],
        "reused_from": COMMAND, "usage": usage() })
}

fn decision() -> Value {
    json!({ "effect": "needs_approval", "reasons": ["large"], "policy_version": "p1" })
}

fn retry() -> Value {
    json!({ "initial_ms": 1000, "jitter": "full", "max_attempts": 3, "max_ms": 300000, "multiplier_permille": 1500 })
}

fn tool() -> Value {
    json!({ "risk": "low", "idempotency": "lookup", "native_window_ms": 1, "executor": "http",
        "consistency_delay_ms": 1, "four_eyes": true, "ordered": true, "max_unknowns": 4,
        "lookup_interval_ms": 1, "retry": retry(), "timeout_ms": 1, "approval_ms": 5 })
}

fn reserved() -> Value {
    json!([{ "key": { "tenant": "t", "account": { "work": WORK }, "unit": { "micros": "EUR" }, "period": "p" },
        "amount": 3 }])
}

fn spec() -> Value {
    json!({ "tenant": "t", "source": { "system": "manual", "id": "1", "run_id": "r" }, "kind": "k",
        "disposition": "rerunnable", "priority": 3, "correlation_id": "c", "generation": 1, "input_hash": HASH,
        "input_bytes": 70000, "created_at": MS, "session": "s", "workflow": { "id": "w", "version": "1" },
        "parent": WORK, "on_parent_close": "leave", "rerun_of": WORK, "execute": [HASH],
        "policy": { "lease": { "grace_ms": 1, "renew_ms": 2, "ttl_ms": 9 }, "on_expiry": "leave",
            "retry": retry(), "timeouts": { "execution_ms": 1, "overall_ms": 2, "start_ms": 3 } } })
}

fn timed_out() -> Value {
    json!({ "wait": WAIT, "ref": "r", "on_timeout": "fail", "open": 1, "wait_due": MS, "bound_until": MS })
}

/// Each as its store holds it.
fn samples() -> Vec<(&'static str, Value)> {
    let plain = || json!({});
    vec![
        (
            "work_created",
            json!({ "spec": spec(), "from_step": "s", "steps": 1, "output": { "inline": { "hash": HASH, "seq": 1 } },
            "error": "timeout", "warnings": ["w"], "usage": usage() }),
        ),
        (
            "claimed",
            json!({ "worker": { "id": "a", "incarnation": "1", "liveness": { "type": "local_process",
                "boot_id": "b", "pid_namespace": u64::MAX, "pid": 1, "start_time": 5 } },
            "request": -8_123_456_789_012_345_678_i64, "starts": true, "expires_at": MS, "execution_at": MS,
            "supersedes": MS * 1024 }),
        ),
        ("accepted", json!({ "strength": "strong" })),
        ("progressed", json!({ "request_id": "r", "content": "c" })),
        ("step_begun", json!({ "input_hash": HASH, "voided": 1 })),
        ("step_completed", json!({ "input_hash": HASH })),
        (
            "waiting_set",
            json!({ "waits": [{ "id": WAIT, "kind": "user", "ref": "r", "deadline_at": MS,
                "on_timeout": "fail" }], "open": 1, "total": 1, "wait_due": MS, "tool": "t", "usage": usage() }),
        ),
        (
            "wait_resolved",
            json!({ "wait": WAIT, "ref": "r", "open": 0, "wait_due": MS, "early": true,
            "bound_until": MS }),
        ),
        (
            "early_answer_refused",
            json!({ "wait": WAIT, "ref": "r", "why": "schema",
            "by": { "type": "person", "id": "ana" } }),
        ),
        ("wait_timed_out", timed_out()),
        ("wait_escalated", timed_out()),
        ("waits_revoked", json!({ "waits": [WAIT], "bound_until": MS })),
        (
            "attempt_failed",
            json!({ "class": "timeout", "fingerprint": "f", "fingerprint_count": 1, "failures": 1,
            "next_retry_at": MS, "reason": "retry_backoff", "usage": usage() }),
        ),
        ("retry_due", plain()),
        ("retried_now", plain()),
        ("lease_released", json!({ "usage": usage() })),
        (
            "lease_lapsed",
            json!({ "grade": "silent", "expires_at": MS, "watched_ms": 45000, "failures": 1,
            "lapses": 1 }),
        ),
        (
            "recovered",
            json!({ "verdict": "resume", "grade": "silent", "from_step": "s", "reason": "lease_lapsed" }),
        ),
        ("recovery_applied", json!({ "plan": "p_1", "verdict": "retry", "instead": "quarantine" })),
        ("late", json!({ "lapsed_at": MS, "expires_at": MS, "failures": 0, "lapses": 0 })),
        ("owner_absent", plain()),
        ("timeout_marked", json!({ "deadline": "execution", "failures": 1, "next_retry_at": MS })),
        ("cancel_requested", json!({ "deadline_at": MS })),
        ("cancel_acknowledged", plain()),
        ("cancelled", json!({ "proof": "not_held", "usage": usage() })),
        ("release_requested", plain()),
        ("abandon_requested", plain()),
        ("content_erased", json!({ "before": 3 })),
        ("quarantined", json!({ "reason": "operator" })),
        ("requeued", json!({ "bound_until": MS })),
        (
            "close_out",
            json!({ "output": { "reference": "s3://x" }, "error": "quota", "warnings": ["w"],
            "by": "holder", "usage": usage() }),
        ),
        (
            "command_reserved",
            with(
                moved(),
                json!({ "tool": tool(), "decision": decision(), "blocked": "budget",
            "review": true, "estimate": { "tokens": 1, "micros": [["EUR", 5]] }, "receipt": receipt(),
            "spec": { "tenant": "t", "key": HASH, "tool": "pay", "target": "acme", "kind": "http_api",
                "executor": "worker", "input_hash": HASH, "step": "s", "slot": "1" } }),
            ),
        ),
        ("command_blocked", with(moved(), json!({ "code": "budget", "decision": decision() }))),
        ("command_unblocked", with(moved(), json!({ "decision": decision() }))),
        ("command_approved", with(moved(), json!({ "seal": HASH, "expires_at": MS }))),
        ("command_cancelled", with(moved(), json!({ "code": "superseded", "superseded_by": COMMAND }))),
        (
            "command_dispatched",
            with(
                moved(),
                json!({ "under": MS * 1024, "tool": tool(), "decision": decision(),
            "request_id": "r", "deadline_at": MS, "reserved": reserved() }),
            ),
        ),
        ("command_succeeded", with(moved(), json!({ "receipt": receipt(), "spent": reserved() }))),
        ("command_failed", with(moved(), json!({ "class": "quota", "failures": 1 }))),
        ("command_unsent", with(moved(), json!({ "class": "transport", "failures": 1, "next_at": MS }))),
        (
            "command_uncertain",
            with(moved(), json!({ "class": "timeout", "needs_person": true, "next_at": MS })),
        ),
        (
            "command_looked_up",
            with(
                moved(),
                json!({ "finding": "absent", "unknowns": 1, "needs_person": true,
            "next_at": MS }),
            ),
        ),
        ("command_reserved_again", moved()),
        ("command_resent", moved()),
        ("command_replayed", with(moved(), json!({ "tool": tool(), "decision": decision() }))),
    ]
}

/// Calls `look` with every field and item, and the name of its field.
fn each(name: &str, value: &Value, look: &mut dyn FnMut(&str, &Value)) {
    look(name, value);
    match value {
        Value::Object(fields) => fields.iter().for_each(|(name, value)| each(name, value, look)),
        Value::Array(items) => items.iter().for_each(|item| each(name, item, look)),
        _ => {}
    }
}

#[test]
fn facts_travel_without_epochs_inner_units_or_integers_that_readers_round() {
    for (kind, stored) in samples() {
        let fact = Fact::parse(kind, &stored.to_string()).unwrap_or_else(|e| panic!("{kind}: {e}"));
        let kept: Value = serde_json::from_str(&fact.data()).unwrap();
        assert_eq!(kept, stored, "the sample of {kind} has a field that the fact does not have");
        let (mut stored_times, mut shown_times) = (0, 0);
        each("", &kept, &mut |_, value| stored_times += usize::from(value.as_i64() == Some(MS)));
        each("", &data(&fact.data()), &mut |name, value| {
            shown_times += usize::from(value == RFC);
            let wide = value.as_i64().is_some_and(|n| n.unsigned_abs() > 1 << 53)
                || value.as_u64().is_some_and(|n| n > 1 << 53);
            assert!(!wide, "{kind}: {name} is {value}");
            assert!(value.as_i64() != Some(MS), "{kind}: {name} is an epoch");
            assert!(!name.contains("permille") && name != "request", "{kind}: {name} is internal");
        });
        assert_eq!(shown_times, stored_times, "{kind}: every time is RFC 3339");
    }
    assert_eq!(data(&retry().to_string())["multiplier"], 1.5);
}

#[test]
fn no_kind_of_fact_is_without_a_sample() {
    let sampled: BTreeSet<_> = samples().into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(sampled, Fact::TYPES.iter().map(|(kind, _)| *kind).collect());
}

/// A new time in the core is named by the convention, or listed in `is_moment`.
#[test]
fn moments_of_the_core_are_known_by_their_names() {
    let core = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../core/src");
    let mut seen = 0;
    for file in ["event.rs", "model.rs", "command/event.rs", "command/model.rs"] {
        let text = std::fs::read_to_string(core.join(file)).unwrap();
        for line in text.lines() {
            let Some((name, kind)) = line.trim().strip_prefix("pub ").and_then(|l| l.split_once(": ")) else {
                continue;
            };
            if matches!(kind, "Millis," | "Option<Millis>,") {
                assert!(is_moment(name) || matches!(name, "state_since" | "quiet_since"), "{file}: {name}");
                seen += 1;
            }
        }
    }
    assert!(seen > 30, "{seen}");
}
