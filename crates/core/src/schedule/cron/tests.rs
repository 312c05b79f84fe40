use super::{super::rfc3339, *};

const HOUR_MS: Millis = 3_600_000;

/// A zone of two offsets: `before` until the change, `after` from then on, in minutes.
struct Change {
    at: Millis,
    before: i64,
    after: i64,
}

const UTC: Change = Change { at: 0, before: 0, after: 0 };
/// Berlin, 29 March 2026: at 01:00 UTC the clocks go from 02:00 to 03:00.
const SPRING: Change = Change { at: 1_774_746_000_000, before: 60, after: 120 };
/// Berlin, 25 October 2026: at 01:00 UTC the clocks go from 03:00 to 02:00.
const AUTUMN: Change = Change { at: 1_792_890_000_000, before: 120, after: 60 };

impl Zone for Change {
    fn shows(&self, at: Millis) -> i64 {
        at.div_euclid(60_000) + if at < self.at { self.before } else { self.after }
    }

    fn moments(&self, minute: i64) -> Moments {
        let early = (minute - self.before) * 60_000;
        let late = (minute - self.after) * 60_000;
        match (early < self.at, late >= self.at) {
            (true, true) if early != late => Moments::Twice(early, late),
            (true, _) => Moments::Once(early),
            (false, true) => Moments::Once(late),
            (false, false) => Moments::Never { skipped_at: self.at },
        }
    }
}

fn upcoming(zone: &Change, cron: &str, from: Millis, count: usize) -> Vec<String> {
    let cron = Cron::parse(cron).unwrap();
    let mut at = from;
    let mut found = Vec::new();
    while found.len() < count {
        at = cron.after(zone, at).unwrap();
        found.push(rfc3339(at)[5..16].to_owned());
    }
    found
}

#[test]
fn fields_match_minutes() {
    // 2026-09-21 is a Monday, 14:13:20.
    let from = 1_790_000_000_000;
    for (cron, expected) in [
        ("* * * * *", ["09-21T14:14", "09-21T14:15", "09-21T14:16"]),
        ("*/20 * * * *", ["09-21T14:20", "09-21T14:40", "09-21T15:00"]),
        ("5/20 * * * *", ["09-21T14:25", "09-21T14:45", "09-21T15:05"]),
        ("0 7 * * *", ["09-22T07:00", "09-23T07:00", "09-24T07:00"]),
        ("30 9-17/4 * * mon-fri", ["09-21T17:30", "09-22T09:30", "09-22T13:30"]),
        ("0 0 1 jan,jul *", ["01-01T00:00", "07-01T00:00", "01-01T00:00"]),
        ("0 12 * * 0", ["09-27T12:00", "10-04T12:00", "10-11T12:00"]),
        ("0 12 * * 7", ["09-27T12:00", "10-04T12:00", "10-11T12:00"]),
        ("0 12 * * SAT-7", ["09-26T12:00", "09-27T12:00", "10-03T12:00"]),
        ("0 0 29 2 *", ["02-29T00:00", "02-29T00:00", "02-29T00:00"]),
        // Both days restricted: either may match.
        ("0 0 1 * fri", ["09-25T00:00", "10-01T00:00", "10-02T00:00"]),
        // One of them is a star with a step: both must match.
        ("0 0 */2 * fri", ["09-25T00:00", "10-09T00:00", "10-23T00:00"]),
    ] {
        assert_eq!(upcoming(&UTC, cron, from, 3), expected, "{cron}");
    }
    assert_eq!(Cron::parse(" 0  7 * * *\t").unwrap().text(), "0 7 * * *");
}

#[test]
fn a_due_time_is_not_its_own_successor() {
    let cron = Cron::parse("0 7 * * *").unwrap();
    let first = cron.after(&UTC, 0).unwrap();
    assert_eq!(first, 7 * HOUR_MS);
    assert_eq!(cron.after(&UTC, first), Some(31 * HOUR_MS));
    assert_eq!(cron.after(&UTC, first - 1), Some(first));
}

#[test]
fn a_skipped_local_time_is_late_or_does_not_occur() {
    let from = SPRING.at - 2 * HOUR_MS;
    // 02:30 does not exist on that day; the clocks are set forward at 01:00 UTC.
    assert_eq!(
        upcoming(&SPRING, "30 2 * * *", from, 3),
        ["03-29T01:00", "03-30T00:30", "03-31T00:30"],
        "by the clock"
    );
    assert_eq!(
        upcoming(&SPRING, "0,30 2 * * *", from, 2),
        ["03-29T01:00", "03-30T00:00"],
        "two of them are one"
    );
    assert_eq!(
        upcoming(&SPRING, "30 2,3 * * *", from, 3),
        ["03-29T01:00", "03-29T01:30", "03-30T00:30"],
        "and what the clocks show still comes"
    );
    assert_eq!(
        upcoming(&SPRING, "30 * * * *", from, 4),
        ["03-28T23:30", "03-29T00:30", "03-29T01:30", "03-29T02:30"],
        "by time: every hour, no more"
    );
}

#[test]
fn a_repeated_local_time_occurs_once_or_twice() {
    let from = AUTUMN.at - 2 * HOUR_MS;
    // 02:30 comes at 00:30 and at 01:30 UTC.
    assert_eq!(upcoming(&AUTUMN, "30 2 * * *", from, 2), ["10-25T00:30", "10-26T01:30"], "by the clock");
    assert_eq!(
        upcoming(&AUTUMN, "*/30 * * * *", from, 8),
        [
            "10-24T23:30",
            "10-25T00:00",
            "10-25T00:30",
            "10-25T01:00",
            "10-25T01:30",
            "10-25T02:00",
            "10-25T02:30",
            "10-25T03:00"
        ],
        "by time: every half hour"
    );
}

#[test]
fn a_wrong_expression_names_the_field_and_the_fix() {
    for (text, expected) in [
        ("", "this has 0. For example: `0 7 * * mon-fri`"),
        ("@daily", "five fields (minute, hour, day of month, month, day of week), and this has 1"),
        ("0 0 7 * * *", "this has 6"),
        ("60 * * * *", "The minute field of `cron`, `60`, is invalid: `60` is not one of 0 to 59"),
        ("0 25 * * *", "The hour field of `cron`, `25`, is invalid: `25` is not one of 0 to 23"),
        ("0 0 0 * *", "The day of month field of `cron`, `0`"),
        ("0 0 * 13 *", "`13` is not one of 1 to 12, or jan to dec. For example: `*` or `jan-mar`"),
        ("0 0 * * mond", "The day of week field of `cron`, `mond`"),
        ("*/0 * * * *", "the step `0` is not a number from 1 to 59"),
        ("0 17-9 * * *", "the range `17-9` runs backwards"),
        ("0 1,,2 * * *", "The hour field of `cron`, `1,,2`, is invalid: `` is not one of"),
        ("0 +1 * * *", "`+1` is not one of 0 to 23"),
        ("0 0 31 2 *", "never runs: no month of `2` has a day `31`"),
    ] {
        let refusal = Cron::parse(text).unwrap_err();
        assert_eq!(refusal.code, Code::Invalid);
        assert!(refusal.detail.contains(expected), "{text}: {}", refusal.detail);
    }
}
