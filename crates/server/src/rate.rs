//! Token buckets, in this process: the rate of commands, for each tool and for all, and the rate of calls by each
//! credential. The time is a parameter.

use std::{collections::HashMap, hash::Hash, time::Duration};

use crate::tools::{RateLimit, Tools};

/// Tokens that are replenished at a steady rate, up to a burst. Counted in microseconds: a token is the time
/// it takes to replenish, so nothing is lost to rounding.
#[derive(Clone, Debug)]
struct Bucket {
    limit: RateLimit,
    /// When the bucket is full again.
    full_at: Duration,
}

impl Bucket {
    fn new(limit: RateLimit) -> Self {
        Self { limit, full_at: Duration::ZERO }
    }

    fn token(&self) -> Duration {
        Duration::from_secs(1) / self.limit.per_s.max(1)
    }

    /// The time until a token is available; zero if one is.
    fn wait(&self, now: Duration) -> Duration {
        let owed = self.full_at.max(now) + self.token() - now;
        owed.saturating_sub(self.token() * self.limit.burst.max(1))
    }

    fn take(&mut self, now: Duration) {
        self.full_at = self.full_at.max(now) + self.token();
    }
}

/// A bucket for each key, all with one limit. Full buckets are dropped.
pub(crate) struct KeyedBuckets<K> {
    limit: RateLimit,
    buckets: HashMap<K, Bucket>,
    /// With so many buckets, those that are full are looked for.
    sweep_at: usize,
}

impl<K: Eq + Hash> KeyedBuckets<K> {
    const FEW: usize = 1_024;

    pub fn new(limit: RateLimit) -> Self {
        Self { limit, buckets: HashMap::new(), sweep_at: Self::FEW }
    }

    /// Another limit starts with full buckets.
    pub fn set_limit(&mut self, limit: RateLimit) {
        if self.limit != limit {
            *self = Self::new(limit);
        }
    }

    /// Takes a token, or says how long to wait. `now` is a monotonic clock's.
    pub fn take(&mut self, key: K, now: Duration) -> Result<(), Duration> {
        if self.buckets.len() >= self.sweep_at {
            self.buckets.retain(|_, bucket| bucket.full_at > now);
            self.sweep_at = (2 * self.buckets.len()).max(Self::FEW);
        }
        let bucket = self.buckets.entry(key).or_insert_with(|| Bucket::new(self.limit));
        let wait = bucket.wait(now);
        if wait.is_zero() {
            bucket.take(now);
            return Ok(());
        }
        Err(wait)
    }
}

/// The buckets of tools.
#[derive(Debug, Default)]
pub struct Rates {
    all: Option<Bucket>,
    tools: HashMap<String, Bucket>,
}

impl Rates {
    pub fn new(all: Option<RateLimit>, tools: &Tools) -> Self {
        let limited = tools.iter().filter_map(|(name, tool)| Some((name.to_owned(), tool.rate_limit?)));
        Self {
            all: all.map(Bucket::new),
            tools: limited.map(|(name, limit)| (name, Bucket::new(limit))).collect(),
        }
    }

    /// Takes one token of the tool and one of all, or neither, and returns how long to wait. `now` is from a
    /// monotonic clock.
    pub fn take(&mut self, tool: &str, now: Duration) -> Result<(), Duration> {
        let mut buckets: Vec<&mut Bucket> =
            self.tools.get_mut(tool).into_iter().chain(&mut self.all).collect();
        let wait = buckets.iter().map(|bucket| bucket.wait(now)).max().unwrap_or_default();
        if !wait.is_zero() {
            return Err(wait);
        }
        buckets.iter_mut().for_each(|bucket| bucket.take(now));
        Ok(())
    }

    /// Returns the tokens taken last.
    pub fn give_back(&mut self, tool: &str) {
        for bucket in self.tools.get_mut(tool).into_iter().chain(&mut self.all) {
            bucket.full_at = bucket.full_at.saturating_sub(bucket.token());
        }
    }

