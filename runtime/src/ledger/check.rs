//! Whether an answer may be applied: a guest is not trusted.

use std::{fmt, sync::Arc};

use thiserror::Error;

use super::Ledger;
use crate::{
    offset::{Offset, OffsetSet},
    verdict::{OffsetRange, Outcome, Rejection, Verdict},
};

/// Verdicts that break the contract. Nothing of such an answer counts.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Violation {
    /// A range begins or ends at an offset that is not open with this instance.
    #[error("the verdict `{outcome}` on {range} names offset {offset}, which {why}")]
    NotOpen {
        /// The WIT's word.
        outcome: String,
        /// As the guest gave it.
        range: OffsetRange,
        /// One of its ends.
        offset: Offset,
        /// What is known of it.
        why: NotOpen,
    },
    /// An open offset is within two ranges.
    #[error("two verdicts name offset {offset}: one on {one}, and one on {other}")]
    Shared {
        /// The offset.
        offset: Offset,
        /// As the guest gave it, and so is `other`.
        one: OffsetRange,
        /// Begins behind `one`, or with it.
        other: OffsetRange,
    },
}

/// Why an offset is not open with this instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotOpen {
    /// It is at the position or behind it.
    Undelivered,
    /// An earlier instance had it.
    Lost,
    /// A verdict settled it, or it was never there: the two are not told apart.
    Closed,
}

impl fmt::Display for NotOpen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Undelivered => "was not delivered yet",
            Self::Lost => "was delivered to an earlier instance, and not yet to this one",
            Self::Closed => "is settled already, or was never delivered",
        })
    }
}

/// An answer that keeps the contract; only [`Ledger::check`] makes one, and [`Ledger::apply`] takes it.
#[derive(Debug)]
pub struct Checked {
    pub(super) revision: u64,
    pub(super) accepted: OffsetSet,
    pub(super) rejected: Vec<(OffsetSet, Arc<Rejection>)>,
    pub(super) deferred: u64,
    unsupported: Option<(Outcome, OffsetRange)>,
}

impl Checked {
    /// What is accepted, by a verdict or by silence.
    pub fn accepted(&self) -> &OffsetSet {
        &self.accepted
    }

    /// The first outcome that is neither accept, reject nor defer, and its first range. What it names stays open.
    pub fn unsupported(&self) -> Option<(&Outcome, OffsetRange)> {
        self.unsupported.as_ref().map(|(outcome, range)| (outcome, *range))
    }
}

impl Ledger {
    /// Checks an answer against what is open with this instance. `batch` is the column of offsets of the batch in hand,
    /// of which what no verdict names is accepted; `None` outside a batch.
    ///
    /// # Errors
    /// The first violation.
    pub fn check(&self, verdicts: &[Verdict], batch: Option<&[i64]>) -> Result<Checked, Violation> {
        self.check_ranges(verdicts)?;
        let mut checked = Checked {
            revision: self.revision,
            accepted: OffsetSet::new(),
            rejected: Vec::new(),
            deferred: 0,
            unsupported: None,
        };
        if let Some(batch) = batch {
            checked.accepted.insert_column(batch);
            checked.accepted.intersect(&self.open);
        }
        for Verdict { offsets, outcome } in verdicts {
            let ranges = || offsets.iter().map(|range| range.first..=range.last);
            let name = |set: &mut OffsetSet| ranges().for_each(|range| set.extend_within(&self.open, range));
            if !matches!(outcome, Outcome::Accept) {
                ranges().for_each(|range| _ = checked.accepted.remove_range(range));
            }
            match outcome {
                Outcome::Accept => name(&mut checked.accepted),
                Outcome::Reject(rejection) => match checked.rejected.last_mut() {
                    // Verdict by verdict and the same each time: how a guest without much care answers.
                    Some((rejected, last)) if last == rejection => name(rejected),
                    _ => {
                        let mut rejected = OffsetSet::new();
                        name(&mut rejected);
                        checked.rejected.push((rejected, Arc::clone(rejection)));
                    }
                },
                Outcome::Defer => checked.deferred += ranges().map(|range| self.open.count(range)).sum::<u64>(),
                Outcome::Retry(_) | Outcome::Hold(_) => {
                    let first = offsets.first().map(|range| (outcome.clone(), *range));
                    checked.unsupported = checked.unsupported.or(first);
                }
            }
        }
        Ok(checked)
    }

    fn check_ranges(&self, verdicts: &[Verdict]) -> Result<(), Violation> {
        let mut ranges = Vec::new();
        for Verdict { offsets, outcome } in verdicts {
            for range in offsets {
                debug_assert!(range.first <= range.last, "a range that is turned round does not come this far");
                for offset in [range.first, range.last] {
                    if let Some(why) = self.not_open(offset) {
                        return Err(Violation::NotOpen { outcome: outcome.to_string(), range: *range, offset, why });
                    }
                }
                // One of nothing but expired offsets shares no open one.
                if self.expired < Some(range.last) {
                    ranges.push(*range);
                }
            }
        }
        ranges.sort_unstable_by_key(|range| range.first);
        // The last offset of each is open: two that overlap at all share the lower of the two.
        for (one, other) in ranges.iter().zip(ranges.iter().skip(1)) {
            if other.first <= one.last {
                return Err(Violation::Shared { offset: one.last.min(other.last), one: *one, other: *other });
            }
        }
        Ok(())
    }

    /// `None` for an open offset, and for one that the host may have expired without the guest knowing.
    fn not_open(&self, offset: Offset) -> Option<NotOpen> {
        if self.open.contains(offset) || Some(offset) <= self.expired {
            None
        } else if self.position <= offset.into() {
            Some(NotOpen::Undelivered)
        } else if self.lost.contains(offset) {
            Some(NotOpen::Lost)
        } else {
            Some(NotOpen::Closed)
        }
    }
}
