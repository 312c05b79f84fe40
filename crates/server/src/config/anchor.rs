//! `[anchor]` as written in the file: where signed copies of the anchor are exported to.

use std::{path::PathBuf, sync::Arc, time::Duration};

use serde::Deserialize;
use toml::Spanned;

use super::{ConfigError, calls::HttpSection, config_source::ConfigSource, period::Period};
use crate::executor::HttpTarget;

const EVERY: Duration = Duration::from_secs(3_600);

/// Where and how often the anchor is exported.
#[derive(Clone, Debug, PartialEq)]
pub struct AnchorExport {
    pub every: Duration,
    pub file: Option<PathBuf>,
    pub webhook: Option<Arc<HttpTarget>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AnchorSection {
    every: Option<Every>,
    file: Option<PathBuf>,
    webhook: Option<Spanned<HttpSection>>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "Period")]
struct Every(Period);

impl TryFrom<Period> for Every {
    type Error = &'static str;

    fn try_from(period: Period) -> Result<Self, Self::Error> {
        if period.ms() >= 1_000 { Ok(Every(period)) } else { Err("give at least 1s between two exports") }
    }
}

impl AnchorSection {
    pub fn settle(self, at: &ConfigSource<'_>, line: Option<usize>) -> Result<AnchorExport, ConfigError> {
        if self.file.is_none() && self.webhook.is_none() {
            let why = "name where the anchor is exported to: a `file`, or `webhook = { url = … }`";
            return Err(at.error(line, why));
        }
        let webhook = self.webhook.map(|section| {
            let line = at.line(&section);
            let target = section.into_inner().settle(at, line)?;
            if target.url.is_none() {
                return Err(at.error(line, "the webhook of the anchor needs its `url`: add it"));
            }
            Ok(Arc::new(target))
        });
        Ok(AnchorExport {
            every: self.every.map_or(EVERY, |every| every.0.0),
            file: self.file.map(|path| at.folder.join(path)),
            webhook: webhook.transpose()?,
        })
    }
}
