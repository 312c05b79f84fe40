//! Examines tools without recording anything: their declarations, and the evaluation of a trial command.

use serde::Serialize;
use serde_json::Value;
use tenure_core::{
    Actor, ActorKind, Millis, Refusal,
    command::{CommandKind, Effect, Executor, Idempotency, PolicyDecision, Risk},
    limits,
    payload::Digest,
    refusal::Code,
};

use super::{Relay, Tool};
use crate::{
    config::Live,
    lookup::Lookup,
    policy::{Ask, WorkFacts},
};

/// One declared tool, for people and scripts.
#[derive(Clone, Debug, Serialize)]
pub struct Declared {
    pub tool: String,
    pub kind: CommandKind,
    pub risk: Risk,
    pub idempotency: Idempotency,
    pub executor: Executor,
    /// The called URL or program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calls: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lookup: Option<String>,
    pub schema: bool,
    pub redacted: Vec<String>,
    pub four_eyes: bool,
    /// Programs and folders that it refers to and that do not exist on this machine.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
}

/// The declared tools, by name.
pub fn declared(live: &Live) -> Vec<Declared> {
    live.tools.iter().map(|(name, tool)| of(name, tool)).collect()
}

fn of(name: &str, tool: &Tool) -> Declared {
    let url =
        |url: &Option<axum::http::Uri>| url.as_ref().map_or("its target".to_owned(), ToString::to_string);
    Declared {
        tool: name.to_owned(),
        kind: tool.kind,
        risk: tool.facts.risk,
        idempotency: tool.facts.idempotency,
        executor: tool.facts.executor,
        calls: tool.relay.as_ref().map(|relay| match relay {
            Relay::Http(target) => url(&target.url),
            Relay::Exec(program) => program.command[0].clone(),
        }),
        lookup: tool.lookup.as_ref().map(|lookup| match lookup {
            Lookup::Exec(program) => program.command[0].clone(),
            Lookup::Http(target) => url(&target.url),
            Lookup::File(root) => format!("the files under {}", root.display()),
            Lookup::Worker => "a worker".to_owned(),
        }),
        schema: tool.schema.is_some(),
        redacted: tool.redact.iter().map(ToString::to_string).collect(),
        four_eyes: tool.facts.four_eyes,
        missing: missing(tool),
    }
}

fn missing(tool: &Tool) -> Vec<String> {
    let mut missing = Vec::new();
    if let Some(Relay::Exec(program)) = &tool.relay {
        missing.extend(program.fault());
    }
    match &tool.lookup {
        Some(Lookup::Exec(program)) => missing.extend(program.fault()),
        Some(Lookup::File(root)) if !root.is_dir() => {
            missing.push(format!("there is no folder {}", root.display()))
        }
        Some(Lookup::File(_) | Lookup::Http(_) | Lookup::Worker) | None => {}
    }
    missing
}

/// A command that is only evaluated.
#[derive(Clone, Debug)]
pub struct Trial<'a> {
    pub tool: &'a str,
    pub target: &'a str,
    pub arguments: &'a Value,
    /// `person:ana`, `machine:…` or `worker:…`.
    pub actor: &'a str,
    pub tenant: &'a str,
    /// Of the work item that it would belong to.
    pub kind: &'a str,
    pub source: &'a str,
    pub now: Millis,
}

/// Its evaluation.
#[derive(Clone, Debug, Serialize)]
pub struct Judged {
    pub tool: String,
    pub declared: bool,
    /// The arguments as they would be stored.
    pub arguments: Value,
    /// Absent if something is redacted: its hash depends on the ledger.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_hash: Option<Digest>,
    #[serde(flatten)]
    pub decision: PolicyDecision,
}

impl Judged {
    pub fn is_allowed(&self) -> bool {
        self.decision.effect == Effect::Allow
    }

    pub fn is_denied(&self) -> bool {
        self.decision.effect == Effect::Deny
    }
}

