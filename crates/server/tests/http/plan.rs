//! Recovery plans over HTTP on every store: what recovery would do now, and exactly that.

use serde_json::{Value, json};

use crate::{
    bed::{Bed, Client, id_of, on_every_store, work},
    commands::TOOLS,
    metrics::metric,
};

on_every_store!(TOOLS;
    a_plan_is_applied_exactly_or_refused,
    single_rows_are_chosen_left_or_decided_otherwise,
    plans_are_scoped,
);

const PLAN: &str = "/v1/recovery/plan";
const APPLY: &str = "/v1/recovery/apply";

/// The liveness of a process of this machine that has ended.
fn dead() -> Value {
    let mut child = std::process::Command::new("true").spawn().unwrap();
    let pid = child.id();
    child.wait().unwrap();
    let mut liveness = serde_json::to_value(tenure_store::local_process().expect("Linux tells")).unwrap();
    liveness["pid"] = json!(pid);
    liveness
}

/// A work item whose holder is dead. The sweeper looks at its process as often as it is to renew: not within a test.
async fn lost(client: &Client, id: &str, disposition: &str) -> String {
    let mut new = work(id);
    new["disposition"] = json!(disposition);
    new["policy"] = json!({ "lease": { "ttl_ms": 1_200_000, "renew_ms": 400_000, "grace_ms": 1_000 } });
    client.post("/v1/work", new).await.expect(201);
    let worker = json!({ "id": "w1", "incarnation": "i1", "liveness": dead() });
    let claim = json!({ "worker": worker, "request_id": id });
    let grant = client.post("/v1/work/claim", claim).await.expect(200)["leases"][0].take();
    id_of(&grant).to_owned()
}

async fn planned(client: &Client) -> Value {
    client.post(PLAN, json!({})).await.expect(200)
}

