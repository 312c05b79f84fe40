//! Titles, forecasts and work items at risk, over HTTP on every store.

use serde_json::{Value, json};

use crate::{
    bed::{Bed, held, id_of, on_every_store, work},
    commands::{Held, TOOLS},
};

on_every_store!(TOOLS;
    a_held_work_item_tells_what_follows_if_its_holder_stays_silent,
    victims_name_what_was_done_and_what_may_have_been,
    victims_of_others_do_not_exist,
    a_title_is_one_line_and_falls_back_to_the_source_id,
);

async fn a_held_work_item_tells_what_follows_if_its_holder_stays_silent(bed: Bed) {
    let client = bed.admin();
    client.ingest("queued").await;
    let grant = client.claim("c").await;
    let path = |verb: &str| format!("/v1/work/{}/{verb}", id_of(&grant));
    let explained = client.get(&path("explain")).await.expect(200);
    let foretold = &explained["if_silent"];
    assert_eq!(
        (&foretold["verdict"], &foretold["state"]),
        (&json!("retry"), &json!("queued")),
        "{explained}"
    );
    assert!(foretold["decided_at"].as_str() > grant["expires_at"].as_str(), "after the grace: {explained}");
    assert_eq!(foretold["sentence"], "If w1 stays silent, in 1 m it is queued again from its beginning.");

    let begin = held(&grant, json!({ "verb": "begin", "input": 1 }));
    client.put(&path("steps/draft"), begin).await.expect(200);
    let complete = held(&grant, json!({ "verb": "complete", "input": 1, "result": "text" }));
    client.put(&path("steps/draft"), complete).await.expect(200);
    let explained = client.get(&path("explain")).await.expect(200);
    let foretold = &explained["if_silent"];
    assert_eq!((&foretold["verdict"], &foretold["from_step"]), (&json!("resume"), &json!("draft")));

    let end = held(&grant, json!({ "state": "succeeded", "no_output": true }));
    client.post(&path("close-out"), end).await.expect(200);
    let explained = client.get(&path("explain")).await.expect(200);
    assert!(explained.get("if_silent").is_none(), "nobody holds it: {explained}");
}

async fn victims_name_what_was_done_and_what_may_have_been(bed: Bed) {
    let client = bed.admin();
    let job = Held::new(&client, "a").await;
    let done = job.dispatched("note", json!({ "text": "hi" })).await;
    let receipt = json!({ "external_id": "n-7" });
    job.verb(&done, "receipt", receipt).await.expect(200);
    let open = job.dispatched("mail", json!({ "text": "hi" })).await;

    let nobody = client.get("/v1/recovery/victims").await.expect(200);
    assert_eq!(nobody["items"], json!([]), "its holder is alive");
    let victims = client.get("/v1/recovery/victims?alive=true&worker=w1").await.expect(200);
    let [victim] = &victims["items"].as_array().unwrap()[..] else { panic!("{victims}") };
    assert_eq!((&victim["work"], &victim["title"]), (&json!(id_of(&job.grant)), &json!("a")));
    assert_eq!(victim["last_receipt"]["command"], done["id"]);
    assert_eq!(victim["last_receipt"]["external_id"], "n-7");
    let possible: Vec<&Value> = victim["possibly_done"].as_array().unwrap().iter().collect();
    assert_eq!(possible.len(), 1, "{victim}");
    assert_eq!((&possible[0]["command"], &possible[0]["state"]), (&open["id"], &json!("dispatched")));
    let foretold = &victim["if_silent"];
    assert_eq!(
        (&foretold["verdict"], &foretold["state"]),
        (&json!("reconcile"), &json!("stalled")),
        "{victim}"
    );
    assert_eq!(foretold["in_doubt"], json!([{ "id": open["id"], "tool": "mail", "target": "bob" }]));
    let other = client.get("/v1/recovery/victims?alive=true&worker=w2").await.expect(200);
    assert_eq!(other["items"], json!([]));
    client.get("/v1/recovery/victims?alife=true").await.problem(400, "unknown_field");
    client.get("/v1/recovery/victims?limit=0").await.problem(400, "invalid");
}

async fn victims_of_others_do_not_exist(bed: Bed) {
    let admin = bed.admin();
    Held::new(&admin, "a").await;
    let other = bed.client("person", &["view"], Some(&["elsewhere"])).await;
    let seen = other.get("/v1/recovery/victims?alive=true").await.expect(200);
    assert_eq!(seen["items"], json!([]));
    let worker = bed.client("machine", &["work"], None).await;
    worker.get("/v1/recovery/victims").await.problem(403, "forbidden");
}

async fn a_title_is_one_line_and_falls_back_to_the_source_id(bed: Bed) {
    let client = bed.admin();
    let titled = |title: &str| {
        let mut new = work(title);
        new["title"] = json!(title);
        new
    };
    let made = client.post("/v1/work", titled("Refund order 7")).await.expect(201);
    assert_eq!(made["work"]["title"], "Refund order 7");
    let plain = client.post("/v1/work", work("plain")).await.expect(201);
    assert_eq!(plain["work"]["title"], "plain");
    let mut two = work("two");
    two["title"] = json!("two\nlines");
    client.post("/v1/work", two).await.problem(400, "invalid");
    let mut long = work("long");
    long["title"] = json!("x".repeat(201));
    assert_eq!(client.post("/v1/work", long).await.status, 400);

    // A title is for people: it is no part of what makes two deliveries the same.
    let mut again = work("Refund order 7");
    again["title"] = json!("Refund order seven");
    let again = client.post("/v1/work", again).await.expect(200);
    assert_eq!(again["work"]["title"], "Refund order 7");
}
