//! The process that opened the ledger calls its own router: a machine, without a token.

use axum::{
    Router,
    body::Body,
    http::{Method, Request, header},
};
use serde_json::{Value, json};

use crate::bed::{Bed, Client, Reply, on_every_store, work};

/// Sends a request without a token.
async fn send(router: &Router, method: Method, path: &str, body: Value) -> Reply {
    let request = Request::builder().method(method).uri(path).header(header::HOST, "localhost");
    let request = request.header(header::CONTENT_TYPE, "application/json");
    let request = request.body(Body::from(body.to_string())).unwrap();
    Client { router: router.clone(), token: String::new() }.raw(request).await
}

async fn it_is_a_machine_everywhere(bed: Bed) {
    let program = bed.server.in_process("telegram-bridge").unwrap();
    let made = send(&program, Method::POST, "/v1/work", work("a")).await.expect(201);
    let id = made["work"]["id"].as_str().unwrap();
    let cancel = json!({ "reason": "no longer" });
    send(&program, Method::POST, &format!("/v1/work/{id}/cancel"), cancel).await.expect(200);
    let items = json!([{ "path": "/v1/work", "body": work("b") }]);
    let batch = send(&program, Method::POST, "/v1/batch", json!({ "items": items })).await.expect(200);
    assert_eq!(batch["items"][0]["status"], 201, "the calls of its batch are its own: {batch}");
    let again = bed.server.in_process("telegram-bridge").unwrap();
    send(&again, Method::POST, "/v1/work", work("c")).await.expect(201);

    let events = bed.admin().get("/v1/events").await.expect(200);
    let actors: Vec<&Value> = events["items"].as_array().unwrap().iter().map(|it| &it["actor"]).collect();
    assert!(actors.len() >= 4 && actors.iter().all(|actor| *actor == actors[0]), "one principal: {events}");
    assert_eq!((&actors[0]["name"], &actors[0]["type"]), (&json!("telegram-bridge"), &json!("worker")));
    bed.server.close().await.unwrap();
}

async fn acts_of_people_are_refused(bed: Bed) {
    let program = bed.server.in_process("bridge").unwrap();
    let made = send(&program, Method::POST, "/v1/work", work("a")).await.expect(201);
    let id = made["work"]["id"].as_str().unwrap();
    let approve = json!({ "approved": true, "seal": "0" });
    send(&program, Method::POST, &format!("/v1/work/{id}/approve"), approve).await.problem(403, "forbidden");
    let person = json!({ "name": "me", "kind": "person", "scopes": ["view"] });
    send(&program, Method::POST, "/v1/tokens", person).await.problem(403, "person_required");
    bed.server.close().await.unwrap();
}

async fn it_gives_access_to_nobody_else(bed: Bed) {
    let _program = bed.server.in_process("bridge").unwrap();
    send(&bed.router, Method::GET, "/v1/work", json!(null)).await.problem(401, "unauthorized");
    assert!(bed.server.in_process("").is_err(), "a principal has a name");
    bed.server.close().await.unwrap();
}

on_every_store!(it_is_a_machine_everywhere, acts_of_people_are_refused, it_gives_access_to_nobody_else,);
