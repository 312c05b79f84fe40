//! The settings of a work item (lease timings, retry policy, timeouts), and the settings of each source.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    limits,
    quota::Quota,
    refusal::{Code, Refusal},
};

/// Lease timings. `ttl ≥ 3 × renew`, so that two lost renewals never cost a living holder its lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseTimings {
    pub grace_ms: u64,
    pub renew_ms: u64,
    pub ttl_ms: u64,
}

impl Default for LeaseTimings {
    fn default() -> Self {
        Self { ttl_ms: 45_000, renew_ms: 15_000, grace_ms: 30_000 }
    }
}

impl LeaseTimings {
    pub fn new(ttl_ms: u64, renew_ms: u64, grace_ms: u64) -> Result<Self, Refusal> {
        let timings = Self { ttl_ms, renew_ms, grace_ms };
        timings.check()?;
        Ok(timings)
    }

    pub fn check(&self) -> Result<(), Refusal> {
        limits::duration("ttl_ms", self.ttl_ms)?;
        limits::duration("grace_ms", self.grace_ms)?;
        if self.renew_ms == 0 || self.ttl_ms / 3 < self.renew_ms {
            return Err(Refusal::new(
                Code::ImpossibleTimings,
                format!(
                    "A lease of {} ms renewed every {} ms would be lost by one late renewal: ttl_ms must be \
                     at least 3 × renew_ms, and renew_ms at least 1.",
                    self.ttl_ms, self.renew_ms
                ),
            ));
        }
        Ok(())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Jitter {
    Full,
    Equal,
    None,
}

/// When a failed work item is retried. `max_attempts` counts failures, the first one included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetryPolicy {
    pub initial_ms: u64,
    pub jitter: Jitter,
    pub max_attempts: u32,
    pub max_ms: u64,
    /// The factor by which each delay grows, in thousandths: 2,000 doubles it. An integer, so that the policy
    /// has one canonical form.
    pub multiplier_permille: u32,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            max_attempts: 3,
            initial_ms: 1_000,
            multiplier_permille: 2_000,
            max_ms: 300_000,
            jitter: Jitter::Full,
        }
    }
}

impl RetryPolicy {
    pub fn check(&self) -> Result<(), Refusal> {
        limits::duration("max_ms", self.max_ms)?;
        if self.max_attempts == 0 || self.initial_ms > self.max_ms || self.multiplier_permille < 1_000 {
            return Err(Refusal::new(
                Code::ImpossibleTimings,
                "A retry policy needs max_attempts ≥ 1, initial_ms ≤ max_ms and a multiplier of at least 1.",
            ));
        }
        Ok(())
    }
}

/// Deadlines, counted from ingest (start, overall) or from the claim (execution).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timeouts {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overall_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_ms: Option<u64>,
}

/// The declared consequence if the lease of started owner-bound work lapses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnExpiry {
    /// It is stalled until it proves to be alive, a request, or its owner.
    #[default]
    Leave,
    /// It ends as `timed_out`: abandoning it was agreed in advance.
    Timeout,
}

/// The consequence if a holder renews and shows nothing else. It is always shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnSpinning {
    #[default]
    Mark,
    /// It is an alert as well.
    Alert,
    /// Renewals are refused, unless they bring new progress: the lease lapses, and recovery decides.
    StopRenewing,
}

/// From when on a holder that renews counts as spinning: it reports no progress, begins and completes no step, and
/// records no command or receipt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spinning {
    pub after_ms: u64,
    pub then: OnSpinning,
}

impl Spinning {
    /// A holder may have nothing to say for as long as its lease lasts.
    pub fn check(&self, lease: &LeaseTimings) -> Result<(), Refusal> {
        limits::duration("after_ms", self.after_ms)?;
        if self.after_ms < lease.ttl_ms {
            return Err(Refusal::new(
                Code::ImpossibleTimings,
                format!(
                    "A holder may be quiet for {} ms, its lease's ttl_ms, without any fault: after_ms must be at \
                     least that, not {}.",
                    lease.ttl_ms, self.after_ms
                ),
            ));
        }
        Ok(())
    }
}

/// Who is told of a stalled work item. Its disposition alone decides what recovery does with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnStalled {
    /// Nobody in particular: recovery goes on as soon as that is safe.
    #[default]
    Recover,
    /// An alert of its own, by source and kind.
    Page,
    /// It is listed among what waits for people.
    Prompt,
}

impl OnStalled {
    fn is_default(&self) -> bool {
        *self == OnStalled::default()
    }
}

