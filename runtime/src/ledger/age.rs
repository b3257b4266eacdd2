//! How long offsets have been open, and what the host rejects for it.

use std::time::Duration;

use super::Ledger;
use crate::offset::{Offset, OffsetSet};

/// Deliveries this close together share one time, and so do those closer than this part of the oldest's age: the number
/// of times that are kept grows with the logarithm of that age.
const STEP: Duration = Duration::from_secs(1);
const STEP_PER_AGE: u32 = 512;

impl Ledger {
    /// What comes from `first` on was delivered now.
    pub(super) fn mark(&mut self, first: Offset, now: Duration) {
        let since = |at| now.saturating_sub(at);
        let step = self.delivered.first().map_or(STEP, |oldest| STEP.max(since(oldest) / STEP_PER_AGE));
        let near = self.delivered.last().filter(|last| since(*last) < step);
        self.delivered.push(first, near.unwrap_or(now));
    }

    /// Open or lost, and never retried or held: what can expire.
    fn aging(&self) -> OffsetSet {
        let mut aging = self.open.clone();
        aging.extend(&self.lost);
        aging.subtract(&self.ageless);
        aging
    }

    /// The lowest offset that can expire: open or lost, and never retried or held.
    pub fn oldest(&self) -> Option<Offset> {
        if self.ageless.is_empty() {
            return self.open.first().into_iter().chain(self.lost.first()).min();
        }
        self.aging().first()
    }

    /// For how long the oldest has been open. Delivery times are kept coarsely: this may be too much by a second, or by
    /// 1/512 of what the oldest was at its delivery.
    pub fn oldest_age(&self, now: Duration) -> Option<Duration> {
        Some(now.saturating_sub(self.delivered.get(self.oldest()?)?))
    }

    /// What has been open for `max_age` (as [`Ledger::oldest_age`] has it, perhaps a little early), and the lowest of what
    /// is more than `max_open`; nothing that was retried or held.
    pub fn overdue(&self, now: Duration, max_age: Duration, max_open: u64) -> OffsetSet {
        let excess = self.open_count().saturating_sub(max_open);
        if excess == 0 && self.oldest_age(now).is_none_or(|age| age < max_age) {
            return OffsetSet::new();
        }
        let mut overdue = self.aging();
        let young = self.delivered.find(|at| now.saturating_sub(at) < max_age);
        if let Some(kept) = young.zip(overdue.select(excess)).map(|(young, within)| young.max(within)) {
            overdue.truncate(kept);
        }
        overdue
    }

    /// The host rejects what is [`Ledger::overdue`]: letters from now on. A verdict that still names them is not a
    /// violation, and does nothing.
    pub fn expire(&mut self, overdue: &OffsetSet) {
        self.revision += 1;
        self.open.subtract(overdue);
        self.lost.subtract(overdue);
        self.letters.extend(overdue);
        self.expired = overdue.last().max(self.expired);
    }
}
