//! `tenure.toml` as written. Each value is checked while it is parsed, so that the error has its line.

use std::{collections::BTreeMap, fs, net::SocketAddr, path::Path, path::PathBuf, time::Duration};

use serde::Deserialize;
use tenure_core::{
    Refusal, limits,
    model::WaitKind,
    policy::{Jitter, LeaseTimings, OnExpiry, OnStalled, RetryPolicy, Spinning, Timeouts, WorkPolicy},
    quota::Quota,
};
use toml::Spanned;

use super::{
    Bounds, Config, ConfigError, Database, Live, Overlay, Quotas, Rate, Source, Thresholds, Tls,
    anchor::AnchorSection,
    config_source::{ConfigSource, Secret},
    period::Period,
    progress::{self, KindName, KindSection, SpinningSection},
    tools::{self, BudgetSection, CommandSection, PolicySection, ToolName, ToolSection},
};

const DEFAULT_DB: &str = "tenure.db";
const DEFAULT_LISTEN: &str = "127.0.0.1:7171";
const DEFAULT_DRAIN: Duration = Duration::from_secs(20);

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct File {
    db: Option<Spanned<String>>,
    db_env: Option<Spanned<String>>,
    db_file: Option<Spanned<PathBuf>>,
    listen: Option<Listen>,
    token_file: Option<PathBuf>,
    backups: Option<PathBuf>,
    allow_weak_settings: bool,
    pub allow_plain_http: bool,
    pub allow_readable_secrets: bool,
    drain: Option<Period>,
    hosts: Vec<Host>,
    origins: Vec<Origin>,
    rate: RateSection,
    quotas: QuotaSection,
    tls: Option<TlsSection>,
    otlp: OtlpSection,
    alerts: AlertSection,
    anchor: Option<Spanned<AnchorSection>>,
    /// The settings that every source inherits.
    defaults: SourceSection,
    sources: BTreeMap<SourceName, SourceSection>,
    tools: BTreeMap<ToolName, Spanned<ToolSection>>,
    policy: PolicySection,
    commands: CommandSection,
    budgets: Budgets,
}

/// At most as many budgets as one dispatch can be checked against.
#[derive(Debug, Default, Deserialize)]
#[serde(try_from = "Vec<BudgetSection>")]
struct Budgets(Vec<BudgetSection>);

impl TryFrom<Vec<BudgetSection>> for Budgets {
    type Error = String;

    fn try_from(budgets: Vec<BudgetSection>) -> Result<Self, String> {
        limits::count("budgets", budgets.len(), limits::LIMITS).map_err(|refusal| refusal.detail)?;
        Ok(Self(budgets))
    }
}

#[derive(Debug, Deserialize)]
#[serde(try_from = "String")]
struct Listen(SocketAddr);

impl TryFrom<String> for Listen {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let bad =
            |_| format!("`{text}` is not an address to listen on: write ip:port, like \"{DEFAULT_LISTEN}\"");
        text.parse().map(Listen).map_err(bad)
    }
}

#[derive(Debug, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Host(pub String);

impl TryFrom<String> for Host {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if text.is_empty() || text.contains(['/', ' ', '*']) {
            return Err(format!(
                "`{text}` is not a host name: write one like \"tenure.example.com\", without scheme"
            ));
        }
        Ok(Host(text.to_ascii_lowercase()))
    }
}

#[derive(Debug, Deserialize)]
#[serde(try_from = "String")]
struct Origin(String);

impl TryFrom<String> for Origin {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
        if rest.is_none_or(|rest| rest.is_empty() || rest.contains(['/', ' ', '*'])) {
            return Err(format!(
                "`{text}` is not an origin: write scheme and host like \"https://ops.example.com\", without path"
            ));
        }
        Ok(Origin(text.to_ascii_lowercase()))
    }
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
struct SourceName(String);

