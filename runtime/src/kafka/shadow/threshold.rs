//! The seek threshold: what was measured, and the gap up to which reading through is the cheaper way. Pure.

use std::{collections::HashMap, time::Duration};

use super::{TURN_BYTES, plan::Reach};
use crate::{config::SeekThreshold, message::TopicPartition};

/// Two fetches of the lean client (as in `client::shadow`) take as long as the first one of the wide client.
const LEAN_BYTES: f64 = 131_072.0;
/// Before anything is measured: a broker nearby, and messages of 1 KiB.
const POSITIONING: f64 = 400_000.0;
const NANOS_PER_OFFSET: f64 = 1_500.0;
const BYTES_PER_OFFSET: f64 = 1_024.0;
/// Of each new measurement, in the moving mean.
const WEIGHT: f64 = 0.125;
/// Partitions that are remembered. Beyond, all are forgotten and measured again.
const PARTITIONS: usize = 4_096;

/// A moving mean.
#[derive(Clone, Copy, Debug)]
struct Mean(f64);

impl Mean {
    fn add(&mut self, sample: f64) {
        self.0 += WEIGHT * (sample - self.0);
    }
}

/// What reading a partition costs.
#[derive(Clone, Copy, Debug)]
struct Cost {
    bytes: Mean,
    nanos: Mean,
}

/// What one reader thread has measured.
#[derive(Debug)]
pub(super) struct Costs {
    positioning: Mean,
    partitions: HashMap<TopicPartition, Cost>,
}

/// A stretch of offsets read without a break.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stretch {
    /// Offsets from the first to the last, holes included.
    pub(super) offsets: u64,
    /// Bytes of the messages.
    pub(super) bytes: usize,
    /// From the first message's arrival to the last one's; `None` where that tells nothing (too short, or not read ahead).
    pub(super) took: Option<Duration>,
}

impl Default for Costs {
    fn default() -> Self {
        Self { positioning: Mean(POSITIONING), partitions: HashMap::new() }
    }
}

impl Costs {
    /// Notes how long a positioning took, up to the first message.
    pub(super) fn positioned(&mut self, took: Duration) {
        self.positioning.add(took.as_secs_f64() * 1e9);
    }

    /// Notes what a stretch cost.
    pub(super) fn read(&mut self, source: &TopicPartition, stretch: Stretch) {
        if stretch.offsets == 0 {
            return;
        }
        let offsets = float(stretch.offsets);
        let bytes = float(stretch.bytes as u64) / offsets;
        if self.partitions.len() >= PARTITIONS && !self.partitions.contains_key(source) {
            self.partitions.clear();
        }
        let fresh = Cost { bytes: Mean(bytes), nanos: Mean(NANOS_PER_OFFSET) };
        let cost = self.partitions.entry(source.clone()).or_insert(fresh);
        cost.bytes.add(bytes);
        if let Some(took) = stretch.took {
            cost.nanos.add(took.as_secs_f64() * 1e9 / offsets);
        }
    }

    /// How far to read through a partition. Never more than a turn's worth of bytes: a turn may not be spent on one gap.
    pub(super) fn reach(&self, setting: SeekThreshold, source: &TopicPartition) -> Reach {
        let known = self.partitions.get(source);
        let bytes = known.map_or(BYTES_PER_OFFSET, |cost| cost.bytes.0).max(1.0);
        let nanos = known.map_or(NANOS_PER_OFFSET, |cost| cost.nanos.0).max(1.0);
        let threshold = match setting {
            SeekThreshold::Auto => self.positioning.0 / nanos,
            SeekThreshold::Offsets(offsets) => float(offsets),
            SeekThreshold::Bytes(size) => float(size) / bytes,
        };
        let turn = float(TURN_BYTES as u64) / bytes;
        Reach { threshold: whole(threshold.min(turn)), lean: whole(LEAN_BYTES / bytes).max(1) }
    }
}

#[expect(clippy::cast_precision_loss, reason = "means of what was measured need no 53 bits")]
const fn float(number: u64) -> f64 {
    number as f64
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a cast from a float saturates")]
const fn whole(number: f64) -> u64 {
    number as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn source() -> TopicPartition {
        TopicPartition::new("orders", 0)
    }

    fn measured(positioning: Duration, stretch: Stretch) -> Costs {
        let mut costs = Costs::default();
        for _ in 0..100 {
            costs.positioned(positioning);
            costs.read(&source(), stretch);
        }
        costs
    }

    #[test]
    fn auto_is_where_a_positioning_costs_as_much_as_the_gap() {
        let took = Some(Duration::from_millis(2));
        let costs = measured(Duration::from_micros(300), Stretch { offsets: 1_000, bytes: 100_000, took });
        let reach = costs.reach(SeekThreshold::Auto, &source());
        assert!((149..=151).contains(&reach.threshold), "300 µs at 2 µs an offset, not {}", reach.threshold);
        assert!((1_309..=1_311).contains(&reach.lean), "128 KiB at 100 bytes an offset, not {}", reach.lean);
    }

    #[test]
    fn a_size_is_turned_into_offsets_by_the_mean_size() {
        let costs = measured(Duration::from_micros(300), Stretch { offsets: 10, bytes: 20_480, took: None });
        assert_eq!(costs.reach(SeekThreshold::Bytes(256 << 10), &source()).threshold, 128);
    }

    #[test]
    fn a_number_of_offsets_is_taken_as_it_is_up_to_a_turn() {
        let costs = measured(Duration::from_micros(300), Stretch { offsets: 1, bytes: 1 << 20, took: None });
        assert_eq!(costs.reach(SeekThreshold::Offsets(0), &source()).threshold, 0);
        assert_eq!(costs.reach(SeekThreshold::Offsets(400), &source()).threshold, 1, "of 1 MiB each");
        assert_eq!(Costs::default().reach(SeekThreshold::Offsets(400), &source()).threshold, 400);
    }

    #[test]
    fn the_number_of_remembered_partitions_is_bounded() {
        let mut costs = Costs::default();
        for partition in 0..2 * i32::try_from(PARTITIONS).unwrap() {
            let stretch = Stretch { offsets: 1, bytes: 1, took: None };
            costs.read(&TopicPartition::new("orders", partition), stretch);
        }
        assert!(costs.partitions.len() <= PARTITIONS);
    }

    proptest! {
        #[test]
        fn whatever_was_measured_a_gap_costs_no_more_than_a_turn(
            nanos in 0u64..10_000_000_000, offsets in 0u64..1_000_000, bytes in 0usize..1 << 30, positioning in 0u64..10_000_000_000,
        ) {
            let stretch = Stretch { offsets, bytes, took: Some(Duration::from_nanos(nanos)) };
            let costs = measured(Duration::from_nanos(positioning), stretch);
            for setting in [SeekThreshold::Auto, SeekThreshold::Offsets(u64::MAX), SeekThreshold::Bytes(u64::MAX)] {
                let reach = costs.reach(setting, &source());
                let mean = if offsets == 0 { BYTES_PER_OFFSET } else { float(bytes as u64) / float(offsets) };
                prop_assert!(float(reach.threshold) * mean <= float(TURN_BYTES as u64) * 1.001);
                prop_assert!(reach.lean >= 1);
            }
        }
    }
}
