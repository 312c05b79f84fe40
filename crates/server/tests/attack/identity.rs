//! Identity, and attempts to gain more rights.

use std::{net::SocketAddr, time::Duration};

use axum::{extract::ConnectInfo, http::Method};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::bed::{Bed, Client, held, id_of, on_every_store, work};

on_every_store!(
    nobody_mints_more_than_it_has,
    one_name_is_not_one_person,
    a_colleague_who_knows_the_request_is_not_handed_the_lease,
    a_token_of_some_kinds_reaches_no_other,
    nobody_mints_for_somebody_who_could_do_more_and_has_left,
    a_repeated_ingest_gives_no_foreign_completion_token,
    a_token_of_some_kinds_learns_no_foreign_id,
);

const EVERY: [&str; 9] =
    ["view", "payload", "submit", "work", "resolve", "approve", "replay", "operate", "admin"];

/// Creates a token and returns a client that uses it, with the response.
async fn made(bed: &Bed, by: &Client, token: Value) -> (Client, Value) {
    let made = by.post("/v1/tokens", token).await.expect(201);
    let secret = made["secret"].as_str().unwrap().to_owned();
    (Client { router: bed.router.clone(), token: secret }, made["token"].clone())
}

fn with(base: &Value, field: &str, value: Value) -> Value {
    let mut changed = base.clone();
    changed[field] = value;
    changed
}

fn without(base: &Value, field: &str) -> Value {
    let mut changed = base.clone();
    changed.as_object_mut().unwrap().remove(field);
    changed
}

async fn nobody_mints_more_than_it_has(bed: Bed) {
    let own = json!({
        "name": "clerk", "kind": "person", "scopes": ["admin", "view"], "tenants": ["a", "b"],
        "kinds": ["mail", "fax"], "worker": "w1", "expires_at": "2999-01-01T00:00:00.000Z",
    });
    let (clerk, token) = made(&bed, &bed.admin(), own.clone()).await;
    let asked = with(&own, "scopes", json!(["view"]));
    for upwards in [
        with(&asked, "scopes", json!(["view", "approve"])),
        with(&asked, "scopes", json!(EVERY)),
        with(&asked, "tenants", json!(["a", "c"])),
        without(&asked, "tenants"),
        with(&asked, "kinds", json!(["mail", "pay"])),
        without(&asked, "kinds"),
        with(&asked, "worker", json!("w2")),
        without(&asked, "worker"),
        with(&asked, "expires_at", json!("2999-01-01T00:00:00.001Z")),
        without(&asked, "expires_at"),
    ] {
        clerk.post("/v1/tokens", upwards).await.problem(403, "forbidden");
    }
    for empty in ["scopes", "tenants", "kinds"] {
        clerk.post("/v1/tokens", with(&asked, empty, json!([]))).await.problem(400, "invalid");
    }
    made(&bed, &clerk, asked.clone()).await;

    // A second token of the same principal is as good; another principal's needs all of its rights.
    let known = |id: &Value| with(&without(&asked, "kind"), "principal", id.clone());
    let (_, second) = made(&bed, &clerk, known(&token["principal"]["id"])).await;
    assert_eq!(second["principal"], token["principal"]);
    let root = bed.admin().get("/v1/tokens").await.expect(200)["items"].take();
    let root = root.as_array().unwrap().last().unwrap()["principal"]["id"].clone();
    clerk.post("/v1/tokens", known(&root)).await.problem(404, "not_found");
    clerk.post("/v1/tokens", known(&json!(format!("p_{}", "0".repeat(32))))).await.problem(404, "not_found");
    let both = with(&asked, "principal", token["principal"]["id"].clone());
    clerk.post("/v1/tokens", both).await.problem(400, "invalid");
    clerk.post("/v1/tokens", without(&asked, "kind")).await.problem(400, "invalid");
    made(&bed, &bed.admin(), known(&token["principal"]["id"])).await;

    let machine = json!({ "name": "m", "kind": "machine", "scopes": ["admin"] });
    let (machine, _) = made(&bed, &bed.admin(), machine).await;
    let person = json!({ "name": "me", "kind": "person", "scopes": ["admin"] });
    machine.post("/v1/tokens", person).await.problem(403, "person_required");
    let promoted = json!({ "name": "me", "principal": token["principal"]["id"], "scopes": ["admin"] });
    let refused = machine.post("/v1/tokens", promoted).await;
    assert!([403, 404].contains(&refused.status.as_u16()), "{}", refused.body);
    bed.server.close().await.unwrap();
}

