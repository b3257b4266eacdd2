//! What a pipeline has done, in numbers.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use serde::{Serialize, Serializer};

use crate::message::TopicPartition;

/// Counts since the pipeline started.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Tally {
    /// Messages handed to the guest for the first time since their partition was assigned.
    pub delivered: u64,
    /// Messages handed to it again because an instance was lost, or held.
    pub redelivered: u64,
    /// Messages handed to it again because their retry was due.
    pub retried: u64,
    /// Messages that were wanted again and still in memory: `recent` of the configuration.
    pub recent: u64,
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
    /// Batches at which the guest failed, so that they were looked into.
    pub isolations: u64,
    /// Partitions that wait because the guest holds, and since when.
    #[serde(serialize_with = "by_name")]
    pub holding: BTreeMap<TopicPartition, Held>,
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

/// What a guest holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Held {
    /// Nothing from here on is handed out.
    pub offset: i64,
    /// The guest's word for why, when it began.
    pub code: String,
    /// The same for people.
    pub reason: String,
    /// When it began, in milliseconds since the epoch.
    pub since: i64,
}

fn by_name<V: Serialize, S: Serializer>(by_source: &BTreeMap<TopicPartition, V>, to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(by_source.iter().map(|(source, value)| (source.to_string(), value)))
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
