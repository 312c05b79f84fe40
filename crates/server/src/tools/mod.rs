//! Tools by name: their declarations, and the check of arguments against them. Plain data in and out; it
//! makes no calls.

mod redact;
mod schema;
pub mod trial;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use serde_json::Value;
use tenure_core::{
    Payload, Refusal,
    command::{Arguments, CommandKind, ToolFacts, budget::Cost},
};

pub use redact::{Pointer, REDACTED};
pub use schema::Schema;

use crate::{
    executor::{HttpTarget, Program},
    lookup::Lookup,
};

/// The declaration of one tool. The default is that of an undeclared tool.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tool {
    pub kind: CommandKind,
    /// The facts that the ledger decides by.
    pub facts: ToolFacts,
    pub schema: Option<Arc<Schema>>,
    /// Paths whose values are never stored.
    pub redact: Vec<Pointer>,
    pub rate_limit: Option<RateLimit>,
    /// The estimated cost of one call without its own estimate.
    pub estimate: Cost,
    pub relay: Option<Relay>,
    pub lookup: Option<Lookup>,
}

/// How much longer the relay's dispatch is valid than its call may take: time for the ledger's responses
/// before and after.
pub(crate) const MARGIN: Duration = Duration::from_secs(10);

/// How the relay makes the call; without it, the worker executes the tool.
#[derive(Clone, Debug, PartialEq)]
pub enum Relay {
    Http(Arc<HttpTarget>),
    Exec(Program),
}

impl Relay {
    /// The timeout of a call.
    pub fn timeout(&self) -> Duration {
        match self {
            Relay::Http(target) => target.timeout,
            Relay::Exec(program) => program.timeout,
        }
    }
}

/// Calls per second, and the burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    pub per_s: u32,
    pub burst: u32,
}

/// The declared tools.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tools {
    declared: BTreeMap<String, Tool>,
    undeclared: Tool,
}

impl Tools {
    pub fn new(declared: BTreeMap<String, Tool>) -> Self {
        Self { declared, undeclared: Tool::default() }
    }

    /// The tool of this name. An undeclared tool is high risk, not idempotent, and executed by its worker.
    pub fn get(&self, name: &str) -> &Tool {
        self.declared.get(name).unwrap_or(&self.undeclared)
    }

    pub fn is_declared(&self, name: &str) -> bool {
        self.declared.contains_key(name)
    }

    /// The declared tools, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Tool)> {
        self.declared.iter().map(|(name, tool)| (name.as_str(), tool))
    }
}

/// Checked arguments: all of them for the policies, and the part that the ledger may store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked {
    pub full: Payload,
    pub arguments: Arguments,
}

impl Tool {
    /// Whether workers look up its commands, rather than the daemon.
    pub fn is_looked_up_by_workers(&self) -> bool {
        self.lookup.as_ref().is_some_and(|lookup| *lookup == Lookup::Worker)
    }

    /// Arguments in canonical form, checked against the schema, with the declared paths redacted.
    pub fn arguments(&self, given: &Value) -> Result<Checked, Refusal> {
        let full = Payload::new(given)?;
        if let Some(schema) = &self.schema {
            schema.check(given)?;
        }
        let arguments = if self.redact.is_empty() {
            Arguments::whole(full.clone())
        } else {
            Arguments::redacted(&full, Payload::new(&redact::redacted(given, &self.redact))?)
        };
        Ok(Checked { full, arguments })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tenure_core::{
        Code,
        command::{Executor, Idempotency, Risk},
    };

    use super::*;

    fn mail() -> Tool {
        let schema = json!({
            "type": "object",
            "required": ["to"],
            "properties": { "to": { "type": "string" }, "copies": { "type": "integer" }, "pin": { "type": "string" } },
            "additionalProperties": false,
        });
        Tool {
            schema: Some(Arc::new(Schema::new(schema).unwrap())),
            redact: vec!["/pin".parse().unwrap()],
            ..Tool::default()
        }
    }

    #[test]
    fn an_undeclared_tool_is_high_risk_not_idempotent_and_its_workers() {
        let tools = Tools::new([("mail".to_owned(), mail())].into());
        assert!(tools.is_declared("mail") && !tools.is_declared("rm"));
        let facts = &tools.get("rm").facts;
        assert_eq!(
            (facts.risk, facts.idempotency, facts.executor),
            (Risk::High, Idempotency::None, Executor::Worker)
        );
        assert!(tools.get("rm").arguments(&json!({ "anything": [1, "x"] })).is_ok());
    }

    #[test]
    fn arguments_that_break_the_schema_say_where_and_what_was_expected() {
        let refusal = mail().arguments(&json!({ "to": 7, "copies": "two", "pin": "s3cret" })).unwrap_err();
        assert_eq!(refusal.code, Code::Invalid);
        for told in ["/to", "\"string\"", "/copies", "\"integer\""] {
            assert!(refusal.detail.contains(told), "{told}: {}", refusal.detail);
        }
        let refusal = mail().arguments(&json!({ "to": "bob", "pin": { "s3cret": 1 } })).unwrap_err();
        assert!(!refusal.detail.contains("s3cret"), "{}", refusal.detail);
        assert!(mail().arguments(&json!({})).unwrap_err().detail.contains("\"to\""));
    }

    #[test]
    fn integers_that_would_be_rounded_are_refused() {
        let refusal = Tool::default().arguments(&json!({ "n": 9_007_199_254_740_993_u64 })).unwrap_err();
        assert_eq!(refusal.code, Code::PayloadRefused);
        assert!(refusal.detail.contains("as a string"), "{}", refusal.detail);
    }

    #[test]
    fn the_same_arguments_are_the_same_however_they_are_written() {
        let read = |text: &str| Tool::default().arguments(&serde_json::from_str(text).unwrap()).unwrap();
        assert_eq!(read(r#"{"b":1.0,"a":"x"}"#), read(r#"{ "a": "x", "b": 1 }"#));
    }

    #[test]
    fn redacted_values_are_not_stored_but_still_distinguish_arguments() {
        let tool = mail();
        let one = tool.arguments(&json!({ "to": "bob", "pin": "s3cret" })).unwrap();
        let other = tool.arguments(&json!({ "to": "bob", "pin": "0ther" })).unwrap();
        assert_eq!(one.arguments.kept.text(), r#"{"pin":"[redacted]","to":"bob"}"#);
        assert_eq!(one.arguments.kept, other.arguments.kept);
        assert_ne!(one.arguments.hash, other.arguments.hash);
        assert!(one.full.text().contains("s3cret"));
    }
}
