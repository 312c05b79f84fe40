//! Days and dates: arithmetic of the Gregorian calendar.

use crate::Millis;

const DAY_MS: Millis = 24 * 3_600_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Date {
    pub year: i64,
    pub month: u8,
    pub day: u8,
}

/// The date of a day, counted from 1 January 1970. Years begin in March here, so that a leap day is their
/// last day.
pub(super) fn date(day: i64) -> Date {
    let shifted = day + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    Date { year, month: month as u8, day: day as u8 }
}

/// Sunday is 0.
pub(super) fn weekday(day: i64) -> i64 {
    (day + 4).rem_euclid(7)
}

/// A timestamp as RFC 3339 writes it: UTC, to the millisecond.
pub fn rfc3339(at: Millis) -> String {
    let Date { year, month, day } = date(at.div_euclid(DAY_MS));
    let ms = at.rem_euclid(DAY_MS);
    let (hour, minute, second) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1_000 % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", ms % 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_and_weekdays_of_days() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(rfc3339(951_782_399_999), "2000-02-28T23:59:59.999Z");
        assert_eq!(rfc3339(951_782_400_000), "2000-02-29T00:00:00.000Z");
        assert_eq!(rfc3339(1_790_000_000_000), "2026-09-21T14:13:20.000Z");
        assert_eq!(rfc3339(-1), "1969-12-31T23:59:59.999Z");
        assert_eq!((weekday(0), weekday(3), weekday(-1)), (4, 0, 3));
        let mut last = date(-1_000);
        for day in -999..60_000 {
            let date = date(day);
            let follows = (date.year, date.month, date.day) > (last.year, last.month, last.day);
            assert!(follows && (date.day == 1 || date.day == last.day + 1), "{last:?} {date:?}");
            last = date;
        }
    }
}