impl TryFrom<String> for SourceName {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        limits::name("source", &text).map_err(|refusal| refusal.detail)?;
        Ok(SourceName(text))
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RateSection {
    per_second: Option<Positive>,
    burst: Option<Positive>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct QuotaSection {
    open_works: Option<u64>,
    input_bytes: Option<InputBytes>,
    schedules: Option<u64>,
    credentials: Option<u64>,
    calls: Option<u64>,
    streams: Option<u64>,
    connections: Option<Positive>,
    connections_of_an_address: Option<Positive>,
    priority: Option<i16>,
}

impl QuotaSection {
    fn settle(self) -> Quotas {
        let usual = Quotas::default();
        Quotas {
            ledger: Quota {
                open_works: self.open_works.unwrap_or(usual.ledger.open_works),
                input_bytes: self.input_bytes.map_or(usual.ledger.input_bytes, |bytes| bytes.0),
                priority: self.priority.unwrap_or(usual.ledger.priority),
            },
            schedules: self.schedules.unwrap_or(usual.schedules),
            credentials: self.credentials.unwrap_or(usual.credentials),
            calls: self.calls.unwrap_or(usual.calls),
            streams: self.streams.unwrap_or(usual.streams),
            connections: Bounds {
                in_all: self.connections.map_or(usual.connections.in_all, |n| n.0 as usize),
                of_an_address: self
                    .connections_of_an_address
                    .map_or(usual.connections.of_an_address, |n| n.0 as usize),
            },
        }
    }
}

/// Bytes of input that a tenant may send each minute: at least the size of the largest input.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "u64")]
struct InputBytes(u64);

impl TryFrom<u64> for InputBytes {
    type Error = String;

    fn try_from(bytes: u64) -> Result<Self, String> {
        let least = limits::PAYLOAD_BYTES as u64;
        if bytes >= least {
            return Ok(InputBytes(bytes));
        }
        Err(format!("a single input may have {least} bytes: give at least that"))
    }
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "u32")]
pub(super) struct Positive(pub u32);

impl TryFrom<u32> for Positive {
    type Error = &'static str;

    fn try_from(number: u32) -> Result<Self, Self::Error> {
        if number == 0 { Err("0 would refuse every request: give at least 1") } else { Ok(Positive(number)) }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TlsSection {
    cert: PathBuf,
    key: PathBuf,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct OtlpSection {
    endpoint: Option<String>,
}

/// A threshold, or `false` to switch it off.
#[derive(Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "write a whole number or a duration, as the documentation says, or false for never"
)]
enum Threshold<T> {
    Set(T),
    Off(Never),
}

#[derive(Debug, Deserialize)]
#[serde(try_from = "bool")]
struct Never;

impl TryFrom<bool> for Never {
    type Error = &'static str;

