//! The wire types in JSON.

use std::fmt::Debug;

use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tenure_api::wire::*;

fn round<T: Serialize + DeserializeOwned + PartialEq + Debug>(json: Value) -> T {
    let read: T = serde_json::from_value(json.clone()).unwrap();
    assert_eq!(serde_json::to_value(&read).unwrap(), json);
    read
}

fn work() -> Value {
    json!({
        "id": "w_0198", "source": { "system": "manual", "id": "1" }, "kind": "review", "title": "Review pull request 1",
        "tenant": "default", "correlation_id": "c", "generation": 1, "state": "waiting_approval", "phase": "waiting", "seq": 7,
        "reason": { "code": "waiting_for_answer" }, "attempt": 1, "failures": 0, "priority": 3,
        "disposition": "rerunnable",
        "lease": {
            "worker": "a", "incarnation": "b", "fence": 5, "expires_at": "2026-01-31T08:15:45.000Z",
            "renewed_at": "2026-01-31T08:15:00.000Z", "missed": 0, "liveness": "alive"
        },
        "waits": [{
            "id": "wt_1", "work": "w_0198", "tenant": "default", "ref": "gate", "kind": "approval",
            "state": "open", "opened_at": "2026-01-31T08:15:00.000Z", "on_timeout": "time_out",
            "escalations": 0
        }],
        "timestamps": { "acknowledged": "2026-01-31T08:15:00.000Z", "updated": "2026-01-31T08:15:00.000Z" },
        "input_hash": "00"
    })
}

#[test]
fn requests_match_the_contract() {
    let ingest: Ingest = round(json!({
        "source": { "system": "scheduler", "id": "nightly", "run_id": "2026-01-31" },
        "kind": "digest", "disposition": "owner_bound", "input": { "a": 1 }, "priority": 1,
        "policy": {
            "retry": { "max_attempts": 5, "multiplier": 1.5, "jitter": "equal" },
            "lease": { "ttl_ms": 45000, "renew_ms": 15000, "grace_ms": 30000 }, "on_expiry": "timeout"
        },
        "evidence": [{ "kind": "traceparent", "ref": "00-1-2-01" }],
        "claim": {
            "worker": { "id": "a", "incarnation": "b", "liveness": { "type": "opaque" } }, "request_id": "r"
        }
    }));
    assert_eq!(ingest.disposition, Disposition::OwnerBound);
    round::<Claim>(json!({
        "worker": {
            "id": "a", "incarnation": "b",
            "liveness": { "type": "local_process", "boot_id": "x", "pid_namespace": 1, "pid": 2, "start_time": 3 }
        },
        "request_id": "r", "kinds": ["digest"], "max": 3, "wait_ms": 1000
    }));
    round::<CloseOut>(json!({ "fence": 1, "token": "t", "state": "succeeded", "result": [1] }));
    round::<SetWait>(
        json!({ "fence": 1, "token": "t", "waits": [{ "kind": "user", "ref": "q", "endless": true }] }),
    );
    round::<Resolve>(json!({ "ref": "q", "payload": null }));
    round::<Fail>(json!({ "fence": 1, "token": "t", "error": { "class": "auth", "message": "no" } }));
}

#[test]
fn requests_refuse_fields_that_do_not_exist() {
    let misspelt = json!({ "reason": "x", "deadline": 5 });
    let refused = serde_json::from_value::<Cancel>(misspelt).unwrap_err().to_string();
    assert!(refused.contains("unknown field `deadline`"), "{refused}");
    let nested =
        json!({ "fence": 1, "token": "t", "error": { "class": "auth", "message": "no", "clas": 1 } });
    assert!(serde_json::from_value::<Fail>(nested).is_err());
    let word = json!({ "fence": 1, "token": "t", "state": "finished" });
    let refused = serde_json::from_value::<CloseOut>(word).unwrap_err().to_string();
    assert!(refused.contains("unknown variant `finished`, expected one of"), "{refused}");
}

#[test]
fn old_names_of_states_are_read_and_never_written() {
    let close: CloseOut =
        serde_json::from_value(json!({ "fence": 1, "token": "t", "state": "done", "no_output": true }))
            .unwrap();
    assert_eq!(close.state, State::Succeeded);
    assert_eq!(serde_json::to_value(&close).unwrap()["state"], "succeeded");
    for state in State::ALL {
        assert_eq!(state.as_str().parse::<State>().unwrap(), *state);
    }
}

#[test]
fn replies_survive_a_newer_server() {
    let read: Work = round(work());
    assert_eq!(read.state, State::WaitingApproval);
    let mut newer = work();
    newer["state"] = json!("dreaming");
    newer["mood"] = json!("calm");
    let read: Work = serde_json::from_value(newer).unwrap();
    assert_eq!(read.state, Word::Other("dreaming".into()));
    assert_eq!(read.state.to_string(), "dreaming");
}

#[test]
fn a_renewal_differs_from_its_refusal() {
    let renewals: Renewals = round(json!({ "leases": [
        { "id": "w_1", "expires_at": "2026-01-31T08:15:45.000Z", "cancel_requested": true },
        { "id": "w_2", "problem": {
            "type": "about:blank", "title": "Lease lost", "status": 409, "detail": "Stop.",
            "code": "lease_lost", "retryable": false
        } }
    ], "lost": ["w_2"] }));
    assert_eq!(renewals, Renewals::new(renewals.leases.clone()), "`lost` follows from the leases");
    assert!(matches!(renewals.leases[0], Renewal::Renewed { cancel_requested: true, .. }));
    assert!(
        matches!(&renewals.leases[1], Renewal::Refused { problem, .. } if problem.code == Code::LeaseLost)
    );
}

#[test]
fn a_problem_keeps_unknown_fields() {
    let problem: Problem = round(json!({
        "type": "about:blank", "title": "Busy", "status": 409, "detail": "Held by a.", "code": "busy",
        "retryable": null, "holder": "a"
    }));
    assert_eq!(problem.extensions["holder"], "a");
    assert_eq!(problem.retryable, None);
}

#[test]
fn several_states_travel_in_one_parameter() {
    let query = WorkQuery { state: vec![State::Queued, State::Running], ..WorkQuery::default() };
    assert_eq!(serde_json::to_value(&query).unwrap(), json!({ "state": "queued,running" }));
    let read: WorkQuery = serde_json::from_value(json!({ "state": "queued, stalled" })).unwrap();
    assert_eq!(read.state, [State::Queued, State::Stalled]);
    assert!(serde_json::from_value::<WorkQuery>(json!({ "state": "asleep" })).is_err());
}
