//! What the shadow readers of a cluster have done so far.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

use super::{Missing, Reading};
use crate::times::Times;

/// Totals since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Counts {
    /// Offsets whose message was found.
    pub found: u64,
    /// Offsets that retention or a deletion of records took.
    pub expired: u64,
    /// Offsets that the log does not have: compacted away, never a message's, or cut off.
    pub absent: u64,
    /// Offsets where there is now another message.
    pub replaced: u64,
    /// Reads that were given up for the time being.
    pub deadline: u64,
    /// Times that a client was positioned.
    pub positionings: u64,
    /// Messages that were read and not wanted.
    pub read_through: u64,
    /// Bytes of keys and payloads of all messages that were read, wanted or not.
    pub bytes: u64,
}

/// The same, counted from several threads.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) found: Counter,
    pub(super) expired: Counter,
    pub(super) absent: Counter,
    pub(super) replaced: Counter,
    pub(super) deadline: Counter,
    pub(super) positionings: Counter,
    pub(super) read_through: Counter,
    pub(super) bytes: Counter,
    pub(super) turns: Times,
}

#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    pub(super) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Counters {
    pub(super) fn answered(&self, reading: &Reading) {
        self.found.add(reading.found.len() as u64);
        for (_, missing) in &reading.missing {
            match missing {
                Missing::Expired => self.expired.add(1),
                Missing::Absent => self.absent.add(1),
                Missing::Replaced => self.replaced.add(1),
            }
        }
    }

    pub(super) fn counts(&self) -> Counts {
        Counts {
            found: self.found.get(),
            expired: self.expired.get(),
            absent: self.absent.get(),
            replaced: self.replaced.get(),
            deadline: self.deadline.get(),
            positionings: self.positionings.get(),
            read_through: self.read_through.get(),
            bytes: self.bytes.get(),
        }
    }
}