async fn a_plan_is_applied_exactly_or_refused(bed: Bed) {
    let client = bed.admin();
    let empty = planned(&client).await;
    assert_eq!((&empty["rows"], &empty["complete"]), (&json!([]), &json!(true)));
    let bound = lost(&client, "bound", "owner_bound").await;
    let free = lost(&client, "free", "rerunnable").await;
    let plan = planned(&client).await;
    assert_eq!(planned(&client).await["id"], plan["id"]);
    let [second, first] = &plan["rows"].as_array().unwrap()[..] else { panic!("{plan}") };
    assert_eq!((&first["work"], &second["work"]), (&json!(bound), &json!(free)));
    assert_eq!((&first["verdict"], &first["to"]), (&json!("abandon"), &json!("abandoned")));
    assert_eq!((&second["verdict"], &second["to"]), (&json!("retry"), &json!("queued")));
    for row in [first, second] {
        assert_eq!((&row["safe"], &row["liveness"]), (&json!(true), &json!("dead")), "{row}");
        assert!(row["proof_of_death"].is_string() && row["rule"].is_string(), "{row}");
    }

    let apply = |plan: &Value| json!({ "plan": plan, "reason": "the host is gone" });
    let forged = client.post(APPLY, apply(&json!("p_0"))).await;
    forged.problem(409, "plan_stale");
    assert_eq!(forged.body["plan"], plan["id"]);
    assert_eq!(forged.body["rows"][0], json!({ "work": free, "seq": 2, "verdict": "retry", "to": "queued" }));
    let mut filtered = apply(&plan["id"]);
    filtered["kind"] = json!("other");
    client.post(APPLY, filtered).await.problem(409, "plan_stale");
    client.post(APPLY, json!({ "plan": plan["id"] })).await.problem(422, "reason_missing");
    client.post(APPLY, json!({ "plan": plan["id"], "reason": " " })).await.problem(422, "reason_missing");
    client.post(PLAN, json!({ "kinds": ["job"] })).await.problem(400, "unknown_field");
    let tried = client.post(&format!("{APPLY}?dry_run=true"), apply(&plan["id"])).await.expect(200);
    assert_eq!(tried["applied"].as_array().unwrap().len(), 2);
    assert_eq!(planned(&client).await["id"], plan["id"], "a dry run changes nothing");

    let done = client.post(APPLY, apply(&plan["id"])).await.expect(200);
    let states: Vec<&Value> = done["applied"].as_array().unwrap().iter().map(|row| &row["state"]).collect();
    assert_eq!(states, ["queued", "abandoned"], "{done}");
    let again = client.post(APPLY, apply(&plan["id"])).await;
    again.problem(409, "plan_stale");
    assert_eq!(again.body["rows"], json!([]), "applied twice: nothing is left of it");
    let log = client.get(&format!("/v1/work/{free}/events")).await.expect(200);
    let applied = &log["items"][2];
    assert_eq!(
        (&applied["type"], &applied["message"]),
        (&json!("recovery_applied"), &json!("the host is gone"))
    );
    assert_eq!(applied["data"]["plan"], plan["id"], "{applied}");
    assert_eq!(log["items"][4]["type"], "recovered");

    metric(&client, r#"tenure_recovery_seconds_count{until="verdict"} 2"#).await;
    client.claim("next").await;
    metric(&client, r#"tenure_recovery_seconds_count{until="running"} 1"#).await;
}

async fn single_rows_are_chosen_left_or_decided_otherwise(bed: Bed) {
    let client = bed.admin();
    let mut ids = Vec::new();
    for name in ["one", "two", "three"] {
        ids.push(lost(&client, name, "rerunnable").await);
    }
    let plan = planned(&client).await["id"].clone();
    let mut apply = json!({ "plan": plan, "reason": "the host is gone", "rows": [ids[0]] });
    apply["rows"] = json!(["w_0"]);
    client.post(APPLY, apply.clone()).await.problem(400, "invalid");
    let elsewhere = client.ingest("elsewhere").await;
    apply["rows"] = json!([elsewhere]);
    client.post(APPLY, apply.clone()).await.problem(400, "invalid");
    apply["rows"] = json!([]);
    apply["overrides"] = json!([
        { "work": ids[1], "verdict": "quarantine", "reason": "it needs a second look" },
        { "work": ids[2], "verdict": "leave", "reason": "ana looks at it" },
    ]);
    let machine = bed.client("machine", &["view", "operate"], None).await;
    machine.post(APPLY, apply.clone()).await.problem(403, "person_required");
    let mut wrong = apply.clone();
    wrong["overrides"][0]["verdict"] = json!("retry");
    client.post(APPLY, wrong).await.problem(400, "invalid");
    let done = client.post(APPLY, apply).await.expect(200);
    assert_eq!(done["applied"].as_array().unwrap().len(), 2, "{done}");
    assert_eq!(done["left"], json!([{ "work": ids[2], "because": "It was left out: ana looks at it" }]));
    let state = async |id: &str| client.get(&format!("/v1/work/{id}")).await.expect(200)["state"].clone();
    assert_eq!(state(&ids[0]).await, "queued");
    assert_eq!(state(&ids[1]).await, "quarantined");
    assert_eq!(state(&ids[2]).await, "running");
    let rest = planned(&machine).await;
    assert_eq!(
        rest["rows"].as_array().unwrap().len(),
        1,
        "an operator's quarantine is not recovery's: {rest}"
    );
    let apply = json!({ "plan": rest["id"], "reason": "the host is gone", "rows": [ids[2]] });
    let done = machine.post(APPLY, apply).await.expect(200);
    assert_eq!(done["applied"][0]["work"], ids[2], "a machine may carry out what the rules say");
}

async fn plans_are_scoped(bed: Bed) {
    let admin = bed.admin();
    lost(&admin, "a", "rerunnable").await;
    let plan = planned(&admin).await;
    let viewer = bed.client("person", &["view"], None).await;
    assert_eq!(planned(&viewer).await["id"], plan["id"]);
    let apply = json!({ "plan": plan["id"], "reason": "x" });
    viewer.post(APPLY, apply.clone()).await.problem(403, "forbidden");
    let worker = bed.client("machine", &["work"], None).await;
    worker.post(PLAN, json!({})).await.problem(403, "forbidden");
    let stranger = bed.client("person", &["view", "operate"], Some(&["elsewhere"])).await;
    assert_eq!(planned(&stranger).await["rows"], json!([]));
    let refused = stranger.post(APPLY, apply).await;
    refused.problem(409, "plan_stale");
    assert_eq!(refused.body["rows"], json!([]), "nothing is told of other tenants");
    let narrowed = stranger.post(PLAN, json!({ "tenant": "default" })).await.expect(200);
    assert_eq!(narrowed["rows"], json!([]));
}
