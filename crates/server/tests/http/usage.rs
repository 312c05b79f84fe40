//! The usage of attempts: reported at their end, summed on the work item, counted.

use serde_json::{Value, json};

use crate::{
    bed::{Bed, held, id_of, on_every_store, work},
    metrics::metric,
};

on_every_store!(usage_is_summed_and_shown, an_external_owner_reports_its_usage);

async fn usage_is_summed_and_shown(bed: Bed) {
    let client = bed.admin();
    let id = client.ingest("a").await;
    let path = |verb: &str| format!("/v1/work/{id}/{verb}");
    let grant = client.claim("c1").await;
    let used = json!([
        { "source": "provider", "model": "large", "input_tokens": 900, "cached_tokens": 300, "calls": 2 },
        { "model": "small", "output_tokens": 5, "cost_micros": 1_500, "currency": "EUR" },
    ]);
    let failure = json!({ "error": { "class": "transport" }, "usage": used });
    client.post(&path("fail"), held(&grant, failure)).await.expect(200);
    client.post(&path("retry-now"), json!({ "reason": "now" })).await.expect(200);
    let grant = client.claim("c2").await;
    assert_eq!(grant["work"]["usage"][0]["input_tokens"], 900, "the next attempt sees the usage so far");
    let end = json!({ "state": "succeeded", "no_output": true,
        "usage": [{ "source": "provider", "model": "large", "input_tokens": 100, "output_tokens": 10 }] });
    let ack = client.post(&path("close-out"), held(&grant, end.clone())).await.expect(200);
    assert_eq!(client.post(&path("close-out"), held(&grant, end)).await.expect(200), ack);

    let sum = json!([
        { "source": "provider", "model": "large", "input_tokens": 1_000, "output_tokens": 10,
            "cached_tokens": 300, "calls": 2 },
        { "model": "small", "output_tokens": 5, "cost_micros": 1_500, "currency": "EUR" },
    ]);
    assert_eq!(client.get(&format!("/v1/work/{id}")).await.expect(200)["usage"], sum);
    assert_eq!(client.get("/v1/work").await.expect(200)["items"][0]["usage"], sum);
    metric(&client, r#"tenure_tokens_total{source="provider",model="large",kind="input"} 1000"#).await;
    metric(&client, r#"tenure_tokens_total{source="",model="small",kind="output"} 5"#).await;
    let report = client.post("/v1/admin/verify", json!({})).await.expect(200);
    assert_eq!(report["faults"], json!([]));
    bed.server.close().await.unwrap();
}

async fn an_external_owner_reports_its_usage(bed: Bed) {
    let client = bed.admin();
    let mut new = work("job");
    new["disposition"] = json!("externally_owned");
    let made = client.post("/v1/work", new).await.expect(201);
    let path = format!("/v1/work/{}", made["work"]["id"].as_str().unwrap());
    let end = |calls: u64| {
        json!({ "token": made["completion_token"], "state": "succeeded", "no_output": true,
            "usage": [{ "calls": calls }, { "calls": 1 }] })
    };
    client.post(&format!("{path}/complete"), end(3)).await.expect(200);
    client.post(&format!("{path}/complete"), end(3)).await.expect(200);
    client.post(&format!("{path}/complete"), end(4)).await.problem(409, "terminal");
    assert_eq!(client.get(&path).await.expect(200)["usage"], json!([{ "calls": 4 }]));
    bed.server.close().await.unwrap();
}

#[tokio::test]
async fn usage_has_one_closed_shape() {
    let bed = Bed::memory().await;
    let client = bed.admin();
    client.ingest("a").await;
    let grant = client.claim("c1").await;
    let path = format!("/v1/work/{}/close-out", id_of(&grant));
    for (usage, code) in [
        (json!([{ "input_tokens": -1 }]), "invalid"),
        (json!([{ "input_tokens": 1.5 }]), "invalid"),
        (json!([{ "input_tokens": 9_007_199_254_740_993_u64 }]), "invalid"),
        (json!([{ "tokens": 1 }]), "unknown_field"),
        (json!([{ "cost_micros": 1 }]), "invalid"),
        (json!([{ "cost_micros": 1, "currency": "euro" }]), "invalid"),
        (Value::Array(vec![json!({}); 51]), "invalid"),
    ] {
        let end = json!({ "state": "succeeded", "no_output": true, "usage": usage });
        client.post(&path, held(&grant, end)).await.problem(400, code);
    }
}
