use std::collections::BTreeMap;

use proptest::{collection::btree_map, prelude::*, sample::subsequence};

use super::*;

const DEADLINE: Duration = Duration::from_secs(10);

fn offset(raw: i64) -> Offset {
    Offset::new(raw).unwrap()
}

fn failure(kind: FailureKind) -> Failure {
    Failure { kind, detail: kind.code().to_owned() }
}

/// A guest that fails at some messages.
struct Guest {
    culprits: BTreeMap<i64, FailureKind>,
    /// Fail only together.
    pair: Option<(i64, i64)>,
}

impl Guest {
    fn judge(&self, offsets: &[Offset]) -> Result<(), FailureKind> {
        let has = |raw: &i64| offsets.contains(&offset(*raw));
        match self.culprits.iter().find(|(raw, _)| has(raw)) {
            Some((_, kind)) => Err(*kind),
            None if self.pair.is_some_and(|(one, other)| has(&one) && has(&other)) => Err(FailureKind::Trap),
            None => Ok(()),
        }
    }
}

#[derive(Debug, Default)]
struct Outcome {
    judged: Vec<i64>,
    rejected: Vec<(i64, FailureKind)>,
    stop: Option<Stop>,
    failures: usize,
    spent: Duration,
    tries: usize,
}

/// Follows an isolation of messages at which the guest failed to its end.
fn isolate(guest: &Guest, batch: &[i64], works: bool) -> (Isolation, Outcome) {
    let batch: Vec<_> = batch.iter().copied().map(offset).collect();
    let mut isolation = Isolation::new(DEADLINE, works);
    let took = |kind, deadlines| if kind == FailureKind::Timeout { DEADLINE * deadlines } else { Duration::ZERO };
    let kind = guest.judge(&batch).expect_err("it fails");
    isolation.suspect(batch, &failure(kind), took(kind, 1));
    let mut outcome = Outcome { failures: 1, spent: took(kind, 1), ..Outcome::default() };
    loop {
        for (offset, failure) in isolation.take_culprits() {
            outcome.rejected.push((offset.get(), failure.kind));
        }
        let (offsets, deadlines) = match isolation.next() {
            Step::Try { offsets, deadlines } => (offsets.to_vec(), deadlines),
            Step::Done => return (isolation, outcome),
            Step::Stop(stop) => return (isolation, Outcome { stop: Some(stop), ..outcome }),
        };
        assert!(offsets.iter().all(|offset| isolation.undecided().contains(*offset)));
        assert_eq!(deadlines, if offsets.len() == 1 { 3 } else { 1 });
        outcome.tries += 1;
        match guest.judge(&offsets) {
            Ok(()) => {
                isolation.succeeded(Duration::ZERO);
                outcome.judged.extend(offsets.iter().map(|offset| offset.get()));
            }
            Err(kind) => {
                isolation.failed(&failure(kind), took(kind, deadlines));
                outcome.failures += 1;
                outcome.spent += took(kind, deadlines);
            }
        }
    }
}

fn kind() -> impl Strategy<Value = FailureKind> {
    prop_oneof![
        Just(FailureKind::Trap),
        Just(FailureKind::OutOfMemory),
        Just(FailureKind::Error),
        Just(FailureKind::Contract),
    ]
}

/// A batch with gaps, and some messages of it.
fn batch_with(most: usize) -> impl Strategy<Value = (Vec<i64>, Vec<i64>)> {
    prop::collection::btree_set(0..5_000_i64, 2..300).prop_flat_map(move |batch| {
        let batch: Vec<_> = batch.into_iter().collect();
        let some = subsequence(batch.clone(), 1..=most.min(batch.len()));
        (Just(batch), some)
    })
}

