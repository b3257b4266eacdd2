//! The ledger again, naively: one entry for each message, everything by walking all of them.

use std::{collections::BTreeMap, time::Duration};

use crate::{
    ledger::{Applied, CallId, Ledger, NotOpen, Violation},
    offset::{NextOffset, Offset},
    verdict::{OffsetRange, Outcome, Verdict},
};

pub(super) fn offset(raw: i64) -> Offset {
    Offset::new(raw).unwrap()
}

#[derive(Clone, Debug)]
struct Message {
    open: bool,
    lost: bool,
    letter: bool,
    call: Option<CallId>,
    at: Duration,
    epoch: i32,
}

impl Message {
    fn settled(&self) -> bool {
        !self.open && !self.letter && self.call.is_none()
    }
}

#[derive(Debug)]
pub(super) struct Model {
    messages: BTreeMap<i64, Message>,
    position: i64,
    emits: BTreeMap<CallId, usize>,
    expired: i64,
    committed: i64,
}

impl Model {
    pub(super) fn new(start: i64) -> Self {
        Self { messages: BTreeMap::new(), position: start, emits: BTreeMap::new(), expired: -1, committed: start }
    }

    fn pick(&self, is: impl Fn(&Message) -> bool) -> Vec<i64> {
        self.messages.iter().filter(|(_, message)| is(message)).map(|(offset, _)| *offset).collect()
    }

    pub(super) fn open_here(&self) -> Vec<i64> {
        self.pick(|message| message.open && !message.lost)
    }

    pub(super) fn lost(&self) -> Vec<i64> {
        self.pick(|message| message.lost)
    }

    /// The last few that the host expired; a guest may name these.
    pub(super) fn expired(&self, count: usize) -> Vec<i64> {
        let mut last: Vec<i64> = self.messages.range(..=self.expired).rev().take(count).map(|(raw, _)| *raw).collect();
        last.reverse();
        last
    }

    pub(super) fn letters(&self) -> Vec<i64> {
        self.pick(|message| message.letter)
    }

    pub(super) fn calls(&self) -> Vec<CallId> {
        self.emits.keys().copied().collect()
    }

    pub(super) fn position(&self) -> i64 {
        self.position
    }

    pub(super) fn deliver(&mut self, offsets: &[i64], epochs: &[i32], now: Duration) {
        for (offset, epoch) in offsets.iter().zip(epochs) {
            let message = Message { open: true, lost: false, letter: false, call: None, at: now, epoch: *epoch };
            self.messages.insert(*offset, message);
            self.position = offset + 1;
        }
    }

    pub(super) fn redelivered(&mut self, offsets: &[i64]) {
        for offset in offsets {
            self.messages.get_mut(offset).unwrap().lost = false;
        }
    }

    pub(super) fn lose_instance(&mut self) {
        self.messages.values_mut().filter(|message| message.open).for_each(|message| message.lost = true);
    }

    fn covered(&self, range: OffsetRange) -> Vec<i64> {
        let within = |offset: &i64| (range.first.get()..=range.last.get()).contains(offset);
        self.open_here().into_iter().filter(within).collect()
    }

    fn ranges(verdicts: &[Verdict]) -> Vec<OffsetRange> {
        verdicts.iter().flat_map(|verdict| verdict.offsets.clone()).collect()
    }

    fn excused(&self, end: Offset) -> bool {
        self.open_here().contains(&end.get()) || end.get() <= self.expired
    }

    pub(super) fn valid(&self, verdicts: &[Verdict]) -> bool {
        let ranges = Self::ranges(verdicts);
        let mut named: Vec<i64> = ranges.iter().flat_map(|range| self.covered(*range)).collect();
        let count = named.len();
        named.sort_unstable();
        named.dedup();
        named.len() == count && ranges.iter().all(|range| self.excused(range.first) && self.excused(range.last))
    }

    /// Whether what the ledger found wrong is so.
    pub(super) fn confirms(&self, verdicts: &[Verdict], violation: &Violation) -> bool {
        let ranges = Self::ranges(verdicts);
        match violation {
            Violation::NotOpen { range, offset, why, .. } => {
                let raw = offset.get();
                let truth = if raw >= self.position {
                    NotOpen::Undelivered
                } else if self.lost().contains(&raw) {
                    NotOpen::Lost
                } else {
                    NotOpen::Closed
                };
                ranges.contains(range)
                    && (range.first == *offset || range.last == *offset)
                    && !self.excused(*offset)
                    && *why == truth
            }
            Violation::Shared { offset, one, other } => {
                let named =
                    |range: &OffsetRange| ranges.contains(range) && self.covered(*range).contains(&offset.get());
                named(one) && named(other)
            }
        }
    }

