//! Clocks are given, never reached for: tests move time, and a sweeper sees when time moves oddly.

use std::{
    sync::atomic::{AtomicI64, Ordering},
    time::{SystemTime, UNIX_EPOCH},
};

use rustix::time::{ClockId, clock_gettime};

use tenure_core::Millis;

/// Two clocks: the wall for dates, the monotonic one to see whether the wall can be trusted.
pub trait Clock: Send + Sync + 'static {
    /// Unix time in milliseconds.
    fn wall(&self) -> Millis;
    /// Milliseconds since some fixed moment; never goes back.
    fn monotonic(&self) -> Millis;
}

/// The machine's clocks.
#[derive(Debug, Default)]
pub struct SystemClock;

/// The monotonic clock that goes on while the machine sleeps: otherwise waking up would look like a jump of the wall.
#[cfg(target_os = "linux")]
const MONOTONIC: ClockId = ClockId::Boottime;
#[cfg(not(target_os = "linux"))]
const MONOTONIC: ClockId = ClockId::Monotonic;

impl Clock for SystemClock {
    fn wall(&self) -> Millis {
        // A clock before 1970 is a clock that is not set: zero keeps every date in the future.
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as Millis)
    }

    fn monotonic(&self) -> Millis {
        let time = clock_gettime(MONOTONIC);
        time.tv_sec * 1_000 + time.tv_nsec / 1_000_000
    }
}

/// A clock that moves when told to.
#[derive(Debug)]
pub struct ManualClock {
    wall: AtomicI64,
    monotonic: AtomicI64,
}

impl ManualClock {
    pub fn new(wall: Millis) -> Self {
        Self { wall: AtomicI64::new(wall), monotonic: AtomicI64::new(0) }
    }

    /// Time passes.
    pub fn advance(&self, ms: Millis) {
        self.wall.fetch_add(ms, Ordering::SeqCst);
        self.monotonic.fetch_add(ms, Ordering::SeqCst);
    }

    /// Somebody sets the wall clock.
    pub fn jump(&self, ms: Millis) {
        self.wall.fetch_add(ms, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn wall(&self) -> Millis {
        self.wall.load(Ordering::SeqCst)
    }

    fn monotonic(&self) -> Millis {
        self.monotonic.load(Ordering::SeqCst)
    }
}
