//! Forbids, a few at a time as one question. They are seldom met: where the one is not, none of the few is, and nobody
//! asks them one by one.

use std::collections::HashMap;

use cedar_policy::{Policy, PolicyId, PolicySet};
use serde_json::{Value, json};

use super::load::{Written, set};

/// Forbids in one question: few enough that it costs little to find out which of them was met.
const JOINED: usize = 8;

pub(super) struct Forbids {
    /// What is asked first.
    pub first: PolicySet,
    /// Those that one of the first stands for: it is met, or fails, where one of them does.
    pub joined: HashMap<PolicyId, PolicySet>,
}

impl Forbids {
    /// Of the forbids that a tool can meet. The tool itself has been looked at.
    pub fn new(forbids: &[&Written]) -> Self {
        let (many, alone): (Vec<&Written>, Vec<&Written>) =
            forbids.iter().partition(|written| written.flat && is_of_anyone(&written.form));
        let mut first: Vec<Policy> = alone.iter().map(|written| written.policy.clone()).collect();
        let mut joined = HashMap::new();
        for (number, few) in many.chunks(JOINED).enumerate() {
            let id = PolicyId::new(format!("joined {number}"));
            first.push(join(few, id.clone()));
            joined.insert(id, set(few));
        }
        Self { first: PolicySet::from_policies(first).expect("ids are numbered"), joined }
    }
}

/// Whether anyone may meet it, whatever the target.
fn is_of_anyone(form: &Value) -> bool {
    ["principal", "resource"].iter().all(|scope| form[*scope]["op"] == "All")
}

fn join(few: &[&Written], id: PolicyId) -> Policy {
    let any = few.iter().map(|written| condition(&written.form)).reduce(|a, b| both("||", a, b));
    let anyone = json!({ "op": "All" });
    let form = json!({
        "effect": "forbid", "principal": anyone, "action": anyone, "resource": anyone,
        "conditions": [{ "kind": "when", "body": any }],
    });
    Policy::from_json(Some(id), form).expect("made of policies that were read")
}

/// What a policy says after its scope.
fn condition(form: &Value) -> Value {
    let each = form["conditions"].as_array().into_iter().flatten().map(|condition| {
        let body = condition["body"].clone();
        if condition["kind"] == "unless" { json!({ "!": { "arg": body } }) } else { body }
    });
    each.reduce(|a, b| both("&&", a, b)).unwrap_or_else(|| json!({ "Value": true }))
}

fn both(operator: &str, left: Value, right: Value) -> Value {
    json!({ operator: { "left": left, "right": right } })
}