/// All settings of one work item, every value settled at ingest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkPolicy {
    pub lease: LeaseTimings,
    pub on_expiry: OnExpiry,
    pub retry: RetryPolicy,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spinning: Option<Spinning>,
    #[serde(default, skip_serializing_if = "OnStalled::is_default")]
    pub stalled: OnStalled,
    pub timeouts: Timeouts,
}

impl WorkPolicy {
    pub fn check(&self) -> Result<(), Refusal> {
        self.lease.check()?;
        self.retry.check()?;
        if let Some(spinning) = &self.spinning {
            spinning.check(&self.lease)?;
        }
        let Timeouts { execution_ms, overall_ms, start_ms } = self.timeouts;
        for (name, ms) in [("execution_ms", execution_ms), ("overall_ms", overall_ms), ("start_ms", start_ms)]
        {
            let Some(ms) = ms else { continue };
            limits::duration(name, ms)?;
            if ms == 0 {
                return Err(Refusal::new(
                    Code::ImpossibleTimings,
                    format!("`{name}` is 0: give at least 1, or leave it out for no deadline."),
                ));
            }
        }
        Ok(())
    }
}

/// The settings that a caller may leave out; omitted ones come from the source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyOverrides {
    #[serde(default)]
    pub lease: Option<LeaseTimings>,
    #[serde(default)]
    pub on_expiry: Option<OnExpiry>,
    #[serde(default)]
    pub retry: Option<RetryPolicy>,
    #[serde(default)]
    pub timeouts: Option<Timeouts>,
}

/// The sources that this ledger accepts, each with its default settings, and the quota of each tenant.
#[derive(Clone, Debug)]
pub struct Settings {
    sources: BTreeMap<String, WorkPolicy>,
    kinds: BTreeMap<(String, String), KindPolicy>,
    quota: Quota,
}

/// The settings of one kind, instead of those of its source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KindPolicy {
    pub spinning: Option<Spinning>,
    pub stalled: Option<OnStalled>,
}

/// The sources that every ledger knows.
pub const BUILT_IN_SOURCES: [&str; 4] = ["control", "conversation", "manual", "scheduler"];

impl Default for Settings {
    fn default() -> Self {
        let sources = BUILT_IN_SOURCES.map(|name| (name.to_owned(), WorkPolicy::default())).into();
        Self { sources, kinds: BTreeMap::new(), quota: Quota::default() }
    }
}

impl Settings {
    /// Adds a source, or changes the default settings of a known one.
    pub fn with_source(mut self, system: &str, policy: WorkPolicy) -> Result<Self, Refusal> {
        limits::name("source.system", system)?;
        policy.check()?;
        self.sources.insert(system.to_owned(), policy);
        Ok(self)
    }

    /// The settings of one kind, instead of those of its source.
    pub fn with_kind(mut self, system: &str, kind: &str, policy: KindPolicy) -> Result<Self, Refusal> {
        limits::name("kind", kind)?;
        self.kinds.insert((system.to_owned(), kind.to_owned()), policy);
        Ok(self)
    }

    /// The shortest time after which any holder counts as spinning.
    pub fn first_spinning(&self) -> Option<u64> {
        let sources = self.sources.values().filter_map(|policy| policy.spinning);
        let kinds = self.kinds.values().filter_map(|policy| policy.spinning);
        sources.chain(kinds).map(|spinning| spinning.after_ms).min()
    }

    /// Whether some source or kind asks to be alerted about its work items.
    pub fn tells(&self) -> bool {
        let sources = self.sources.values().map(|policy| (policy.spinning, Some(policy.stalled)));
        let kinds = self.kinds.values().map(|policy| (policy.spinning, policy.stalled));
        sources.chain(kinds).any(|(spinning, stalled)| {
            spinning.is_some_and(|spinning| spinning.then != OnSpinning::Mark)
                || stalled == Some(OnStalled::Page)
        })
    }

    /// The same settings, with this quota for each tenant.
    #[must_use]
    pub fn with_quota(self, quota: Quota) -> Self {
        Self { quota, ..self }
    }

    pub fn quota(&self) -> &Quota {
        &self.quota
    }

