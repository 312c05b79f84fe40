//! Policies decide whether a command may be dispatched. They are written in Cedar, in files; without files a
//! default applies. A set with a syntax error or an unknown name is refused as a whole, so a reload keeps the
//! previous one.
//!
//! Cedar has two effects, and a command three decisions. A `forbid` marked `@unless("approved")` forbids
//! until a person approves; everything else is plain Cedar: a `forbid` beats every `permit`, and a command
//! without a `permit` is denied. A `forbid` that cannot be evaluated counts as met, so that a mistake in a
//! policy never allows a command. If a policy reads a value that Cedar cannot represent, the command is
//! denied.

mod load;
mod names;
mod read_paths;
mod request;

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
};

use cedar_policy::{Effect as Clause, PolicyId, PolicySet};
use serde_json::Value;
use tenure_core::{
    Actor, Millis,
    command::{Effect, PolicyDecision, Risk, budget::Cost},
    limits,
};

pub use load::{PolicyError, PolicyFile};
use read_paths::ReadPaths;
use request::Question;

/// The version of decisions without policy files.
const DEFAULT_VERSION: &str = "default-1";
/// The number of reasons in a decision.
const REASONS: usize = 10;

/// A question to the policies.
#[derive(Clone, Debug)]
pub struct Ask<'a> {
    pub actor: &'a Actor,
    pub tool: &'a str,
    pub risk: Risk,
    pub target: &'a str,
    /// All arguments when a command is reserved; later, the ones that were stored.
    pub arguments: &'a Value,
    pub tenant: &'a str,
    pub work: WorkFacts<'a>,
    pub now: Millis,
    /// The expected cost of the call. Past spending is counted when the dispatch is decided.
    pub estimate: &'a Cost,
}

/// The attributes of a work item that policies can read.
#[derive(Clone, Copy, Debug)]
pub struct WorkFacts<'a> {
    pub id: &'a str,
    pub kind: &'a str,
    pub source: &'a str,
    pub attempt: u32,
}

/// A compiled set of policies.
pub struct Policies {
    version: String,
    /// None: the default applies.
    files: Option<Loaded>,
}

struct Loaded {
    /// By their Cedar id.
    known: HashMap<PolicyId, Known>,
    /// The policies that can apply to a tool: the ones whose scope names it, and the ones for every tool.
    by_tool: BTreeMap<String, Sets>,
    every_tool: Sets,
}

/// The metadata of one policy.
struct Known {
    /// The name for people: its `@id`, or its file and line.
    label: String,
    reason: Option<String>,
    clause: Clause,
    /// `@unless("approved")`.
    until_approved: bool,
}

/// The policies that can apply to a command.
struct Sets {
    permits: PolicySet,
    forbids: PolicySet,
    wanted: ReadPaths,
}

impl Default for Policies {
    fn default() -> Self {
        Self { version: DEFAULT_VERSION.to_owned(), files: None }
    }
}

impl PartialEq for Policies {
    fn eq(&self, other: &Self) -> bool {
        self.version == other.version
    }
}

impl fmt::Debug for Policies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Policies").field(&self.version).finish()
    }
}

impl Policies {
    /// Compiles files of Cedar policies. Without any file the default applies.
    pub fn load(files: &[PolicyFile]) -> Result<Self, PolicyError> {
        if files.is_empty() {
            return Ok(Self::default());
        }
        Ok(Self { version: load::version(files), files: Some(load::read(files)?) })
    }

    /// Identifies a set: a hash of the files' content, independent of their paths, and of the language's
    /// version.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Whether policy files apply rather than the default.
    pub fn has_files(&self) -> bool {
        self.files.is_some()
    }

    /// The number of policies; 0 for the default.
    pub fn len(&self) -> usize {
        self.files.as_ref().map_or(0, |loaded| loaded.known.len())
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn ask(&self, ask: &Ask<'_>) -> PolicyDecision {
        let (effect, mut reasons) = match &self.files {
            None => by_default(ask.risk),
            Some(loaded) => loaded.ask(ask),
        };
        reasons.truncate(REASONS);
        for reason in &mut reasons {
            if let Some((end, _)) = reason.char_indices().nth(limits::TEXT_CHARS) {
                reason.truncate(end);
            }
        }
        PolicyDecision { effect, reasons, policy_version: self.version.clone() }
    }
}

fn by_default(risk: Risk) -> (Effect, Vec<String>) {
    let (effect, reason) = match risk {
        Risk::Low => (Effect::Allow, "low risk is allowed by default"),
        Risk::High => (Effect::NeedsApproval, "high risk needs an approval by default"),
    };
    (effect, vec![reason.to_owned()])
}

/// A policy that is met, or one with its evaluation error.
type Met<'a> = (&'a Known, Option<String>);

impl Loaded {
    fn ask(&self, ask: &Ask<'_>) -> (Effect, Vec<String>) {
        let sets = self.by_tool.get(ask.tool).unwrap_or(&self.every_tool);
        let question = match Question::new(ask, &sets.wanted) {
            Ok(question) => question,
            Err(why) => {
                return (
                    Effect::Deny,
                    vec![format!("the policies cannot be evaluated for this command: {why}")],
                );
            }
        };
        let permits = self.known(question.put(&sets.permits));
        let forbids = self.known(question.put(&sets.forbids));
        let forbidden = reasons_of(&forbids, |known| !known.until_approved);
        if !forbidden.is_empty() {
            return (Effect::Deny, forbidden);
        }
        if permits.iter().all(|(_, error)| error.is_some()) {
            let mut reasons = vec!["no policy permits it".to_owned()];
            reasons.extend(reasons_of(&permits, |_| true));
            return (Effect::Deny, reasons);
        }
        match forbids.is_empty() {
            true => (Effect::Allow, reasons_of(&permits, |_| true)),
            false => (Effect::NeedsApproval, reasons_of(&forbids, |_| true)),
        }
    }

    /// The metadata of these policies.
    fn known(&self, met: Vec<(PolicyId, Option<String>)>) -> Vec<Met<'_>> {
        let mut met: Vec<Met<'_>> = met.into_iter().map(|(id, error)| (&self.known[&id], error)).collect();
        met.sort_by(|(a, _), (b, _)| a.label.cmp(&b.label));
        met
    }
}

fn reasons_of(met: &[Met<'_>], wanted: impl Fn(&Known) -> bool) -> Vec<String> {
    let wanted = met.iter().filter(|(known, _)| wanted(known));
    wanted.map(|(known, error)| known.reason(error.as_deref())).collect()
}

impl Known {
    fn reason(&self, error: Option<&str>) -> String {
        let verb = match (self.clause, self.until_approved) {
            (Clause::Permit, _) => "permitted by",
            (Clause::Forbid, false) => "forbidden by",
            (Clause::Forbid, true) => "needs an approval by",
        };
        let label = &self.label;
        match (error, &self.reason) {
            (Some(error), _) if self.clause == Clause::Permit => {
                format!("{label} cannot be evaluated and does not permit the command: {error}")
            }
            (Some(error), _) => {
                format!("{verb} {label}, which cannot be evaluated and so counts as met: {error}")
            }
            (None, Some(reason)) => format!("{verb} {label}: {reason}"),
            (None, None) => format!("{verb} {label}"),
        }
    }
}

#[cfg(test)]
mod tests;