async fn one_name_is_not_one_person(bed: Bed) {
    let ana = json!({ "name": "ana", "kind": "person", "scopes": EVERY });
    let (first, token) = made(&bed, &bed.admin(), ana.clone()).await;
    let (namesake, other) = made(&bed, &bed.admin(), ana).await;
    let principal = token["principal"]["id"].clone();
    assert_ne!(principal, other["principal"]["id"]);
    let again = json!({ "name": "ana's phone", "principal": principal, "scopes": EVERY });
    let (phone, _) = made(&bed, &bed.admin(), again).await;

    let id = first.ingest("a").await;
    phone.post(&format!("/v1/work/{id}/cancel"), json!({ "reason": "not needed" })).await.expect(200);
    let events = first.get(&format!("/v1/work/{id}/events")).await.expect(200);
    let actors: Vec<&Value> = events["items"].as_array().unwrap().iter().map(|e| &e["actor"]).collect();
    let person = json!({ "type": "person", "id": principal, "name": "ana" });
    assert!(
        actors.len() >= 2 && actors.iter().all(|actor| **actor == person),
        "two tokens, one person: {events}"
    );
    let explained = first.get(&format!("/v1/work/{id}/explain")).await.expect(200);
    assert!(explained["sentence"].as_str().unwrap().contains("ana"), "{explained}");

    let id = namesake.ingest("b").await;
    let events = namesake.get(&format!("/v1/work/{id}/events")).await.expect(200);
    assert_eq!(events["items"][0]["actor"]["name"], "ana");
    assert_eq!(events["items"][0]["actor"]["id"], other["principal"]["id"], "one name, two persons");
    bed.server.close().await.unwrap();
}

#[tokio::test]
async fn a_second_token_does_not_make_a_second_pair_of_eyes() {
    let bed = Bed::configured("[tools.pay]\nrisk = \"high\"\nfour_eyes = true").await;
    let ana = json!({ "name": "ana", "kind": "person", "scopes": EVERY });
    let (first, token) = made(&bed, &bed.admin(), ana.clone()).await;
    let again = json!({ "name": "other", "principal": token["principal"]["id"], "scopes": EVERY });
    let (phone, _) = made(&bed, &bed.admin(), again).await;
    let (namesake, _) = made(&bed, &bed.admin(), ana).await;
    first.ingest("a").await;
    let grant = first.claim("c1").await;
    let intent = json!({ "tool": "pay", "target": "acme", "arguments": { "amount": 5 } });
    let path = format!("/v1/work/{}/commands", id_of(&grant));
    let command = first.post(&path, held(&grant, intent)).await.expect(201);
    let approve = format!("/v1/commands/{}/approve", command["id"].as_str().unwrap());
    let yes = json!({ "reason": "fine", "seal": command["seal"] });
    for own in [&first, &phone] {
        own.post(&approve, yes.clone()).await.problem(403, "four_eyes");
    }
    let approved = namesake.post(&approve, yes).await.expect(200);
    assert_eq!(approved["approval"]["by"]["name"], "ana");
}