    /// Applies a valid answer, and compares what the ledger says of it.
    pub(super) fn apply(&mut self, verdicts: &[Verdict], batch: Option<&[i64]>, emits: usize, applied: &Applied) {
        assert_eq!(applied.call.is_some(), emits > 0);
        let mut outcomes: BTreeMap<i64, Option<&Outcome>> = BTreeMap::new();
        let here = self.open_here();
        for offset in batch.unwrap_or_default().iter().filter(|offset| here.contains(offset)) {
            outcomes.insert(*offset, None);
        }
        for verdict in verdicts {
            for offset in verdict.offsets.iter().flat_map(|range| self.covered(*range)) {
                outcomes.insert(offset, Some(&verdict.outcome));
            }
        }
        let (mut accepted, mut deferred, mut rejected) = (0, 0, Vec::new());
        for (raw, outcome) in outcomes {
            let message = self.messages.get_mut(&raw).unwrap();
            match outcome {
                None | Some(Outcome::Accept) => accepted += 1,
                Some(Outcome::Reject(rejection)) => {
                    message.letter = true;
                    rejected.push((raw, rejection.clone()));
                }
                Some(Outcome::Defer) => {
                    deferred += 1;
                    continue;
                }
                Some(Outcome::Retry(_) | Outcome::Hold(_)) => continue,
            }
            message.open = false;
            message.call = applied.call;
        }
        if let Some(call) = applied.call {
            assert!(self.emits.insert(call, emits).is_none(), "a call's number is new");
        }
        let mut told: Vec<_> = applied
            .rejected
            .iter()
            .flat_map(|(offsets, rejection)| offsets.iter().map(|offset| (offset.get(), rejection.clone())))
            .collect();
        told.sort_by_key(|(offset, _)| *offset);
        assert_eq!((applied.accepted, applied.deferred, told), (accepted, deferred, rejected));
    }

    pub(super) fn letter_acked(&mut self, offset: i64) {
        self.messages.get_mut(&offset).unwrap().letter = false;
    }

    pub(super) fn emit_acked(&mut self, call: CallId) {
        let left = self.emits.get_mut(&call).unwrap();
        *left -= 1;
        if *left == 0 {
            self.emits.remove(&call);
            self.messages
                .values_mut()
                .filter(|message| message.call == Some(call))
                .for_each(|message| message.call = None);
        }
    }

    /// Ages may come out up to a second too high, hence the two bounds.
    pub(super) fn expire(&mut self, now: Duration, max_age: Duration, max_open: usize, expired: &[i64]) {
        let open = self.pick(|message| message.open);
        let excess = open.len().saturating_sub(max_open);
        assert_eq!(open.get(..expired.len()), Some(expired), "the lowest, and no hole among them");
        for (index, raw) in open.iter().enumerate() {
            let message = self.messages.get_mut(raw).unwrap();
            let age = now.saturating_sub(message.at);
            let is = expired.contains(raw);
            assert!(is || (index >= excess && age < max_age), "{raw} of age {age:?} should be expired");
            assert!(!is || index < excess || age + Duration::from_secs(1) > max_age, "{raw} of age {age:?} is expired");
            if is {
                *message = Message { open: false, lost: false, letter: true, ..message.clone() };
                self.expired = *raw;
            }
        }
    }

    pub(super) fn agree(&mut self, ledger: &Ledger, now: Duration) {
        let unsettled = self.pick(|message| !message.settled());
        let committable = unsettled.first().copied().unwrap_or(self.position);
        assert_eq!(ledger.committable(), NextOffset::new(committable).unwrap());
        assert!(self.committed <= committable, "the committable position went back");
        self.committed = committable;
        assert_eq!(ledger.position().get(), self.position);
        let open = self.pick(|message| message.open);
        assert_eq!(ledger.open_count(), open.len() as u64);
        assert_eq!(ledger.oldest().map(Offset::get), open.first().copied());
        assert_eq!(ledger.lost().iter().map(Offset::get).collect::<Vec<_>>(), self.lost());
        assert_eq!(ledger.letters().iter().map(Offset::get).collect::<Vec<_>>(), self.letters());
        assert_eq!(ledger.held_count(), self.emits.len());
        match (ledger.oldest_age(now), open.first()) {
            (None, None) => {}
            (Some(age), Some(oldest)) => {
                let truth = now.saturating_sub(self.messages[oldest].at);
                assert!(truth <= age && age < truth + Duration::from_secs(1), "{age:?} for {truth:?}");
            }
            (age, oldest) => panic!("{oldest:?} is of age {age:?}"),
        }
        for raw in unsettled {
            let epoch = Some(self.messages[&raw].epoch).filter(|epoch| *epoch >= 0);
            assert_eq!(ledger.leader_epochs().get(offset(raw)), Some(epoch), "the leader epoch of {raw}");
        }
    }
}
