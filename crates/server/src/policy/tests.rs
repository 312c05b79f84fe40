//! The decisions of policies, and the mistakes that are found when they are loaded.

use std::str::FromStr;

use serde_json::json;
use tenure_core::Actor;

use super::*;

/// 2026-11-16 is a Monday; it is ten in the morning.
const MONDAY_AT_TEN: Millis = 1_794_823_200_000;

fn file(text: &str) -> PolicyFile {
    PolicyFile { name: "acme.cedar".into(), text: text.into() }
}

/// The principal id of the caller.
const AGENT: &str = "p_00000000000000000000000000000007";

fn load(text: &str) -> Policies {
    Policies::load(&[file(text)]).unwrap_or_else(|error| panic!("{error}"))
}

fn asked(policies: &Policies, tool: &str, risk: Risk, arguments: &Value) -> PolicyDecision {
    let estimate = Cost { tokens: 900, micros: vec![("usd".into(), 5_000)] };
    policies.ask(&Ask {
        actor: &Actor::worker(AGENT),
        tool,
        risk,
        target: "bob@example.com",
        arguments,
        tenant: "acme",
        work: WorkFacts { id: "w_1", kind: "reply", source: "conversation", attempt: 2 },
        now: MONDAY_AT_TEN,
        estimate: &estimate,
    })
}

fn effect(text: &str, arguments: Value) -> Effect {
    asked(&load(text), "pay", Risk::High, &arguments).effect
}

#[test]
fn without_files_risk_decides() {
    let policies = Policies::load(&[]).unwrap();
    let ask = |risk| asked(&policies, "pay", risk, &json!({}));
    assert_eq!(ask(Risk::Low).effect, Effect::Allow);
    assert_eq!(ask(Risk::High).effect, Effect::NeedsApproval);
    assert_eq!(ask(Risk::High).policy_version, "default-1");
    assert!(ask(Risk::High).reasons[0].contains("high risk"));
}

#[test]
fn three_decisions_from_two_effects() {
    let text = r#"
        permit (principal, action, resource);

        @id("large-payments")
        @reason("more than 100 is looked at by a person")
        @unless("approved")
        forbid (principal, action == Action::"pay", resource)
        when { context.arguments.amount > 100 };

        forbid (principal, action == Action::"pay", resource)
        when { context.arguments.amount > 10000 };
    "#;
    let policies = load(text);
    let pay = |amount: i64| asked(&policies, "pay", Risk::High, &json!({ "amount": amount }));
    assert_eq!(pay(50).effect, Effect::Allow);
    assert_eq!(pay(50).reasons, ["permitted by acme.cedar:2"]);
    assert_eq!(pay(500).effect, Effect::NeedsApproval);
    assert_eq!(
        pay(500).reasons,
        ["needs an approval by large-payments: more than 100 is looked at by a person"]
    );
    assert_eq!(pay(50_000).effect, Effect::Deny);
    assert_eq!(pay(50_000).reasons, ["forbidden by acme.cedar:10"]);
    assert_eq!(asked(&policies, "mail", Risk::Low, &json!({})).effect, Effect::Allow);
}

#[test]
fn an_approval_lifts_a_forbid_and_permits_nothing_by_itself() {
    let text = r#"@unless("approved") forbid (principal, action, resource);"#;
    let decision = asked(&load(text), "pay", Risk::High, &json!({}));
    assert_eq!((decision.effect, decision.reasons[0].as_str()), (Effect::Deny, "no policy permits it"));
}

#[test]
fn policies_can_read_the_whole_context() {
    for met in [
        r#"principal == Worker::"p_00000000000000000000000000000007""#,
        "principal is Worker",
        r#"action == Action::"pay""#,
        r#"resource == Target::"bob@example.com""#,
        r#"resource.tool == "pay" && resource.risk == "high""#,
        r#"context.tenant == "acme""#,
        r#"context.work.kind == "reply" && context.work.source == "conversation" && context.work.attempt == 2"#,
        r#"context.work.id like "w_*""#,
        "context.time.hour == 10 && context.time.weekday == 1",
        "context.time.unix_ms == 1794823200000",
        "context.budget.tokens < 1000 && context.budget.micros.usd == 5000",
        r#"context.arguments.to like "*@example.com""#,
        "context.arguments.nested.deep == 7",
        r#"context.arguments.tags.contains("a")"#,
        r#"context.arguments.price == decimal("0.07")"#,
        "context.arguments.whole == 3",
        "!(context.arguments has nothing)",
    ] {
        let arguments = json!({
            "to": "bob@example.com", "nested": { "deep": 7 }, "tags": ["a", "b"], "price": 0.07, "whole": 3.0,
            "nothing": null, "tiny": 0.000_01,
        });
        let text = format!("permit (principal, action, resource) when {{ {met} }};");
        assert_eq!(effect(&text, arguments.clone()), Effect::Allow, "{met}");
        let text = format!("permit (principal, action, resource) unless {{ {met} }};");
        assert_eq!(effect(&text, arguments), Effect::Deny, "{met}");
    }
}

