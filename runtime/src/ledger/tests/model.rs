//! The ledger again, naively: one entry for each message, everything by walking all of them.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use crate::{
    ledger::{Applied, CallId, Ledger, NotOpen, RETRIES_EXHAUSTED, Violation},
    offset::{NextOffset, Offset},
    verdict::{OffsetRange, Outcome, Verdict},
};

/// The most attempts of a message.
pub(super) const ATTEMPTS: u32 = 3;

/// An answer as it is applied.
#[derive(Clone, Copy)]
pub(super) struct Answer<'a> {
    pub(super) verdicts: &'a [Verdict],
    pub(super) batch: Option<&'a [i64]>,
    pub(super) emits: usize,
    pub(super) now: Duration,
}

pub(super) fn offset(raw: i64) -> Offset {
    Offset::new(raw).unwrap()
}

#[derive(Clone, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "a naive model has a flag for each fact")]
struct Message {
    open: bool,
    lost: bool,
    /// Waits for a retry since then, and for how long.
    retry: Option<(Duration, Duration)>,
    attempt: u32,
    ageless: bool,
    letter: bool,
    /// Answers with emitted records that judged it: more than one if it was retried.
    calls: Vec<CallId>,
    at: Duration,
    epoch: i32,
}

impl Message {
    fn settled(&self) -> bool {
        !self.open && !self.letter && self.calls.is_empty() && self.retry.is_none()
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

    /// The last few from there down where the host expired some, without those that are still open; a guest may name these.
    pub(super) fn expired(&self, count: usize) -> Vec<i64> {
        let closed = |(_, message): &(&i64, &Message)| !message.open && message.retry.is_none();
        let expired = self.messages.range(..=self.expired).rev().filter(closed).take(count);
        let mut last: Vec<i64> = expired.map(|(raw, _)| *raw).collect();
        last.reverse();
        last
    }

    /// What can be handed out again, because it is lost or due.
    pub(super) fn lost_or_due(&self, ledger: &mut Ledger, now: Duration) -> Vec<i64> {
        let (due, _) = ledger.due_retries(now);
        let due = due.clone();
        self.pick(|message| message.lost)
            .into_iter()
            .chain(due.iter().map(Offset::get))
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect()
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
            let message = Message {
                open: true,
                lost: false,
                retry: None,
                attempt: 1,
                ageless: false,
                letter: false,
                calls: Vec::new(),
                at: now,
                epoch: *epoch,
            };
            self.messages.insert(*offset, message);
            self.position = offset + 1;
        }
    }

    pub(super) fn redelivered(&mut self, offsets: &[i64]) {
        for offset in offsets {
            let message = self.messages.get_mut(offset).unwrap();
            message.open |= message.retry.take().is_some();
            message.lost = false;
        }
    }

    pub(super) fn give_up(&mut self, raw: i64) {
        let message = self.messages.get_mut(&raw).unwrap();
        message.attempt -= u32::from(message.retry.is_some());
        (message.open, message.lost, message.retry, message.letter) = (false, false, None, true);
    }

