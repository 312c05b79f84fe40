//! Settings by source and kind: when a holder is spinning, and who is told of a stalled work item.

use std::collections::BTreeMap;

use serde::Deserialize;
use tenure_core::{
    limits,
    policy::{KindPolicy, LeaseTimings, OnSpinning, OnStalled, Spinning},
};
use toml::Spanned;

use super::{ConfigError, config_source::ConfigSource, file::as_written, period::Period};

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SpinningSection {
    after: Period,
    #[serde(default)]
    then: OnSpinning,
}

impl SpinningSection {
    /// It must fit the lease of the source, which may be written elsewhere.
    pub fn settle(
        this: &Spanned<Self>,
        lease: &LeaseTimings,
        at: &ConfigSource<'_>,
    ) -> Result<Spinning, ConfigError> {
        let section = this.get_ref();
        let spinning = Spinning { after_ms: section.after.ms(), then: section.then };
        let refused = |refusal| at.error(at.line(this), as_written(refusal));
        spinning.check(lease).map(|()| spinning).map_err(refused)
    }
}

/// One kind of a source.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct KindSection {
    spinning: Option<Spanned<SpinningSection>>,
    stalled: Option<OnStalled>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct KindName(String);

impl TryFrom<String> for KindName {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        limits::name("kind", &text).map_err(|refusal| refusal.detail)?;
        Ok(KindName(text))
    }
}

/// The kinds of a source, over those that it inherits.
pub(super) fn kinds(
    sections: BTreeMap<KindName, KindSection>,
    base: &BTreeMap<String, KindPolicy>,
    lease: &LeaseTimings,
    at: &ConfigSource<'_>,
) -> Result<BTreeMap<String, KindPolicy>, ConfigError> {
    let mut kinds = base.clone();
    for (name, section) in sections {
        let kind = kinds.entry(name.0).or_default();
        if let Some(spinning) = &section.spinning {
            kind.spinning = Some(SpinningSection::settle(spinning, lease, at)?);
        }
        kind.stalled = section.stalled.or(kind.stalled);
    }
    Ok(kinds)
}