    /// The settled settings of a work item of this source and kind.
    pub fn policy(&self, system: &str, kind: &str, wanted: &PolicyOverrides) -> Result<WorkPolicy, Refusal> {
        let Some(default) = self.sources.get(system) else {
            let known: Vec<&str> = self.sources.keys().map(String::as_str).collect();
            return Err(Refusal::new(
                Code::UnknownSource,
                format!(
                    "`{system}` is not a configured source. Known: {}. Add it to the settings, or use `manual`.",
                    known.join(", ")
                ),
            ));
        };
        let lease = wanted.lease.unwrap_or(default.lease);
        let of_kind = self.kinds.get(&(system.to_owned(), kind.to_owned())).copied().unwrap_or_default();
        // A caller that asks for a longer lease is given more time as well.
        let spinning = of_kind
            .spinning
            .or(default.spinning)
            .map(|spinning| Spinning { after_ms: spinning.after_ms.max(lease.ttl_ms), ..spinning });
        let policy = WorkPolicy {
            lease,
            spinning,
            stalled: of_kind.stalled.unwrap_or(default.stalled),
            on_expiry: wanted.on_expiry.unwrap_or(default.on_expiry),
            retry: wanted.retry.unwrap_or(default.retry),
            timeouts: wanted.timeouts.unwrap_or(default.timeouts),
        };
        policy.check()?;
        Ok(policy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ttl_under_three_renewals_is_refused() {
        assert!(LeaseTimings::new(45_000, 15_000, 30_000).is_ok());
        assert_eq!(LeaseTimings::new(44_999, 15_000, 0).unwrap_err().code, Code::ImpossibleTimings);
        assert_eq!(LeaseTimings::new(45_000, 0, 0).unwrap_err().code, Code::ImpossibleTimings);
    }

    #[test]
    fn a_source_overrides_the_default_and_a_work_overrides_its_source() {
        let quick =
            WorkPolicy { lease: LeaseTimings::new(3_000, 1_000, 0).unwrap(), ..WorkPolicy::default() };
        let settings = Settings::default().with_source("telegram", quick).unwrap();
        assert_eq!(
            settings.policy("telegram", "job", &PolicyOverrides::default()).unwrap().lease.ttl_ms,
            3_000
        );
        assert_eq!(
            settings.policy("manual", "job", &PolicyOverrides::default()).unwrap().lease.ttl_ms,
            45_000
        );
        let own = PolicyOverrides { lease: Some(LeaseTimings::default()), ..PolicyOverrides::default() };
        assert_eq!(settings.policy("telegram", "job", &own).unwrap().lease.ttl_ms, 45_000);
        assert_eq!(
            settings.policy("fax", "job", &PolicyOverrides::default()).unwrap_err().code,
            Code::UnknownSource
        );
    }

    #[test]
    fn a_kind_overrides_its_source_and_a_longer_lease_gives_more_time() {
        let of = |after_ms, then| Some(Spinning { after_ms, then });
        let quick = WorkPolicy { spinning: of(60_000, OnSpinning::Mark), ..WorkPolicy::default() };
        let own = KindPolicy { spinning: of(90_000, OnSpinning::Alert), stalled: Some(OnStalled::Page) };
        let settings = Settings::default().with_source("telegram", quick).unwrap();
        let settings = settings.with_kind("telegram", "reply", own).unwrap();
        let usual = PolicyOverrides::default();
        let other = settings.policy("telegram", "other", &usual).unwrap();
        assert_eq!((other.spinning, other.stalled), (quick.spinning, OnStalled::Recover));
        let reply = settings.policy("telegram", "reply", &usual).unwrap();
        assert_eq!((reply.spinning, reply.stalled), (own.spinning, OnStalled::Page));
        assert_eq!(settings.policy("manual", "reply", &usual).unwrap().spinning, None);
        assert_eq!(settings.first_spinning(), Some(60_000));
        let lease = LeaseTimings::new(300_000, 100_000, 0).unwrap();
        let slow = PolicyOverrides { lease: Some(lease), ..usual };
        assert_eq!(
            settings.policy("telegram", "reply", &slow).unwrap().spinning,
            of(300_000, OnSpinning::Alert)
        );
        let hasty = WorkPolicy { spinning: of(44_999, OnSpinning::Mark), ..WorkPolicy::default() };
        assert_eq!(hasty.check().unwrap_err().code, Code::ImpossibleTimings);
    }

    #[test]
    fn impossible_policies_are_refused() {
        let none = WorkPolicy {
            retry: RetryPolicy { max_attempts: 0, ..RetryPolicy::default() },
            ..WorkPolicy::default()
        };
        let shrinking = WorkPolicy {
            retry: RetryPolicy { multiplier_permille: 999, ..RetryPolicy::default() },
            ..WorkPolicy::default()
        };
        let instant = WorkPolicy {
            timeouts: Timeouts { start_ms: Some(0), ..Timeouts::default() },
            ..WorkPolicy::default()
        };
        for policy in [none, shrinking, instant] {
            assert_eq!(policy.check().unwrap_err().code, Code::ImpossibleTimings);
        }
    }
}
