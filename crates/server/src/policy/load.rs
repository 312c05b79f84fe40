//! Loads policy files: all of them, or none with an error that has file, line and fix.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt,
    panic::resume_unwind,
    str::FromStr,
    thread,
};

use cedar_policy::{ActionConstraint, Effect as Clause, Policy, PolicyId, PolicySet};
use miette::Diagnostic;
use serde_json::Value;
use tenure_core::payload::Digest;

use super::{Known, Loaded, Sets, names, read_paths::ReadPaths};

/// The largest size of all files together, a hundred times that of the largest known set.
const POLICY_BYTES: usize = 4 << 20;

/// The stack of the loading thread: every nested condition takes some of it, and a file may have thousands.
/// Only used pages are allocated.
const STACK: usize = 256 << 20;

/// A file and its name for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyFile {
    pub name: String,
    pub text: String,
}

/// A parsed policy.
struct Written {
    policy: Policy,
    /// The same as JSON.
    form: Value,
    tools: ActionConstraint,
}

/// An error in a policy file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyError {
    pub file: String,
    pub line: Option<usize>,
    pub message: String,
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.file, self.message),
            None => write!(f, "{}: {}", self.file, self.message),
        }
    }
}

impl std::error::Error for PolicyError {}

/// Equal for the same policies, independent of the files' paths and order. The number belongs to this module:
/// it grows when the context that policies see changes its meaning.
pub(super) fn version(files: &[PolicyFile]) -> String {
    let mut digests: Vec<Digest> = files.iter().map(|file| Digest::of(&file.text)).collect();
    digests.sort();
    let language = cedar_policy::get_lang_version().to_string();
    let all: Vec<u8> = digests.iter().flat_map(|digest| digest.0).chain(language.bytes()).collect();
    format!("cedar-1-{}", &Digest::of(all).hex()[..32])
}

pub(super) fn read(files: &[PolicyFile]) -> Result<Loaded, PolicyError> {
    let bytes: usize = files.iter().map(|file| file.text.len()).sum();
    if bytes > POLICY_BYTES {
        let message =
            format!("the policy files have {bytes} bytes together; at most {POLICY_BYTES} are allowed");
        return Err(files[0].error(None, message));
    }
    thread::scope(|scope| {
        let reader = thread::Builder::new().stack_size(STACK).spawn_scoped(scope, || read_all(files));
        let reader = reader
            .map_err(|error| files[0].error(None, format!("cannot start a thread to read it: {error}")))?;
        reader.join().unwrap_or_else(|panic| resume_unwind(panic))
    })
}

fn read_all(files: &[PolicyFile]) -> Result<Loaded, PolicyError> {
    let mut known = HashMap::new();
    let mut policies: Vec<Written> = Vec::new();
    for (number, file) in files.iter().enumerate() {
        let set = PolicySet::from_str(&file.text).map_err(|errors| unreadable(file, &errors))?;
        if let Some(template) = set.templates().next() {
            let line = line_of(&file.text, &template.to_cedar());
            return Err(file.error(
                line,
                "templates are not supported: write the policy without ?principal and ?resource",
            ));
        }
        for policy in set.policies() {
            let line = policy.to_cedar().and_then(|text| line_of(&file.text, &text));
            let id = PolicyId::new(format!("{number}:{}", policy.id()));
            let (written, known_policy) =
                examine(policy, &id, file, line).map_err(|message| file.error(line, message))?;
            policies.push(written);
            known.insert(id, known_policy);
        }
    }
    Ok(Loaded { by_tool: by_tool(&policies), every_tool: sets(&policies, None), known })
}

fn examine(
    policy: &Policy,
    id: &PolicyId,
    file: &PolicyFile,
    line: Option<usize>,
) -> Result<(Written, Known), String> {
    let clause = policy.effect();
    let until_approved = match (policy.annotation("unless"), clause) {
        (None, _) => false,
        (Some("approved"), Clause::Forbid) => true,
        (Some("approved"), Clause::Permit) => {
            return Err(
                "`@unless(\"approved\")` is for a forbid only: write a plain permit, and a second policy, \
                        `@unless(\"approved\") forbid (…)`, with the same scope"
                    .to_owned(),
            );
        }
        (Some(other), _) => {
            return Err(format!("`@unless(\"{other}\")` is not known: write `@unless(\"approved\")`"));
        }
    };
    let form = policy.to_json().map_err(|error| error.to_string())?;
    names::check(&form)?;
    let written = Written { policy: policy.new_id(id.clone()), form, tools: policy.action_constraint() };
    let place = line.map_or_else(|| file.name.clone(), |line| format!("{}:{line}", file.name));
    let label = policy.annotation("id").filter(|id| !id.is_empty()).map(str::to_owned).unwrap_or(place);
    let reason = policy.annotation("reason").filter(|text| !text.is_empty()).map(str::to_owned);
    Ok((written, Known { label, reason, clause, until_approved }))
}

/// For each tool that a scope names, the policies that can apply to it.
fn by_tool(policies: &[Written]) -> BTreeMap<String, Sets> {
    let named = policies.iter().flat_map(|written| match &written.tools {
        ActionConstraint::Any => Vec::new(),
        ActionConstraint::Eq(tool) => vec![tool.id().unescaped().to_owned()],
        ActionConstraint::In(tools) => tools.iter().map(|tool| tool.id().unescaped().to_owned()).collect(),
    });
    let named: BTreeSet<String> = named.collect();
    named.into_iter().map(|tool| (tool.clone(), sets(policies, Some(&tool)))).collect()
}

fn sets(policies: &[Written], tool: Option<&str>) -> Sets {
    let is = |named: &cedar_policy::EntityUid| Some(named.id().unescaped()) == tool;
    let meets = |written: &&Written| match &written.tools {
        ActionConstraint::Any => true,
        ActionConstraint::Eq(named) => is(named),
        ActionConstraint::In(named) => named.iter().any(is),
    };
    let policies: Vec<&Written> = policies.iter().filter(meets).collect();
    let mut wanted = ReadPaths::default();
    policies.iter().for_each(|written| wanted.add(&written.form));
    let (permits, forbids): (Vec<&Written>, Vec<&Written>) =
        policies.into_iter().partition(|written| written.policy.effect() == Clause::Permit);
    Sets { permits: set(&permits), forbids: set(&forbids), wanted }
}

fn set(some: &[&Written]) -> PolicySet {
    let policies = some.iter().map(|written| written.policy.clone());
    PolicySet::from_policies(policies).expect("ids are numbered")
}

impl PolicyFile {
    fn error(&self, line: Option<usize>, message: impl Into<String>) -> PolicyError {
        PolicyError { file: self.name.clone(), line, message: message.into() }
    }
}

fn unreadable(file: &PolicyFile, errors: &cedar_policy::ParseErrors) -> PolicyError {
    let Some(error) = errors.iter().next() else { return file.error(None, errors.to_string()) };
    let at = error.labels().and_then(|mut labels| labels.next()).map(|label| label.offset());
    let line = at.map(|offset| line_at(&file.text, offset));
    let mut message = error.to_string();
    if let Some(label) =
        error.labels().and_then(|mut labels| labels.next()).and_then(|l| l.label().map(str::to_owned))
    {
        message = format!("{message}: {label}");
    }
    if let Some(help) = error.help() {
        message = format!("{message} ({help})");
    }
    file.error(line, message)
}

fn line_of(text: &str, part: &str) -> Option<usize> {
    text.find(part).map(|offset| line_at(text, offset))
}

fn line_at(text: &str, offset: usize) -> usize {
    text.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1
}