#[test]
fn a_forbid_that_cannot_be_evaluated_counts_as_met() {
    let all = "permit (principal, action, resource);";
    for arguments in [json!({}), json!({ "amount": "many" }), json!({ "amount": null }), json!(null)] {
        let rule = "forbid (principal, action, resource) when { context.arguments.amount > 100 };";
        let decision = asked(&load(&format!("{all}\n{rule}")), "pay", Risk::Low, &arguments);
        assert_eq!(decision.effect, Effect::Deny, "{arguments}");
        assert!(decision.reasons[0].contains("counts as met"), "{:?}", decision.reasons);
        let soft = format!("{all}\n@unless(\"approved\") {rule}");
        assert_eq!(effect(&soft, arguments.clone()), Effect::NeedsApproval, "{arguments}");
        let permit = "permit (principal, action, resource) when { context.arguments.amount < 100 };";
        let decision = asked(&load(permit), "pay", Risk::Low, &arguments);
        assert_eq!(decision.effect, Effect::Deny, "{arguments}");
        assert!(decision.reasons[1].contains("does not permit the command"), "{:?}", decision.reasons);
    }
}

#[test]
fn a_value_that_cedar_cannot_hold_does_not_slip_past_a_forbid() {
    let text = r#"
        permit (principal, action, resource);
        @unless("approved")
        forbid (principal, action, resource)
        when { context.arguments has amount && context.arguments.amount > 5000 };
        forbid (principal, action, resource)
        when { context.arguments has to && context.arguments.to.contains("mallory") };
        forbid (principal, action, resource)
        when { context.arguments has deep && context.arguments.deep.sum == 7 };
    "#;
    let policies = load(text);
    for (arguments, told) in [
        (
            json!({ "amount": 5000.00001 }),
            "`context.arguments.amount` the number 5000.00001 has more than four",
        ),
        (json!({ "amount": 1e19 }), "`context.arguments.amount` the number 1e+19 is too large"),
        (json!({ "amount": u64::MAX }), "is too large for Cedar"),
        (json!({ "amount": 123_456_789_012_345.5 }), "is too large for Cedar"),
        (json!({ "to": ["mallory", null] }), "`context.arguments.to` a list has a null"),
        (json!({ "to": ["mallory", 1] }), "a list has a string and a whole number"),
        (json!({ "to": [1, 1.5] }), "a list has a whole number and a decimal number"),
        (json!({ "to": [["mallory"], [null]] }), "a list has a null"),
        (json!({ "to": vec!["x"; 25_000] }), "would read more than 25000 values"),
        (json!({ "deep": { "sum": [{ "a": 0.000_01 }] } }), "`context.arguments.deep.sum.a` the number"),
    ] {
        let decision = asked(&policies, "pay", Risk::Low, &arguments);
        assert_eq!(decision.effect, Effect::Deny, "{arguments}");
        assert!(decision.reasons[0].contains(told), "{arguments}: {:?}", decision.reasons);
    }
    let others = json!({ "amount": 5000, "to": ["bob", "eve"], "memo": 5000.00001, "cc": [null, 1, "x"] });
    assert_eq!(asked(&policies, "pay", Risk::Low, &others).effect, Effect::Allow, "no policy reads the rest");
}

#[test]
fn policies_of_other_tools_are_not_asked() {
    let text = r#"
        permit (principal, action in [Action::"mail", Action::"call"], resource);
        forbid (principal, action == Action::"pay", resource);
    "#;
    let policies = load(text);
    let ask = |tool| asked(&policies, tool, Risk::Low, &json!({})).effect;
    assert_eq!(
        ["mail", "call", "pay", "rm"].map(ask),
        [Effect::Allow, Effect::Allow, Effect::Deny, Effect::Deny]
    );
}

