//! One budget for the memory of a process, and how it is divided. Pure.
//!
//! What the guests have is not in it: each instance has a limit of its own, and how many there are depends on the
//! partitions that a process is given.

use super::{file::File, value::human_size};
use crate::kafka::shadow::{TURN_BYTES, TURNS};

const MIB: u64 = 1 << 20;

/// The process itself: code, threads, compiled guests, the client's own books. Measured, and rounded up.
const PROCESS: u64 = 28 * MIB;
/// A shadow reader: its two clients with what they read ahead, and its turns.
const READER: u64 = 4 * MIB + (TURNS * TURN_BYTES) as u64;
/// What the client of a pipeline may take above its prefetch: a fetch on its way.
const FETCH: u64 = 4 * MIB;
/// No part is smaller.
const LEAST: u64 = MIB;
/// More than this makes nothing faster.
const MOST: u64 = 64 * MIB;

/// What each pipeline and each cluster may take of the memory, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shares {
    /// What a pipeline's client reads ahead.
    pub(super) prefetch: u64,
    /// Batches of a pipeline.
    pub(super) in_hand: u64,
    /// Records of a cluster without an acknowledgement.
    pub(super) unacknowledged: u64,
}

impl Shares {
    /// Without a budget.
    pub(super) const DEFAULT: Self = Self { prefetch: 16 * MIB, in_hand: 16 * MIB, unacknowledged: 32 * MIB };

    /// What a file's `memory` leaves to each, beside what the file gives away itself.
    ///
    /// # Errors
    /// The arithmetic, if it does not hold.
    pub(super) fn of(file: &File) -> Result<Self, String> {
        let Some(memory) = file.memory.map(|memory| memory.0) else { return Ok(Self::DEFAULT) };
        let (clusters, pipelines) = (|| file.kafka.iter().chain(file.clusters.values()), || file.pipelines.values());
        let readers: u64 = clusters().map(|cluster| cluster.shadow.readers.0).sum();
        let given: u64 =
            pipelines().map(|pipeline| pipeline.recent.0 + pipeline.in_hand.map_or(0, |size| size.0)).sum();
        let fetches = count(pipelines()) * FETCH;
        let fixed = PROCESS + readers * READER + fetches + given;

        let divided = || pipelines().filter(|pipeline| pipeline.in_hand.is_none());
        let parts = count(pipelines()) + count(divided()) + 2 * count(clusters());
        let least = divided().map(|pipeline| pipeline.batch.bytes.0).max().unwrap_or_default().max(LEAST);
        let needed = fixed + parts * least;
        if memory < needed {
            let [memory, process, readers, fetches, given, needed, least] =
                [memory, PROCESS, readers * READER, fetches, given, needed, least].map(human_size);
            return Err(format!(
                "{memory} does not hold this configuration: {process} for the process, {readers} for its shadow readers, \
                 {fetches} for fetches, {given} for in-hand and recent as they are set, and {parts} parts of {least} at \
                 least (prefetch and batches of each pipeline, twice that for the records of each cluster), together {needed} \
                 (allowed: {needed} or more; guests come on top)"
            ));
        }
        let part = ((memory - fixed) / parts.max(1)).min(MOST);
        Ok(Self { prefetch: part, in_hand: part, unacknowledged: 2 * part })
    }
}

fn count(of: impl Iterator) -> u64 {
    of.map(|_| 1).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(top: &str, more: &str) -> Result<Shares, String> {
        let text = format!(
            r#"
            {top}
            [kafka]
            brokers = "localhost:9092"
            [pipelines.one]
            topics = ["one"]
            group = "one"
            start = "earliest"
            guest = {{ module = "guest.wasm" }}
            {more}
            "#
        );
        Shares::of(&toml::from_str(&text).unwrap())
    }

    #[test]
    fn what_is_left_is_divided_evenly_and_the_producer_has_twice_as_much() {
        let fixed = PROCESS + 2 * READER + FETCH;
        let left = 128 * MIB - fixed;
        let part = left / 4;
        let expected = Shares { prefetch: part, in_hand: part, unacknowledged: 2 * part };
        assert_eq!(shares("memory = \"128MiB\"", ""), Ok(expected));
        let part = (left - 8 * MIB) / 3;
        let set = shares("memory = \"128MiB\"", "in-hand = \"6MiB\"\nrecent = \"2MiB\"").unwrap();
        assert_eq!((set.prefetch, set.unacknowledged), (part, 2 * part));
        assert_eq!(shares("", ""), Ok(Shares::DEFAULT));
        assert_eq!(shares("memory = \"64GiB\"", "").unwrap().prefetch, MOST);
    }

    #[test]
    fn each_part_holds_a_batch_or_the_arithmetic_is_told() {
        let fixed = PROCESS + 2 * READER + FETCH;
        let needed = fixed + 4 * 3 * MIB;
        let batch = "batch = { bytes = \"3MiB\" }";
        let exact = shares(&format!("memory = \"{}KiB\"", needed >> 10), batch).unwrap();
        assert_eq!(exact.in_hand, 3 * MIB);
        let told = shares(&format!("memory = \"{}KiB\"", (needed >> 10) - 1), batch).unwrap_err();
        assert!(told.contains("4 parts of 3MiB at least") && told.contains(&human_size(needed)), "{told}");
    }
}
