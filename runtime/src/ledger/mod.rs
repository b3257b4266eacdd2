//! The bookkeeping of one partition under one assignment. Pure: no I/O and no clock; time comes in as the duration
//! since a start that the caller chooses once, on a clock that does not go back.
//!
//! An offset that was delivered is in one or more of these states, and is settled once it is in none:
//! - *open*: with the present instance, and no verdict settled it yet (a deferred one stays open);
//! - *lost*: to be delivered again, since the instance that had it is gone, or asked to hold;
//! - *retrying*: to be delivered again with its attempt raised, once it is due;
//! - *letter*: rejected, and its dead letter has no successful delivery report yet;
//! - *emitting*: settled by an answer that also emitted records, not all of which are acknowledged yet.
//!
//! Its size follows the number of offsets that are not settled, about a bit each, and never their messages.

mod age;
mod backlog;
mod check;
mod retries;
mod runs;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use self::retries::Retries;
pub use self::{
    backlog::Rejected,
    check::{Checked, Hold, NotOpen, Violation},
    runs::Runs,
};
use crate::{
    offset::{NextOffset, Offset, OffsetSet},
    verdict::{Backoff, Rejection},
};

/// The code of a message that the guest wants to retry when it has had all of its attempts.
pub const RETRIES_EXHAUSTED: &str = "retries-exhausted";

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
    /// How many wait for another attempt.
    pub retried: u64,
    /// What is lost from here on, though the instance lives.
    pub hold: Option<Hold>,
    /// For [`Ledger::emit_acked`], if the answer emitted records.
    pub call: Option<CallId>,
}

impl Applied {
    /// How many are open no longer.
    pub fn settled(&self) -> u64 {
        self.accepted + self.rejected.iter().map(|(offsets, _)| offsets.len()).sum::<u64>()
    }
}

#[derive(Debug)]
struct Emitting {
    first: Option<Offset>,
    emits: usize,
}

/// See the module.
#[derive(Debug)]
pub struct Ledger {
    position: NextOffset,
    /// The most attempts of a message.
    attempts: u32,
    /// With the present instance; disjoint from `lost` and `retries`.
    open: OffsetSet,
    lost: OffsetSet,
    retries: Retries,
    /// Those that were retried or held and are not settled: age does not count for them.
    ageless: OffsetSet,
    letters: OffsetSet,
    emitting: BTreeMap<CallId, Emitting>,
    calls: u64,
    /// The highest that the host expired. An instance cannot know what was, from here down.
    expired: Option<Offset>,
    delivered: Runs<Duration>,
    leader_epochs: Runs<Option<i32>>,
    /// Counts changes of `open`.
    revision: u64,
}

