//! Retry delays, by the same rules for work items and commands.

use crate::{
    Millis,
    model::ErrorClass,
    policy::{Jitter, RetryPolicy},
};

/// Whether a retry can help after a failure of this class.
pub fn may_retry(class: ErrorClass) -> bool {
    match class {
        ErrorClass::Transport
        | ErrorClass::Timeout
        | ErrorClass::RateLimited
        | ErrorClass::Unavailable
        | ErrorClass::Unknown => true,
        ErrorClass::Validation
        | ErrorClass::Auth
        | ErrorClass::Quota
        | ErrorClass::PolicyDenied
        | ErrorClass::Misconfigured
        | ErrorClass::Unsupported => false,
    }
}

/// The delay before the next attempt after the `failures`-th failure. `seed` is the action's randomness.
pub fn backoff_ms(policy: &RetryPolicy, failures: u32, retry_after_ms: Option<u64>, seed: u64) -> u64 {
    let mut delay = policy.initial_ms;
    for _ in 1..failures {
        if delay >= policy.max_ms {
            break;
        }
        delay = delay.saturating_mul(u64::from(policy.multiplier_permille)) / 1_000;
    }
    let delay = delay.min(policy.max_ms);
    let delay = match policy.jitter {
        Jitter::None => delay,
        Jitter::Full => seed % (delay + 1),
        Jitter::Equal => delay / 2 + seed % (delay - delay / 2 + 1),
    };
    // A delay that the provider asked for takes precedence if it is longer.
    delay.max(retry_after_ms.unwrap_or(0))
}

/// When to retry; None if the attempts are exhausted or the class cannot be retried.
pub fn next_at(
    policy: &RetryPolicy,
    class: ErrorClass,
    failures: u32,
    retry_after_ms: Option<u64>,
    seed: u64,
    now: Millis,
) -> Option<Millis> {
    (may_retry(class) && failures < policy.max_attempts)
        .then(|| now + backoff_ms(policy, failures, retry_after_ms, seed) as Millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(jitter: Jitter) -> RetryPolicy {
        RetryPolicy { jitter, ..RetryPolicy::default() }
    }

    #[test]
    fn delays_double_up_to_the_cap() {
        let delays: Vec<u64> = (1..=11).map(|n| backoff_ms(&policy(Jitter::None), n, None, 0)).collect();
        assert_eq!(
            delays,
            [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 128_000, 256_000, 300_000, 300_000]
        );
        assert_eq!(backoff_ms(&policy(Jitter::None), u32::MAX, None, 0), 300_000);
    }

    #[test]
    fn jitter_stays_in_its_bounds() {
        for seed in [0, 1, 999, 123_456_789, u64::MAX] {
            assert!(backoff_ms(&policy(Jitter::Full), 2, None, seed) <= 2_000);
            let equal = backoff_ms(&policy(Jitter::Equal), 2, None, seed);
            assert!((1_000..=2_000).contains(&equal));
        }
    }

    #[test]
    fn a_providers_retry_after_is_honoured() {
        assert_eq!(backoff_ms(&policy(Jitter::Full), 1, Some(60_000), 7), 60_000);
    }

    #[test]
    fn hopeless_classes_and_exhausted_policies_are_not_retried() {
        let policy = policy(Jitter::None);
        assert_eq!(next_at(&policy, ErrorClass::Unavailable, 1, None, 0, 10), Some(1_010));
        assert_eq!(next_at(&policy, ErrorClass::Validation, 1, None, 0, 10), None);
        assert_eq!(next_at(&policy, ErrorClass::Unavailable, 3, None, 0, 10), None);
    }
}
