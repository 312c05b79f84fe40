//! Budgets: limits on spending, counted where a dispatch is decided. The estimate is reserved at dispatch,
//! settled by the receipt, and released if nothing was sent.

use serde::{Deserialize, Serialize};

use crate::{ids::WorkId, limits, refusal::Refusal};

/// The unit that is counted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    Calls,
    Tokens,
    /// Millionths of a currency's unit.
    Micros(String),
}

impl Unit {
    /// Currencies are compared without case: one counter for `USD` and `usd`.
    fn normal(&self) -> Self {
        match self {
            Unit::Micros(currency) => Unit::Micros(currency.to_ascii_lowercase()),
            Unit::Calls | Unit::Tokens => self.clone(),
        }
    }

    /// An amount in words.
    pub fn amount(&self, amount: u64) -> String {
        match self {
            Unit::Calls if amount == 1 => "1 call".to_owned(),
            Unit::Calls => format!("{amount} calls"),
            Unit::Tokens if amount == 1 => "1 token".to_owned(),
            Unit::Tokens => format!("{amount} tokens"),
            Unit::Micros(currency) => {
                let (whole, rest) = (amount / 1_000_000, amount % 1_000_000);
                let money = format!("{whole}.{rest:06}");
                format!("{} {currency}", money.trim_end_matches('0').trim_end_matches('.'))
            }
        }
    }
}

/// The account whose spending is counted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Account {
    Work(WorkId),
    Tenant,
    Tool(String),
    /// Replays that people made.
    Replays,
}

/// The key of one counter. The period is an opaque text from the configuration: the core knows no calendars.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BudgetKey {
    pub tenant: String,
    pub account: Account,
    pub unit: Unit,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub period: String,
    /// If set, only the spending of commands of this tool is counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only: Option<String>,
}

impl BudgetKey {
    /// The stored key: the same text for the same counter.
    pub fn text(&self) -> String {
        serde_json::to_string(self).expect("strings always serialise")
    }

    /// The account, unit and period, to end a sentence about an amount.
    pub fn words(&self) -> String {
        let whose = match &self.account {
            Account::Work(work) => format!("of work item {work}"),
            Account::Tenant => format!("of tenant {}", self.tenant),
            Account::Tool(tool) => format!("of tool {tool} in tenant {}", self.tenant),
            Account::Replays => format!("of replays in tenant {}", self.tenant),
        };
        let only = self.only.as_ref().map_or_else(String::new, |tool| format!(", tool {tool} only,"));
        let when = if self.period.is_empty() { "in all".to_owned() } else { format!("in {}", self.period) };
        format!("{whose}{only} {when}")
    }
}

/// The value of a counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    /// Settled amounts.
    pub spent: u64,
    /// Reserved amounts of commands that are dispatched or in doubt.
    pub reserved: u64,
}

/// The account of a limit; the rest of its key follows from the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Per {
    Work,
    Tenant,
    Tool,
}

/// A configured limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    pub per: Per,
    pub unit: Unit,
    #[serde(default)]
    pub period: String,
    pub max: u64,
    /// If set, limits and counts only the commands of this tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only: Option<String>,
}

impl Limit {
    pub fn check(&self) -> Result<(), Refusal> {
        if let Unit::Micros(currency) = &self.unit {
            limits::name("limits.unit.micros", currency)?;
        }
        if !self.period.is_empty() {
            limits::name("limits.period", &self.period)?;
        }
        self.only.iter().try_for_each(|tool| limits::name("limits.only", tool))
    }

    pub fn key(&self, tenant: &str, work: WorkId, tool: &str) -> BudgetKey {
        let account = match self.per {
            Per::Work => Account::Work(work),
            Per::Tenant => Account::Tenant,
            Per::Tool => Account::Tool(tool.to_owned()),
        };
        // A tool's own counter counts nothing else: it is the same counter with and without the filter.
        let only = self.only.clone().filter(|_| self.per != Per::Tool);
        let (unit, period) = (self.unit.normal(), self.period.clone());
        BudgetKey { tenant: tenant.to_owned(), account, unit, period, only }
    }
}

/// An amount of tokens and money. Calls are not listed: each dispatch is one call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cost {
    pub tokens: u64,
    /// In millionths of the currency's unit, by currency.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub micros: Vec<(String, u64)>,
}

impl Cost {
    pub fn is_nothing(&self) -> bool {
        *self == Cost::default()
    }

    pub fn check(&self) -> Result<(), Refusal> {
        limits::count("cost.micros", self.micros.len(), 10)?;
        self.micros.iter().try_for_each(|(currency, _)| limits::name("cost.micros", currency))
    }

