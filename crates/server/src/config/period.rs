//! Durations as people write them: a whole number and a unit.

use std::time::Duration;

use serde::Deserialize;

/// `"250ms"`, `"45s"`, `"5m"`, `"2h"`, `"7d"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Period(pub Duration);

impl Period {
    pub fn ms(self) -> u64 {
        u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX)
    }
}

impl TryFrom<String> for Period {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        period(&text).map(Period)
    }
}

/// A duration as people write it: `250ms`, `45s`, `5m`, `2h`, `7d`.
pub fn period(text: &str) -> Result<Duration, String> {
    let bad =
        || format!("`{text}` is not a duration: write a whole number and ms, s, m, h or d, like \"45s\"");
    let unit_at = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(bad)?;
    let (number, unit) = text.split_at(unit_at);
    let ms = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(bad()),
    };
    let number: u64 = number.parse().map_err(|_| bad())?;
    number.checked_mul(ms).map(Duration::from_millis).ok_or_else(bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_and_a_unit_and_nothing_else() {
        assert_eq!(period("7d"), Ok(Duration::from_secs(7 * 86_400)));
        let read = |text: &str| Period::try_from(text.to_owned()).map(Period::ms);
        assert_eq!(read("250ms"), Ok(250));
        assert_eq!(read("45s"), Ok(45_000));
        assert_eq!(read("2h"), Ok(7_200_000));
        for bad in ["", "45", "s", "1.5s", "-1s", "1 s", "1w", "99999999999999999999d"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
