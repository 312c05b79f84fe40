//! The server's clock without its jumps. All processes of a ledger agree on it.
//!
//! The offset is stored in `meta`, with the clock's value at the last check by any process. The first process that
//! notices a jump changes the offset; the others find it changed. Between a jump and this agreement nothing is decided.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicI64, Ordering::Relaxed},
};

use tenure_core::Millis;

use super::{
    connection::{PgConnection, params},
    fault::Fault,
    row::get,
};
use crate::{
    Clock, SystemClock,
    steady::{Follower, Reading, Shared as Agreed, SteadyClock},
};

const CLOCK: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint, \
     (SELECT value FROM meta WHERE key = 'clock')";
const AGREE: &str = "UPDATE meta SET value = $1::text WHERE key = 'clock' AND value = $2::text RETURNING key";

/// How often a process writes down the clock's value: more often than the shortest jump that is recognised.
const BEAT_MS: Millis = 4_000;
/// How often another process may be faster before this one gives up.
const TRIES: usize = 8;
/// Not agreed yet.
const NEVER: Millis = Millis::MIN;

pub(super) struct Time {
    /// The clock given with the options of the ledger, instead of the server's.
    given: Option<SteadyClock>,
    own: SystemClock,
    follower: Mutex<Follower>,
    /// When this process last agreed with the others, by its own monotonic clock.
    agreed: AtomicI64,
}

impl Time {
    pub fn new(given: Option<Arc<dyn Clock>>) -> Self {
        Self {
            given: given.map(SteadyClock::new),
            own: SystemClock,
            follower: Mutex::default(),
            agreed: AtomicI64::new(NEVER),
        }
    }

    fn follower(&self) -> MutexGuard<'_, Follower> {
        self.follower.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Called before the server's clock is read.
    pub fn begin(&self) -> Millis {
        self.own.monotonic()
    }

    /// The ledger's time, if the server was asked at `from` and its clock showed `clock`.
    pub fn at(&self, clock: Millis, from: Millis) -> Result<Millis, Fault> {
        if let Some(given) = &self.given {
            return Ok(given.wall());
        }
        let reading = Reading { clock, from, to: self.own.monotonic() };
        let mut follower = self.follower();
        if follower.jumped(reading).is_some() {
            self.agreed.store(NEVER, Relaxed);
            return Err(Fault::Again("the server's clock jumped".to_owned()));
        }
        Ok(follower.take(reading))
    }

    /// The number of jumps, and the difference between the ledger's time and the clock.
    pub fn told(&self) -> (u64, Millis) {
        match &self.given {
            Some(given) => given.told(),
            None => self.follower().told(),
        }
    }

    /// The result of the last reading of the ledger's time.
    pub fn last(&self) -> Millis {
        match &self.given {
            Some(given) => given.wall(),
            None => self.follower().last(),
        }
    }

    /// Agrees with the other processes, if this process never did, or not since a jump.
    pub async fn settle(&self, session: &PgConnection) -> Result<(), Fault> {
        if self.given.is_some() || self.agreed.load(Relaxed) != NEVER {
            return Ok(());
        }
        self.agree(session).await
    }

    /// Agrees again at regular intervals: this shows that time passes, and so protects the time from processes that
    /// were suspended.
    pub async fn beat(&self, session: &PgConnection) -> Result<(), Fault> {
        let agreed = self.agreed.load(Relaxed);
        if self.given.is_some() || (agreed != NEVER && self.own.monotonic() - agreed < BEAT_MS) {
            return Ok(());
        }
        self.agree(session).await
    }

    async fn agree(&self, session: &PgConnection) -> Result<(), Fault> {
        for _ in 0..TRIES {
            let from = self.own.monotonic();
            let rows = session.query(CLOCK, params![]).await?;
            let row = rows.first().ok_or_else(|| Fault::Lost("the server told no time".to_owned()))?;
            let (clock, stored): (Millis, String) = (get(row, 0)?, get(row, 1)?);
            let reading = Reading { clock, from, to: self.own.monotonic() };
            let before: Agreed = stored.parse()?;
            let mut follower = *self.follower();
            let agreed = follower.agree(Some(before), reading);
            let fresh = agreed.offset == before.offset && clock - before.seen < BEAT_MS;
            if fresh || !session.query(AGREE, params![agreed.to_string(), stored]).await?.is_empty() {
                *self.follower() = follower;
                self.agreed.store(reading.to, Relaxed);
                return Ok(());
            }
        }
        Err(Fault::Again("the processes of this ledger do not agree on the time yet".to_owned()))
    }
}
