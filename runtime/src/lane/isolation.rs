//! Finds the messages at which a guest fails. Pure: it says what to try next, and hears what came of it.
//!
//! A batch that failed is tried once more as it is, since a leak or a fault of the guest's state is not the message's
//! fault. If it fails again it is split in halves, and only parts that fail are split on. A part that succeeds counts: its
//! verdicts stand. An offset that fails alone, twice, is a culprit, once the guest has shown that it can judge anything.

use std::time::Duration;

use crate::{
    guest::{Failure, FailureKind},
    offset::{Offset, OffsetSet},
};

#[cfg(test)]
mod tests;

/// How many times the deadline all calls may take.
const DEADLINES: u32 = 60;

/// Failures until the first culprit is found, and from each to the next one. Halving the largest batch takes 20.
const FAILURES_PER_CULPRIT: usize = 25;

/// How many times the deadline an offset alone may take.
const ALONE: u32 = 3;

/// What to do next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step<'a> {
    /// Hand these out on a fresh instance, and give it this many times its deadline.
    Try { offsets: &'a [Offset], deadlines: u32 },
    /// All is judged, or a culprit.
    Done,
    /// Nothing can be said of the messages.
    Stop(Stop),
}

/// Why an isolation gives up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Stop {
    #[error("every message fails alone, so that the fault is the guest's: none of them is rejected")]
    EveryMessageFails,
    #[error("the messages at which the guest fails were not found in {} times its deadline", DEADLINES)]
    OutOfTime,
    #[error("the guest fails again and again, and no single message is the cause")]
    TooManyFailures,
}

/// An offset that fails alone, and how.
pub(super) type Culprit = (Offset, Failure);

#[derive(Debug)]
struct Part {
    offsets: Vec<Offset>,
    /// Failures until it is split, or is a culprit.
    strikes: u32,
}

/// What is known of the messages of one batch, and of redeliveries that failed meanwhile.
#[derive(Debug)]
pub(super) struct Isolation {
    deadline: Duration,
    /// To be tried, the next one last.
    parts: Vec<Part>,
    /// What is to be tried, and culprits that wait for the guest to show that it works.
    undecided: OffsetSet,
    waiting: Vec<Culprit>,
    found: usize,
    failures: usize,
    spent: Duration,
    /// The guest has judged something well.
    works: bool,
    /// Several messages together took too long, twice.
    too_large: bool,
}

impl Isolation {
    /// No suspicion yet. `works` says whether the guest did well just before: it counts where a batch of one message gives
    /// nothing to compare with.
    pub(super) fn new(deadline: Duration, works: bool) -> Self {
        Self {
            deadline,
            parts: Vec::new(),
            undecided: OffsetSet::new(),
            waiting: Vec::new(),
            found: 0,
            failures: 0,
            spent: Duration::ZERO,
            works,
            too_large: false,
        }
    }

    /// These were handed out together, and the guest failed.
    pub(super) fn suspect(&mut self, offsets: Vec<Offset>, failure: &Failure, took: Duration) {
        if self.failures == 0 {
            self.works &= offsets.len() == 1;
        }
        self.note(took);
        self.undecided.extend(&offsets.iter().copied().collect());
        self.parts.push(Part::new(offsets));
        // One that was alone has failed alone once; but a timeout counts only after the longer deadline.
        if self.parts.last().is_some_and(|part| part.offsets.len() == 1) && failure.kind != FailureKind::Timeout {
            self.strike(failure);
        }
    }

    /// What to do next.
    pub(super) fn next(&self) -> Step<'_> {
        let Some(part) = self.parts.last() else {
            let every = !self.works && self.found > 1;
            return if every { Step::Stop(Stop::EveryMessageFails) } else { Step::Done };
        };
        if self.spent > self.deadline.saturating_mul(DEADLINES) {
            return Step::Stop(Stop::OutOfTime);
        }
        if self.failures > FAILURES_PER_CULPRIT * (self.found + 1) {
            return Step::Stop(Stop::TooManyFailures);
        }
        Step::Try { offsets: &part.offsets, deadlines: if part.offsets.len() == 1 { ALONE } else { 1 } }
    }

    /// What was tried last is judged.
    pub(super) fn succeeded(&mut self, took: Duration) {
        self.spent += took;
        self.works = true;
        if let Some(part) = self.parts.pop() {
            self.undecided.subtract(&part.offsets.into_iter().collect());
        }
    }

    /// The guest failed at what was tried last.
    pub(super) fn failed(&mut self, failure: &Failure, took: Duration) {
        self.note(took);
        self.strike(failure);
    }

    fn note(&mut self, took: Duration) {
        self.failures += 1;
        self.spent += took;
    }

    fn strike(&mut self, failure: &Failure) {
        let Some(mut part) = self.parts.pop() else { return };
        part.strikes -= 1;
        if part.strikes > 0 {
            self.parts.push(part);
        } else if let [alone] = *part.offsets {
            self.found += 1;
            self.waiting.push((alone, failure.clone()));
        } else {
            self.too_large |= failure.kind == FailureKind::Timeout;
            let second = part.offsets.split_off(part.offsets.len() / 2);
            self.parts.extend([second, part.offsets].map(Part::new));
        }
    }

    /// Culprits that are to be rejected: none, as long as it might be the guest that fails at anything.
    pub(super) fn take_culprits(&mut self) -> Vec<Culprit> {
        if self.works { self.take_suspects() } else { Vec::new() }
    }

    /// All culprits that were not taken yet.
    pub(super) fn take_suspects(&mut self) -> Vec<Culprit> {
        self.undecided.subtract(&self.waiting.iter().map(|(offset, _)| *offset).collect());
        std::mem::take(&mut self.waiting)
    }

    /// What is not judged, and no redelivery's business.
    pub(super) fn undecided(&self) -> &OffsetSet {
        &self.undecided
    }

    /// Whether it is the size of a batch that takes too long, rather than any message of it.
    pub(super) fn blames_size(&self) -> bool {
        self.too_large && self.found == 0
    }
}

impl Part {
    fn new(offsets: Vec<Offset>) -> Self {
        let strikes = if offsets.len() == 1 { 2 } else { 1 };
        Self { offsets, strikes }
    }
}
