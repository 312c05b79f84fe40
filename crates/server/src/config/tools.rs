//! `[tools.NAME]`, `[policy]`, `[commands]` and `[[budgets]]` as written in the file. Referenced files
//! (schemas, policies) and environment variables (secrets) are read when the sections are resolved; their
//! errors name the line that referenced them.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use serde::Deserialize;
use tenure_core::{
    command::{
        CommandKind, Executor, Idempotency, ReplayLimits, Risk, ToolFacts,
        budget::{Cost, Per},
    },
    limits,
};
use toml::Spanned;

use super::{
    ConfigError,
    budget::{Budget, BudgetPeriod, BudgetUnit},
    calls::{ExecSection, HttpSection},
    config_source::ConfigSource,
    file::{Positive, Retry},
    period::Period,
};
use crate::{
    lookup::Lookup,
    policy::{Policies, PolicyFile},
    tools::{self, Pointer, RateLimit, Relay, Schema, Tool, Tools},
};
const LOOKUP_INTERVAL_MS: u64 = 30_000;

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct ToolName(String);

impl TryFrom<String> for ToolName {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        limits::name("tool", &text).map_err(|refusal| refusal.detail)?;
        Ok(ToolName(text))
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct PolicySection {
    files: Vec<Spanned<PathBuf>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct CommandSection {
    pub rate_limit: Option<Limit>,
    pub replays: ReplaySection,
}

/// How often people may replay.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ReplaySection {
    per_command: Option<Positive>,
    per_work: Option<Positive>,
    per_minute: Option<Positive>,
}

impl ReplaySection {
    pub fn settle(self) -> ReplayLimits {
        let usual = ReplayLimits::default();
        let or = |given: Option<Positive>, usual: u32| given.map_or(usual, |given| given.0);
        ReplayLimits {
            per_command: or(self.per_command, usual.per_command),
            per_work: or(self.per_work, usual.per_work),
            per_minute: or(self.per_minute, usual.per_minute),
        }
    }
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Limit {
    per_s: Positive,
    burst: Option<Positive>,
}

impl Limit {
    pub fn settle(self) -> RateLimit {
        RateLimit { per_s: self.per_s.0, burst: self.burst.unwrap_or(self.per_s).0 }
    }
}

/// The estimated cost of a tool's call when a dispatch gives none.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct EstimateSection {
    tokens: u64,
    /// Millionths, by currency.
    micros: BTreeMap<String, u64>,
}

impl EstimateSection {
    fn settle(self) -> Cost {
        let micros =
            self.micros.into_iter().map(|(currency, amount)| (currency.to_ascii_lowercase(), amount));
        Cost { tokens: self.tokens, micros: micros.collect() }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BudgetSection {
    per: Per,
    unit: BudgetUnit,
    #[serde(default)]
    period: BudgetPeriod,
    max: u64,
    tool: Option<ToolName>,
}

impl BudgetSection {
    pub fn settle(self) -> Budget {
        Budget {
            per: self.per,
            unit: self.unit.0,
            period: self.period,
            max: self.max,
            tool: self.tool.map(|name| name.0),
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ToolSection {
    kind: CommandKind,
    risk: Option<Risk>,
    schema: Option<Spanned<SchemaSection>>,
    idempotency: Option<Spanned<Idempotency>>,
    native_window: Option<Period>,
    consistency_delay: Option<Period>,
    executor: Executor,
    http: Option<Spanned<HttpSection>>,
    exec: Option<Spanned<ExecSection>>,
    lookup: Option<Spanned<LookupSection>>,
    rate_limit: Option<Limit>,
    estimate: EstimateSection,
    four_eyes: bool,
    ordered: bool,
    approval: Option<Period>,
    redact: Option<Spanned<Vec<Path>>>,
    retry: Option<Retry>,
}

/// Inline, or the path of a file.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "write a JSON schema as a table, or the path of a file with one")]
enum SchemaSection {
    File(PathBuf),
    Inline(toml::Table),
}

#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "String")]
struct Path(Pointer);

impl TryFrom<String> for Path {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse().map(Path)
    }
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum LookedUp {
    Worker,
    Http,
    Exec,
    File,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LookupSection {
    by: LookedUp,
    http: Option<Spanned<HttpSection>>,
    exec: Option<ExecSection>,
    /// The root folder of a lookup by file.
    root: Option<std::path::PathBuf>,
    interval: Option<Period>,
    max_unknowns: Option<Positive>,
}

impl LookupSection {
    fn settle(self, at: &ConfigSource<'_>, line: Option<usize>) -> Result<Lookup, ConfigError> {
        let wrong = |message: &str| Err(at.error(line, message));
        let by = match (self.by, self.http, self.exec, self.root) {
            (LookedUp::Worker, None, None, None) => Lookup::Worker,
            (LookedUp::File, None, None, Some(root)) => Lookup::File(at.folder.join(root)),
            (LookedUp::Http, Some(http), None, None) => {
                let line = at.line(&http);
                Lookup::Http(Arc::new(http.into_inner().settle(at, line)?))
            }
            (LookedUp::Exec, None, Some(exec), None) => Lookup::Exec(exec.settle(20_000)),
            (LookedUp::Worker, ..) => {
                return wrong("a lookup by a worker makes no call: leave out `http`, `exec` and `root`");
            }
            (LookedUp::Http, ..) => {
                return wrong("a lookup by = \"http\" needs `http = { url = … }`, and nothing else");
            }
            (LookedUp::Exec, ..) => {
                return wrong("a lookup by = \"exec\" needs `exec = { command = […] }`, and nothing else");
            }
            (LookedUp::File, ..) => {
                return wrong(
                    "a lookup by = \"file\" needs `root`, the folder that paths are under, and nothing else",
                );
            }
        };
        if matches!(&by, Lookup::Http(target) if target.url.is_none()) {
            return wrong("a lookup needs its own `url`: add it");
        }
        Ok(by)
    }
}

impl ToolSection {
    fn settle(self, at: &ConfigSource<'_>) -> Result<Tool, ConfigError> {
        let default = ToolFacts::default();
        let redact_line = self.redact.as_ref().and_then(|paths| at.line(paths));
        let relay = relay(self.executor, self.http, self.exec, at)?;
        let redact: Vec<Pointer> =
            self.redact.into_iter().flat_map(Spanned::into_inner).map(|path| path.0).collect();
        if relay.is_some() && !redact.is_empty() {
            return Err(at.error(
                redact_line,
                "redacted fields are not stored, so the relay could not send the redacted fields: leave out `redact`, or let the \
                 worker execute this tool",
            ));
        }
        let asked = self.lookup.as_ref().map(Spanned::get_ref);
        let max_unknowns = asked.and_then(|lookup| lookup.max_unknowns);
        let lookup_interval_ms =
            asked.map_or(0, |lookup| lookup.interval.map_or(LOOKUP_INTERVAL_MS, Period::ms));
        let lookup = self.lookup.map(|lookup| {
            let line = at.line(&lookup);
            lookup.into_inner().settle(at, line)
        });
        let lookup = lookup.transpose()?;
        if self.ordered && relay.is_none() {
            return Err(at.error(
                None,
                "`ordered` is for commands that the relay sends: a waiting worker would delay the commands of others. Leave \
                 it out, or give an executor",
            ));
        }
        let facts = ToolFacts {
            risk: self.risk.unwrap_or(default.risk),
            idempotency: idempotency(self.idempotency, lookup.is_some(), at)?,
            native_window_ms: self.native_window.map_or(default.native_window_ms, Period::ms),
            executor: self.executor,
            consistency_delay_ms: self.consistency_delay.map_or(default.consistency_delay_ms, Period::ms),
            four_eyes: self.four_eyes,
            ordered: self.ordered,
            max_unknowns: max_unknowns.map_or(default.max_unknowns, |n| n.0),
            lookup_interval_ms,
            retry: self.retry.map_or(default.retry, |retry| retry.0),
            timeout_ms: relay.as_ref().map_or(default.timeout_ms, |relay| {
                u64::try_from((relay.timeout() + tools::MARGIN).as_millis()).unwrap_or(u64::MAX)
            }),
            approval_ms: self.approval.map_or(default.approval_ms, Period::ms),
        };
        Ok(Tool {
            kind: self.kind,
            facts,
            schema: self.schema.map(|schema| read_schema(schema, at)).transpose()?,
            redact,
            rate_limit: self.rate_limit.map(Limit::settle),
            estimate: self.estimate.settle(),
            relay,
            lookup,
        })
    }
}

fn relay(
    executor: Executor,
    http: Option<Spanned<HttpSection>>,
    exec: Option<Spanned<ExecSection>>,
    at: &ConfigSource<'_>,
) -> Result<Option<Relay>, ConfigError> {
    let line = http.as_ref().and_then(|http| at.line(http)).or(exec.as_ref().and_then(|exec| at.line(exec)));
    let wrong = |message: &str| Err(at.error(line, message));
    match (executor, http, exec) {
        (Executor::Worker, None, None) => Ok(None),
        (Executor::Http, Some(http), None) => {
            let target = http.into_inner().settle(at, line)?;
            if target.url.is_none() && target.hosts.is_empty() && target.has_secrets() {
                return wrong(
                    "without a `url` the caller who reserves a command chooses the host, which would receive `headers` and \
                     signatures: give the `url`, or the `hosts` that may receive them",
                );
            }
            Ok(Some(Relay::Http(Arc::new(target))))
        }
        (Executor::Exec, None, Some(exec)) => Ok(Some(Relay::Exec(exec.into_inner().settle(60_000)))),
        (Executor::Worker, ..) => {
            wrong("this table is unused: write `executor = \"http\"` or \"exec\" above it")
        }
        (Executor::Http, None, _) => wrong(
            "executor = \"http\" needs a table `http`; without a url in it, the command's target is called",
        ),
        (Executor::Exec, _, None) => wrong("executor = \"exec\" needs a table `exec` with a command"),
        (Executor::Http | Executor::Exec, Some(_), Some(_)) => {
            wrong("a tool has one executor: leave out `http` or `exec`")
        }
    }
}

fn idempotency(
    said: Option<Spanned<Idempotency>>,
    has_lookup: bool,
    at: &ConfigSource<'_>,
) -> Result<Idempotency, ConfigError> {
    let line = said.as_ref().and_then(|said| at.line(said));
    match (said.map(Spanned::into_inner), has_lookup) {
        (None, true) => Ok(Idempotency::Lookup),
        (None, false) => Ok(Idempotency::None),
        (Some(Idempotency::Lookup), false) => {
            Err(at.error(line, "idempotency = \"lookup\" needs a table `lookup`: add it"))
        }
        (Some(Idempotency::None), true) => {
            Err(at.error(line, "a tool with a lookup has idempotency = \"lookup\" or \"native\""))
        }
        (Some(said), _) => Ok(said),
    }
}

fn read_schema(section: Spanned<SchemaSection>, at: &ConfigSource<'_>) -> Result<Arc<Schema>, ConfigError> {
    let line = at.line(&section);
    let written = match section.into_inner() {
        SchemaSection::Inline(table) => {
            serde_json::to_value(table).map_err(|error| at.error(line, error.to_string()))?
        }
        SchemaSection::File(path) => {
            let text = at.read(&path, line)?;
            serde_json::from_str(&text)
                .map_err(|error| at.error(line, format!("{} is not JSON: {error}", path.display())))?
        }
    };
    let compiled = Schema::new(written);
    compiled.map(Arc::new).map_err(|why| at.error(line, format!("this is not a usable JSON schema: {why}")))
}

/// A mistake without a line of its own is reported on the tool's line.
pub(super) fn settle(
    tools: BTreeMap<ToolName, Spanned<ToolSection>>,
    at: &ConfigSource<'_>,
) -> Result<Tools, ConfigError> {
    let settled = tools.into_iter().map(|(name, section)| {
        let line = at.line(&section);
        let tool = section.into_inner().settle(at);
        let tool = tool.map_err(|error| ConfigError { line: error.line.or(line), ..error })?;
        Ok((name.0, tool))
    });
    settled.collect::<Result<BTreeMap<_, _>, ConfigError>>().map(Tools::new)
}

impl PolicySection {
    /// `extra` policies come from the embedding program rather than from files.
    pub fn settle(
        self,
        inline: Vec<PolicyFile>,
        at: &ConfigSource<'_>,
    ) -> Result<Arc<Policies>, ConfigError> {
        let mut files = inline;
        for path in self.files {
            let line = at.line(&path);
            let path = path.into_inner();
            files.push(PolicyFile { name: path.display().to_string(), text: at.read(&path, line)? });
        }
        let policies = Policies::load(&files);
        policies.map(Arc::new).map_err(|error| ConfigError {
            place: error.file,
            line: error.line,
            message: error.message,
        })
    }
}