/// Checks the arguments and evaluates the policies, as a reservation would.
pub fn try_out(live: &Live, trial: &Trial<'_>) -> Result<Judged, Refusal> {
    limits::name("tool", trial.tool)?;
    limits::reference("target", trial.target)?;
    let tool = live.tools.get(trial.tool);
    let checked = tool.arguments(trial.arguments)?;
    let decision = live.policy.ask(&Ask {
        actor: &actor(trial.actor)?,
        tool: trial.tool,
        risk: tool.facts.risk,
        target: trial.target,
        arguments: trial.arguments,
        tenant: trial.tenant,
        work: WorkFacts { id: "w_0", kind: trial.kind, source: trial.source, attempt: 1 },
        now: trial.now,
        estimate: &Default::default(),
    });
    Ok(Judged {
        tool: trial.tool.to_owned(),
        declared: live.tools.is_declared(trial.tool),
        arguments: checked.arguments.kept.value(),
        input_hash: (!checked.arguments.redacted).then_some(checked.arguments.hash),
        decision,
    })
}

fn actor(text: &str) -> Result<Actor, Refusal> {
    let kind = |word| match word {
        "person" => Some(ActorKind::Person),
        "machine" => Some(ActorKind::Machine),
        "worker" => Some(ActorKind::Worker),
        _ => None,
    };
    let parsed = text.split_once(':').and_then(|(word, id)| Some((kind(word)?, id)));
    match parsed {
        Some((kind, id)) if !id.is_empty() => Ok(Actor::new(kind, id)),
        _ => Err(Refusal::new(
            Code::Invalid,
            format!("`{text}` is not an actor: write person:NAME, machine:NAME or worker:NAME."),
        )),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::config::{Config, Overlay};

    const TOOLS: &str = "[tools.note]\nrisk = \"low\"\nredact = [\"/pin\"]\nschema = { required = [\"text\"] }\n\
                         [tools.hook]\nexecutor = \"http\"\nhttp = {}\nlookup = { by = \"worker\" }";

    fn live() -> Live {
        Config::parse("t", TOOLS, Overlay::default()).unwrap().live
    }

    fn judged(tool: &str, actor: &str, arguments: Value) -> Result<Judged, Refusal> {
        let (target, tenant, kind, source, now) = ("x", "acme", "k", "manual", 0);
        try_out(&live(), &Trial { tool, target, arguments: &arguments, actor, tenant, kind, source, now })
    }

    #[test]
    fn a_trial_says_what_a_reservation_would() {
        let note = judged("note", "worker:a", json!({ "text": "hi", "pin": "1234" })).unwrap();
        assert!(note.is_allowed() && note.declared);
        assert_eq!(note.arguments, json!({ "text": "hi", "pin": "[redacted]" }));
        assert_eq!(note.input_hash, None, "four digits are found from their hash");
        let shown = serde_json::to_value(&note).unwrap();
        assert_eq!((&shown["effect"], &shown["policy_version"]), (&json!("allow"), &json!("default-1")));
        let unknown = judged("rm", "person:ana", json!({})).unwrap();
        assert!(!unknown.declared && !unknown.is_allowed() && !unknown.is_denied());
        assert!(judged("note", "worker:a", json!({})).unwrap_err().detail.contains("\"text\""));
        assert!(judged("note", "ana", json!({ "text": "" })).unwrap_err().detail.contains("person:NAME"));
    }

    #[test]
    fn declared_tools_are_listed() {
        let shown = serde_json::to_value(declared(&live())).unwrap();
        assert_eq!(shown[0]["tool"], "hook");
        assert_eq!((&shown[0]["calls"], &shown[0]["lookup"]), (&json!("its target"), &json!("a worker")));
        assert_eq!((&shown[1]["risk"], &shown[1]["redacted"][0]), (&json!("low"), &json!("/pin")));
    }
}
