//! Approvals without a yes, receipts without evidence, and doubts that nobody may end.

use serde_json::{Value, json};
use tenure_server::{Config, Overlay};

use crate::bed::{Bed, Client, held, id_of, on_every_store};

on_every_store!(TOOLS;
    nobody_approves_by_reference_default_early_answer_or_token,
    an_answer_from_before_the_dispatch_is_no_receipt,
    a_wrong_token_is_refused_from_every_caller,
    four_eyes_enabled_by_a_reload_apply_to_reserved_commands,
    an_agent_ends_no_doubt_that_it_has_not_claimed,
    an_agent_that_says_unsent_gets_no_second_call_from_one_approval,
);

const TOOLS: &str = r#"
[tools.mail]
risk = "low"
lookup = { by = "worker" }

[tools.pay]
risk = "high"
"#;

struct Held {
    client: Client,
    grant: Value,
}

impl Held {
    async fn new(client: &Client, source: &str) -> Self {
        client.ingest(source).await;
        Self { client: client.clone(), grant: client.claim(source).await }
    }

    fn work(&self, verb: &str) -> String {
        format!("/v1/work/{}/{verb}", id_of(&self.grant))
    }

    async fn wait(&self, wait: Value) -> Value {
        let body = held(&self.grant, json!({ "waits": [wait] }));
        self.client.post(&self.work("wait"), body).await.expect(200)
    }

    async fn reserve(&self, tool: &str) -> Value {
        let body = json!({ "tool": tool, "target": "bob", "arguments": { "n": 1 } });
        self.client.post(&self.work("commands"), held(&self.grant, body)).await.expect(201)
    }

    async fn verb(&self, command: &Value, verb: &str, body: Value) -> Value {
        self.client.post(&path(command, verb), held(&self.grant, body)).await.expect(200)
    }
}

fn path(command: &Value, verb: &str) -> String {
    format!("/v1/commands/{}/{verb}", command["id"].as_str().unwrap())
}

async fn state(bed: &Bed, path: &str) -> Value {
    bed.admin().get(path).await.expect(200)["state"].take()
}

async fn nobody_approves_by_reference_default_early_answer_or_token(bed: Bed) {
    let admin = bed.admin();
    let yes = json!({ "approved": true });
    let early = json!({ "ref": "ship", "payload": yes });
    assert_eq!(admin.post("/v1/resolve", early.clone()).await.expect(200)["kept"], true);
    let job = Held::new(&admin, "a").await;
    let silent = json!({ "kind": "approval", "ref": "s", "on_timeout": "default", "default": yes });
    let body = held(&job.grant, json!({ "waits": [silent] }));
    admin.post(&job.work("wait"), body).await.problem(400, "invalid");

    let waiting = job.wait(json!({ "kind": "approval", "ref": "ship", "prompt": "Ship it?" })).await;
    assert_eq!(waiting["work"]["state"], "waiting_approval", "an early yes does not count");
    admin.post("/v1/resolve", early).await.problem(409, "seal_broken");
    let token = waiting["waits"][0]["token"].clone();
    let by_token = json!({ "token": token, "payload": yes });
    admin.post("/v1/resolve", by_token).await.problem(409, "seal_broken");
    let wait = format!("/v1/waits/{}/resolve", waiting["waits"][0]["id"].as_str().unwrap());
    admin.post(&wait, json!({ "payload": yes })).await.problem(409, "seal_broken");
    let other = json!({ "payload": yes, "seal": "0".repeat(64) });
    admin.post(&wait, other).await.problem(409, "seal_broken");
    admin.post(&job.work("approve"), yes.clone()).await.problem(400, "invalid");
    let blind = json!({ "approved": true, "seal": "0".repeat(64) });
    admin.post(&job.work("approve"), blind).await.problem(409, "seal_broken");
    let work = format!("/v1/work/{}", id_of(&job.grant));
    assert_eq!(state(&bed, &work).await, "waiting_approval");

    let seal = admin.get(&work).await.expect(200)["waits"][0]["seal"].take();
    let agent = bed.client("machine", &["work", "resolve", "view"], None).await;
    let sealed = json!({ "payload": yes, "seal": seal, "token": token });
    agent.post(&wait, sealed).await.problem(403, "forbidden");
    admin.post(&wait, json!({ "payload": yes, "seal": seal })).await.expect(200);
    assert_eq!(state(&bed, &work).await, "queued");
    bed.server.close().await.unwrap();
}

async fn an_answer_from_before_the_dispatch_is_no_receipt(bed: Bed) {
    let admin = bed.admin();
    let forged = json!({ "ref": "job-7", "payload": { "paid": true } });
    admin.post("/v1/resolve", forged).await.expect(200);
    let job = Held::new(&admin, "a").await;
    let command = job.reserve("tool").await;
    let approve = json!({ "reason": "r", "seal": command["seal"] });
    admin.post(&path(&command, "approve"), approve).await.expect(200);
    job.verb(&command, "dispatch", json!({})).await;
    job.wait(json!({ "kind": "tool", "ref": "job-7", "command": command["id"] })).await;
    let shown = format!("/v1/commands/{}", command["id"].as_str().unwrap());
    assert_eq!(state(&bed, &shown).await, "dispatched");
    bed.server.close().await.unwrap();
}

