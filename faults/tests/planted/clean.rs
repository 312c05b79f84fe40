//! A small history without an error, made by hand: two works, one effect, one wait, one takeover.

use serde_json::{Value, json};
use tenure_api::wire::Timestamp;
use tenure_faults::{
    history::{Call, Outcome, Record},
    run::{Effect, Run, Seen},
};

/// The first work, which is claimed twice, has an effect and ends.
pub const PAID: &str = "w_paid";
/// The second, which waits and is answered.
pub const ASKED: &str = "w_asked";
pub const COMMAND: &str = "c_pay";
pub const WAIT: &str = "wt_1";
const AT: &str = "2026-01-01T00:00:00.000Z";

struct Book {
    run: Run,
    now_us: u64,
}

impl Book {
    fn event(&mut self, work: &str, kind: &str, to: &str, fence: Option<u64>, data: Value, payload: Value) {
        let last = self.run.log.iter().rev().find(|event| event.work.as_str() == work);
        let (seq, from, prev) = last.map_or((1, Value::Null, "genesis".to_owned()), |last| {
            (last.seq + 1, json!(last.to.to_string()), last.hash.clone())
        });
        let step = (kind.starts_with("step_")).then_some("s1");
        let event = json!({
            "position": format!("p{:04}", self.run.log.len()), "work": work, "tenant": "default", "seq": seq,
            "at": AT, "type": kind, "from": from, "to": to, "actor": { "type": "machine", "id": "m" },
            "attempt": 1, "step": step, "fence": fence, "data": data, "payload": payload,
            "prev_hash": prev, "hash": format!("{work}-{seq}"),
        });
        self.run.log.push(serde_json::from_value(event).unwrap());
    }

    fn told(&mut self, client: &str, call: Call, body: Value) {
        self.now_us += 10;
        let (asked_us, answered_us) = (self.now_us, self.now_us + 5);
        let outcome = Outcome::Ok(body);
        self.run.history.push(Record { client: client.to_owned(), asked_us, answered_us, call, outcome });
    }

    fn created(&mut self, work: &str) {
        self.event(work, "work_created", "queued", None, json!({}), json!({ "n": 1 }));
        let source = json!({ "system": "manual", "id": work });
        let ingest =
            json!({ "source": source, "kind": "k", "disposition": "rerunnable", "input": { "n": 1 } });
        let ingest = Call::Ingest(Box::new(serde_json::from_value(ingest).unwrap()));
        let row = row(work, "queued", 1, Value::Null);
        self.told("submitter", ingest, json!({ "work": row, "created": true }));
    }

    fn claimed(&mut self, work: &str, worker: &str, fence: u64) {
        let data = json!({ "worker": { "id": worker, "incarnation": "1" }, "starts": false });
        self.event(work, "claimed", "running", Some(fence), data, Value::Null);
        self.granted(work, worker, fence);
    }

    /// What its client was told, the first time or again.
    fn granted(&mut self, work: &str, worker: &str, fence: u64) {
        let claimed =
            self.run.log.iter().find(|e| e.work.as_str() == work && e.fence == Some(fence)).unwrap();
        let claim =
            json!({ "worker": { "id": worker, "incarnation": "1" }, "request_id": format!("r{fence}") });
        let row = row(work, "running", claimed.seq, Value::Null);
        let lease = json!({
            "work": row, "input": {}, "fence": fence, "token": format!("t{fence}"), "expires_at": AT,
            "renew_ms": 15_000, "ttl_ms": 45_000, "steps": [], "answers": [],
        });
        let call = Call::Claim(Box::new(serde_json::from_value(claim).unwrap()));
        self.told(worker, call, json!({ "leases": [lease] }));
    }

    fn ack(&self, work: &str) -> Value {
        let last = self.run.log.iter().rev().find(|event| event.work.as_str() == work).unwrap();
        json!({ "id": work, "state": last.to.to_string(), "seq": last.seq })
    }
}

fn row(work: &str, state: &str, seq: u64, result: Value) -> Value {
    json!({
        "id": work, "source": { "system": "manual", "id": work }, "kind": "k", "tenant": "default",
        "correlation_id": work, "generation": 0, "state": state, "phase": "pending", "seq": seq,
        "attempt": 0, "failures": 0, "priority": 3, "disposition": "rerunnable", "session": "chat",
        "timestamps": { "acknowledged": AT, "updated": AT }, "input_hash": "i", "result": result,
    })
}

fn command(state: &str) -> Value {
    let receipt = (state == "succeeded").then(|| receipt("x1"));
    json!({
        "id": COMMAND, "work": PAID, "tenant": "default", "tool": "pay", "target": "shop", "kind": "http_api",
        "executor": "worker", "risk": "low", "idempotency": "none", "state": state, "command_key": "k1",
        "input_hash": "a1", "idempotency_key": "idem-1", "seal": "s", "submitter": { "type": "machine", "id": "m" },
        "decision": { "policy_version": "1", "effect": "allow" }, "attempt": 2, "created_at": AT, "updated_at": AT,
        "dispatch": { "number": 1, "at": AT, "fence": 20, "by": { "type": "machine", "id": "m" } },
        "receipt": receipt,
    })
}

