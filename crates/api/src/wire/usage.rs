//! Usage: tokens, calls and money.

use serde::{Deserialize, Serialize};

/// Usage of one model of one source. Omitted counts are zero; no count exceeds 2^53.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Usage {
    /// The provider, account or tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Input tokens.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub input_tokens: u64,
    /// Output tokens.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub output_tokens: u64,
    /// Input tokens that were read from a cache.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cached_tokens: u64,
    /// The number of calls.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub calls: u64,
    /// The amount in millionths of the currency's unit. Needs `currency`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cost_micros: u64,
    /// Three capital letters, as in ISO 4217.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub currency: Option<String>,
}

/// The maximum number of entries in one call.
pub const USAGE_MAX: usize = 50;

impl Usage {
    /// Adds to a sum that fits into one call: one entry for each source, model and currency, and a common one
    /// without source and model when there are too many.
    pub fn add(sum: &mut Vec<Usage>, more: &Usage) {
        let mut more = more.clone();
        let same =
            |a: &Usage, b: &Usage| (&a.source, &a.model, &a.currency) == (&b.source, &b.model, &b.currency);
        // Reserves one slot for the entry without source and model.
        if sum.len() + 1 >= USAGE_MAX && !sum.iter().any(|one| same(one, &more)) {
            (more.source, more.model) = (None, None);
        }
        let Some(one) = sum.iter_mut().find(|one| same(one, &more)) else { return sum.push(more) };
        one.input_tokens += more.input_tokens;
        one.output_tokens += more.output_tokens;
        one.cached_tokens += more.cached_tokens;
        one.calls += more.calls;
        one.cost_micros += more.cost_micros;
    }
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}