async fn a_colleague_who_knows_the_request_is_not_handed_the_lease(bed: Bed) {
    let me = bed.client("machine", &["submit", "work", "view", "resolve"], None).await;
    let colleague = bed.client("machine", &["submit", "work", "view", "resolve"], None).await;
    me.ingest("a").await;
    let mine = me.claim("the same").await;
    let claim = json!({ "worker": { "id": "w1", "incarnation": "i1" }, "request_id": "the same" });
    let stolen = colleague.post("/v1/work/claim", claim.clone()).await.expect(200);
    assert_eq!(stolen["leases"], json!([]));
    assert_eq!(me.claim("the same").await["token"], mine["token"], "its own repeat is given it again");

    let mut bound = work("bound");
    bound["disposition"] = json!("owner_bound");
    bound["claim"] = claim;
    let held_ingest = me.post("/v1/work", bound.clone()).await.expect(201);
    assert!(held_ingest["lease"]["token"].is_string(), "{held_ingest}");
    let repeated = colleague.post("/v1/work", bound).await.expect(200);
    assert!(repeated.get("lease").is_none(), "{repeated}");

    let grant = &held_ingest["lease"];
    let ask = held(grant, json!({ "waits": [{ "kind": "user", "ref": "q" }] }));
    me.post(&format!("/v1/work/{}/wait", id_of(grant)), ask).await.expect(200);
    me.post("/v1/resolve", json!({ "ref": "q", "payload": 1 })).await.expect(200);
    let by_id = json!({
        "worker": { "id": "w1", "incarnation": "i1" }, "request_id": "again", "ids": [id_of(grant)],
    });
    colleague.post("/v1/work/claim", by_id.clone()).await.problem(409, "owner_bound");
    me.post("/v1/work/claim", by_id).await.expect(200);
    bed.server.close().await.unwrap();
}

async fn nobody_mints_for_somebody_who_could_do_more_and_has_left(bed: Bed) {
    let boss = json!({ "name": "boss", "kind": "person", "scopes": EVERY });
    let (_, left) = made(&bed, &bed.admin(), boss).await;
    let revoke = format!("/v1/tokens/{}?reason=left", left["id"].as_str().unwrap());
    bed.admin().send(Method::DELETE, &revoke, None).await.expect(200);
    let clerk =
        json!({ "name": "clerk", "kind": "person", "scopes": ["admin", "approve"], "tenants": ["acme"] });
    let (clerk, _) = made(&bed, &bed.admin(), clerk).await;
    let principal = &left["principal"]["id"];
    let asked = json!({ "name": "boss", "principal": principal, "scopes": ["approve"], "tenants": ["acme"] });
    clerk.post("/v1/tokens", asked.clone()).await.problem(404, "not_found");
    made(&bed, &bed.admin(), asked).await;
    bed.server.close().await.unwrap();
}

async fn a_repeated_ingest_gives_no_foreign_completion_token(bed: Bed) {
    let me = bed.client("machine", &["submit", "view"], None).await;
    let colleague = bed.client("machine", &["submit", "view"], None).await;
    let external = with(&work("job"), "disposition", json!("externally_owned"));
    let mine = me.post("/v1/work", external.clone()).await.expect(201);
    assert!(mine["completion_token"].is_string(), "{mine}");
    let theirs = colleague.post("/v1/work", external.clone()).await.expect(200);
    assert!(theirs.get("completion_token").is_none(), "{theirs}");
    let again = me.post("/v1/work", external).await.expect(200);
    assert_eq!(again["completion_token"], mine["completion_token"], "its own repeat is given it again");
    bed.server.close().await.unwrap();
}

async fn a_token_of_some_kinds_learns_no_foreign_id(bed: Bed) {
    let of_mail = json!({ "name": "mailer", "kind": "machine", "scopes": ["submit"], "kinds": ["mail"] });
    let (mailer, _) = made(&bed, &bed.admin(), of_mail).await;
    let id = bed.admin().ingest("zebra").await;
    let mail = with(&work("zebra"), "kind", json!("mail"));
    let refused = mailer.post("/v1/work", mail.clone()).await;
    refused.problem(409, "idempotency_mismatch");
    assert!(!refused.body.to_string().contains(&id), "{}", refused.body);
    let told = bed.admin().post("/v1/work", mail).await;
    told.problem(409, "idempotency_mismatch");
    assert!(told.body["detail"].as_str().unwrap().contains(&id), "{}", told.body);
    bed.server.close().await.unwrap();
}