#[test]
fn every_mistake_names_its_file_its_line_and_its_fix() {
    for (text, line, fix) in [
        ("permit (principal, action, resource)", Some(1), "unexpected end of input"),
        ("\n\npermit (principal, action);", Some(3), ""),
        ("permit (principal, action, resource) when { context.arguments.x === 1 };", Some(1), ""),
        ("\npermit (principal is Wroker, action, resource);", Some(2), "did you mean `Worker`?"),
        ("permit (principal in Group::\"x\", action, resource);", Some(1), "no entity type `Group`"),
        (
            "\npermit (principal, action, resource) when { context.tiem.hour > 9 };",
            Some(2),
            "did you mean `time`?",
        ),
        (
            "permit (principal, action, resource) when { context.time.hours > 9 };",
            Some(1),
            "did you mean `hour`?",
        ),
        (
            "permit (principal, action, resource) when { context.work has stat };",
            Some(1),
            "`context.work` has no `stat`",
        ),
        (
            "permit (principal, action, resource) when { context has argument.amount };",
            Some(1),
            "did you mean `arguments`?",
        ),
        (
            "permit (principal, action, resource) when { context has work.stat };",
            Some(1),
            "`context.work` has no `stat`",
        ),
        (
            "permit (principal, action, resource) when { resource.owner == \"x\" };",
            Some(1),
            "there are `tool`, `risk`",
        ),
        ("permit (principal, action, resource) when { principal.role == \"x\" };", Some(1), "no attributes"),
        (
            "permit (principal, action, resource);\n\n@unless(\"aproved\")\nforbid (principal, action, resource);",
            Some(3),
            "write `@unless(\"approved\")`",
        ),
        ("@unless(\"approved\") permit (principal, action, resource);", Some(1), "is for a forbid"),
        ("permit (principal == ?principal, action, resource);", Some(1), "templates are not supported"),
    ] {
        let error = Policies::load(&[file(text)]).expect_err(text);
        assert_eq!((error.file.as_str(), error.line), ("acme.cedar", line), "{text}: {error}");
        assert!(error.message.contains(fix), "{text}: {error}");
    }
}

#[test]
fn the_version_is_of_the_content_alone() {
    let (a, b) =
        (file("permit (principal, action, resource);"), file("forbid (principal, action, resource);"));
    let moved = PolicyFile { name: "/elsewhere/b".into(), ..b.clone() };
    let version = |files: &[PolicyFile]| Policies::load(files).unwrap().version().to_owned();
    assert_eq!(version(&[a.clone(), b.clone()]), version(&[moved, a.clone()]));
    assert_ne!(version(&[a.clone(), b]), version(std::slice::from_ref(&a)));
    assert!(version(&[a]).starts_with("cedar-1-"));
}

/// The examples of the guide, each with the decision that its text promises.
#[test]
fn the_examples_of_the_guide_say_what_it_says() {
    let page = include_str!("../../../../docs/policy.md");
    let mut examples = page.split("```cedar\n").skip(1).filter_map(|rest| rest.split("```").next());
    let (mail, pay) = (load(examples.next().unwrap()), load(examples.next().unwrap()));
    let (actor, estimate) = (Actor::worker(AGENT), Cost::default());
    let ask = |policies: &Policies, tool: &str, risk, target: &str, arguments: Value, now| {
        policies.ask(&Ask {
            actor: &actor,
            tool,
            risk,
            target,
            arguments: &arguments,
            tenant: "acme",
            work: WorkFacts { id: "w_1", kind: "reply", source: "conversation", attempt: 1 },
            now,
            estimate: &estimate,
        })
    };
    let send = |to: &str| ask(&mail, "send_email", Risk::High, to, json!({ "to": to }), MONDAY_AT_TEN);
    assert_eq!(send("ana@acme.example").effect, Effect::Allow);
    assert_eq!(send("board@acme.example").effect, Effect::Deny);
    let stranger = send("bob@example.com");
    assert_eq!(stranger.effect, Effect::NeedsApproval);
    assert!(stranger.reasons[0].ends_with("mail to other domains is approved by a person"));
    let delete = ask(&mail, "delete_account", Risk::High, "bob", json!({}), MONDAY_AT_TEN);
    assert_eq!((delete.effect, delete.reasons[0].as_str()), (Effect::Deny, "no policy permits it"));

    let sunday = MONDAY_AT_TEN - 86_400_000;
    let spend =
        |amount: i64, now| ask(&pay, "pay", Risk::High, "acct-7", json!({ "amount": amount }), now).effect;
    assert_eq!(spend(100, MONDAY_AT_TEN), Effect::Allow);
    assert_eq!(spend(101, MONDAY_AT_TEN), Effect::NeedsApproval);
    assert_eq!(spend(1, sunday), Effect::NeedsApproval);
    assert_eq!(ask(&pay, "rename", Risk::Low, "x", json!({}), sunday).effect, Effect::Allow);
    assert_eq!(ask(&pay, "rename", Risk::High, "x", json!({}), sunday).effect, Effect::Deny);
}

