//! Durations in words, by one rule for every sentence.

use crate::Millis;

const MINUTE: Millis = 60_000;
const HOUR: Millis = 60 * MINUTE;
const DAY: Millis = 24 * HOUR;

/// A whole number of the largest unit that fits. A unit that lacks less than a tenth counts as full, so that
/// a deadline reads the same right after it was set.
pub fn span(ms: Millis) -> String {
    let whole = |unit: Millis| (ms.max(0) + unit / 10) / unit;
    match (whole(1_000), whole(MINUTE), whole(HOUR)) {
        (seconds @ 0..60, ..) => format!("{seconds} s"),
        (_, minutes @ 0..60, _) => format!("{minutes} m"),
        (_, _, hours @ 0..48) => format!("{hours} h"),
        _ => format!("{} d", whole(DAY)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_written_in_their_largest_unit() {
        for (ms, said) in [
            (-5, "0 s"),
            (499, "0 s"),
            (59_499, "59 s"),
            (59_999, "1 m"),
            (60_000, "1 m"),
            (3_593_999, "59 m"),
            (3_599_999, "1 h"),
            (91 * MINUTE, "1 h"),
            (24 * HOUR - 1, "24 h"),
            (24 * HOUR - 5_000, "24 h"),
            (48 * HOUR - 1, "2 d"),
            (7 * DAY - 60_000, "7 d"),
        ] {
            assert_eq!(span(ms), said);
        }
    }
}
