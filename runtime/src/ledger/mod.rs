//! The bookkeeping of one partition under one assignment. Pure: no I/O and no clock; time comes in as the duration
//! since a start that the caller chooses once, on a clock that does not go back.
//!
//! An offset that was delivered is in one or more of these states, and is settled once it is in none:
//! - *open*: no verdict settled it yet (a deferred one stays open);
//! - *lost*: open, but the instance that had it is gone, so that it must be delivered again;
//! - *letter*: rejected, and its dead letter has no successful delivery report yet;
//! - *held*: settled by an answer that also emitted records, not all of which are acknowledged yet.
//!
//! Its size follows the number of offsets that are not settled, about a bit each, and never their messages.

mod backlog;
mod check;
mod runs;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

pub use self::{
    backlog::Rejected,
    check::{Checked, NotOpen, Violation},
    runs::Runs,
};
use crate::{
    offset::{NextOffset, Offset, OffsetSet},
    verdict::Rejection,
};

/// Deliveries this close together share one time, and so do those closer than this part of the oldest's age: the number
/// of times that are kept grows with the logarithm of that age.
const STEP: Duration = Duration::from_secs(1);
const STEP_PER_AGE: u32 = 512;

/// One answer whose emitted records are awaited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(u64);

/// What an answer came to.
#[derive(Debug)]
pub struct Applied {
    /// To be produced, and then reported through [`Ledger::letter_acked`]. In the order of the verdicts.
    pub rejected: Vec<(OffsetSet, Arc<Rejection>)>,
    /// How many were accepted, by a verdict or by silence.
    pub accepted: u64,
    /// How many a verdict deferred.
    pub deferred: u64,
    /// For [`Ledger::emit_acked`], if the answer emitted records.
    pub call: Option<CallId>,
}

#[derive(Debug)]
struct Held {
    first: Option<Offset>,
    emits: usize,
}

/// See the module.
#[derive(Debug)]
pub struct Ledger {
    position: NextOffset,
    /// With the present instance; disjoint from `lost`.
    open: OffsetSet,
    lost: OffsetSet,
    letters: OffsetSet,
    held: BTreeMap<CallId, Held>,
    calls: u64,
    /// The highest that the host expired. Nothing is open from here down, and an instance cannot know.
    expired: Option<Offset>,
    delivered: Runs<Duration>,
    leader_epochs: Runs<Option<i32>>,
    /// Counts changes of `open`.
    revision: u64,
}

impl Ledger {
    /// Nothing delivered yet; the first message to come is at `start` or behind it.
    pub fn new(start: NextOffset) -> Self {
        Self {
            position: start,
            open: OffsetSet::new(),
            lost: OffsetSet::new(),
            letters: OffsetSet::new(),
            held: BTreeMap::new(),
            calls: 0,
            expired: None,
            delivered: Runs::default(),
            leader_epochs: Runs::default(),
            revision: 0,
        }
    }

    /// A new batch goes to the instance: two columns of the same length (an epoch of -1 is unknown), offsets ascending
    /// from [`Ledger::position`] on.
    pub fn deliver(&mut self, offsets: &[i64], leader_epochs: &[i32], now: Duration) {
        let first = offsets.first().copied().and_then(Offset::new);
        let last = offsets.last().copied().and_then(Offset::new);
        let (Some(first), Some(last)) = (first, last) else { return };
        debug_assert!(self.position <= first.into(), "{first} is delivered, and {} was due", self.position);
        debug_assert!(offsets.is_sorted_by(|a, b| a < b), "offsets of a batch ascend");
        self.revision += 1;
        self.position = last.next();
        self.open.insert_column(offsets);
        self.mark(first, now);
        for (offset, epoch) in offsets.iter().zip(leader_epochs) {
            if let Some(offset) = Offset::new(*offset) {
                self.leader_epochs.push(offset, Some(*epoch).filter(|epoch| *epoch >= 0));
            }
        }
    }

    fn mark(&mut self, first: Offset, now: Duration) {
        let since = |at| now.saturating_sub(at);
        let step = self.delivered.first().map_or(STEP, |oldest| STEP.max(since(oldest) / STEP_PER_AGE));
        let near = self.delivered.last().filter(|last| since(*last) < step);
        self.delivered.push(first, near.unwrap_or(now));
    }

    /// Lost offsets go to the present instance, in a batch of their own.
    pub fn redelivered(&mut self, offsets: &[i64]) {
        let mut again = OffsetSet::new();
        again.insert_column(offsets);
        again.intersect(&self.lost);
        self.revision += 1;
        self.lost.subtract(&again);
        self.open.extend(&again);
    }

    /// The instance is gone: everything open must be delivered again.
    pub fn lose_instance(&mut self) {
        self.revision += 1;
        self.lost.extend(&std::mem::take(&mut self.open));
    }