async fn a_wrong_token_is_refused_from_every_caller(bed: Bed) {
    let admin = bed.admin();
    let job = Held::new(&admin, "a").await;
    let asks = json!([{ "kind": "user", "ref": "q" }, { "kind": "user", "ref": "r" }]);
    let body = held(&job.grant, json!({ "waits": asks }));
    let waits = admin.post(&job.work("wait"), body).await.expect(200)["waits"].take();
    let path = format!("/v1/waits/{}/resolve", waits[0]["id"].as_str().unwrap());
    let own = waits[0]["token"].as_str().unwrap().to_owned();
    let (_, mac) = own.split_once('.').unwrap();
    let moved = format!("{}.{mac}", waits[1]["id"].as_str().unwrap());
    for wrong in ["", "x", &moved, waits[1]["token"].as_str().unwrap(), &own[..own.len() - 1]] {
        let answer = json!({ "token": wrong, "payload": 1 });
        admin.post(&path, answer).await.problem(403, "token_refused");
    }
    admin.post("/v1/resolve", json!({ "token": moved, "payload": 1 })).await.problem(403, "token_refused");
    admin.post(&path, json!({ "token": own, "payload": 1 })).await.expect(200);

    // A failure with a wait gets its token as well.
    let job = Held::new(&admin, "b").await;
    let error = json!({ "class": "auth", "message": "expired" });
    let body = json!({ "error": error, "wait": { "kind": "auth", "ref": "login" } });
    let failed = admin.post(&job.work("fail"), held(&job.grant, body)).await.expect(200);
    assert_eq!(failed["state"], "waiting_auth");
    let bot = bed.client("machine", &["resolve"], None).await;
    let answer = json!({ "token": failed["wait"]["token"], "payload": {} });
    assert_eq!(bot.post("/v1/resolve", answer).await.expect(200)["answers"][0]["first"], true);
    bed.server.close().await.unwrap();
}

async fn four_eyes_enabled_by_a_reload_apply_to_reserved_commands(bed: Bed) {
    let ana = bed.client("person", &["view", "submit", "approve"], None).await;
    let agent = bed.client("machine", &["work", "submit", "view"], None).await;
    ana.ingest("a").await;
    let job = Held { grant: agent.claim("c1").await, client: agent };
    let pay = job.reserve("pay").await;
    let strict = TOOLS.replace("[tools.pay]", "[tools.pay]\nfour_eyes = true");
    let overlay = || Overlay { db: Some(":memory:".into()), ..Overlay::default() };
    bed.server.reloader().reload(&Config::parse("tenure.toml", &strict, overlay()).unwrap());
    let approve = json!({ "reason": "r", "seal": pay["seal"] });
    let own = ana.post(&path(&pay, "approve"), approve.clone()).await;
    own.problem(403, "four_eyes");
    bed.admin().post(&path(&pay, "approve"), approve).await.expect(200);
    bed.server.close().await.unwrap();
}

async fn an_agent_ends_no_doubt_that_it_has_not_claimed(bed: Bed) {
    let agent = bed.client("machine", &["work", "submit", "view"], None).await;
    let clerk = bed.client("person", &["work", "operate", "view"], None).await;
    let job = Held::new(&agent, "a").await;
    let mail = job.reserve("mail").await;
    job.verb(&mail, "dispatch", json!({})).await;
    let lost = json!({ "error": { "class": "timeout", "message": "no reply" } });
    job.verb(&mail, "uncertain", lost).await;
    for outcome in [json!({ "outcome": "absent" }), json!({ "outcome": "found", "external_id": "x" })] {
        agent.post(&path(&mail, "reconcile"), outcome.clone()).await.problem(403, "person_required");
        clerk.post(&path(&mail, "reconcile"), outcome.clone()).await.problem(403, "forbidden");
        let mut guessed = outcome;
        guessed["token"] = json!(format!("1.{}", "0".repeat(64)));
        agent.post(&path(&mail, "reconcile"), guessed).await.problem(403, "token_refused");
    }
    let again = json!({ "reason": "again", "execute": [mail["command_key"]] });
    clerk.post(&job.work("rerun"), again).await.problem(403, "forbidden");
    let looked_up = json!({ "external_id": "m-1", "evidence": { "kind": "lookup" } });
    let pretended = agent.post(&path(&mail, "receipt"), held(&job.grant, looked_up)).await;
    pretended.problem(403, "person_required");
    let claimed = agent.post("/v1/commands/claim", json!({})).await.expect(200)["items"][0].take();
    let found = json!({ "token": claimed["lookup_token"], "outcome": "found", "external_id": "m-1" });
    assert_eq!(agent.post(&path(&mail, "reconcile"), found).await.expect(200)["state"], "succeeded");
    bed.server.close().await.unwrap();
}

async fn an_agent_that_says_unsent_gets_no_second_call_from_one_approval(bed: Bed) {
    let agent = bed.client("machine", &["work", "submit", "view"], None).await;
    let job = Held::new(&agent, "a").await;
    let pay = job.reserve("pay").await;
    let approve = json!({ "reason": "r", "seal": pay["seal"] });
    bed.admin().post(&path(&pay, "approve"), approve).await.expect(200);
    job.verb(&pay, "dispatch", json!({})).await;
    let never = json!({ "error": { "class": "transport", "message": "no route" }, "unsent": true });
    let told = job.verb(&pay, "fail", never).await;
    assert_eq!((&told["state"], &told["reason"]["code"]), (&json!("blocked"), &json!("approval_required")));
    bed.server.close().await.unwrap();
}
