//! The usage of attempts and commands: tokens, calls, money. Reported by the verb that ends an attempt, or by
//! a receipt, and summed on the work item.

use serde::{Deserialize, Serialize};

use crate::{
    command::budget::Unit,
    limits,
    refusal::{Code, Refusal},
};

/// Usage of one model of one source. Omitted counts are zero.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Usage {
    /// The provider, account or tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub input_tokens: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub output_tokens: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cached_tokens: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub calls: u64,
    /// In millionths of the currency's unit.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cost_micros: u64,
    /// Three capital letters, as in ISO 4217.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub currency: Option<String>,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

impl Usage {
    fn counts(&mut self) -> [&mut u64; 5] {
        let Self { input_tokens, output_tokens, cached_tokens, calls, cost_micros, .. } = self;
        [input_tokens, output_tokens, cached_tokens, calls, cost_micros]
    }

    /// Sums saturate at the largest integer that JSON represents exactly.
    fn absorb(&mut self, more: &Usage) {
        let mut more = more.clone();
        for (sum, count) in self.counts().into_iter().zip(more.counts()) {
            *sum = sum.saturating_add(*count).min(limits::SAFE_INTEGER);
        }
    }
}

pub fn check(usage: &[Usage]) -> Result<(), Refusal> {
    limits::count("usage", usage.len(), limits::USAGE)?;
    usage.iter().try_for_each(|one| {
        one.source.iter().try_for_each(|source| limits::name("usage.source", source))?;
        one.model.iter().try_for_each(|model| limits::name("usage.model", model))?;
        if one.clone().counts().iter().any(|count| **count > limits::SAFE_INTEGER) {
            return Err(refused("A count in `usage` is beyond 2^53, and JSON readers would round it."));
        }
        let sound = |currency: &String| {
            currency.len() == 3 && currency.bytes().all(|letter| letter.is_ascii_uppercase())
        };
        match &one.currency {
            Some(currency) if !sound(currency) => {
                Err(refused("`usage.currency` must be three capital letters, for example `EUR`."))
            }
            None if one.cost_micros > 0 => Err(refused(
                "`usage.cost_micros` needs its `currency`: three capital letters, for example \
                 `EUR`.",
            )),
            Some(_) | None => Ok(()),
        }
    })
}

fn refused(detail: &str) -> Refusal {
    Refusal::new(Code::Invalid, detail)
}

/// Adds usage to a sum with one entry for each source, model and currency. When there are too many entries,
/// new ones are added without source and model, so that the sum stays correct.
pub fn add(sum: &mut Vec<Usage>, more: &[Usage]) {
    for one in more {
        let mut one = one.clone();
        let same = |sum: &[Usage], one: &Usage| {
            sum.iter().position(|of| {
                (&of.source, &of.model, &of.currency) == (&one.source, &one.model, &one.currency)
            })
        };
        let mut at = same(sum, &one);
        if at.is_none() && sum.len() >= limits::USAGE_OF_WORK {
            (one.source, one.model) = (None, None);
            at = same(sum, &one);
        }
        match at {
            Some(at) => sum[at].absorb(&one),
            None => sum.push(one),
        }
    }
}

/// The usage in a unit that budgets count; None if it does not include that unit. Cached tokens are input.
pub(crate) fn amount(usage: &[Usage], unit: &Unit) -> Option<u64> {
    let amounts: Vec<u64> = match unit {
        Unit::Calls => return None,
        Unit::Tokens => usage.iter().map(|one| one.input_tokens.saturating_add(one.output_tokens)).collect(),
        Unit::Micros(currency) => {
            let same =
                |one: &&Usage| one.currency.as_ref().is_some_and(|of| of.eq_ignore_ascii_case(currency));
            usage.iter().filter(same).map(|one| one.cost_micros).collect()
        }
    };
    (!amounts.is_empty()).then(|| amounts.into_iter().fold(0, u64::saturating_add))
}

pub fn sum(usage: &[Usage]) -> Vec<Usage> {
    let mut sum = Vec::new();
    add(&mut sum, usage);
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(model: &str, input_tokens: u64) -> Usage {
        Usage { model: Some(model.to_owned()), input_tokens, ..Usage::default() }
    }

    #[test]
    fn a_sum_has_one_entry_for_each_source_model_and_currency() {
        let mut sum = Vec::new();
        add(&mut sum, &[of("a", 1), of("b", 2), of("a", 3)]);
        let paid = Usage { currency: Some("EUR".to_owned()), cost_micros: 5, ..of("a", 4) };
        add(&mut sum, std::slice::from_ref(&paid));
        assert_eq!(sum, [of("a", 4), of("b", 2), paid]);
    }

    #[test]
    fn a_sum_stays_bounded_and_exact() {
        let mut sum = Vec::new();
        for n in 0..2 * limits::USAGE_OF_WORK {
            add(&mut sum, &[of(&n.to_string(), 1)]);
        }
        assert_eq!(sum.len(), limits::USAGE_OF_WORK + 1);
        assert_eq!(sum.iter().map(|one| one.input_tokens).sum::<u64>(), 2 * limits::USAGE_OF_WORK as u64);
        add(&mut sum, &[of("0", limits::SAFE_INTEGER)]);
        assert_eq!(sum[0].input_tokens, limits::SAFE_INTEGER);
    }

    #[test]
    fn a_budget_reads_the_usage_in_its_unit() {
        let paid = Usage {
            currency: Some("EUR".to_owned()),
            cost_micros: 5,
            output_tokens: 2,
            cached_tokens: 3,
            ..of("a", 4)
        };
        let used = [paid, of("b", 1)];
        let micros = |currency: &str| Unit::Micros(currency.to_owned());
        for (unit, said) in
            [(Unit::Tokens, Some(7)), (micros("eur"), Some(5)), (micros("usd"), None), (Unit::Calls, None)]
        {
            assert_eq!(amount(&used, &unit), said, "{unit:?}");
        }
        assert_eq!(amount(&[], &Unit::Tokens), None);
    }

    #[test]
    fn usage_that_cannot_be_summed_is_refused() {
        let many = vec![of("a", 1); limits::USAGE + 1];
        let euro = |currency: &str| Usage { currency: Some(currency.to_owned()), ..Usage::default() };
        let free = Usage { cost_micros: 1, ..Usage::default() };
        for bad in [many, vec![of("a", (1 << 53) + 1)], vec![of("", 1)], vec![euro("eur")], vec![free]] {
            assert_eq!(check(&bad).unwrap_err().code, Code::Invalid, "{bad:?}");
        }
        check(&[of("a", 1 << 53), euro("EUR"), Usage::default()]).unwrap();
    }
}