proptest! {
    #[test]
    fn exactly_the_culprits_are_rejected_and_every_other_message_is_judged_once_and_in_order(
        (batch, some) in batch_with(20), kinds in proptest::collection::vec(kind(), 20),
    ) {
        prop_assume!(some.len() < batch.len());
        let culprits: BTreeMap<_, _> = some.into_iter().zip(kinds).collect();
        let (isolation, outcome) = isolate(&Guest { culprits: culprits.clone(), pair: None }, &batch, false);
        prop_assert_eq!(outcome.stop, None);
        prop_assert_eq!(&outcome.rejected.into_iter().collect::<BTreeMap<_, _>>(), &culprits);
        let others: Vec<_> = batch.into_iter().filter(|raw| !culprits.contains_key(raw)).collect();
        prop_assert_eq!(outcome.judged, others);
        prop_assert!(isolation.undecided().is_empty());
        prop_assert!(!isolation.blames_size());
        prop_assert!(outcome.failures <= FAILURES_PER_CULPRIT * culprits.len());
    }

    #[test]
    fn nothing_is_rejected_where_every_message_fails(batch in btree_map(0..5_000_i64, kind(), 2..200)) {
        let offsets: Vec<_> = batch.keys().copied().collect();
        let (_, outcome) = isolate(&Guest { culprits: batch, pair: None }, &offsets, true);
        prop_assert_eq!(outcome.stop, Some(Stop::EveryMessageFails));
        prop_assert_eq!(outcome.rejected, []);
    }

    #[test]
    fn the_time_is_bounded_whatever_takes_too_long((batch, some) in batch_with(300)) {
        let culprits: BTreeMap<_, _> = some.into_iter().map(|raw| (raw, FailureKind::Timeout)).collect();
        let (_, outcome) = isolate(&Guest { culprits: culprits.clone(), pair: None }, &batch, false);
        prop_assert!(outcome.spent <= DEADLINE * (DEADLINES + ALONE), "{:?}", outcome.spent);
        prop_assert!(outcome.rejected.iter().all(|(raw, _)| culprits.contains_key(raw)));
        prop_assert!(culprits.len() > 3 || culprits.len() == batch.len() || outcome.stop.is_none());
    }

    #[test]
    fn a_pair_that_fails_only_together_is_not_rejected((batch, pair) in batch_with(2)) {
        prop_assume!(pair.len() == 2);
        let guest = Guest { culprits: BTreeMap::new(), pair: Some((pair[0], pair[1])) };
        let (_, outcome) = isolate(&guest, &batch, false);
        prop_assert_eq!((outcome.stop, outcome.rejected), (None, vec![]));
        prop_assert_eq!(outcome.judged, batch);
    }
}

fn guest(culprits: &[(i64, FailureKind)]) -> Guest {
    Guest { culprits: culprits.iter().copied().collect(), pair: None }
}

#[test]
fn what_succeeds_the_second_time_is_nobodys_fault() {
    let mut isolation = Isolation::new(DEADLINE, false);
    let batch: Vec<_> = (0..1000).map(offset).collect();
    isolation.suspect(batch.clone(), &failure(FailureKind::Timeout), DEADLINE);
    assert_eq!(isolation.next(), Step::Try { offsets: &batch, deadlines: 1 });
    isolation.succeeded(Duration::ZERO);
    assert_eq!(isolation.next(), Step::Done);
    assert!(isolation.take_suspects().is_empty() && !isolation.blames_size());
}

#[test]
fn a_message_alone_is_rejected_only_by_a_guest_that_did_well_before() {
    let trap = [(7, FailureKind::Trap)];
    let (_, outcome) = isolate(&guest(&trap), &[7], true);
    assert_eq!((outcome.rejected, outcome.failures), (trap.to_vec(), 2));
    let (mut isolation, outcome) = isolate(&guest(&trap), &[7], false);
    assert_eq!((outcome.rejected, outcome.stop), (vec![], None));
    assert_eq!(isolation.take_suspects().len(), 1);
}

#[test]
fn a_message_alone_must_take_three_deadlines_twice() {
    let (_, outcome) = isolate(&guest(&[(7, FailureKind::Timeout)]), &[7], true);
    assert_eq!((outcome.failures, outcome.spent), (3, DEADLINE * 7));
}

#[test]
fn batches_that_take_too_long_without_a_culprit_are_blamed_on_their_size() {
    let mut isolation = Isolation::new(DEADLINE, false);
    isolation.suspect((0..10).map(offset).collect(), &failure(FailureKind::Timeout), DEADLINE);
    isolation.failed(&failure(FailureKind::Timeout), DEADLINE);
    isolation.succeeded(DEADLINE);
    assert!(matches!(isolation.next(), Step::Try { offsets, .. } if offsets.len() == 5));
    isolation.succeeded(DEADLINE);
    assert_eq!(isolation.next(), Step::Done);
    assert!(isolation.blames_size());
}

#[test]
fn a_guest_that_fails_at_random_ends_in_a_stop() {
    let mut isolation = Isolation::new(DEADLINE, true);
    let again = |isolation: &mut Isolation| {
        isolation.suspect((0..3).map(offset).collect(), &failure(FailureKind::Trap), Duration::ZERO);
    };
    for _ in 0..=FAILURES_PER_CULPRIT {
        again(&mut isolation);
    }
    assert_eq!(isolation.next(), Step::Stop(Stop::TooManyFailures));
}

#[test]
fn a_redelivery_that_fails_is_looked_into_first() {
    let mut isolation = Isolation::new(DEADLINE, false);
    let (batch, open) = ([10, 11].map(offset), [3, 4].map(offset));
    isolation.suspect(batch.to_vec(), &failure(FailureKind::Trap), Duration::ZERO);
    isolation.suspect(open.to_vec(), &failure(FailureKind::Trap), Duration::ZERO);
    assert_eq!(isolation.next(), Step::Try { offsets: &open, deadlines: 1 });
    isolation.succeeded(Duration::ZERO);
    assert_eq!(isolation.next(), Step::Try { offsets: &batch, deadlines: 1 });
}