/// Cedar's result for each policy by itself, as written, over a command with its complete context.
fn one_by_one(policies: &PolicySet, ask: &Ask<'_>) -> (Effect, Vec<String>) {
    let question = Question::new(ask, &read_paths::WHOLE).unwrap();
    let (mut hard, mut soft) = (Vec::new(), Vec::new());
    for policy in policies.policies() {
        let alone = PolicySet::from_policies([policy.clone()]).unwrap();
        if policy.effect() == Clause::Forbid && !question.put(&alone).is_empty() {
            let label = policy.annotation("id").unwrap();
            match policy.annotation("unless") {
                None => hard.push(format!("forbidden by {label}")),
                Some(_) => soft.push(format!("needs an approval by {label}")),
            }
        }
    }
    let (effect, mut reasons) = match (hard.is_empty(), soft.is_empty()) {
        (false, _) => (Effect::Deny, hard),
        (true, false) => (Effect::NeedsApproval, soft),
        (true, true) => (Effect::Allow, vec!["permitted by anything".to_owned()]),
    };
    reasons.sort();
    (effect, reasons)
}

#[test]
fn a_set_says_what_each_of_its_policies_says() {
    let soft = "@unless(\"approved\") forbid";
    let mut text = "@id(\"anything\") permit (principal, action, resource);\n".to_owned();
    for (n, (clause, scope, condition)) in [
        ("forbid", "principal, action, resource", "when { context.arguments.a }"),
        (
            soft,
            "principal, action, resource",
            "unless { context.arguments has b } when { context.arguments.c }",
        ),
        (soft, "principal is Worker, action == Action::\"pay\", resource", "when { context.arguments.d }"),
        (
            "forbid",
            "principal, action, resource == Target::\"bob@example.com\"",
            "when { context.arguments.e }",
        ),
        (
            soft,
            "principal, action in [Action::\"pay\"], resource",
            "when { context.arguments.f } when { context.arguments.g }",
        ),
        (soft, "principal, action, resource", "unless { context.arguments.g || context.arguments.h == 0 }"),
        (
            soft,
            "principal, action, resource",
            "when { context.arguments has h.i && context.tenant == \"acme\" }",
        ),
        (
            "forbid",
            "principal, action, resource",
            "when { Target::\"bob@example.com\" has risk && context.arguments.b == 0 }",
        ),
        (
            soft,
            "principal, action, resource",
            "when { if context.arguments.a then context.arguments.b else false }",
        ),
        (soft, "principal, action, resource", "when { context.time.hour == 11 }"),
        ("forbid", "principal, action == Action::\"mail\", resource", ""),
        (soft, "principal, action, resource", "when { context.arguments has c && context.arguments.c }"),
        (soft, "principal, action, resource", "unless { context.arguments has d && !context.arguments.d }"),
    ]
    .into_iter()
    .enumerate()
    {
        text.push_str(&format!("@id(\"rule-{n:02}\") {clause} ({scope}) {condition};\n"));
    }
    let (policies, written) = (load(&text), PolicySet::from_str(&text).unwrap());
    let (actor, estimate) = (Actor::worker(AGENT), Cost::default());
    let mut seen = std::collections::BTreeMap::new();
    for n in 0..4_usize.pow(6) {
        let mut arguments = json!({});
        for (at, name) in ["a", "b", "c", "d", "f", "g"].into_iter().enumerate() {
            match n / 4_usize.pow(at as u32) % 4 {
                0 => arguments[name] = json!(false),
                1 => arguments[name] = json!(true),
                2 => arguments[name] = json!(0),
                _ => {}
            }
        }
        arguments["e"] = json!(n % 7 == 0);
        arguments["h"] = [json!({}), json!({ "i": 1 }), json!({}), json!(0)][n / 7 % 4].clone();
        let ask = Ask {
            actor: &actor,
            tool: "pay",
            risk: Risk::Low,
            target: "bob@example.com",
            arguments: &arguments,
            tenant: "acme",
            work: WorkFacts { id: "w_1", kind: "reply", source: "conversation", attempt: 1 },
            now: MONDAY_AT_TEN,
            estimate: &estimate,
        };
        let decision = policies.ask(&ask);
        // The label comes before the reason, or before the evaluation error.
        let told = decision.reasons.iter().map(|reason| reason.split([':', ',']).next().unwrap().to_owned());
        let told: Vec<String> = told.collect();
        assert_eq!((decision.effect, told), one_by_one(&written, &ask), "{arguments}");
        *seen.entry(format!("{:?}", decision.effect)).or_insert(0) += 1;
    }
    assert!(seen.len() == 3 && seen.values().all(|times| *times > 1), "{seen:?}");
}