    /// A lost offset cannot be delivered again, since its message is gone: it is a letter from now on.
    /// `false` if it is not lost, or no longer.
    pub fn give_up(&mut self, offset: Offset) -> bool {
        let was_lost = self.lost.remove(offset);
        if was_lost {
            self.revision += 1;
            self.letters.insert(offset);
        }
        was_lost
    }

    /// What an answer settles is taken out of what is open. `emits` is the number of records that it emitted.
    ///
    /// `checked` is from [`Ledger::check`], with nothing between the two.
    pub fn apply(&mut self, checked: Checked, emits: usize) -> Applied {
        let Checked { revision, accepted, rejected, deferred, .. } = checked;
        debug_assert_eq!(revision, self.revision, "an answer is checked against what is open when it is applied");
        self.revision += 1;
        let mut letters = OffsetSet::new();
        for (offsets, _) in &rejected {
            letters.extend(offsets);
        }
        self.open.subtract(&accepted);
        self.open.subtract(&letters);
        self.letters.extend(&letters);
        let first = accepted.first().into_iter().chain(letters.first()).min();
        let call = (emits > 0).then(|| self.hold(first, emits));
        self.prune();
        Applied { rejected, accepted: accepted.len(), deferred, call }
    }

    fn hold(&mut self, first: Option<Offset>, emits: usize) -> CallId {
        let call = CallId(self.calls);
        self.calls += 1;
        self.held.insert(call, Held { first, emits });
        call
    }

    /// The dead letter of a rejected offset has its successful delivery report.
    pub fn letter_acked(&mut self, offset: Offset) {
        self.letters.remove(offset);
        self.prune();
    }

    /// One record that an answer emitted has its successful delivery report.
    pub fn emit_acked(&mut self, call: CallId) {
        if let Some(held) = self.held.get_mut(&call) {
            held.emits -= 1;
            if held.emits == 0 {
                self.held.remove(&call);
                self.prune();
            }
        }
    }

    /// The host rejects what has been open for `max_age` (as [`Ledger::oldest_age`] has it, perhaps a little early), and
    /// the lowest of what is more than `max_open`. These are letters from now on; a verdict that still names them is not
    /// a violation, and does nothing.
    pub fn expire(&mut self, now: Duration, max_age: Duration, max_open: u64) -> OffsetSet {
        let excess = self.open_count().saturating_sub(max_open);
        if excess == 0 && self.oldest_age(now).is_none_or(|age| age < max_age) {
            return OffsetSet::new();
        }
        let mut expired = self.open.clone();
        expired.extend(&self.lost);
        let young = self.delivered.find(|at| now.saturating_sub(at) < max_age);
        if let Some(kept) = young.zip(expired.select(excess)).map(|(young, within)| young.max(within)) {
            expired.truncate(kept);
        }
        self.revision += 1;
        self.open.subtract(&expired);
        self.lost.subtract(&expired);
        self.letters.extend(&expired);
        self.expired = expired.last().max(self.expired);
        expired
    }

    /// The position that may be committed: everything delivered below it is settled.
    pub fn committable(&self) -> NextOffset {
        let held = self.held.values().filter_map(|held| held.first).min();
        [self.open.first(), self.lost.first(), self.letters.first(), held]
            .into_iter()
            .flatten()
            .min()
            .map_or(self.position, NextOffset::from)
    }

    /// The position behind the last message delivered.
    pub fn position(&self) -> NextOffset {
        self.position
    }

    /// How many offsets no verdict has settled, the lost ones included.
    pub fn open_count(&self) -> u64 {
        self.open.len() + self.lost.len()
    }

    /// The lowest open offset, the lost ones included.
    pub fn oldest(&self) -> Option<Offset> {
        self.open.first().into_iter().chain(self.lost.first()).min()
    }

    /// For how long the oldest open offset has been open. Delivery times are kept coarsely: this may be too much by a
    /// second, or by 1/512 of what the oldest was at its delivery.
    pub fn oldest_age(&self, now: Duration) -> Option<Duration> {
        Some(now.saturating_sub(self.delivered.get(self.oldest()?)?))
    }

    /// What must be delivered again.
    pub fn lost(&self) -> &OffsetSet {
        &self.lost
    }

    /// Rejected offsets whose dead letters are not acknowledged.
    pub fn letters(&self) -> &OffsetSet {
        &self.letters
    }

    /// How many answers wait for records that they emitted.
    pub fn held_count(&self) -> usize {
        self.held.len()
    }

    /// The leader epochs under which the offsets that are not settled were delivered; `None` where it is unknown.
    pub fn leader_epochs(&self) -> &Runs<Option<i32>> {
        &self.leader_epochs
    }

    fn prune(&mut self) {
        if self.delivered.len() > 1 || self.leader_epochs.len() > 1 {
            let settled = self.committable();
            self.delivered.prune(settled);
            self.leader_epochs.prune(settled);
        }
    }
}
