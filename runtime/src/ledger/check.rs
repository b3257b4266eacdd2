//! Whether an answer may be applied: a guest is not trusted.

use std::{fmt, sync::Arc};

use thiserror::Error;

use super::Ledger;
use crate::{
    offset::{Offset, OffsetSet},
    verdict::{Backoff, OffsetRange, Outcome, Rejection, Verdict},
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
    /// It waits for a retry.
    Retrying,
    /// A verdict settled it, or it was never there: the two are not told apart.
    Closed,
}

impl fmt::Display for NotOpen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Undelivered => "was not delivered yet",
            Self::Lost => "is to be delivered again, and was not yet",
            Self::Retrying => "waits for a retry",
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
    pub(super) retried: Vec<(OffsetSet, Backoff)>,
    pub(super) hold: Option<Hold>,
    pub(super) deferred: u64,
}

impl Checked {
    /// What is accepted, by a verdict or by silence.
    pub fn accepted(&self) -> &OffsetSet {
        &self.accepted
    }

    /// What is to be retried, or is rejected if that was its last attempt.
    pub fn retried(&self) -> &[(OffsetSet, Backoff)] {
        &self.retried
    }
}

/// Everything from an offset on is to be delivered again, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The lowest offset that a verdict holds.
    pub from: Offset,
    /// When, and why.
    pub backoff: Backoff,
}

impl Ledger {
    /// Checks an answer against what is open with this instance. `batch` is the column of offsets of the batch in hand,
    /// of which what no verdict names is accepted; `None` outside a batch.
    ///
    /// # Errors
    /// The first violation.
    pub fn check(&self, verdicts: &[Verdict], batch: Option<&[i64]>) -> Result<Checked, Violation> {
        self.check_ranges(verdicts)?;
        let hold = self.first_hold(verdicts);
        let mut checked = Checked {
            revision: self.revision,
            accepted: OffsetSet::new(),
            rejected: Vec::new(),
            retried: Vec::new(),
            hold: None,
            deferred: 0,
        };
        if let Some(batch) = batch {
            checked.accepted.insert_column(batch);
            checked.accepted.intersect(&self.open);
        }
        for Verdict { offsets, outcome } in verdicts {
            // What is said of offsets behind a hold is void. No other range has the held offset itself in it.
            let counts = |range: &&OffsetRange| hold.as_ref().is_none_or(|hold| range.first < hold.from);
            let ranges = || offsets.iter().filter(counts).map(|range| range.first..=range.last);
            let name = |set: &mut OffsetSet| ranges().for_each(|range| set.extend_within(&self.open, range));
            if !matches!(outcome, Outcome::Accept) {
                ranges().for_each(|range| _ = checked.accepted.remove_range(range));
            }
            match outcome {
                Outcome::Accept => name(&mut checked.accepted),
                Outcome::Reject(rejection) => add(&mut checked.rejected, rejection, name),
                Outcome::Retry(backoff) => add(&mut checked.retried, backoff, name),
                Outcome::Defer => checked.deferred += ranges().map(|range| self.open.count(range)).sum::<u64>(),
                Outcome::Hold(_) => {}
            }
        }
        if let Some(hold) = &hold {
            checked.accepted.truncate(hold.from);
        }
        Ok(Checked { hold, ..checked })
    }

    fn first_hold(&self, verdicts: &[Verdict]) -> Option<Hold> {
        let holds = verdicts.iter().filter_map(|Verdict { offsets, outcome }| {
            let Outcome::Hold(backoff) = outcome else { return None };
            let open = offsets.iter().filter_map(|range| self.open.range(range.first..=range.last).next());
            Some((open.min()?, backoff))
        });
        let (from, backoff) = holds.min_by_key(|(from, _)| *from)?;
        Some(Hold { from, backoff: backoff.clone() })
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
                if let Some(last) = self.last_open(*range) {
                    ranges.push((*range, last));
                }
            }
        }
        ranges.sort_unstable_by_key(|(range, _)| range.first);
        // Each is taken up to its last open offset: two that overlap at all share the lower of the two.
        for ((one, one_last), (other, other_last)) in ranges.iter().zip(ranges.iter().skip(1)) {
            if other.first <= *one_last {
                return Err(Violation::Shared { offset: *one_last.min(other_last), one: *one, other: *other });
            }
        }
        Ok(())
    }

    /// An end that is not open is one that the host may have expired.
    fn last_open(&self, range: OffsetRange) -> Option<Offset> {
        if self.expired < Some(range.last) { Some(range.last) } else { self.open.last_within(range.first..=range.last) }
    }

    /// `None` for an open offset, and for one that the host may have expired without the guest knowing.
    fn not_open(&self, offset: Offset) -> Option<NotOpen> {
        if self.open.contains(offset) || Some(offset) <= self.expired {
            None
        } else if self.position <= offset.into() {
            Some(NotOpen::Undelivered)
        } else if self.lost.contains(offset) {
            Some(NotOpen::Lost)
        } else if self.retries.all().contains(offset) {
            Some(NotOpen::Retrying)
        } else {
            Some(NotOpen::Closed)
        }
    }
}

/// Adds to the set of those with the same reason as the ones before: verdict by verdict and the same each time is how a
/// guest without much care answers.
fn add<R: Clone + PartialEq>(groups: &mut Vec<(OffsetSet, R)>, reason: &R, name: impl Fn(&mut OffsetSet)) {
    if groups.last().is_none_or(|(_, last)| last != reason) {
        groups.push((OffsetSet::new(), reason.clone()));
    }
    if let Some((set, _)) = groups.last_mut() {
        name(set);
    }
}