    /// The larger of the two in each unit: a caller's estimate cannot undercut the tool's.
    pub fn at_least(mut self, other: &Cost) -> Self {
        self.tokens = self.tokens.max(other.tokens);
        for (currency, _) in &other.micros {
            let unit = Unit::Micros(currency.clone());
            let missing = other.of(&unit).saturating_sub(self.of(&unit));
            if missing > 0 {
                self.micros.push((currency.clone(), missing));
            }
        }
        self
    }

    /// Its amount in a unit; 0 if it does not include the unit.
    pub fn of(&self, unit: &Unit) -> u64 {
        self.named(unit).unwrap_or(0)
    }

    /// Its amount in a unit; None if it does not include the unit. Zero tokens count as not included.
    pub fn named(&self, unit: &Unit) -> Option<u64> {
        match unit {
            Unit::Calls => Some(1),
            Unit::Tokens => Some(self.tokens).filter(|tokens| *tokens > 0),
            Unit::Micros(currency) => {
                let same = |name: &str| name.eq_ignore_ascii_case(currency);
                let amounts = self.micros.iter().filter(|(name, _)| same(name)).map(|(_, amount)| *amount);
                amounts.reduce(u64::saturating_add)
            }
        }
    }
}

/// The amount that one dispatch reserved in one counter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservation {
    pub key: BudgetKey,
    pub amount: u64,
}

/// A decision's change of a counter. Several changes may apply to the same counter, so each is an increment
/// or decrement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shift {
    pub set_aside: u64,
    /// Released from the reserved amount.
    pub given_back: u64,
    pub spent: u64,
}

impl Budget {
    pub fn shift(&mut self, by: Shift) {
        self.reserved = self.reserved.saturating_add(by.set_aside).saturating_sub(by.given_back);
        self.spent = self.spent.saturating_add(by.spent);
    }

    pub fn fits(&self, amount: u64, max: u64) -> bool {
        self.spent.saturating_add(self.reserved).saturating_add(amount) <= max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_amounts_count_until_they_are_settled() {
        let mut budget = Budget { spent: 40, reserved: 50 };
        assert!(budget.fits(10, 100) && !budget.fits(11, 100));
        budget.shift(Shift { given_back: 50, spent: 20, ..Shift::default() });
        assert_eq!(budget, Budget { spent: 60, reserved: 0 });
        assert!(!budget.fits(u64::MAX, u64::MAX - 1), "no sum wraps around");
    }

    #[test]
    fn a_counter_of_every_tool_is_stored_as_it_always_was() {
        let limit = |per, only: Option<&str>| Limit {
            per,
            unit: Unit::Calls,
            period: "p".into(),
            max: 1,
            only: only.map(Into::into),
        };
        let text = |per, only| limit(per, only).key("acme", WorkId(uuid::Uuid::nil()), "x").text();
        let old = r#"{"tenant":"acme","account":"tenant","unit":"calls","period":"p"}"#;
        assert_eq!(text(Per::Tenant, None), old);
        assert_eq!(serde_json::from_str::<BudgetKey>(old).unwrap().only, None);
        assert_ne!(text(Per::Tenant, Some("x")), old);
        assert_ne!(text(Per::Work, Some("x")), text(Per::Work, None));
        assert_eq!(text(Per::Tool, Some("x")), text(Per::Tool, None));
    }

    #[test]
    fn currency_case_makes_no_second_counter() {
        let key = |currency: &str| {
            let unit = Unit::Micros(currency.to_owned());
            let limit = Limit { per: Per::Tenant, unit, period: String::new(), max: 1, only: None };
            limit.key("acme", WorkId(uuid::Uuid::nil()), "x")
        };
        assert_eq!(key("USD"), key("usd"));
    }

    #[test]
    fn a_budget_in_words() {
        let key = BudgetKey {
            tenant: "acme".into(),
            account: Account::Tenant,
            unit: Unit::Micros("usd".into()),
            period: "2026-11-15".into(),
            only: Some("pay".into()),
        };
        assert_eq!(key.words(), "of tenant acme, tool pay only, in 2026-11-15");
        for (amount, said) in
            [(50_000_000, "50 usd"), (1_250_000, "1.25 usd"), (5, "0.000005 usd"), (0, "0 usd")]
        {
            assert_eq!(key.unit.amount(amount), said);
        }
        assert_eq!((Unit::Calls.amount(1), Unit::Tokens.amount(2)), ("1 call".into(), "2 tokens".into()));
    }

    #[test]
    fn a_cost_is_counted_in_its_own_unit() {
        let cost = Cost { tokens: 7, micros: vec![("EUR".into(), 5), ("USD".into(), 9)] };
        for (unit, amount) in [
            (Unit::Calls, 1),
            (Unit::Tokens, 7),
            (Unit::Micros("USD".into()), 9),
            (Unit::Micros("usd".into()), 9),
            (Unit::Micros("X".into()), 0),
        ] {
            assert_eq!(cost.of(&unit), amount, "{unit:?}");
        }
    }
}
