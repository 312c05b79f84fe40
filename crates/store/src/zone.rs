//! The time zone table for the core's calendar. It is built in, so that it is the same wherever this version
//! runs: replicas with different tables would disagree about due times.

use jiff::{
    Timestamp,
    civil::DateTime,
    tz::{AmbiguousOffset, Offset, TimeZone, TimeZoneDatabase},
};
use tenure_core::{
    Code, Millis, Refusal,
    schedule::{Moments, Timing, Zone},
};

/// A zone by its IANA name.
pub(crate) struct Named(TimeZone);

impl Named {
    pub fn get(name: &str) -> Result<Self, Refusal> {
        TimeZoneDatabase::bundled().get(name).map(Self).map_err(|_| {
            Refusal::new(
                Code::Invalid,
                format!("`zone` is `{name}`, which is no zone of the IANA's list. Write, for one, `Europe/Berlin` or `UTC`."),
            )
        })
    }

    /// The zone of a timing.
    pub fn of(timing: &Timing) -> Result<Self, Refusal> {
        match timing {
            Timing::Cron { zone, .. } => Self::get(zone),
            Timing::EveryMs(_) => Ok(Self(TimeZone::UTC)),
        }
    }

    /// The canonical spelling.
    pub fn name(&self) -> &str {
        self.0.iana_name().unwrap_or("UTC")
    }
}

impl Zone for Named {
    fn shows(&self, at: Millis) -> i64 {
        let offset = self.0.to_offset(moment(at));
        (at + Millis::from(offset.seconds()) * 1_000).div_euclid(60_000)
    }

    fn moments(&self, minute: i64) -> Moments {
        let shown = Offset::UTC.to_datetime(moment(minute * 60_000));
        match self.0.to_ambiguous_timestamp(shown).offset() {
            AmbiguousOffset::Unambiguous { offset } => Moments::Once(when(shown, offset)),
            AmbiguousOffset::Fold { before, after } => {
                Moments::Twice(when(shown, before), when(shown, after))
            }
            AmbiguousOffset::Gap { before, .. } => {
                // With the old offset the moment is at or after the change.
                let later = moment(when(shown, before) + 1_000);
                let change = self.0.preceding(later).next();
                let skipped_at = change.map_or(later, |change| change.timestamp());
                Moments::Never { skipped_at: skipped_at.as_millisecond() }
            }
        }
    }
}

fn when(shown: DateTime, offset: Offset) -> Millis {
    offset.to_timestamp(shown).map_or(Millis::MAX, Timestamp::as_millisecond)
}

/// Later moments count as the end of the year 9999.
fn moment(at: Millis) -> Timestamp {
    let (first, last) = (Timestamp::MIN.as_millisecond(), Timestamp::MAX.as_millisecond());
    Timestamp::from_millisecond(at.clamp(first + 1, last)).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use tenure_core::schedule::{Cron, rfc3339};

    use super::*;

    fn upcoming(zone: &str, cron: &str, from: &str, count: usize) -> Vec<String> {
        let (zone, cron) = (Named::get(zone).unwrap(), Cron::parse(cron).unwrap());
        let mut at = from.parse::<Timestamp>().unwrap().as_millisecond();
        let mut found = Vec::new();
        while found.len() < count {
            at = cron.after(&zone, at).unwrap();
            found.push(rfc3339(at)[..16].to_owned());
        }
        found
    }

    #[test]
    fn the_clocks_of_the_world() {
        let winter = "2026-03-28T12:00:00Z";
        assert_eq!(
            upcoming("Europe/Berlin", "30 2 * * *", winter, 2),
            ["2026-03-29T01:00", "2026-03-30T00:30"],
            "02:30 is skipped: when the clocks are set forward"
        );
        assert_eq!(
            upcoming("Europe/Berlin", "0 2 * * *", winter, 2),
            ["2026-03-29T01:00", "2026-03-30T00:00"],
            "the first minute of what is skipped"
        );
        assert_eq!(
            upcoming("europe/berlin", "30 2 * * *", "2026-10-24T12:00:00Z", 2),
            ["2026-10-25T00:30", "2026-10-26T01:30"],
            "02:30 comes twice: the first of them"
        );
        assert_eq!(
            upcoming("America/New_York", "0 * * * *", "2026-11-01T04:30:00Z", 3),
            ["2026-11-01T05:00", "2026-11-01T06:00", "2026-11-01T07:00"],
            "every hour"
        );
        assert_eq!(
            upcoming("Australia/Lord_Howe", "15 2 * * *", "2026-10-03T12:00:00Z", 2),
            ["2026-10-03T15:30", "2026-10-04T15:15"],
            "half an hour is skipped there"
        );
        assert_eq!(
            upcoming("Asia/Kolkata", "0 9 * * mon-fri", "2026-09-18T12:00:00Z", 2),
            ["2026-09-21T03:30", "2026-09-22T03:30"]
        );
        assert_eq!(Named::get("europe/berlin").unwrap().name(), "Europe/Berlin");
    }

    #[test]
    fn an_unknown_zone_is_named() {
        for wrong in ["Berlin", "", "+02:00", "../etc/passwd"] {
            let refusal = Named::get(wrong).err().expect("no zone");
            assert!(refusal.detail.contains(&format!("`{wrong}`")), "{}", refusal.detail);
        }
    }
}