async fn a_token_of_some_kinds_reaches_no_other(bed: Bed) {
    let of_mail = json!({ "name": "mailer", "kind": "person", "scopes": EVERY, "kinds": ["mail"] });
    let (mailer, _) = made(&bed, &bed.admin(), of_mail).await;
    let other = bed.admin().ingest("zebra").await;
    let mail = with(&work("mail"), "kind", json!("mail"));
    let own = mailer.post("/v1/work", mail).await.expect(201)["work"]["id"].clone();
    mailer.post("/v1/work", work("x")).await.problem(403, "forbidden");
    let listed = mailer.get("/v1/work").await.expect(200);
    assert_eq!(listed["items"].as_array().unwrap().len(), 1, "{listed}");
    assert_eq!(listed["items"][0]["id"], own);

    let worker = json!({ "id": "w", "incarnation": "i" });
    let beyond = json!({ "worker": worker, "request_id": "r1", "kinds": ["job"] });
    mailer.post("/v1/work/claim", beyond).await.problem(403, "forbidden");
    let by_id = json!({ "worker": worker, "request_id": "r2", "ids": [other] });
    mailer.post("/v1/work/claim", by_id).await.problem(404, "not_found");
    let any = json!({ "worker": worker, "request_id": "r3", "max": 10 });
    let leases = mailer.post("/v1/work/claim", any).await.expect(200)["leases"].take();
    assert_eq!(leases.as_array().unwrap().len(), 1, "{leases}");

    // Every other route is about one work item, which does not exist for this token, or is refused as a
    // whole.
    let contract: Value = serde_json::from_str(&tenure_server::openapi()).unwrap();
    let mut refused = 0;
    for (path, item) in contract["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            if operation["security"][0].get("token").is_none() || !path.starts_with("/v1/") {
                continue;
            }
            let method: Method = method.to_uppercase().parse().unwrap();
            let asked = path.replace("{id}", &other).replace("{step}", "s").replace("{name}", "n");
            let body = (method != Method::GET).then(|| json!({}));
            let reply = mailer.send(method.clone(), &asked, body).await;
            assert!(!reply.body.to_string().contains("zebra"), "{method} {path}: {}", reply.body);
            refused += usize::from(reply.body["code"] == "forbidden");
        }
    }
    assert!(refused >= 15, "what lists every kind is refused: {refused}");
    let seen = bed.admin().get(&format!("/v1/work/{other}")).await.expect(200);
    assert_eq!((&seen["state"], &seen["seq"]), (&json!("queued"), &json!(1)), "nothing was touched");
    bed.server.close().await.unwrap();
}

#[tokio::test]
async fn a_token_of_one_worker_claims_for_no_other() {
    let bed = Bed::memory().await;
    let bound = json!({ "name": "w1", "kind": "machine", "scopes": ["submit", "work"], "worker": "w1" });
    let (bound, _) = made(&bed, &bed.admin(), bound).await;
    bound.ingest("a").await;
    let claim = |id: &str| json!({ "worker": { "id": id, "incarnation": "i" }, "request_id": id });
    bound.post("/v1/work/claim", claim("w2")).await.problem(403, "forbidden");
    let ingest = with(&work("b"), "claim", claim("w2"));
    bound.post("/v1/work", ingest).await.problem(403, "forbidden");
    let claimed = bound.post("/v1/work/claim", claim("w1")).await.expect(200);
    assert_eq!(claimed["leases"].as_array().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn wrong_tokens_are_slowed_and_good_ones_are_not() {
    let bed = Bed::memory().await;
    let from = async |token: String, peer: &str| {
        let client = Client { router: bed.router.clone(), token };
        let mut request = client.request(Method::GET, "/v1/work");
        let peer: SocketAddr = peer.parse().unwrap();
        request.extensions_mut().insert(ConnectInfo(peer));
        client.raw(request).await
    };
    for guess in 0..20 {
        from(format!("tn_{guess}"), "192.0.2.1:1000").await.problem(401, "unauthorized");
    }
    let begun = Instant::now();
    from("tn_more".to_owned(), "192.0.2.1:1001").await.problem(401, "unauthorized");
    assert!(begun.elapsed() >= Duration::from_secs(1), "the next guess takes a second");
    let guesses = (0..40).map(|guess| from(format!("tn_x{guess}"), "192.0.2.1:1"));
    let replies = futures_util::future::join_all(guesses).await;
    assert!(replies.iter().any(|reply| reply.body["code"] == "rate_limited"), "nor do many at once help");
    let begun = Instant::now();
    from(bed.admin().token, "192.0.2.1:1002").await.expect(200);
    from("tn_other".to_owned(), "192.0.2.2:1000").await.problem(401, "unauthorized");
    assert!(begun.elapsed() < Duration::from_secs(1), "neither good tokens nor others wait");
}
