//! What a pipeline has done, in numbers.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use serde::Serialize;

use crate::message::TopicPartition;

/// Counts since the pipeline started.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Tally {
    /// Messages handed to the guest for the first time since their partition was assigned.
    pub delivered: u64,
    /// Messages handed to it again because an instance was lost.
    pub redelivered: u64,
    /// Accepted, by a verdict or by silence.
    pub accepted: u64,
    /// Deferred by a verdict.
    pub deferred: u64,
    /// Rejected, by code; host-made codes included. Codes beyond the first hundred count together, as `(other)`.
    pub rejected: BTreeMap<String, u64>,
    /// Dead letters with a successful delivery report; stubs included.
    pub dead_letters: u64,
    /// Dead letters without their payload, by `payload-status`.
    pub stubs: BTreeMap<String, u64>,
    /// Deferred messages whose payload was gone, accepted because of `on-gone`.
    pub gone: u64,
    /// Records that the guest emitted and that have a successful delivery report.
    pub emitted: u64,
    /// Records whose delivery failed and was tried again.
    pub delivery_failures: u64,
    /// Calls that failed, by kind.
    pub failures: BTreeMap<String, u64>,
    /// Partitions that are paused, and why.
    #[serde(serialize_with = "by_name")]
    pub halted: BTreeMap<TopicPartition, String>,
}

/// Distinct codes that are counted apart: they become labels of metrics.
const CODES: usize = 100;

/// The name under which all further codes count; no guest can use it as a code.
const OTHER: &str = "(other)";

impl Tally {
    /// Counts rejected messages.
    pub fn reject(&mut self, code: &str, messages: u64) {
        if let Some(count) = self.rejected.get_mut(code) {
            *count += messages;
            return;
        }
        let known = self.rejected.len() - usize::from(self.rejected.contains_key(OTHER));
        let code = if known < CODES { code } else { OTHER };
        *self.rejected.entry(code.to_owned()).or_default() += messages;
    }
}

fn by_name<S: serde::Serializer>(halted: &BTreeMap<TopicPartition, String>, to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(halted.iter().map(|(source, why)| (source.to_string(), why)))
}

/// A tally that the lanes of a pipeline write together.
#[derive(Debug, Default)]
pub struct TallyBook(Mutex<Tally>);

impl TallyBook {
    /// Adds to it.
    pub fn add(&self, change: impl FnOnce(&mut Tally)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// As it stands.
    pub fn read(&self) -> Tally {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_beyond_the_bound_count_together() {
        let mut tally = Tally::default();
        for number in 0..CODES + 20 {
            tally.reject(&format!("code-{number}"), 2);
        }
        tally.reject("code-0", 1);
        assert_eq!(tally.rejected.len(), CODES + 1);
        assert_eq!((tally.rejected["code-0"], tally.rejected[OTHER]), (3, 40));
        assert_eq!(tally.rejected.values().sum::<u64>(), 2 * (CODES as u64 + 20) + 1);
    }
}
