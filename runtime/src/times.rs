//! How long something took, many times over: counts by duration, as Prometheus keeps them.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// Upper bounds of the classes in seconds, ascending; one more class has what is longer.
pub const BOUNDS: [f64; 12] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0];

/// Counted from several threads.
#[derive(Debug, Default)]
pub struct Times {
    counts: [AtomicU64; BOUNDS.len() + 1],
    micros: AtomicU64,
}

/// The same as it stands.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TimesCounted {
    /// How many took at most each of [`BOUNDS`], and in the last place how many there are.
    pub cumulative: [u64; BOUNDS.len() + 1],
    /// All of them together.
    pub sum: Duration,
}

impl Times {
    /// Counts one.
    pub fn add(&self, took: Duration) {
        let class = BOUNDS.partition_point(|bound| *bound < took.as_secs_f64());
        if let Some(count) = self.counts.get(class) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        self.micros.fetch_add(u64::try_from(took.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// As they stand.
    pub fn counted(&self) -> TimesCounted {
        let mut total = 0;
        let cumulative = self.counts.each_ref().map(|count| {
            total += count.load(Ordering::Relaxed);
            total
        });
        TimesCounted { cumulative, sum: Duration::from_micros(self.micros.load(Ordering::Relaxed)) }
    }
}

impl TimesCounted {
    /// How many there are.
    pub fn count(&self) -> u64 {
        self.cumulative.last().copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_counts_in_its_class_and_in_all_above() {
        let times = Times::default();
        for millis in [1, 2, 700, 60_000] {
            times.add(Duration::from_millis(millis));
        }
        let counted = times.counted();
        assert_eq!(counted.cumulative, [0, 1, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 4]);
        assert_eq!((counted.count(), counted.sum), (4, Duration::from_millis(60_703)));
    }
}
