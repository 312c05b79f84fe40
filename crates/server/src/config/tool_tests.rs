//! Tools, policies and budgets as an operator writes them, and the mistakes in them.

use std::fs;

use serde_json::json;
use tenure_core::command::{CommandKind, Effect, Executor, Idempotency, Risk, budget::Unit};

use super::*;
use crate::{lookup::Lookup, tools::Relay};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

fn parse_at(name: &str, text: &str) -> Result<Live, ConfigError> {
    let env = |name: &str| match name {
        "HOOK_SECRET" => Some(SECRET.to_owned()),
        "BAD_SECRET" => Some("hunter2".to_owned()),
        _ => None,
    };
    Config::parse_in(name, text, Overlay::default(), &env).map(|config| config.live)
}

fn parse(text: &str) -> Result<Live, ConfigError> {
    parse_at("tenure.toml", text)
}

#[test]
fn a_whole_tool_is_read() {
    let text = r#"
        [tools.send_email]
        kind = "message"
        risk = "low"
        consistency_delay = "30s"
        executor = "http"
        rate_limit = { per_s = 10 }
        ordered = true
        approval = "1h"
        retry = { max_attempts = 5 }
        schema = { type = "object", required = ["to"], properties = { to = { type = "string" } } }

        [tools.send_email.http]
        url = "https://hooks.example.com/mail"
        method = "PUT"
        headers = { Authorization = "Bearer t0ps3cret" }
        secret_env = "HOOK_SECRET"
        timeout = "15s"
        hosts = ["mail.example.com"]
        networks = ["10.0.0.0/8"]
        external_id = "header:x-message-id"
        unsent_statuses = [503]

        [tools.send_email.lookup]
        by = "exec"
        exec = { command = ["find-mail", "--json"], timeout = "5s", env = ["MAIL_KEY"] }
        interval = "10s"
        max_unknowns = 3
    "#;
    let live = parse(text).unwrap();
    let tool = live.tools.get("send_email");
    assert_eq!((tool.kind, tool.facts.risk), (CommandKind::Message, Risk::Low));
    assert_eq!((tool.facts.executor, tool.facts.idempotency), (Executor::Http, Idempotency::Lookup));
    assert_eq!((tool.facts.consistency_delay_ms, tool.facts.approval_ms), (30_000, 3_600_000));
    // The call times out before the ledger gives it up.
    assert_eq!((tool.facts.timeout_ms, tool.facts.max_unknowns), (25_000, 3));
    assert_eq!(tool.facts.lookup_interval_ms, 10_000);
    assert_eq!((tool.facts.retry.max_attempts, tool.facts.ordered), (5, true));
    assert!(tool.arguments(&json!({ "to": 7 })).is_err());
    let Some(Relay::Http(http)) = &tool.relay else { panic!("{:?}", tool.relay) };
    assert_eq!((http.method.as_str(), http.timeout), ("PUT", Duration::from_secs(15)));
    assert!(http.secret.is_some());
    let lookup = tool.lookup.as_ref().unwrap();
    assert!(matches!(lookup, Lookup::Exec(program) if program.command[0] == "find-mail"));
    let shown = format!("{live:?}");
    assert!(!shown.contains("t0ps3cret") && !shown.contains("MfKQ"), "{shown}");
}

#[test]
fn a_tool_of_which_little_is_said_is_a_dangerous_one() {
    let live = parse("[tools.rm]\nfour_eyes = true\nredact = [\"/path\"]").unwrap();
    let facts = &live.tools.get("rm").facts;
    assert_eq!(
        (facts.risk, facts.idempotency, facts.executor),
        (Risk::High, Idempotency::None, Executor::Worker)
    );
    assert!(facts.four_eyes && live.tools.is_declared("rm") && !live.tools.is_declared("mv"));
}

