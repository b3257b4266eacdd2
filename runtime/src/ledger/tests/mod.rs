mod backlog;
mod model;

use std::{sync::Arc, time::Duration};

use proptest::{collection::vec, prelude::*, sample::Index};

use self::model::{ATTEMPTS, Answer, Model, offset};
use super::{Ledger, NotOpen, Violation};
use crate::{
    offset::{NextOffset, Offset, OffsetSet},
    verdict::{Backoff, OffsetRange, Outcome, Rejection, Verdict},
};

fn range(first: i64, last: i64) -> OffsetRange {
    OffsetRange { first: offset(first), last: offset(last) }
}

fn ledger(start: i64) -> Ledger {
    Ledger::new(NextOffset::new(start).unwrap(), ATTEMPTS)
}

fn verdict(outcome: Outcome, ranges: &[(i64, i64)]) -> Verdict {
    Verdict { offsets: ranges.iter().map(|(first, last)| range(*first, *last)).collect(), outcome }
}

fn reject(code: &str) -> Outcome {
    Outcome::Reject(Arc::new(Rejection { route: None, code: code.to_owned(), reason: String::new() }))
}

fn backoff(millis: u64) -> Backoff {
    Backoff { delay: Duration::from_millis(millis), code: "busy".to_owned(), reason: "away".to_owned() }
}

/// One stretch of what is open: skip some, name some, perhaps with a mistake at an end.
#[derive(Clone, Debug)]
struct Stretch {
    skip: usize,
    take: usize,
    outcome: Outcome,
    /// Joins the verdict before, whatever its own outcome.
    join: bool,
    /// Added to the ends.
    off: (i64, i64),
}

#[derive(Clone, Debug)]
enum Step {
    Deliver { gaps: Vec<i64>, epoch: i32 },
    Redeliver { first: Index, count: usize },
    Answer { of_batch: bool, stretches: Vec<Stretch>, shift: Index, emits: usize },
    LetterAcked(Index),
    EmitAcked(Index),
    LoseInstance,
    GiveUp(Index),
    Expire { max_age: u64, max_open: usize },
    Wait(u64),
}

fn stretches() -> impl Strategy<Value = Vec<Stretch>> {
    let outcome = prop_oneof![
        3 => Just(Outcome::Accept),
        3 => "[ab]".prop_map(|code| reject(&code)),
        3 => Just(Outcome::Defer),
        3 => prop_oneof![Just(0), 0..4_000_u64].prop_map(|millis| Outcome::Retry(backoff(millis))),
        1 => Just(Outcome::Hold(backoff(0))),
    ];
    let off = prop_oneof![12 => Just((0, 0)), 1 => (-3..4_i64, -3..4_i64)];
    let stretch = (0..4_usize, 1..5_usize, outcome, any::<bool>(), off)
        .prop_map(|(skip, take, outcome, join, off)| Stretch { skip, take, outcome, join, off });
    vec(stretch, 0..5)
}

fn step() -> impl Strategy<Value = Step> {
    let gap = prop_oneof![4 => Just(0), 1 => 1..4_i64, 1 => Just(70_000)];
    let answer = (any::<bool>(), stretches(), any::<Index>(), prop_oneof![2 => Just(0), 1 => 1..3_usize]);
    prop_oneof![
        4 => (vec(gap, 1..12), -1..3).prop_map(|(gaps, epoch)| Step::Deliver { gaps, epoch }),
        2 => (any::<Index>(), 1..8_usize).prop_map(|(first, count)| Step::Redeliver { first, count }),
        6 => answer.prop_map(|(of_batch, stretches, shift, emits)| Step::Answer { of_batch, stretches, shift, emits }),
        5 => any::<Index>().prop_map(Step::LetterAcked),
        4 => any::<Index>().prop_map(Step::EmitAcked),
        1 => Just(Step::LoseInstance),
        1 => any::<Index>().prop_map(Step::GiveUp),
        1 => (0..6_000_u64, 0..30_usize).prop_map(|(max_age, max_open)| Step::Expire { max_age, max_open }),
        2 => (0..3_000_u64).prop_map(Step::Wait),
    ]
}