    /// Applies new limits. A bucket whose limit is unchanged keeps its level.
    pub fn reload(&mut self, all: Option<RateLimit>, tools: &Tools) {
        let mut new = Self::new(all, tools);
        let same = |new: &mut Bucket, old: &Bucket| {
            if new.limit == old.limit {
                new.full_at = old.full_at;
            }
        };
        new.all.iter_mut().zip(&self.all).for_each(|(new, old)| same(new, old));
        for (name, bucket) in &mut new.tools {
            self.tools.get(name).into_iter().for_each(|old| same(bucket, old));
        }
        *self = new;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::Tool;

    fn tools(per_s: u32, burst: u32) -> Tools {
        let tool = Tool { rate_limit: Some(RateLimit { per_s, burst }), ..Tool::default() };
        Tools::new([("mail".to_owned(), tool)].into())
    }

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_burst_goes_at_once_and_the_rest_at_its_rate() {
        let mut rates = Rates::new(None, &tools(10, 3));
        let taken = |rates: &mut Rates, at| rates.take("mail", at);
        for _ in 0..3 {
            assert_eq!(taken(&mut rates, ms(5_000)), Ok(()));
        }
        assert_eq!(taken(&mut rates, ms(5_000)), Err(ms(100)));
        assert_eq!(taken(&mut rates, ms(5_099)), Err(ms(1)));
        assert_eq!(taken(&mut rates, ms(5_100)), Ok(()));
        assert_eq!(taken(&mut rates, ms(5_100)), Err(ms(100)));
        for _ in 0..3 {
            assert_eq!(taken(&mut rates, ms(60_000)), Ok(()));
        }
        assert!(taken(&mut rates, ms(60_000)).is_err());
    }

    #[test]
    fn a_rate_is_kept_over_a_long_time() {
        let mut rates = Rates::new(None, &tools(3, 1));
        let taken = (0..30_000).filter(|at| rates.take("mail", ms(*at)).is_ok()).count();
        assert!((89..=91).contains(&taken), "{taken}");
    }

    #[test]
    fn everybody_together_is_bounded_and_a_refusal_takes_nothing() {
        let mut rates = Rates::new(Some(RateLimit { per_s: 1, burst: 2 }), &tools(1, 1));
        assert_eq!(rates.take("mail", ms(0)), Ok(()));
        assert_eq!(rates.take("mail", ms(0)), Err(ms(1_000)));
        // The tool's refusal left the common token for another tool, which has no limit of its own.
        assert_eq!(rates.take("other", ms(0)), Ok(()));
        assert_eq!(rates.take("other", ms(0)), Err(ms(1_000)));
    }

    #[test]
    fn keys_have_buckets_of_their_own_and_full_ones_are_forgotten() {
        let mut buckets = KeyedBuckets::new(RateLimit { per_s: 10, burst: 1 });
        for key in 0..2_000 {
            assert_eq!(buckets.take(key, ms(0)), Ok(()), "{key}");
        }
        assert_eq!(buckets.take(1_999, ms(40)), Err(ms(60)));
        assert_eq!(buckets.buckets.len(), 2_000);
        for key in 2_000..2_100 {
            assert_eq!(buckets.take(key, ms(100)), Ok(()), "{key}");
        }
        assert!(buckets.buckets.len() <= 100, "{}", buckets.buckets.len());
        buckets.set_limit(RateLimit { per_s: 10, burst: 1 });
        assert_eq!(buckets.take(2_099, ms(100)), Err(ms(100)));
        buckets.set_limit(RateLimit { per_s: 10, burst: 2 });
        assert_eq!(buckets.take(2_099, ms(100)), Ok(()));
    }

    #[test]
    fn returned_tokens_can_be_taken_once_more() {
        let mut rates = Rates::new(Some(RateLimit { per_s: 1, burst: 1 }), &tools(1, 1));
        for _ in 0..3 {
            assert_eq!(rates.take("mail", ms(5_000)), Ok(()));
            rates.give_back("mail");
        }
        assert_eq!(rates.take("mail", ms(5_000)), Ok(()));
        assert_eq!(rates.take("mail", ms(5_000)), Err(ms(1_000)));
    }

    #[test]
    fn a_reload_gives_no_second_burst() {
        let mut rates = Rates::new(None, &tools(1, 1));
        assert_eq!(rates.take("mail", ms(0)), Ok(()));
        rates.reload(None, &tools(1, 1));
        assert!(rates.take("mail", ms(0)).is_err());
        rates.reload(None, &tools(1, 2));
        assert_eq!(rates.take("mail", ms(0)), Ok(()));
        rates.reload(None, &Tools::default());
        assert_eq!(rates.take("mail", ms(0)), Ok(()));
    }
}