#[test]
fn files_are_beside_the_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let name = folder.path().join("tenure.toml").display().to_string();
    fs::write(folder.path().join("mail.json"), r#"{"type":"object","required":["to"]}"#).unwrap();
    fs::write(folder.path().join("a.cedar"), "permit (principal, action, resource);").unwrap();
    fs::write(folder.path().join("bad.cedar"), "\npermit (principal is Nobody, action, resource);").unwrap();
    let text = "[tools.mail]\nschema = \"mail.json\"\n[policy]\nfiles = [\"a.cedar\"]";
    let live = parse_at(&name, text).unwrap();
    assert!(live.tools.get("mail").arguments(&json!({})).is_err());
    assert_eq!(live.policy.len(), 1);
    let error = parse_at(&name, "[policy]\nfiles = [\n  \"a.cedar\",\n  \"bad.cedar\",\n]").unwrap_err();
    assert_eq!((error.place.as_str(), error.line), ("bad.cedar", Some(2)), "{error}");
    let error = parse_at(&name, "[policy]\nfiles = [\n  \"none.cedar\",\n]").unwrap_err();
    assert_eq!((error.place, error.line), (name.clone(), Some(3)));
    fs::write(folder.path().join("mail.json"), "{").unwrap();
    assert_eq!(parse_at(&name, text).unwrap_err().line, Some(2));
}

#[test]
fn without_policies_the_default_applies() {
    let live = parse("").unwrap();
    let estimate = Default::default();
    let decision = live.policy.ask(&crate::policy::Ask {
        actor: &tenure_core::Actor::person("ana"),
        tool: "rm",
        risk: live.tools.get("rm").facts.risk,
        target: "/",
        arguments: &json!({}),
        tenant: "acme",
        work: crate::policy::WorkFacts { id: "w_1", kind: "k", source: "manual", attempt: 1 },
        now: 0,
        estimate: &estimate,
    });
    assert_eq!(decision.effect, Effect::NeedsApproval);
}

#[test]
fn budgets_say_what_is_counted() {
    let text = r#"
        [commands]
        rate_limit = { per_s = 100, burst = 500 }
        replays = { per_command = 1 }
        [[budgets]]
        per = "tenant"
        unit = "micros:usd"
        period = "day"
        max = 50000000
        [[budgets]]
        per = "work"
        unit = "calls"
        max = 20
        tool = "pay"
    "#;
    let live = parse(text).unwrap();
    assert_eq!(live.command_rate, Some(RateLimit { per_s: 100, burst: 500 }));
    assert_eq!(live.replays, ReplayLimits { per_command: 1, ..ReplayLimits::default() });
    assert_eq!(parse("").unwrap().replays, ReplayLimits::default());
    let limits = limits_of(&live.budgets, "pay", 1_794_787_199_999);
    assert_eq!(
        (limits[0].unit.clone(), limits[0].period.as_str()),
        (Unit::Micros("usd".into()), "2026-11-15")
    );
    assert_eq!(limits_of(&live.budgets, "mail", 0).len(), 1);
}