    /// Tries what cannot be given up: what is with the instance, and what is not there yet.
    pub(super) fn position_is_given_up(&self, ledger: &mut Ledger) -> bool {
        let not_lost = self.open_here().into_iter().chain([self.position]);
        not_lost.map(offset).any(|offset| ledger.give_up(offset))
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
                } else if self.messages.get(&raw).is_some_and(|message| message.retry.is_some()) {
                    NotOpen::Retrying
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
    pub(super) fn apply(&mut self, answer: &Answer<'_>, applied: &Applied) {
        let Answer { verdicts, batch, emits, now } = *answer;
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
        let held = outcomes.iter().find(|(_, outcome)| matches!(outcome, Some(Outcome::Hold(_)))).map(|(raw, _)| *raw);
        assert_eq!(applied.hold.as_ref().map(|hold| hold.from.get()), held);
        if let Some(held) = held {
            outcomes.split_off(&held);
            for raw in here.iter().filter(|raw| **raw >= held) {
                let message = self.messages.get_mut(raw).unwrap();
                (message.lost, message.ageless) = (true, true);
            }
        }
        let (mut accepted, mut deferred, mut retried, mut rejected) = (0, 0, 0, Vec::new());
        for (raw, outcome) in outcomes {
            let message = self.messages.get_mut(&raw).unwrap();
            match outcome {
                None | Some(Outcome::Accept) => accepted += 1,
                Some(Outcome::Reject(rejection)) => {
                    message.letter = true;
                    rejected.push((raw, rejection.code.clone()));
                }
                Some(Outcome::Retry(backoff)) if message.attempt < ATTEMPTS => {
                    retried += 1;
                    message.attempt += 1;
                    message.retry = Some((now, backoff.delay));
                    message.ageless = true;
                }
                Some(Outcome::Retry(_)) => {
                    message.letter = true;
                    rejected.push((raw, RETRIES_EXHAUSTED.to_owned()));
                }
                Some(Outcome::Defer) => {
                    deferred += 1;
                    continue;
                }
                Some(Outcome::Hold(_)) => unreachable!("what is held is void"),
            }
            message.open = false;
            message.calls.extend(applied.call);
        }
        if let Some(call) = applied.call {
            assert!(self.emits.insert(call, emits).is_none(), "a call's number is new");
        }
        let mut told: Vec<_> = applied
            .rejected
            .iter()
            .flat_map(|(offsets, rejection)| offsets.iter().map(|offset| (offset.get(), rejection.code.clone())))
            .collect();
        told.sort_by_key(|(offset, _)| *offset);
        let counts = (applied.accepted, applied.deferred, applied.retried);
        assert_eq!((counts, told), ((accepted, deferred, retried), rejected));
    }

    pub(super) fn letter_acked(&mut self, offset: i64) {
        self.messages.get_mut(&offset).unwrap().letter = false;
    }

    pub(super) fn emit_acked(&mut self, call: CallId) {
        let left = self.emits.get_mut(&call).unwrap();
        *left -= 1;
        if *left == 0 {
            self.emits.remove(&call);
            self.messages.values_mut().for_each(|message| message.calls.retain(|of| *of != call));
        }
    }

    /// Ages may come out up to a second too high, hence the two bounds.
    pub(super) fn expire(&mut self, now: Duration, max_age: Duration, max_open: usize, expired: &[i64]) {
        let open = self.pick(|message| message.open && !message.ageless);
        let count = self.pick(|message| message.open || message.retry.is_some()).len();
        let excess = count.saturating_sub(max_open);
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

    pub(super) fn agree(&mut self, ledger: &mut Ledger, now: Duration) {
        self.agree_on_retries(ledger, now);
        let unsettled = self.pick(|message| !message.settled());
        let committable = unsettled.first().copied().unwrap_or(self.position);
        assert_eq!(ledger.committable(), NextOffset::new(committable).unwrap());
        assert!(self.committed <= committable, "the committable position went back");
        self.committed = committable;
        assert_eq!(ledger.position().get(), self.position);
        let open = self.pick(|message| message.open || message.retry.is_some());
        assert_eq!(ledger.open_count(), open.len() as u64);
        assert_eq!(ledger.has_open(), !self.open_here().is_empty());
        let open = self.pick(|message| message.open && !message.ageless);
        assert_eq!(ledger.oldest().map(Offset::get), open.first().copied());
        assert_eq!(ledger.lost().iter().map(Offset::get).collect::<Vec<_>>(), self.lost());
        assert_eq!(ledger.letters().iter().map(Offset::get).collect::<Vec<_>>(), self.letters());
        assert_eq!(ledger.emitting_count(), self.emits.len());
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

    /// What waits is due when its delay is over, or a little later.
    fn agree_on_retries(&self, ledger: &mut Ledger, now: Duration) {
        let retrying = self.pick(|message| message.retry.is_some());
        assert_eq!(ledger.retrying_count(), retrying.len() as u64);
        let (due, next) = ledger.due_retries(now);
        let due: Vec<i64> = due.iter().map(Offset::get).collect();
        assert_eq!(next.is_some(), due.len() < retrying.len());
        assert!(next.is_none_or(|next| next > now));
        for raw in retrying {
            let (since, delay) = self.messages[&raw].retry.unwrap();
            let waited = now.saturating_sub(since);
            assert!(
                waited >= delay || !due.contains(&raw),
                "{raw} is due {delay:?} after {since:?}, at {now:?} already"
            );
            assert!(
                waited < late(delay) || due.contains(&raw),
                "{raw} is due {delay:?} after {since:?}, and not at {now:?}"
            );
        }
        for (raw, message) in
            self.messages.iter().filter(|(_, message)| message.open || message.letter || message.retry.is_some())
        {
            assert_eq!(ledger.attempt(offset(*raw)), message.attempt, "the attempt of {raw}");
        }
    }
}

/// By when a retry with some delay is due at the latest.
fn late(delay: Duration) -> Duration {
    delay + delay / 8 + Duration::from_millis(2)
}
