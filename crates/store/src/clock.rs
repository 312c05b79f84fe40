//! Clocks are injected: tests control the time, and the sweeper notices when a clock jumps.

use std::{
    sync::atomic::{AtomicI64, Ordering},
    time::{SystemTime, UNIX_EPOCH},
};

use rustix::time::{ClockId, clock_gettime};

use tenure_core::Millis;

/// Two clocks: the wall clock for dates, and a monotonic clock to detect jumps of the wall clock.
pub trait Clock: Send + Sync + 'static {
    /// Unix time in milliseconds.
    fn wall(&self) -> Millis;
    /// Milliseconds since an arbitrary fixed moment; never decreases.
    fn monotonic(&self) -> Millis;
}

/// The clocks of this machine.
#[derive(Debug, Default)]
pub struct SystemClock;

/// The monotonic clock that also counts while the machine is suspended: otherwise a resume would look like a
/// jump of the wall clock.
#[cfg(target_os = "linux")]
const MONOTONIC: ClockId = ClockId::Boottime;
#[cfg(not(target_os = "linux"))]
const MONOTONIC: ClockId = ClockId::Monotonic;

impl Clock for SystemClock {
    fn wall(&self) -> Millis {
        // A clock before 1970 is not set. With zero, every date is in the future.
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as Millis)
    }

    fn monotonic(&self) -> Millis {
        let time = clock_gettime(MONOTONIC);
        time.tv_sec * 1_000 + time.tv_nsec / 1_000_000
    }
}

/// A clock for tests.
#[derive(Debug)]
pub struct ManualClock {
    wall: AtomicI64,
    monotonic: AtomicI64,
}

impl ManualClock {
    /// A clock that shows this time until it is moved.
    pub fn new(wall: Millis) -> Self {
        Self { wall: AtomicI64::new(wall), monotonic: AtomicI64::new(0) }
    }

    /// Advances both clocks.
    pub fn advance(&self, ms: Millis) {
        self.wall.fetch_add(ms, Ordering::SeqCst);
        self.monotonic.fetch_add(ms, Ordering::SeqCst);
    }

    /// Sets the wall clock only.
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
