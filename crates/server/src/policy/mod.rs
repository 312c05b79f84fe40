//! Policy: whether a command may be done. Policies are Cedar, in files; without files the default stands. A set that
//! cannot be read or names what does not exist is refused whole, so whoever reloads keeps the old one.
//!
//! Cedar knows two effects, and a command three decisions. A `forbid` marked `@unless("approved")` forbids until a
//! person approves; everything else is Cedar's own: a `forbid` beats every `permit`, and what nobody permits is denied.
//! A `forbid` that cannot be evaluated counts as met: a mistake in a policy never opens a door. Where a policy looks at a
//! value that Cedar cannot hold, the command is denied.

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

/// The version of the decisions that no file changed.
const DEFAULT_VERSION: &str = "default-1";
/// Reasons that are told.
const TOLD: usize = 10;

/// What is asked about.
#[derive(Clone, Debug)]
pub struct Ask<'a> {
    pub actor: &'a Actor,
    pub tool: &'a str,
    pub risk: Risk,
    pub target: &'a str,
    /// All of them when a command is reserved; what was kept of them later.
    pub arguments: &'a Value,
    pub tenant: &'a str,
    pub work: WorkFacts<'a>,
    pub now: Millis,
    /// What the call is expected to cost. What was spent so far is counted where the dispatch is decided.
    pub estimate: &'a Cost,
}

/// What policies may know of the work.
#[derive(Clone, Copy, Debug)]
pub struct WorkFacts<'a> {
    pub id: &'a str,
    pub kind: &'a str,
    pub source: &'a str,
    pub attempt: u32,
}

/// A set of policies, ready to be asked.
pub struct Policies {
    version: String,
    /// None: the default.
    files: Option<Loaded>,
}

struct Loaded {
    /// By their Cedar id.
    known: HashMap<PolicyId, Known>,
    /// Those whose scope names the tool, with those of every tool: others cannot be met by it.
    by_tool: BTreeMap<String, Sets>,
    every_tool: Sets,
}

/// What is known of one policy.
struct Known {
    /// What people call it: its `@id`, or its file and line.
    label: String,
    reason: Option<String>,
    clause: Clause,
    /// `@unless("approved")`.
    until_approved: bool,
}

/// The policies that may be met by a command.
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
    /// Reads files of Cedar policies. No file at all is the default.
    pub fn load(files: &[PolicyFile]) -> Result<Self, PolicyError> {
        if files.is_empty() {
            return Ok(Self::default());
        }
        Ok(Self { version: load::version(files), files: Some(load::read(files)?) })
    }

    /// Tells sets apart: a hash over the files, wherever they lie, and the language's version.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Whether files decide, and not the default.
    pub fn has_files(&self) -> bool {
        self.files.is_some()
    }

    /// How many policies there are; none is the default.
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
        reasons.truncate(TOLD);
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
        Risk::Low => (Effect::Allow, "low risk is allowed where no policy says otherwise"),
        Risk::High => (Effect::NeedsApproval, "high risk needs an approval where no policy says otherwise"),
    };
    (effect, vec![reason.to_owned()])
}

/// A policy that is met or cannot be evaluated, and then why not.
type Met<'a> = (&'a Known, Option<String>);

impl Loaded {
    fn ask(&self, ask: &Ask<'_>) -> (Effect, Vec<String>) {
        let sets = self.by_tool.get(ask.tool).unwrap_or(&self.every_tool);
        let question = match Question::new(ask, &sets.wanted) {
            Ok(question) => question,
            Err(why) => {
                return (Effect::Deny, vec![format!("the command cannot be put to the policies: {why}")]);
            }
        };
        let permits = self.known(question.put(&sets.permits));
        let forbids = self.known(question.put(&sets.forbids));
        let forbidden = told(&forbids, |known| !known.until_approved);
        if !forbidden.is_empty() {
            return (Effect::Deny, forbidden);
        }
        if permits.iter().all(|(_, error)| error.is_some()) {
            let mut reasons = vec!["no policy permits it".to_owned()];
            reasons.extend(told(&permits, |_| true));
            return (Effect::Deny, reasons);
        }
        match forbids.is_empty() {
            true => (Effect::Allow, told(&permits, |_| true)),
            false => (Effect::NeedsApproval, told(&forbids, |_| true)),
        }
    }

    /// By what people call them.
    fn known(&self, met: Vec<(PolicyId, Option<String>)>) -> Vec<Met<'_>> {
        let mut met: Vec<Met<'_>> = met.into_iter().map(|(id, error)| (&self.known[&id], error)).collect();
        met.sort_by(|(a, _), (b, _)| a.label.cmp(&b.label));
        met
    }
}

fn told(met: &[Met<'_>], wanted: impl Fn(&Known) -> bool) -> Vec<String> {
    let wanted = met.iter().filter(|(known, _)| wanted(known));
    wanted.map(|(known, error)| known.told(error.as_deref())).collect()
}

impl Known {
    fn told(&self, error: Option<&str>) -> String {
        let verb = match (self.clause, self.until_approved) {
            (Clause::Permit, _) => "permitted by",
            (Clause::Forbid, false) => "forbidden by",
            (Clause::Forbid, true) => "needs an approval by",
        };
        let label = &self.label;
        match (error, &self.reason) {
            (Some(error), _) if self.clause == Clause::Permit => {
                format!("{label} cannot be evaluated, and permits nothing: {error}")
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
