//! The ledger's time: a clock without jumps, so that a duration is the time that really passed.
//!
//! A jump is detected by comparison with the monotonic clock. The ledger's time then continues as if the jump
//! had not happened, with an offset to the clock that shrinks slowly: until it is zero, durations are off by
//! at most a sixteenth.

use std::{
    fmt,
    str::FromStr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tenure_core::Millis;

use crate::{Clock, Error, SystemClock};

/// Smaller steps of this machine's clock are followed.
const STEP_MS: Millis = 1_000;
/// The same for a clock that several processes follow: longer than they need to exchange readings.
const JUMP_MS: Millis = 10_000;
/// A process that opens an unused ledger drops a larger stored offset: otherwise a clock that was wrong once
/// would have an effect for years.
const LONGEST_MS: Millis = 24 * 3_600_000;
/// If a process has the ledger open, the shared clock was read within this time.
const ALIVE_MS: Millis = 60_000;
/// The offset shrinks by this fraction of the elapsed time.
const SLEW: Millis = 16;
/// A reading that took longer is too imprecise for a comparison.
const SHARP_MS: Millis = 1_000;

/// Is added to the clock: `ms` when the clock showed `since`, and shrinking from then on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Offset {
    ms: Millis,
    since: Millis,
}

impl Offset {
    pub fn at(self, clock: Millis) -> Millis {
        let slewed = (clock - self.since).max(0) / SLEW;
        self.ms.signum() * (self.ms.abs() - slewed).max(0)
    }

    /// The offset with which the ledger's time continues when the clock shows `now` instead of `before`.
    fn over(self, before: Millis, now: Millis) -> Self {
        let ms = before + self.at(before) - now;
        tracing::error!(
            jump_ms = now - before,
            offset_ms = ms,
            "the clock jumped; the ledger's time continues without the jump"
        );
        Self { ms, since: now }
    }
}

/// A clock reading that was taken between two readings of the monotonic clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    pub clock: Millis,
    pub from: Millis,
    pub to: Millis,
}

/// An offset as processes share it, with the clock's value at the last reading of any of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shared {
    pub offset: Offset,
    pub seen: Millis,
}

impl Shared {
    /// The form in which the offset is stored for later processes on the same machine.
    #[cfg(feature = "sqlite")]
    pub fn of(offset: Offset) -> Self {
        Self { offset, seen: offset.since }
    }

    /// The state with which the first process opens the ledger when the clock shows `now`.
    pub fn taken_up(self, now: Millis) -> Self {
        let unseen = now - self.seen;
        let far = self.offset.at(now).abs() > LONGEST_MS || unseen < -LONGEST_MS;
        if !far || unseen.abs() <= ALIVE_MS {
            return self;
        }
        tracing::warn!(
            offset_ms = self.offset.at(now),
            unseen_ms = unseen,
            "the ledger's time was off by more than a day and follows the clock again"
        );
        Self { offset: Offset::default(), seen: now }
    }
}

impl fmt::Display for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.offset.ms, self.offset.since, self.seen)
    }
}

impl FromStr for Shared {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let numbers: Vec<Millis> = text.split(' ').map_while(|number| number.parse().ok()).collect();
        match numbers[..] {
            [ms, since, seen] => Ok(Self { offset: Offset { ms, since }, seen }),
            _ => Err(Error::Corrupt(format!("the ledger's clock is stored as `{text}`"))),
        }
    }
}

/// Follows one clock.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Follower {
    last: Option<Reading>,
    pub offset: Offset,
    /// The number of jumps, compensated or followed.
    jumps: u64,
}

impl Follower {
    /// The expected value of the clock: minimum and maximum.
    fn expected(&self, reading: Reading) -> Option<(Millis, Millis)> {
        let last = self.last?;
        Some((last.clock + (reading.from - last.to), last.clock + (reading.to - last.from)))
    }

    /// The expected value of a shared clock, if it differs.
    pub fn jumped(&self, reading: Reading) -> Option<Millis> {
        self.off(reading, JUMP_MS)
    }

    /// The expected value of the clock, if it differs by more than these steps.
    fn off(&self, reading: Reading, by: Millis) -> Option<Millis> {
        let (least, most) = self.expected(reading)?;
        if reading.clock > most + by {
            return Some(most);
        }
        (reading.clock < least - by).then_some(least)
    }

    /// The number of jumps, and the difference between the ledger's time and the clock at the last reading.
    pub fn told(&self) -> (u64, Millis) {
        (self.jumps, self.last.map_or(0, |last| self.offset.at(last.clock)))
    }

