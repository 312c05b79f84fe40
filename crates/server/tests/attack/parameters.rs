//! Misspelt query parameters have no effect: they are refused on every route.

use std::collections::BTreeMap;

use axum::http::Method;
use serde_json::{Value, json};

use crate::bed::Bed;

async fn a_misspelt_dry_run_is_not_executed_for_real(bed: Bed) {
    let admin = bed.admin();
    let id = admin.ingest("a").await;
    for query in [
        "dry-run=true",
        "dryrun=true",
        "Dry_run=true",
        "dry_run%20=true",
        "dry_run=true&x=1",
        "dry_run[]=true",
    ] {
        let path = format!("/v1/work/{id}/cancel?{query}");
        let refused = admin.post(&path, json!({ "reason": "only asking" })).await;
        refused.problem(400, "unknown_field");
        assert!(refused.body["known"].as_array().unwrap().contains(&json!("dry_run")), "{}", refused.body);
    }
    let items =
        json!([{ "path": format!("/v1/work/{id}/cancel?dry-run=true"), "body": { "reason": "asking" } }]);
    let reply = admin.post("/v1/batch", json!({ "items": items })).await.expect(200);
    assert_eq!(reply["items"][0]["body"]["code"], "unknown_field", "{reply}");
    assert_eq!(admin.get(&format!("/v1/work/{id}")).await.expect(200)["state"], "queued");
}

/// Every route of the contract, with a parameter that none has.
async fn every_route_refuses_a_parameter_that_it_does_not_take(bed: Bed) {
    let admin = bed.admin();
    let contract: Value = serde_json::from_str(&tenure_server::openapi()).unwrap();
    let mut seen = BTreeMap::new();
    for (path, item) in contract["paths"].as_object().unwrap() {
        for method in item.as_object().unwrap().keys() {
            let Ok(method) = method.to_uppercase().parse::<Method>() else { continue };
            let filled = path.replace("{id}", "x").replace("{name}", "x").replace("{step}", "x");
            let body = (!method.is_safe()).then(|| json!({}));
            let reply = admin.send(method.clone(), &format!("{filled}?colour=red"), body).await;
            assert_eq!(reply.status.as_u16(), 400, "{method} {path}: {}", reply.body);
            assert_eq!(reply.body["parameter"], "colour", "{method} {path}: {}", reply.body);
            seen.insert(format!("{method} {path}"), ());
        }
    }
    assert!(seen.len() > 60, "{seen:?}");
}

crate::bed::on_both_databases! {
    a_misspelt_dry_run_is_not_executed_for_real,
    every_route_refuses_a_parameter_that_it_does_not_take,
}
