//! What a guest answers: verdicts by offset, and records for the outputs. Plain data, already within the host's limits
//! (sizes, counts, the form of a code), not yet checked against what is open: that is the ledger's business.

use std::{fmt, sync::Arc, time::Duration};

use crate::offset::Offset;

/// Both ends included, `first <= last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffsetRange {
    /// The lowest offset.
    pub first: Offset,
    /// The highest offset.
    pub last: Offset,
}

impl fmt::Display for OffsetRange {
    /// `5` or `5 to 9`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last { self.first.fmt(f) } else { write!(f, "{} to {}", self.first, self.last) }
    }
}

/// Why messages are rejected, and to which route.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Rejection {
    /// `None` is the dead-letter route.
    pub route: Option<String>,
    /// `[a-z0-9-]{1,64}`.
    pub code: String,
    /// For people; already cut at the host's limit.
    pub reason: String,
}

/// Why messages cannot be judged now.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Backoff {
    /// How long to wait.
    pub delay: Duration,
    /// As in [`Rejection::code`].
    pub code: String,
    /// As in [`Rejection::reason`].
    pub reason: String,
}

/// What becomes of the messages that a verdict names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Done with.
    Accept,
    /// To the dead letters.
    Reject(Arc<Rejection>),
    /// Deliver these again after the delay.
    Retry(Backoff),
    /// Deliver these and everything later again after the delay.
    Hold(Backoff),
    /// Decide later.
    Defer,
}

impl fmt::Display for Outcome {
    /// The WIT's word for it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Accept => "accept",
            Self::Reject(_) => "reject",
            Self::Retry(_) => "retry",
            Self::Hold(_) => "hold",
            Self::Defer => "defer",
        })
    }
}

/// One outcome for the open offsets within some ranges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// At least one.
    pub offsets: Vec<OffsetRange>,
    /// What becomes of them.
    pub outcome: Outcome,
}

/// A record that a guest asked to be produced.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Emit {
    /// The name of a configured output.
    pub output: String,
    /// `None` is a null key.
    pub key: Option<Vec<u8>>,
    /// `None` is a tombstone.
    pub payload: Option<Vec<u8>>,
    /// In order; names may repeat.
    pub headers: Vec<(String, Option<Vec<u8>>)>,
    /// Milliseconds since the epoch; `None` is the time of producing.
    pub timestamp: Option<i64>,
    /// `None` lets the key choose.
    pub partition: Option<i32>,
}

/// The whole of a guest's answer to one call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// In the guest's order.
    pub verdicts: Vec<Verdict>,
    /// Staged: produced only once the verdicts are found valid.
    pub emits: Vec<Emit>,
}

impl Emit {
    /// Bytes of key, payload and headers.
    pub fn bytes(&self) -> usize {
        let headers = self.headers.iter().map(|(name, value)| name.len() + value.as_ref().map_or(0, Vec::len));
        self.key.as_ref().map_or(0, Vec::len) + self.payload.as_ref().map_or(0, Vec::len) + headers.sum::<usize>()
    }
}