    /// The ledger's time at the last reading.
    #[cfg(feature = "postgres")]
    pub fn last(&self) -> Millis {
        self.last.map_or(0, |last| last.clock + self.offset.at(last.clock))
    }

    /// The ledger's time at a reading without a jump.
    pub fn take(&mut self, reading: Reading) -> Millis {
        if self.last.is_none() || reading.to - reading.from <= SHARP_MS {
            self.last = Some(reading);
        }
        reading.clock + self.offset.at(reading.clock)
    }

    /// The ledger's time, if no other process follows this clock.
    pub fn settle(&mut self, reading: Reading) -> Millis {
        if let Some(before) = self.off(reading, STEP_MS) {
            self.offset = self.offset.over(before, reading.clock);
            self.jumps += 1;
            self.last = None;
        }
        self.take(reading)
    }

    /// The state that processes with a common clock share after this reading. A jump counts only if no
    /// process has read the clock since: otherwise another process has compensated it already, or it was this
    /// process that was suspended.
    pub fn agree(&mut self, shared: Option<Shared>, reading: Reading) -> Shared {
        let clock = reading.clock;
        let mut agreed = shared.unwrap_or(Shared { offset: self.offset, seen: clock });
        if self.last.is_none() {
            agreed = agreed.taken_up(clock);
        }
        let own = self.jumped(reading);
        let before = match own {
            Some(before) if clock > before => (agreed.seen <= before + JUMP_MS).then_some(before),
            own => (clock < agreed.seen - JUMP_MS).then(|| own.unwrap_or(agreed.seen).max(agreed.seen)),
        };
        if let Some(before) = before {
            agreed.offset = agreed.offset.over(before, clock);
        }
        self.jumps += u64::from(own.is_some());
        self.offset = agreed.offset;
        self.last = None;
        self.take(reading);
        agreed.seen = clock;
        agreed
    }
}

/// The clock of this machine without its jumps.
pub(crate) struct SteadyClock {
    inner: Arc<dyn Clock>,
    follower: Mutex<Follower>,
}

impl SteadyClock {
    pub fn new(inner: Arc<dyn Clock>) -> Self {
        Self { inner, follower: Mutex::default() }
    }

    /// The injected clock, or that of the machine.
    pub fn of(given: Option<&Arc<dyn Clock>>) -> Self {
        Self::new(given.cloned().unwrap_or_else(|| Arc::new(SystemClock)))
    }

    fn follower(&self) -> MutexGuard<'_, Follower> {
        self.follower.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn told(&self) -> (u64, Millis) {
        self.follower().told()
    }

    #[cfg(feature = "sqlite")]
    pub fn offset(&self) -> Offset {
        self.follower().offset
    }

    /// Continues with the offset that is stored in the file. `in_use`: other processes may have it open and
    /// use that offset.
    #[cfg(feature = "sqlite")]
    pub fn take_up(&self, stored: Shared, in_use: bool) {
        let taken = if in_use { stored } else { stored.taken_up(self.inner.wall()) };
        self.follower().offset = taken.offset;
    }

    fn reading(&self) -> Reading {
        let from = self.inner.monotonic();
        Reading { clock: self.inner.wall(), from, to: self.inner.monotonic() }
    }
}

impl Clock for SteadyClock {
    fn wall(&self) -> Millis {
        let mut follower = self.follower();
        follower.settle(self.reading())
    }