    fn try_from(on: bool) -> Result<Self, Self::Error> {
        if on { Err("write false to switch a threshold off, or its value") } else { Ok(Never) }
    }
}

impl<T> Threshold<T> {
    fn or<U>(this: Option<Self>, default: Option<U>, value: impl Fn(T) -> U) -> Option<U> {
        match this {
            Some(Threshold::Set(set)) => Some(value(set)),
            Some(Threshold::Off(_)) => None,
            None => default,
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct AlertSection {
    every: Option<Period>,
    open_age: Option<Threshold<Period>>,
    pending_age: Option<Threshold<Period>>,
    expired_leases: Option<Threshold<u64>>,
    stalled: Option<Threshold<u64>>,
    wait_deadline: Option<Threshold<Period>>,
    uncertain_age: Option<Threshold<Period>>,
    needs_person: Option<Threshold<u64>>,
    approval_age: Option<Threshold<Period>>,
    outbox_lag: Option<Threshold<Period>>,
}

impl AlertSection {
    fn settle(self) -> Thresholds {
        let default = Thresholds::default();
        let duration = |period: Period| period.0;
        Thresholds {
            every: self.every.map_or(default.every, duration),
            open_age: Threshold::or(self.open_age, default.open_age, duration),
            pending_age: Threshold::or(self.pending_age, default.pending_age, duration),
            expired_leases: Threshold::or(self.expired_leases, default.expired_leases, |n| n),
            stalled: Threshold::or(self.stalled, default.stalled, |n| n),
            wait_deadline: Threshold::or(self.wait_deadline, default.wait_deadline, duration),
            uncertain_age: Threshold::or(self.uncertain_age, default.uncertain_age, duration),
            needs_person: Threshold::or(self.needs_person, default.needs_person, |n| n),
            approval_age: Threshold::or(self.approval_age, default.approval_age, duration),
            outbox_lag: Threshold::or(self.outbox_lag, default.outbox_lag, duration),
        }
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct SourceSection {
    lease: Option<Lease>,
    retry: Option<Retry>,
    timeouts: Option<TimeoutSection>,
    on_expiry: Option<OnExpiry>,
    waits: BTreeMap<WaitKind, Period>,
    spinning: Option<Spanned<SpinningSection>>,
    stalled: Option<OnStalled>,
    kinds: BTreeMap<KindName, KindSection>,
}

impl SourceSection {
    fn over(self, base: &Source, at: &ConfigSource<'_>) -> Result<Source, ConfigError> {
        let lease = self.lease.map_or(base.policy.lease, |lease| lease.0);
        // An inherited time is at least the lease of this source.
        let inherited =
            |spinning: Spinning| Spinning { after_ms: spinning.after_ms.max(lease.ttl_ms), ..spinning };
        let spinning = match &self.spinning {
            Some(section) => Some(SpinningSection::settle(section, &lease, at)?),
            None => base.policy.spinning.map(inherited),
        };
        let kinds = progress::kinds(self.kinds, &base.kinds, &lease, at)?;
        let mut waits = base.waits.clone();
        waits.extend(self.waits.into_iter().map(|(kind, period)| (kind, period.0)));
        Ok(Source {
            policy: WorkPolicy {
                lease,
                spinning,
                stalled: self.stalled.unwrap_or(base.policy.stalled),
                on_expiry: self.on_expiry.unwrap_or(base.policy.on_expiry),
                retry: self.retry.map_or(base.policy.retry, |retry| retry.0),
                timeouts: self.timeouts.map_or(base.policy.timeouts, |timeouts| timeouts.0),
            },
            waits,
            kinds,
        })
    }
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "RawLease")]
struct Lease(LeaseTimings);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawLease {
    ttl: Period,
    renew: Period,
    grace: Period,
}

impl TryFrom<RawLease> for Lease {
    type Error = String;

    fn try_from(raw: RawLease) -> Result<Self, String> {
        let timings = LeaseTimings::new(raw.ttl.ms(), raw.renew.ms(), raw.grace.ms());
        timings.map(Lease).map_err(as_written)
    }
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "RawRetry")]
pub(super) struct Retry(pub RetryPolicy);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRetry {
    max_attempts: Option<u32>,
    initial: Option<Period>,
    multiplier: Option<f64>,
    max: Option<Period>,
    jitter: Option<Jitter>,
}

impl TryFrom<RawRetry> for Retry {
    type Error = String;

    fn try_from(raw: RawRetry) -> Result<Self, String> {
        let default = RetryPolicy::default();
        let retry = RetryPolicy {
            initial_ms: raw.initial.map_or(default.initial_ms, Period::ms),
            jitter: raw.jitter.unwrap_or(default.jitter),
            max_attempts: raw.max_attempts.unwrap_or(default.max_attempts),
            max_ms: raw.max.map_or(default.max_ms, Period::ms),
            multiplier_permille: raw
                .multiplier
                .map_or(default.multiplier_permille, |factor| (factor * 1_000.0).round() as u32),
        };
        checked(WorkPolicy { retry, ..WorkPolicy::default() }).map(|policy| Retry(policy.retry))
    }
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "RawTimeouts")]
struct TimeoutSection(Timeouts);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTimeouts {
    start: Option<Period>,
    execution: Option<Period>,
    overall: Option<Period>,
}

impl TryFrom<RawTimeouts> for TimeoutSection {
    type Error = String;

    fn try_from(raw: RawTimeouts) -> Result<Self, String> {
        let timeouts = Timeouts {
            execution_ms: raw.execution.map(Period::ms),
            overall_ms: raw.overall.map(Period::ms),
            start_ms: raw.start.map(Period::ms),
        };
        checked(WorkPolicy { timeouts, ..WorkPolicy::default() })
            .map(|policy| TimeoutSection(policy.timeouts))
    }
}

/// The core checks the policy: none of its rules is repeated here.
fn checked(policy: WorkPolicy) -> Result<WorkPolicy, String> {
    policy.check().map(|()| policy).map_err(as_written)
}

/// The core names its own fields (`ttl_ms`); in the file they are written with a unit and are called `ttl`.
pub(super) fn as_written(refusal: Refusal) -> String {
    refusal.detail.replace("_ms", "")
}

impl File {
    /// Reads the text of the file.
    pub fn read(path: &Path) -> Result<String, ConfigError> {
        let name = path.display().to_string();
        fs::read_to_string(path)
            .map_err(|error| ConfigError::file(&name, format!("cannot be read: {error}. Check the path")))
    }

    pub fn parse(at: &ConfigSource<'_>) -> Result<Self, ConfigError> {
        toml::from_str(at.text).map_err(|error| ConfigError::toml(at.name, at.text, &error))
    }

    pub fn settle(self, overlay: Overlay, at: &ConfigSource<'_>) -> Result<Config, ConfigError> {
        let listen = match (overlay.listen, self.listen) {
            (Some(text), _) => Listen::try_from(text).map_err(|e| ConfigError::flag("--listen", e))?.0,
            (None, Some(listen)) => listen.0,
            (None, None) => DEFAULT_LISTEN.parse().expect("an address"),
        };
        let tls = match (overlay.tls_cert, overlay.tls_key, self.tls) {
            (Some(cert), Some(key), _) => Some(Tls { cert, key }),
            (None, None, file) => file.map(|TlsSection { cert, key }| Tls { cert, key }),
            _ => {
                return Err(ConfigError::flag(
                    "--tls-cert",
                    "--tls-cert and --tls-key go together: give both",
                ));
            }
        };
        let flag_hosts = overlay.hosts.into_iter().map(Host::try_from).collect::<Result<Vec<_>, _>>();
        let flag_hosts = flag_hosts.map_err(|e| ConfigError::flag("--host", e))?;
        if !listen.ip().is_loopback() && tls.is_none() && !at.allow_plain_http {
            let why = format!(
                "{listen} is reachable from other machines, and tokens would cross the network unencrypted: use TLS \
                 (--tls-cert, --tls-key), or set --allow-plain-http if a proxy does"
            );
            return Err(ConfigError::flag("--listen", why));
        }
        let written = match overlay.db {
            Some(db) => Some(db),
            None => database(self.db, self.db_env, self.db_file, at)?,
        };
        let db = Database::parse(&written.unwrap_or_else(|| DEFAULT_DB.to_owned()));
        let base = self.defaults.over(&Source::default(), at)?;
        let mut sources: BTreeMap<String, Source> =
            tenure_core::policy::BUILT_IN_SOURCES.map(|name| (name.to_owned(), base.clone())).into();
        for (name, section) in self.sources {
            sources.insert(name.0, section.over(&base, at)?);
        }
        let anchor = self.anchor.map(|section| {
            let line = at.line(&section);
            section.into_inner().settle(at, line)
        });
        let rate = Rate::default();
        let per_second = self.rate.per_second.map_or(rate.per_second, |n| n.0);
        let token_file = overlay.token_file.or(self.token_file).unwrap_or_else(|| db.token_file());
        for secret in [Some(&token_file), tls.as_ref().map(|tls| &tls.key)].into_iter().flatten() {
            at.private(secret, None)?;
        }
        Ok(Config {
            token_file,
            backups: overlay.backups.or_else(|| self.backups.map(|folder| at.folder.join(folder))),
            db,
            listen,
            tls,
            allow_weak_settings: overlay.allow_weak_settings || self.allow_weak_settings,
            accept_loss: overlay.accept_loss,
            allow_readable_secrets: at.allow_readable_secrets,
            drain: self.drain.map_or(DEFAULT_DRAIN, |period| period.0),
            otlp_endpoint: overlay.otlp_endpoint.or(self.otlp.endpoint),
            live: Live {
                hosts: flag_hosts.into_iter().chain(self.hosts).map(|host| host.0).collect(),
                origins: self.origins.into_iter().map(|origin| origin.0).collect(),
                rate: Rate { per_second, burst: self.rate.burst.map_or(per_second, |n| n.0) },
                quotas: self.quotas.settle(),
                alerts: self.alerts.settle(),
                anchor: anchor.transpose()?,
                sources,
                tools: tools::settle(self.tools, at)?,
                policy: self.policy.settle(overlay.policies, at)?,
                command_rate: self.commands.rate_limit.map(tools::Limit::settle),
                replays: self.commands.replays.settle(),
                budgets: self.budgets.0.into_iter().map(BudgetSection::settle).collect(),
            },
        })
    }
}

/// The database that the file configures. A URL may contain a password.
fn database(
    written: Option<Spanned<String>>,
    env: Option<Spanned<String>>,
    file: Option<Spanned<PathBuf>>,
    at: &ConfigSource<'_>,
) -> Result<Option<String>, ConfigError> {
    match (written, env, file) {
        (None, None, None) => Ok(None),
        (Some(db), None, None) if !has_password(db.get_ref()) => Ok(Some(db.into_inner())),
        (Some(db), None, None) => at.secret(&Secret::Written, db.get_ref(), at.line(&db)).map(Some),
        (None, Some(name), None) => at.secret(&Secret::Env(name.get_ref()), "", at.line(&name)).map(Some),
        (None, None, Some(path)) => at.secret(&Secret::File(path.get_ref()), "", at.line(&path)).map(Some),
        _ => Err(at.error(None, "the ledger is in one place only: keep one of `db`, `db_env` and `db_file`")),
    }
}

fn has_password(url: &str) -> bool {
    let authority = url.split_once("://").map(|(_, rest)| rest.split(['/', '?']).next().unwrap_or_default());
    let user = authority.and_then(|authority| authority.rsplit_once('@')).map(|(user, _)| user);
    user.is_some_and(|user| user.contains(':')) || url.contains("password=")
}
