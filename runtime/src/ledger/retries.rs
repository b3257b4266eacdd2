//! Offsets that wait for another attempt, and the attempts of each. Coalesced: a bitmap for each time and for each number,
//! so that very many that wait stay small.

use std::{collections::BTreeMap, time::Duration};

use crate::offset::{Offset, OffsetSet};

/// A wait is rounded up by this part of itself at most. Bounds the number of times that are kept: some for each power
/// of two that a delay can have.
const STEP_PER_DELAY: u32 = 16;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Retries {
    waiting: BTreeMap<Duration, OffsetSet>,
    /// Their time has come, and they were not handed out yet.
    due: OffsetSet,
    /// What waits and what is due.
    all: OffsetSet,
    /// Attempts above 1, of offsets that are not settled.
    attempts: BTreeMap<u32, OffsetSet>,
}

impl Retries {
    /// The next attempt of each of these is after `delay`.
    pub(super) fn wait(&mut self, offsets: &OffsetSet, delay: Duration, now: Duration) {
        if offsets.is_empty() {
            return;
        }
        self.raise(offsets);
        self.all.extend(offsets);
        self.waiting.entry(due(now, delay)).or_default().extend(offsets);
    }

    fn raise(&mut self, offsets: &OffsetSet) {
        let mut first = offsets.clone();
        let mut raised = Vec::new();
        for (attempt, set) in &mut self.attempts {
            let hit = set.take(&first);
            first.subtract(&hit);
            raised.push((attempt + 1, hit));
        }
        raised.push((2, first));
        for (attempt, set) in raised {
            self.attempts.entry(attempt).or_default().extend(&set);
        }
        self.attempts.retain(|_, set| !set.is_empty());
    }

    /// The attempt at which an offset is, or will be when it is handed out again.
    pub(super) fn attempt(&self, offset: Offset) -> u32 {
        self.attempts.iter().find(|(_, set)| set.contains(offset)).map_or(1, |(attempt, _)| *attempt)
    }

    /// Those of some offsets that have had `most` attempts.
    pub(super) fn exhausted(&self, offsets: &OffsetSet, most: u32) -> OffsetSet {
        if most <= 1 {
            return offsets.clone();
        }
        let mut exhausted = OffsetSet::new();
        for (_, set) in self.attempts.range(most..) {
            exhausted.extend(set);
        }
        exhausted.intersect(offsets);
        exhausted
    }

    /// Marks as due what is due now.
    pub(super) fn ripen(&mut self, now: Duration) {
        while let Some(entry) = self.waiting.first_entry()
            && *entry.key() <= now
        {
            self.due.extend(&entry.remove());
        }
    }

    /// What is due, as [`Retries::ripen`] found it last.
    pub(super) fn due(&self) -> &OffsetSet {
        &self.due
    }

    /// When the first of those that wait is due.
    pub(super) fn next_due(&self) -> Option<Duration> {
        self.waiting.first_key_value().map(|(at, _)| *at)
    }

    /// Takes out those of some offsets that are due.
    pub(super) fn hand_out(&mut self, offsets: &OffsetSet) -> OffsetSet {
        let out = self.due.take(offsets);
        self.all.subtract(&out);
        out
    }

    /// Takes out one that is never handed out again. `false` if it does not wait, and is not due.
    pub(super) fn give_up(&mut self, offset: Offset) -> bool {
        let was_there = self.all.remove(offset);
        if was_there {
            self.due.remove(offset);
            self.waiting.values_mut().for_each(|set| _ = set.remove(offset));
            self.waiting.retain(|_, set| !set.is_empty());
            let had = self.attempt(offset) - 1;
            self.forget(&OffsetSet::from_iter([offset]));
            if had > 1 {
                self.attempts.entry(had).or_default().insert(offset);
            }
        }
        was_there
    }

    /// Everything that was not handed out.
    pub(super) fn all(&self) -> &OffsetSet {
        &self.all
    }

    /// Some offsets are settled: their attempts are forgotten.
    pub(super) fn forget(&mut self, settled: &OffsetSet) {
        if !self.attempts.is_empty() {
            self.attempts.values_mut().for_each(|set| set.subtract(settled));
            self.attempts.retain(|_, set| !set.is_empty());
        }
    }

    /// What it takes, near enough.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        let sets = self.waiting.values().chain(self.attempts.values()).chain([&self.due, &self.all]);
        sets.map(|set| size_of::<(Duration, OffsetSet)>() + set.serialized_size()).sum()
    }
}

/// When something is due, on a grid that is the finer the shorter the delay is.
fn due(now: Duration, delay: Duration) -> Duration {
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let step = (millis(delay / STEP_PER_DELAY) + 1).next_power_of_two() / 2;
    let step = step.max(1);
    Duration::from_millis(millis(now + delay).saturating_add(1).div_ceil(step).saturating_mul(step))
}