#[test]
fn every_mistake_names_its_line_and_its_fix() {
    let table = [
        ("[tools.x]\nrisky = \"low\"", 2, "unknown key `risky`"),
        ("[tools.x]\nnative_window_ms = 5", 2, "did you mean `native_window`?"),
        ("[tools.x]\nrisk = \"medium\"", 2, "`risk`: unknown value `medium`, expected `low` or `high`"),
        ("[tools.\"\"]", 1, "`tool` is empty"),
        ("[tools.x]\n\nschema = { type = \"nonsense\" }", 3, "not a usable JSON schema"),
        ("[tools.x]\nschema = 7", 2, "as a table, or the path of a file"),
        ("[tools.x]\nschema = \"none.json\"", 2, "Check the path"),
        ("[tools.x]\nredact = [\"card\"]", 2, "not a JSON pointer"),
        ("[tools.x]\nretry = { max_attempts = 0 }", 2, "max_attempts ≥ 1"),
        ("[tools.x]\nrate_limit = { per_s = 0 }", 2, "give at least 1"),
        ("[commands]\nreplays = { per_work = 0 }", 2, "give at least 1"),
        ("[commands]\nreplays = { per_hour = 1 }", 2, "per_hour"),
        ("[tools.x]\nidempotency = \"lookup\"", 2, "needs a table `lookup`"),
        ("[tools.x]\nidempotency = \"none\"\nlookup = { by = \"worker\" }", 2, "\"lookup\" or \"native\""),
        ("[tools.x]\n\n[tools.x.http]\nurl = \"https://a.example\"", 3, "executor = \"http\""),
        ("[tools.x]\nexecutor = \"http\"\nhttp = { url = \"ftp://a\" }", 3, "not a URL that can be called"),
        (
            "[tools.x]\nexecutor = \"http\"\nhttp = { url = \"https://u:p@a\" }",
            3,
            "not a URL that can be called",
        ),
        (
            "[tools.x]\nexecutor = \"http\"\nhttp = { secret_env = \"NONE\" }",
            3,
            "the environment has no `NONE`",
        ),
        ("[tools.x]\nexecutor = \"http\"\nhttp = { secret_env = \"BAD_SECRET\" }", 3, "not a webhook secret"),
        (
            "[tools.x]\nexecutor = \"http\"\nhttp = { headers = { Webhook-Id = \"1\" } }",
            3,
            "set by the relay",
        ),
        (
            "[tools.x]\nexecutor = \"http\"\nhttp = { headers = { authorization = \"hunter2\" } }",
            3,
            "give the `url`, or the `hosts`",
        ),
        ("\n[tools.x]\nordered = true", 2, "for commands that the relay sends"),
        ("[tools.x]\nexecutor = \"http\"\nhttp = { networks = [\"10\"] }", 3, "not a network"),
        (
            "[tools.x]\nexecutor = \"http\"\nhttp = { external_id = \"id\" }",
            3,
            "not a location in a response",
        ),
        ("[tools.x]\nexecutor = \"http\"\nhttp = { unsent_statuses = [200] }", 3, "from 400 to 599"),
        ("[tools.x]\nexecutor = \"http\"\nhttp = { timeout = \"0s\" }", 3, "between 100ms and 1h"),
        (
            "[tools.x]\nexecutor = \"http\"\nhttp = {}\nredact = [\"/a\"]",
            4,
            "could not send the redacted fields",
        ),
        ("[tools.x]\nexecutor = \"exec\"\nexec = { command = [] }", 3, "the program is missing"),
        ("[tools.x]\nlookup = { by = \"exec\" }", 2, "needs `exec ="),
        ("[tools.x]\nlookup = { by = \"file\" }", 2, "needs `root`"),
        ("[tools.x]\nlookup = { by = \"worker\", root = \".\" }", 2, "makes no call"),
        ("[tools.x]\nlookup = { by = \"http\", http = {} }", 2, "its own `url`"),
        ("\n[tools.x]\nexecutor = \"http\"", 2, "needs a table `http`"),
        ("[policy]\nfiles = [\"none.cedar\"]", 2, "Check the path"),
        ("[[budgets]]\nper = \"team\"\nunit = \"calls\"\nmax = 1", 2, "`per`: unknown value `team`"),
        ("[[budgets]]\nper = \"work\"\nunit = \"euros\"\nmax = 1", 3, "not a unit"),
    ];
    for (text, line, fix) in table {
        let error = parse(text).map(drop).expect_err(text);
        assert_eq!(error.line, Some(line), "{text}: {error}");
        assert!(error.to_string().contains(fix), "{text}: {error}");
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }
}

#[test]
fn credentials_of_a_tool_do_not_cross_the_network_unencrypted_unless_a_flag_says_so() {
    let tool = |url: &str, more: &str| {
        format!("[tools.x]\nexecutor = \"http\"\n[tools.x.http]\nurl = \"{url}\"\n{more}\n")
    };
    let lookup = |url: &str, more: &str| {
        format!("[tools.x]\n[tools.x.lookup]\nby = \"http\"\nhttp = {{ url = \"{url}\", {more} }}\n")
    };
    let credentials = ["headers = { authorization = \"t0ps3cret\" }", "secret_env = \"HOOK_SECRET\""];
    for more in credentials {
        for text in [tool("http://hooks.example/", more), lookup("http://192.0.2.7:8080/find", more)] {
            let error = parse(&text).unwrap_err().to_string();
            assert!(error.contains("allow_plain_http") && !error.contains("t0ps3cret"), "{error}");
            assert!(parse(&format!("allow_plain_http = true\n{text}")).is_ok(), "{text}");
        }
        for url in ["https://hooks.example/", "http://localhost:9/", "http://127.0.0.1:9/", "http://[::1]/"] {
            parse(&tool(url, more)).unwrap();
            parse(&lookup(url, more)).unwrap();
        }
    }
    parse(&tool("http://hooks.example/", "")).unwrap();
}