impl Ledger {
    /// Nothing delivered yet; the first message to come is at `start` or behind it. Each may have this many `attempts`.
    pub fn new(start: NextOffset, attempts: u32) -> Self {
        Self {
            position: start,
            attempts,
            open: OffsetSet::new(),
            lost: OffsetSet::new(),
            retries: Retries::default(),
            ageless: OffsetSet::new(),
            letters: OffsetSet::new(),
            emitting: BTreeMap::new(),
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

    /// Lost offsets, and those due for a retry, go to the present instance, in a batch of their own.
    pub fn redelivered(&mut self, offsets: &[i64]) {
        let mut again = OffsetSet::new();
        again.insert_column(offsets);
        self.revision += 1;
        self.open.extend(&self.lost.take(&again));
        self.open.extend(&self.retries.hand_out(&again));
    }

    /// The instance is gone: everything open must be delivered again.
    pub fn lose_instance(&mut self) {
        self.revision += 1;
        self.lost.extend(&std::mem::take(&mut self.open));
    }

    /// The host rejects an offset that is lost or retrying: it is a letter from now on. `false` if it is neither, or no
    /// longer.
    pub fn give_up(&mut self, offset: Offset) -> bool {
        let given_up = self.lost.remove(offset) || self.retries.give_up(offset);
        if given_up {
            self.revision += 1;
            self.letters.insert(offset);
        }
        given_up
    }

    /// What an answer settles or has retried is taken out of what is open. `emits` is the number of records that it
    /// emitted.
    ///
    /// `checked` is from [`Ledger::check`], with nothing between the two.
    pub fn apply(&mut self, checked: Checked, emits: usize, now: Duration) -> Applied {
        let Checked { revision, accepted, mut rejected, retried, hold, deferred } = checked;
        debug_assert_eq!(revision, self.revision, "an answer is checked against what is open when it is applied");
        self.revision += 1;
        let mut waiting = OffsetSet::new();
        for (mut offsets, backoff) in retried {
            let exhausted = self.retries.exhausted(&offsets, self.attempts);
            if !exhausted.is_empty() {
                offsets.subtract(&exhausted);
                rejected.push((exhausted, Arc::new(retries_exhausted(&backoff))));
            }
            self.retries.wait(&offsets, backoff.delay, now);
            waiting.extend(&offsets);
        }
        let mut letters = OffsetSet::new();
        for (offsets, _) in &rejected {
            letters.extend(offsets);
        }
        for judged in [&accepted, &letters, &waiting] {
            self.open.subtract(judged);
        }
        self.letters.extend(&letters);
        self.settle(&accepted);
        self.ageless.extend(&waiting);
        if let Some(hold) = &hold {
            let held = self.open.split_off(hold.from);
            self.ageless.extend(&held);
            self.lost.extend(&held);
        }
        let first = [&accepted, &letters, &waiting].into_iter().filter_map(OffsetSet::first).min();
        let call = (emits > 0).then(|| self.await_emits(first, emits));
        self.prune();
        Applied { rejected, accepted: accepted.len(), deferred, retried: waiting.len(), hold, call }
    }

    /// What an answer would reject, ascending, and to which route (`None` is the default one): what its verdicts say, and
    /// what has had its last attempt.
    pub fn rejections<'c>(&self, checked: &'c Checked) -> Vec<(Offset, Option<&'c str>)> {
        let mut rejections = Vec::new();
        for (offsets, rejection) in &checked.rejected {
            rejections.extend(offsets.iter().map(|offset| (offset, rejection.route.as_deref())));
        }
        for (offsets, _) in &checked.retried {
            rejections.extend(self.retries.exhausted(offsets, self.attempts).iter().map(|offset| (offset, None)));
        }
        rejections.sort_unstable_by_key(|(offset, _)| *offset);
        rejections
    }

    fn settle(&mut self, offsets: &OffsetSet) {
        if !self.ageless.is_empty() {
            self.ageless.subtract(offsets);
            self.retries.forget(offsets);
        }
    }

    fn await_emits(&mut self, first: Option<Offset>, emits: usize) -> CallId {
        let call = CallId(self.calls);
        self.calls += 1;
        self.emitting.insert(call, Emitting { first, emits });
        call
    }

    /// The dead letter of a rejected offset has its successful delivery report.
    pub fn letter_acked(&mut self, offset: Offset) {
        self.letters.remove(offset);
        if !self.ageless.is_empty() {
            self.settle(&OffsetSet::from_iter([offset]));
        }
        self.prune();
    }

    /// One record that an answer emitted has its successful delivery report.
    pub fn emit_acked(&mut self, call: CallId) {
        if let Some(emitting) = self.emitting.get_mut(&call) {
            emitting.emits -= 1;
            if emitting.emits == 0 {
                self.emitting.remove(&call);
                self.prune();
            }
        }
    }

    /// The position that may be committed: everything delivered below it is settled.
    pub fn committable(&self) -> NextOffset {
        let emitting = self.emitting.values().filter_map(|emitting| emitting.first).min();
        [self.open.first(), self.lost.first(), self.retries.all().first(), self.letters.first(), emitting]
            .into_iter()
            .flatten()
            .min()
            .map_or(self.position, NextOffset::from)
    }

    /// The position behind the last message delivered.
    pub fn position(&self) -> NextOffset {
        self.position
    }

    /// How many offsets no verdict has settled: those with the present instance, the lost and the retrying ones.
    pub fn open_count(&self) -> u64 {
        self.open.len() + self.lost.len() + self.retries.all().len()
    }

    /// Whether any of them is with the present instance.
    pub fn has_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// What is due for a retry, and when the next will be.
    pub fn due_retries(&mut self, now: Duration) -> (&OffsetSet, Option<Duration>) {
        self.retries.ripen(now);
        (self.retries.due(), self.retries.next_due())
    }

    /// How many wait for a retry, or are due for one.
    pub fn retrying_count(&self) -> u64 {
        self.retries.all().len()
    }

    /// The attempt at which an offset is, until it is settled: 1, and one more for each retry. The one that is to come for
    /// an offset that waits, and the last one that it had for a letter.
    pub fn attempt(&self, offset: Offset) -> u32 {
        self.retries.attempt(offset)
    }

    /// What must be delivered again as soon as possible.
    pub fn lost(&self) -> &OffsetSet {
        &self.lost
    }

    /// Rejected offsets whose dead letters are not acknowledged.
    pub fn letters(&self) -> &OffsetSet {
        &self.letters
    }

    /// How many answers wait for records that they emitted.
    pub fn emitting_count(&self) -> usize {
        self.emitting.len()
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

fn retries_exhausted(backoff: &Backoff) -> Rejection {
    let Backoff { code, reason, .. } = backoff;
    Rejection { route: None, code: RETRIES_EXHAUSTED.to_owned(), reason: format!("{code}: {reason}") }
}