fn receipt(external_id: &str) -> Value {
    json!({ "at": AT, "evidence": { "kind": "provider" }, "external_id": external_id })
}

pub fn run() -> Run {
    let mut book = Book { run: Run::default(), now_us: 0 };
    book.created(PAID);
    book.claimed(PAID, "a", 10);
    let renewed = json!({ "id": PAID, "expires_at": AT, "cancel_requested": false });
    book.told("a", Call::Renew { work: PAID.into(), fence: 10 }, renewed);
    // It goes silent; somebody else takes over, and asks twice.
    book.event(PAID, "lease_lapsed", "queued", Some(10), json!({}), Value::Null);
    book.claimed(PAID, "b", 20);
    book.granted(PAID, "b", 20);
    progress(&mut book);
    step(&mut book);
    effect(&mut book);
    let result = json!({ "paid": true });
    book.event(PAID, "close_out", "succeeded", Some(20), json!({}), result.clone());
    let close = Call::CloseOut { work: PAID.into(), fence: 20, state: "succeeded".parse().unwrap(), result };
    let ack = book.ack(PAID);
    book.told("b", close, ack);
    asked(&mut book);
    end(book)
}

fn progress(book: &mut Book) {
    let progress = json!({ "at": 1 });
    book.event(PAID, "progressed", "running", Some(20), json!({ "request_id": "p1" }), progress.clone());
    let call = Call::Progress { work: PAID.into(), fence: 20, request_id: "p1".into(), progress };
    let ack = book.ack(PAID);
    book.told("b", call, ack);
}

fn step(book: &mut Book) {
    let result = json!({ "done": 1 });
    book.event(PAID, "step_begun", "running", Some(20), json!({}), Value::Null);
    book.event(PAID, "step_completed", "running", Some(20), json!({}), result.clone());
    let call = Call::Step {
        work: PAID.into(),
        fence: 20,
        step: "s1".into(),
        verb: "complete".parse().unwrap(),
        result: Some(result.clone()),
    };
    let step = json!({ "name": "s1", "ordinal": 1, "input_hash": "i", "begun_at": AT, "result": result, "voided": false });
    book.told("b", call, json!({ "step": step, "reused": false }));
}

fn effect(book: &mut Book) {
    book.event(
        PAID,
        "command_reserved",
        "running",
        Some(20),
        json!({ "command": COMMAND, "now": "pending" }),
        json!({}),
    );
    let reserve = Call::Reserve { work: PAID.into(), fence: 20, tool: "pay".into(), slot: "0".into() };
    let mut pending = command("pending");
    pending["dispatch"] = Value::Null;
    book.told("b", reserve, pending);
    let dispatched = json!({ "command": COMMAND, "now": "dispatched", "under": 20 });
    book.event(PAID, "command_dispatched", "running", Some(20), dispatched, Value::Null);
    let dispatch = Call::Dispatch { command: COMMAND.into(), fence: 20, request_id: "d1".into() };
    book.told("b", dispatch, command("dispatched"));
    book.run.effects.push(Effect {
        at_us: book.now_us,
        key: "idem-1".into(),
        command: COMMAND.into(),
        fence: 20,
        dispatched_at: AT.parse::<Timestamp>().unwrap(),
    });
    let succeeded = json!({ "command": COMMAND, "now": "succeeded", "receipt": receipt("x1") });
    book.event(PAID, "command_succeeded", "running", Some(20), succeeded, Value::Null);
    let call = Call::Receipt { command: COMMAND.into(), fence: 20, external_id: "x1".into() };
    book.told("b", call, command("succeeded"));
}

fn asked(book: &mut Book) {
    book.created(ASKED);
    book.claimed(ASKED, "b", 30);
    let opened = json!({ "waits": [{ "id": WAIT, "kind": "user", "ref": "ask", "on_timeout": "time_out" }] });
    book.event(ASKED, "waiting_set", "waiting_user", Some(30), opened, Value::Null);
    let call = Call::SetWait { work: ASKED.into(), fence: 30, reference: "ask".into() };
    let work = book.ack(ASKED);
    book.told("b", call, json!({ "work": work, "waits": [{ "id": WAIT, "token": "t" }], "answers": [] }));
    book.event(ASKED, "wait_resolved", "queued", None, json!({ "wait": WAIT, "ref": "ask" }), json!("yes"));
    for (person, first) in [("one", true), ("two", false)] {
        let payload = json!(if first { "yes" } else { "no" });
        let answer = json!({ "wait": WAIT, "work": ASKED, "first": first, "payload": "yes" });
        book.told(person, Call::Answer { wait: WAIT.into(), payload }, json!({ "answers": [answer] }));
    }
}

fn end(book: Book) -> Run {
    let mut run = book.run;
    let last = |run: &Run, work: &str| run.log.iter().filter(|e| e.work.as_str() == work).count() as u64;
    let rows = [
        row(PAID, "succeeded", last(&run, PAID), json!({ "paid": true })),
        row(ASKED, "queued", last(&run, ASKED), Value::Null),
    ];
    run.works = rows.map(|row| serde_json::from_value(row).unwrap()).to_vec();
    run.commands = vec![serde_json::from_value(command("succeeded")).unwrap()];
    run.followed = vec![run.log.iter().map(Seen::of).collect()];
    run
}
