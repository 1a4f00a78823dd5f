//! Latency histograms with fixed buckets. Any thread may add a duration to a histogram, which does not block.

use serde::Serialize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The upper bounds of the buckets, in seconds, in a 1-2-5 sequence.
const BOUNDS: [f64; 20] = [
    0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0,
    2.0, 5.0, 10.0, 20.0, 50.0, 100.0,
];

/// A distribution of durations.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Histogram {
    /// The number of durations.
    pub count: u64,
    /// The sum of the durations, in seconds.
    pub sum: f64,
    /// The upper bound of each bucket except the last, in seconds. All histograms have the same bounds.
    pub bounds: &'static [f64],
    /// The number of durations in each bucket. A bucket counts durations above the bound of the previous bucket, up to
    /// and including its own bound. The last bucket has no upper bound.
    pub counts: Vec<u64>,
}

/// A histogram to which any thread may add durations. [`Timings::read`] copies the current counts.
#[derive(Debug, Default)]
pub(crate) struct Timings {
    counts: [AtomicU64; BOUNDS.len() + 1],
    nanoseconds: AtomicU64,
}

impl Timings {
    pub(crate) fn add(&self, took: Duration) {
        let seconds = took.as_secs_f64();
        let bucket = BOUNDS.partition_point(|bound| *bound < seconds);
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        // The sum overflows only after more than five hundred years of recorded durations.
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> Histogram {
        let counts: Vec<_> =
            self.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        let sum = Duration::from_nanos(self.nanoseconds.load(Ordering::Relaxed)).as_secs_f64();
        Histogram { count: counts.iter().sum(), sum, bounds: &BOUNDS, counts }
    }
}

#[cfg(test)]
mod tests {
    use super::{BOUNDS, Timings};
    use std::time::Duration;

    #[test]
    fn duration_is_counted_in_its_bucket() {
        let timings = Timings::default();
        for millis in [0, 1, 2, 3, 1_000_000] {
            timings.add(Duration::from_millis(millis));
        }
        let histogram = timings.read();
        assert_eq!(histogram.count, 5);
        assert!((histogram.sum - 1000.006).abs() < 1e-6);
        let at = |bound: f64| BOUNDS.iter().position(|other| *other == bound).expect("a bound");
        for bucket in [0, at(0.001), at(0.002), at(0.005), BOUNDS.len()] {
            assert_eq!(histogram.counts[bucket], 1, "{histogram:?}");
        }
    }

    #[test]
    fn bucket_bounds_increase() {
        assert!(BOUNDS.is_sorted_by(|one, next| one < next));
    }
}