/// Evaluated on the available stack: if that is not enough, it counts as a forbid that cannot be evaluated.
#[test]
fn long_chains_of_conditions_can_be_read() {
    let chain = |terms: i64| {
        let terms: Vec<String> = (0..terms).map(|n| format!("context.arguments.n == {n}")).collect();
        format!("forbid (principal, action, resource) when {{ {} }};\n", terms.join(" || "))
    };
    let permit = "permit (principal, action, resource);";
    let short = load(&format!("{permit}\n{}", chain(20).repeat(8)));
    let ask = |policies: &Policies, n: i64| asked(policies, "pay", Risk::Low, &json!({ "n": n })).effect;
    assert_eq!([ask(&short, 19), ask(&short, 20)], [Effect::Deny, Effect::Allow]);
    let long = load(&format!("{permit}\n{}", chain(1_000).repeat(2)));
    assert_eq!(ask(&long, 0), Effect::Deny);
}

#[test]
fn many_forbids_are_all_asked() {
    let forbid = |n| format!("forbid (principal, action, resource) when {{ context.arguments.n == {n} }};\n");
    let text: String = (0..1_000).map(forbid).collect();
    let policies = load(&format!("{text}permit (principal, action, resource);"));
    let ask = |n: i64| asked(&policies, "pay", Risk::Low, &json!({ "n": n }));
    assert_eq!(ask(-1).effect, Effect::Allow);
    assert_eq!(ask(999).reasons, ["forbidden by acme.cedar:1000"]);
    let nameless = asked(&policies, "pay", Risk::Low, &json!({}));
    assert_eq!((nameless.effect, nameless.reasons.len()), (Effect::Deny, REASONS));
}

#[test]
fn the_largest_accepted_arguments_can_be_evaluated() {
    let all = "permit (principal, action, resource) unless { context.arguments == {} };";
    let deep = (0..limits::JSON_DEPTH).fold(json!(1), |inner, _| json!({ "a": [inner] }));
    assert_eq!(effect(all, deep), Effect::Allow);
    let wide: Vec<Value> = (0..20_000).map(|n| json!(format!("item {n}"))).collect();
    assert_eq!(effect(all, json!({ "items": wide })), Effect::Allow);
}

#[test]
fn a_policy_that_names_a_principal_by_its_name_is_refused() {
    for scope in
        [r#"principal == Person::"ana""#, r#"principal == Worker::"bot""#, r#"principal == Person::"p_0198""#]
    {
        let text = format!("forbid ({scope}, action, resource);");
        let refused = Policies::load(&[file(&text)]).unwrap_err().to_string();
        assert!(refused.contains("is never met") && refused.contains("tenure token list"), "{refused}");
    }
    for met in [r#"principal == Person::"ana""#, r#"[Worker::"bot"].contains(principal)"#] {
        let text = format!("forbid (principal, action, resource) when {{ {met} }};");
        assert!(Policies::load(&[file(&text)]).is_err(), "{met}");
    }
    for allowed in
        [format!(r#"principal == Person::"{AGENT}""#), r#"principal == System::"relay""#.to_owned()]
    {
        load(&format!("forbid ({allowed}, action, resource);"));
    }
}