    fn monotonic(&self) -> Millis {
        self.inner.monotonic()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Millis = 3_600_000;

    fn at(clock: Millis, monotonic: Millis) -> Reading {
        Reading { clock, from: monotonic, to: monotonic }
    }

    #[test]
    fn a_jump_is_taken_out_and_comes_back_slowly() {
        for jump in [2 * HOUR, -2 * HOUR] {
            let mut follower = Follower::default();
            assert_eq!(follower.settle(at(100 * HOUR, 0)), 100 * HOUR);
            assert_eq!(follower.settle(at(100 * HOUR + jump + 1_000, 1_000)), 100 * HOUR + 1_000);
            let mut last = 0;
            for hour in 1..40 {
                let time = follower.settle(at(100 * HOUR + jump + hour * HOUR, hour * HOUR));
                assert!(time > last && (time - last - HOUR).abs() * 15 <= HOUR || last == 0, "{hour}");
                last = time;
            }
            assert_eq!(last, 100 * HOUR + jump + 39 * HOUR, "32 hours later it shows what the clock shows");
            assert_eq!(follower.jumps, 1);
        }
    }

    #[test]
    fn only_small_steps_are_followed() {
        for jump in [1_000, -1_000] {
            let mut follower = Follower::default();
            follower.settle(at(100 * HOUR, 0));
            assert_eq!(follower.settle(at(100 * HOUR + jump, 0)), 100 * HOUR + jump);
        }
    }

    /// A running process knows how much time has passed, however far the clock was set. The limit of a day
    /// applies only when a ledger is opened.
    #[test]
    fn jumps_of_days_and_their_sums_are_taken_out_while_a_process_lives() {
        for jumps in [vec![720 * HOUR], vec![-720 * HOUR], vec![10 * HOUR; 3], vec![9_000, 9_000]] {
            let mut follower = Follower::default();
            follower.settle(at(1_000 * HOUR, 0));
            let mut clock = 1_000 * HOUR;
            for jump in jumps {
                clock += jump;
                assert_eq!(follower.settle(at(clock, 0)), 1_000 * HOUR);
            }
        }
    }

    #[test]
    fn an_offset_of_more_than_a_day_is_dropped_by_the_first_to_open_the_ledger() {
        let far = Shared { offset: Offset { ms: -720 * HOUR, since: 1_000 * HOUR }, seen: 1_001 * HOUR };
        assert_eq!(far.taken_up(1_002 * HOUR).offset, Offset::default());
        assert_eq!(far.taken_up(1_001 * HOUR + 5_000), far, "somebody has it open");
        let near = Shared { offset: Offset { ms: -2 * HOUR, since: 1_000 * HOUR }, seen: 1_001 * HOUR };
        assert_eq!(near.taken_up(1_002 * HOUR), near);
        let ahead = Shared { seen: 1_100 * HOUR, ..near };
        assert_eq!(ahead.taken_up(1_002 * HOUR).offset, Offset::default(), "the clock went back meanwhile");
    }

    #[test]
    fn an_answer_that_took_long_is_no_jump() {
        let mut follower = Follower::default();
        follower.settle(Reading { clock: 100 * HOUR, from: 0, to: 20_000 });
        assert_eq!(follower.jumped(at(100 * HOUR + 1_000, 20_000)), None, "read at the end");
        assert_eq!(follower.jumped(at(100 * HOUR + 20_000, 20_000)), None, "read at the beginning");
        assert_eq!(follower.jumped(at(100 * HOUR + 31_000, 20_000)), Some(100 * HOUR + 20_000));
    }

    #[test]
    fn the_first_to_see_a_jump_takes_it_out_for_all() {
        let (mut one, mut other) = (Follower::default(), Follower::default());
        let shared = one.agree(None, at(100 * HOUR, 0));
        let shared = other.agree(Some(shared), at(100 * HOUR + 1, 1));
        let shared = one.agree(Some(shared), at(102 * HOUR + 2, 2));
        assert_eq!(102 * HOUR + shared.offset.at(102 * HOUR + 2), 100 * HOUR);
        let agreed = other.agree(Some(shared), at(102 * HOUR + 7, 7));
        assert_eq!(agreed.offset, shared.offset, "it was taken out already");
        let back = other.agree(Some(agreed), at(100 * HOUR + 12, 12));
        assert_eq!(back.offset.at(100 * HOUR + 12), 0, "and back");
        assert_eq!(one.agree(Some(back), at(100 * HOUR + 22, 22)).offset, back.offset);
    }

    #[test]
    fn a_process_that_stood_still_changes_nothing_for_the_others() {
        let (mut one, mut other) = (Follower::default(), Follower::default());
        let shared = one.agree(None, at(100 * HOUR, 0));
        let shared = other.agree(Some(shared), at(101 * HOUR, HOUR));
        let agreed = one.agree(Some(shared), at(101 * HOUR + 5, 5));
        assert_eq!(agreed.offset, Offset::default(), "its own monotonic clock had stopped");
        let newcomer = Follower::default().agree(Some(agreed), at(50 * HOUR + 86_400_000, 0));
        assert_eq!(
            newcomer.offset.at(74 * HOUR),
            Offset::default().at(0),
            "more than a day back is followed"
        );
        let newcomer = Follower::default().agree(Some(agreed), at(100 * HOUR, 0));
        assert_eq!(100 * HOUR + newcomer.offset.at(100 * HOUR), 101 * HOUR + 5, "time never goes back");
    }

    #[test]
    fn the_shared_state_survives_a_round_trip() {
        let shared = Shared { offset: Offset { ms: -7, since: 5 }, seen: 9 };
        assert_eq!(shared.to_string().parse::<Shared>().unwrap(), shared);
        assert!("1 2".parse::<Shared>().is_err());
    }
}