fn verdicts(open: &[i64], stretches: &[Stretch], shift: Index) -> Vec<Verdict> {
    let mut verdicts: Vec<Verdict> = Vec::new();
    let mut rest = open;
    for Stretch { skip, take, outcome, join, off } in stretches {
        rest = rest.get(*skip..).unwrap_or_default();
        let (named, behind) = rest.split_at(rest.len().min(*take));
        rest = behind;
        let (Some(first), Some(last)) = (named.first(), named.last()) else { break };
        let first = (first + off.0).max(0);
        let offsets = range(first, first.max(last + off.1));
        match verdicts.last_mut() {
            Some(before) if *join => before.offsets.insert(0, offsets),
            _ => verdicts.push(Verdict { offsets: vec![offsets], outcome: outcome.clone() }),
        }
    }
    if !verdicts.is_empty() {
        let middle = shift.index(verdicts.len());
        verdicts.rotate_left(middle);
    }
    verdicts
}

struct World {
    ledger: Ledger,
    model: Model,
    now: Duration,
    batch: Option<Vec<i64>>,
}

impl World {
    fn new(start: i64) -> Self {
        Self { ledger: ledger(start), model: Model::new(start), now: Duration::ZERO, batch: None }
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Deliver { gaps, epoch } => self.deliver(gaps, *epoch),
            Step::Redeliver { first, count } => {
                let lost = self.model.lost_or_due(&mut self.ledger, self.now);
                if !lost.is_empty() {
                    let lost = lost.iter().skip(first.index(lost.len())).take(*count);
                    // What expired while it was read again comes, too.
                    let mut batch: Vec<i64> = self.model.expired(1).iter().chain(lost).copied().collect();
                    batch.sort_unstable();
                    batch.dedup();
                    self.ledger.redelivered(&batch);
                    self.model.redelivered(&batch);
                    self.batch = Some(batch);
                }
            }
            Step::Answer { of_batch, stretches, shift, emits } => {
                let mut open = [self.model.expired(4), self.model.open_here()].concat();
                open.sort_unstable();
                let verdicts = verdicts(&open, stretches, *shift);
                let batch = if *of_batch { self.batch.take() } else { None };
                self.answer(&verdicts, batch.as_deref(), *emits);
            }
            Step::LetterAcked(index) => {
                let letters = self.model.letters();
                if !letters.is_empty() {
                    let letter = *index.get(&letters);
                    self.ledger.letter_acked(offset(letter));
                    self.model.letter_acked(letter);
                }
            }
            Step::EmitAcked(index) => {
                let calls = self.model.calls();
                if !calls.is_empty() {
                    let call = *index.get(&calls);
                    self.ledger.emit_acked(call);
                    self.model.emit_acked(call);
                }
            }
            Step::LoseInstance => {
                self.batch = None;
                self.ledger.lose_instance();
                self.model.lose_instance();
            }
            Step::GiveUp(index) => {
                let lost = self.model.lost_or_due(&mut self.ledger, self.now);
                if !lost.is_empty() {
                    let gone = *index.get(&lost);
                    assert!(self.ledger.give_up(offset(gone)));
                    self.model.give_up(gone);
                }
                assert!(!self.model.position_is_given_up(&mut self.ledger), "what is not lost or due is not given up");
            }
            Step::Expire { max_age, max_open } => {
                let max_age = Duration::from_millis(*max_age);
                let expired = self.ledger.overdue(self.now, max_age, *max_open as u64);
                self.ledger.expire(&expired);
                let expired: Vec<i64> = expired.iter().map(Offset::get).collect();
                self.model.expire(self.now, max_age, *max_open, &expired);
            }
            Step::Wait(millis) => self.now += Duration::from_millis(*millis),
        }
        self.model.agree(&mut self.ledger, self.now);
    }

    fn deliver(&mut self, gaps: &[i64], epoch: i32) {
        let mut next = self.model.position();
        let mut offsets = Vec::new();
        for gap in gaps {
            offsets.push(next + gap);
            next += gap + 1;
        }
        let epochs: Vec<i32> = (0..).zip(&offsets).map(|(index, _)| epoch + index / 5).collect();
        self.ledger.deliver(&offsets, &epochs, self.now);
        self.model.deliver(&offsets, &epochs, self.now);
        self.batch = Some(offsets);
    }

    fn answer(&mut self, verdicts: &[Verdict], batch: Option<&[i64]>, emits: usize) {
        match self.ledger.check(verdicts, batch) {
            Ok(checked) => {
                assert!(self.model.valid(verdicts), "{verdicts:?} is a violation");
                let applied = self.ledger.apply(checked, emits, self.now);
                self.model.apply(&Answer { verdicts, batch, emits, now: self.now }, &applied);
            }
            Err(violation) => {
                assert!(!self.model.valid(verdicts), "{verdicts:?} is valid, not: {violation}");
                assert!(self.model.confirms(verdicts, &violation), "{verdicts:?}: {violation}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn it_agrees_with_a_naive_model_after_every_step(start in 0..100_000_i64, steps in vec(step(), 1..60)) {
        let mut world = World::new(start);
        for step in &steps {
            world.take(step);
        }
    }
}

#[test]
fn nothing_delivered_commits_the_start() {
    assert_eq!(ledger(42).committable().get(), 42);
}

#[test]
fn a_range_from_end_to_end_costs_what_is_open_and_not_its_width() {
    let mut ledger = ledger(0);
    let far = i64::MAX - 1;
    ledger.deliver(&[0, far], &[-1, -1], Duration::ZERO);
    let checked = ledger.check(&[verdict(Outcome::Accept, &[(0, far)])], None).unwrap();
    assert_eq!(ledger.apply(checked, 0, Duration::ZERO).accepted, 2);
    assert_eq!(ledger.committable().get(), i64::MAX);
}

/// What it takes, near enough.
fn bytes(ledger: &Ledger) -> usize {
    let sets = [&ledger.open, &ledger.lost, &ledger.ageless, &ledger.letters].map(OffsetSet::serialized_size);
    let runs = ledger.delivered.len() * size_of::<(Offset, Duration)>()
        + ledger.leader_epochs.len() * size_of::<(Offset, Option<i32>)>();
    sets.iter().sum::<usize>() + runs + ledger.retries.bytes()
}

#[test]
fn a_million_scattered_open_offsets_take_less_than_300_kib() {
    let mut ledger = ledger(0);
    for first in (0..2_000_000).step_by(1000) {
        let offsets: Vec<i64> = (first..first + 1000).collect();
        ledger.deliver(&offsets, &[7; 1000], Duration::from_millis(first.cast_unsigned()));
        let odd: Vec<(i64, i64)> = offsets.iter().filter(|raw| *raw % 2 == 1).map(|raw| (*raw, *raw)).collect();
        let checked = ledger.check(&[verdict(Outcome::Defer, &odd)], Some(&offsets)).unwrap();
        ledger.apply(checked, 0, Duration::ZERO);
    }
    assert_eq!(ledger.open_count(), 1_000_000);
    assert!(bytes(&ledger) < 300 * 1024, "{} bytes", bytes(&ledger));
}

#[test]
fn an_offset_that_stays_open_for_days_keeps_few_delivery_times_and_good_ones() {
    let mut ledger = ledger(0);
    let at = |raw: i64| Duration::from_secs(10) * u32::try_from(raw).unwrap();
    for raw in 0..100_000 {
        ledger.deliver(&[raw], &[1], at(raw));
        if raw != 0 && raw != 90_000 {
            let checked = ledger.check(&[], Some(&[raw])).unwrap();
            ledger.apply(checked, 0, Duration::ZERO);
        }
    }
    assert!(bytes(&ledger) < 100 * 1024, "{} bytes", bytes(&ledger));
    let now = at(100_000);
    assert_eq!(ledger.oldest_age(now), Some(now));
    let checked = ledger.check(&[verdict(Outcome::Accept, &[(0, 0)])], None).unwrap();
    ledger.apply(checked, 0, Duration::ZERO);
    let (age, least) = (ledger.oldest_age(now).unwrap(), at(10_000));
    assert!(least <= age && age <= least + at(90_000) / 512, "{age:?} for {least:?}");
}

#[test]
fn a_violation_says_which_offset_and_why() {
    let mut ledger = ledger(10);
    ledger.deliver(&[10, 11, 13], &[0; 3], Duration::ZERO);
    let checked = ledger.check(&[verdict(Outcome::Accept, &[(10, 10)])], None).unwrap();
    ledger.apply(checked, 0, Duration::ZERO);
    let say = |outcome, ranges: &[(i64, i64)]| ledger.check(&[verdict(outcome, ranges)], None).unwrap_err().to_string();
    assert_eq!(
        say(Outcome::Accept, &[(10, 11)]),
        "the verdict `accept` on 10 to 11 names offset 10, which is settled already, or was never delivered",
    );
    assert_eq!(
        say(reject("bad"), &[(11, 14)]),
        "the verdict `reject` on 11 to 14 names offset 14, which was not delivered yet",
    );
    assert_eq!(
        say(Outcome::Defer, &[(11, 13), (13, 13)]),
        "two verdicts name offset 13: one on 11 to 13, and one on 13"
    );
    ledger.lose_instance();
    let lost = ledger.check(&[verdict(Outcome::Accept, &[(11, 11)])], None).unwrap_err();
    assert!(matches!(lost, Violation::NotOpen { why: NotOpen::Lost, .. }));
}

#[test]
fn a_verdict_on_what_the_host_expired_meanwhile_does_nothing() {
    let mut ledger = ledger(0);
    ledger.deliver(&[0, 1, 2, 3], &[0; 4], Duration::ZERO);
    let overdue = ledger.overdue(Duration::ZERO, Duration::MAX, 2);
    assert_eq!(overdue.len(), 2);
    ledger.expire(&overdue);
    let overlapping = [verdict(Outcome::Defer, &[(0, 2)]), verdict(Outcome::Defer, &[(1, 3)])];
    let shared = ledger.check(&overlapping, None).unwrap_err();
    assert_eq!(shared, Violation::Shared { offset: offset(2), one: range(0, 2), other: range(1, 3) });
    let checked = ledger.check(&[verdict(reject("late"), &[(0, 2)])], None).unwrap();
    let applied = ledger.apply(checked, 0, Duration::ZERO);
    assert_eq!(applied.rejected[0].0.iter().collect::<Vec<_>>(), [offset(2)]);
    assert_eq!(ledger.letters().len(), 3);
}

#[test]
fn a_hundred_thousand_retries_with_delays_of_their_own_take_less_than_a_mebibyte() {
    let mut ledger = ledger(0);
    for first in (0..200_000).step_by(1000) {
        let offsets: Vec<i64> = (first..first + 1000).collect();
        ledger.deliver(&offsets, &[7; 1000], Duration::from_millis(first.cast_unsigned()));
        let retry = |raw: &i64| {
            let delay = raw.cast_unsigned().wrapping_mul(0x9e37_79b9_7f4a_7c15) % 300_000;
            verdict(Outcome::Retry(backoff(delay)), &[(*raw, *raw)])
        };
        let verdicts: Vec<_> = offsets.iter().step_by(2).map(retry).collect();
        let checked = ledger.check(&verdicts, Some(&offsets)).unwrap();
        ledger.apply(checked, 0, Duration::from_millis(first.cast_unsigned()));
    }
    assert_eq!(ledger.retrying_count(), 100_000);
    assert!(bytes(&ledger) < 1024 * 1024, "{} bytes", bytes(&ledger));
}

#[test]
fn the_last_attempt_is_rejected_with_what_the_guest_said_of_it() {
    let mut ledger = ledger(0);
    ledger.deliver(&[0], &[0], Duration::ZERO);
    for attempt in 1..=ATTEMPTS {
        assert_eq!(ledger.attempt(offset(0)), attempt);
        let checked = ledger.check(&[verdict(Outcome::Retry(backoff(0)), &[(0, 0)])], Some(&[0])).unwrap();
        let applied = ledger.apply(checked, 0, Duration::ZERO);
        assert_eq!(applied.retried, u64::from(attempt < ATTEMPTS));
        if attempt == ATTEMPTS {
            assert_eq!(applied.rejected[0].1.code, "retries-exhausted");
            assert_eq!(applied.rejected[0].1.reason, "busy: away");
        }
        ledger.due_retries(Duration::from_secs(1));
        ledger.redelivered(&[0]);
    }
    assert_eq!(ledger.attempt(offset(0)), ATTEMPTS, "the dead letter says it");
    ledger.letter_acked(offset(0));
    assert_eq!((ledger.attempt(offset(0)), ledger.committable().get()), (1, 1));
}

#[test]
fn what_an_answer_says_of_offsets_behind_a_hold_is_void() {
    let mut ledger = ledger(0);
    ledger.deliver(&[0, 1, 2, 3, 4], &[0; 5], Duration::ZERO);
    let verdicts = [verdict(reject("bad"), &[(0, 0), (4, 4)]), verdict(Outcome::Hold(backoff(5)), &[(2, 3)])];
    let checked = ledger.check(&verdicts, Some(&[0, 1, 2, 3, 4])).unwrap();
    let applied = ledger.apply(checked, 0, Duration::ZERO);
    assert_eq!((applied.accepted, applied.rejected[0].0.len()), (1, 1));
    assert_eq!(applied.hold.unwrap().from, offset(2));
    assert_eq!(ledger.lost().iter().map(Offset::get).collect::<Vec<_>>(), [2, 3, 4]);
    assert_eq!(ledger.oldest_age(Duration::from_secs(9)), None, "a hold does not age");
}
