//! The server's clock, estimated from the `Date` headers of its responses. Ages and deadlines in responses
//! are relative to that clock.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::{SystemTime, UNIX_EPOCH},
};

use jiff::fmt::rfc2822;

use crate::wire::Timestamp;

/// A `Date` header is rounded down to the second, and a moment old when it arrives.
const DATE_ERROR_MS: i64 = 2_000;
const MIDDLE_MS: i64 = 500;

/// This machine's clock, corrected by the `Date` headers of responses. Uncorrected before the first response.
#[derive(Clone, Debug, Default)]
pub struct ServerClock {
    /// How far the server's clock is ahead, in milliseconds.
    offset: Arc<AtomicI64>,
}

impl ServerClock {
    /// The time by the server's clock.
    pub fn now(&self) -> Timestamp {
        Timestamp(here().saturating_add(self.offset.load(Ordering::Relaxed)))
    }

    /// Takes the `Date` header of a response that has just arrived.
    pub(super) fn observe(&self, date: &str) {
        if let Ok(date) = rfc2822::DateTimeParser::new().parse_timestamp(date) {
            let offset = self.offset.load(Ordering::Relaxed);
            self.offset.store(corrected(offset, here(), date.as_millisecond()), Ordering::Relaxed);
        }
    }
}

/// A correction that is consistent with the date is kept: it may be exact, and changing it with every
/// response would make countdowns jump.
fn corrected(offset: i64, here: i64, date: i64) -> i64 {
    let fits = (date..date + DATE_ERROR_MS).contains(&here.saturating_add(offset));
    if fits { offset } else { date + MIDDLE_MS - here }
}

fn here() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_that_agree_are_left_alone_and_others_are_corrected_once() {
        assert_eq!(corrected(0, 10_700, 10_000), 0);
        let offset = corrected(0, 10_700, 3_610_000);
        assert_eq!(10_700 + offset, 3_610_500);
        for (here, date) in [(10_900, 3_610_000), (11_400, 3_611_000), (12_100, 3_611_000)] {
            assert_eq!(corrected(offset, here, date), offset, "{here}");
        }
        assert_eq!(10_700 + corrected(offset, 10_700, 10_000), 10_500, "the server's clock was set back");
    }

    #[test]
    fn a_date_is_read_as_http_writes_it() {
        let clock = ServerClock::default();
        clock.observe("nonsense");
        assert_eq!(clock.offset.load(Ordering::Relaxed), 0);
        clock.observe("Sat, 31 Jan 2026 08:15:00 GMT");
        let off = clock.now().0 - 1_769_847_300_000;
        assert!((500..2_500).contains(&off), "{off}");
    }
}
