//! The cost of evaluating policies for one command, as the evaluator does it: the command is converted to
//! Cedar and evaluated by 50 policies.

use std::time::Instant;

use serde::Serialize;
use serde_json::{Value, json};
use tenure_core::{
    Actor,
    command::{Effect, Risk, budget::Cost},
};
use tenure_server::policy::{Ask, Policies, PolicyFile, WorkFacts};

use crate::{Result, stats};

const POLICIES: usize = 50;
const QUESTIONS: usize = 20_000;
/// The bar for the median evaluation, in microseconds.
const BAR_US: f64 = 100.0;

/// Needs an approval.
const MET: &str =
    "@unless(\"approved\")\nforbid (principal, action, resource) when { context.arguments.amount > 100 };\n";

#[derive(Serialize)]
struct Line {
    bench: &'static str,
    case: &'static str,
    policies: usize,
    p50_us: f64,
    p99_us: f64,
    ok: bool,
}

/// Prints a line for each case, and a table for people.
pub fn run() -> Result<()> {
    let cases = [
        // No scope names a tool: each policy is evaluated for every command.
        ("every_tool", set(|_| "action".to_owned()), Effect::Allow),
        // The same, and one of them is met.
        ("approval", format!("{}{MET}", set(|_| "action".to_owned())), Effect::NeedsApproval),
        // Five policies for each tool, as in files by tool.
        ("by_tool", set(|n| format!("action == Action::\"tool_{}\"", n / 5)), Effect::Allow),
    ];
    for (case, text, expected) in cases {
        let file = PolicyFile { name: format!("{case}.cedar"), text };
        let policies = Policies::load(&[file])?;
        let line = measure(case, &policies, expected);
        println!("{}", serde_json::to_string(&line)?);
        let verdict = if line.ok { "ok" } else { "below" };
        eprintln!(
            "{case:<12} p50 {:>6.1} µs  p99 {:>6.1} µs  bar ≤ {BAR_US} µs  {verdict}",
            line.p50_us, line.p99_us
        );
    }
    Ok(())
}

/// One permit, and rules on arguments, time, work item and principal that are not met.
fn set(action: impl Fn(usize) -> String) -> String {
    let rule = |n: usize| {
        let scope = format!("principal, {}, resource", action(n));
        match n % 5 {
            0 => format!(
                "permit ({scope}) when {{ resource.risk == \"low\" || context.tenant == \"acme\" }};\n"
            ),
            1 => format!("forbid ({scope}) when {{ context.arguments.amount > {} }};\n", 1_000 + n),
            2 => format!("forbid ({scope}) unless {{ context.arguments.to like \"*@example.com\" }};\n"),
            3 => format!(
                "@unless(\"approved\")\nforbid ({scope}) when {{ context.time.hour > 22 && context.work.attempt > {n} }};\n"
            ),
            _ => format!("forbid ({scope}) when {{ principal == Worker::\"p_{n:032x}\" }};\n"),
        }
    };
    (0..POLICIES).map(rule).collect()
}

fn measure(case: &'static str, policies: &Policies, expected: Effect) -> Line {
    let arguments = json!({
        "to": "bob@example.com", "amount": 250, "subject": "Your order", "body": "It is on its way.",
        "tags": ["order", "mail"], "options": { "html": true, "priority": 3 },
    });
    // The first evaluations warm up.
    let mut took: Vec<f64> =
        (0..QUESTIONS + 1_000).map(|n| question(policies, &arguments, n, expected)).collect();
    took.drain(..1_000);
    let p50_us = stats::percentile(&took, 50.0).unwrap_or_default();
    let p99_us = stats::percentile(&took, 99.0).unwrap_or_default();
    Line { bench: "policy", case, policies: policies.len(), p50_us, p99_us, ok: p50_us <= BAR_US }
}

fn question(policies: &Policies, arguments: &Value, n: usize, expected: Effect) -> f64 {
    let (actor, estimate) = (Actor::worker(format!("agent-{n}")), Cost::default());
    let ask = Ask {
        actor: &actor,
        tool: "tool_5",
        risk: Risk::High,
        target: "bob@example.com",
        arguments,
        tenant: "acme",
        work: WorkFacts { id: "w_0198", kind: "reply", source: "conversation", attempt: 1 },
        now: 1_794_823_200_000,
        estimate: &estimate,
    };
    let start = Instant::now();
    let verdict = policies.ask(&ask);
    let took = start.elapsed();
    assert_eq!(verdict.effect, expected, "{:?}", verdict.reasons);
    took.as_secs_f64() * 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sets_are_sound_and_say_what_is_expected() {
        let met = format!("{}{MET}", set(|_| "action".to_owned()));
        let policies = Policies::load(&[PolicyFile { name: "p".into(), text: met }]).unwrap();
        question(&policies, &json!({ "to": "x@example.com", "amount": 101 }), 0, Effect::NeedsApproval);
        for text in [set(|_| "action".to_owned()), set(|_| "action == Action::\"tool_5\"".to_owned())] {
            let policies = Policies::load(&[PolicyFile { name: "p".into(), text }]).unwrap();
            assert_eq!(policies.len(), POLICIES);
            question(&policies, &json!({ "to": "x@example.com", "amount": 1 }), 0, Effect::Allow);
        }
    }
}
