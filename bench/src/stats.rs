//! The few statistics that the figures need.

use std::time::Duration;

/// An amount and its duration.
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    pub count: u64,
    pub elapsed: Duration,
}

impl Rate {
    pub fn per_s(self) -> f64 {
        self.count as f64 / self.elapsed.as_secs_f64()
    }
}

/// The median; the mean of the two middle values of an even number. None without values.
pub fn median(values: &[f64]) -> Option<f64> {
    let sorted = sorted(values);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        n if n % 2 == 1 => Some(sorted[middle]),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}

/// The smallest value that at least `percent` of all values do not exceed. None without values.
pub fn percentile(values: &[f64], percent: f64) -> Option<f64> {
    let sorted = sorted(values);
    let rank = (percent / 100.0 * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied()
}

/// The median of the quotients, pair by pair, so that drift between the pairs cancels out.
pub fn ratio(values: &[f64], of: &[f64]) -> Option<f64> {
    let quotients: Vec<f64> = values.iter().zip(of).map(|(value, base)| value / base).collect();
    median(&quotients)
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_a_count_over_its_own_time() {
        let rate = Rate { count: 300, elapsed: Duration::from_millis(1_500) };
        assert_eq!(rate.per_s(), 200.0);
    }

    #[test]
    fn the_median_shrugs_off_an_outlier() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[7.0]), Some(7.0));
        assert_eq!(median(&[9_000.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), Some(2.5));
    }

    #[test]
    fn percentiles_are_values_that_were_seen() {
        let hundred: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert_eq!(percentile(&hundred, 50.0), Some(50.0));
        assert_eq!(percentile(&hundred, 99.0), Some(99.0));
        assert_eq!(percentile(&hundred, 100.0), Some(100.0));
        assert_eq!(percentile(&hundred, 0.0), Some(1.0));
        assert_eq!(percentile(&[5.0], 99.0), Some(5.0));
        assert_eq!(percentile(&[], 99.0), None);
    }

    #[test]
    fn drift_between_rounds_does_not_move_a_ratio() {
        // The disk halves its speed in every round; the ledger stays at 70 % of it.
        let raw = [40_000.0, 20_000.0, 10_000.0];
        let ledger = raw.map(|rate| rate * 0.7);
        assert!((ratio(&ledger, &raw).unwrap() - 0.7).abs() < 1e-9);
        assert_eq!(ratio(&[], &[]), None);
    }
}
