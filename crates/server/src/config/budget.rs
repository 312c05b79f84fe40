//! Budgets as configured, and as the limits that the ledger checks at a given time: the ledger itself has no
//! calendar.

use jiff::{Timestamp, tz::TimeZone};
use serde::Deserialize;
use tenure_core::{
    Millis,
    command::budget::{Limit, Per, Unit},
    limits,
};

/// A limit on spending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Budget {
    pub per: Per,
    pub unit: Unit,
    pub period: BudgetPeriod,
    pub max: u64,
    /// Counts only commands of this tool.
    pub tool: Option<String>,
}

/// The period after which counting starts again, in UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BudgetPeriod {
    Hour,
    Day,
    Month,
    /// Never.
    #[default]
    Total,
}

/// `"calls"`, `"tokens"`, or `"micros:usd"`: millionths of a currency.
#[derive(Debug, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct BudgetUnit(pub Unit);

impl TryFrom<String> for BudgetUnit {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match (text.as_str(), text.strip_prefix("micros:")) {
            ("calls", _) => Ok(BudgetUnit(Unit::Calls)),
            ("tokens", _) => Ok(BudgetUnit(Unit::Tokens)),
            (_, Some(currency)) if limits::name("unit", currency).is_ok() => {
                Ok(BudgetUnit(Unit::Micros(currency.to_ascii_lowercase())))
            }
            _ => Err(format!(
                "`{text}` is not a unit: write \"calls\", \"tokens\", or \"micros:usd\" for money"
            )),
        }
    }
}

impl BudgetPeriod {
    /// The name of the period that contains this time.
    fn name(self, now: Millis) -> String {
        let format = match self {
            BudgetPeriod::Hour => "%Y-%m-%dT%H",
            BudgetPeriod::Day => "%Y-%m-%d",
            BudgetPeriod::Month => "%Y-%m",
            BudgetPeriod::Total => return String::new(),
        };
        let now = Timestamp::from_millisecond(now).unwrap_or(Timestamp::UNIX_EPOCH);
        now.to_zoned(TimeZone::UTC).strftime(format).to_string()
    }
}

/// The limits that a command of this tool is checked against now.
pub fn limits_of(budgets: &[Budget], tool: &str, now: Millis) -> Vec<Limit> {
    let apply = budgets.iter().filter(|budget| budget.tool.as_deref().is_none_or(|only| only == tool));
    apply
        .map(|budget| Limit {
            per: budget.per,
            unit: budget.unit.clone(),
            period: budget.period.name(now),
            max: budget.max,
            only: budget.tool.clone(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_is_named_by_its_beginning() {
        // 2026-11-15T23:59:59.999Z, and the millisecond after.
        let (before, after) = (1_794_787_199_999, 1_794_787_200_000);
        for (period, names) in [
            (BudgetPeriod::Hour, ["2026-11-15T23", "2026-11-16T00"]),
            (BudgetPeriod::Day, ["2026-11-15", "2026-11-16"]),
            (BudgetPeriod::Month, ["2026-11", "2026-11"]),
            (BudgetPeriod::Total, ["", ""]),
        ] {
            assert_eq!([before, after].map(|now| period.name(now)), names);
        }
    }

    #[test]
    fn a_budget_of_one_tool_bounds_no_other() {
        let budget = |tool: Option<&str>| Budget {
            per: Per::Tenant,
            unit: Unit::Calls,
            period: BudgetPeriod::Total,
            max: 3,
            tool: tool.map(str::to_owned),
        };
        let budgets = [budget(None), budget(Some("pay"))];
        assert_eq!((limits_of(&budgets, "pay", 0).len(), limits_of(&budgets, "mail", 0).len()), (2, 1));
    }
}
