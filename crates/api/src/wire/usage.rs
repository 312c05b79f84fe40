//! What was used: tokens, calls, money.

use serde::{Deserialize, Serialize};

/// What was used of one model of one source. What is left out is zero; no count is beyond 2^53.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Usage {
    /// Who was asked: a provider, an account, a tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The model that was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Tokens that were sent.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub input_tokens: u64,
    /// Tokens that came back.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub output_tokens: u64,
    /// Those of the input that were read from a cache.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cached_tokens: u64,
    /// How often it was asked.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub calls: u64,
    /// Millionths of the currency's unit. Needs `currency`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cost_micros: u64,
    /// Three capital letters, as in ISO 4217.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub currency: Option<String>,
}

/// Entries that one call carries.
pub const USAGE_MAX: usize = 50;

impl Usage {
    /// Adds to a sum that one call can carry: one entry for each source, model and currency, and where there are
    /// too many, one without source and model.
    pub fn add(sum: &mut Vec<Usage>, more: &Usage) {
        let mut more = more.clone();
        let same =
            |a: &Usage, b: &Usage| (&a.source, &a.model, &a.currency) == (&b.source, &b.model, &b.currency);
        // One place is kept for what goes without.
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
