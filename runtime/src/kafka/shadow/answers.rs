//! The answers of one turn: each wanted offset is found or missing, in order. Pure.

use super::{Missing, Reading, Want};
use crate::{
    message::Batch,
    offset::{NextOffset, Offset},
};

/// What is answered so far of a want.
#[derive(Debug)]
pub(super) struct Answers<'w> {
    want: &'w Want,
    rest: &'w [Offset],
    through: Option<Offset>,
    found: Batch,
    missing: Vec<(Offset, Missing)>,
}

impl<'w> Answers<'w> {
    /// Nothing is answered yet of `rest`, which is the part of the want that this turn begins with.
    pub(super) fn new(want: &'w Want, rest: &'w [Offset]) -> Self {
        let found = Batch::new(want.source.clone());
        Self { want, rest, through: None, found, missing: Vec::new() }
    }

    /// The offsets without an answer.
    pub(super) const fn rest(&self) -> &'w [Offset] {
        self.rest
    }

    /// The lowest offset without an answer.
    pub(super) const fn next(&self) -> Option<Offset> {
        self.rest.first().copied()
    }

    /// Whether nothing is answered yet.
    pub(super) const fn is_empty(&self) -> bool {
        self.through.is_none()
    }

    /// A message came at an offset: what was wanted below it is not in the log. If it is wanted and is the one that was
    /// delivered, the batch to copy it to.
    pub(super) fn arrived(&mut self, offset: Offset, leader_epoch: Option<i32>) -> Option<&mut Batch> {
        self.miss_below(offset.into(), Missing::Absent);
        if self.next() != Some(offset) {
            return None;
        }
        let delivered = self.want.identity.leader_epoch(offset);
        if delivered.zip(leader_epoch).is_some_and(|(delivered, now)| delivered != now) {
            self.miss_below(offset.next(), Missing::Replaced);
            return None;
        }
        self.answered(1);
        Some(&mut self.found)
    }

    /// Answers everything below a position.
    pub(super) fn miss_below(&mut self, position: NextOffset, why: Missing) {
        let count = self.rest.partition_point(|offset| NextOffset::from(*offset) < position);
        self.missing.extend(self.rest.iter().take(count).map(|offset| (*offset, why)));
        self.answered(count);
    }

    /// Answers everything that is left.
    pub(super) fn miss_rest(&mut self, why: Missing) {
        if let Some(last) = self.rest.last() {
            self.miss_below(last.next(), why);
        }
    }

    /// The answers, if there are any.
    pub(super) fn finish(self) -> Option<Reading> {
        Some(Reading { found: self.found, missing: self.missing, through: self.through?, share: None })
    }

    fn answered(&mut self, count: usize) {
        if let Some((answered, rest)) = self.rest.split_at_checked(count) {
            self.through = answered.last().copied().or(self.through);
            self.rest = rest;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, sync::Arc};

    use proptest::prelude::*;

    use super::{super::Identity, *};
    use crate::message::TopicPartition;

    fn at(raw: i64) -> Offset {
        Offset::new(raw).unwrap()
    }

    fn want(offsets: impl IntoIterator<Item = i64>, identity: Identity) -> Want {
        let offsets = offsets.into_iter().map(at).collect();
        Want::new(TopicPartition::new("orders", 0), Arc::new(identity), offsets).unwrap()
    }

    fn read(answers: &mut Answers<'_>, offset: i64, epoch: Option<i32>) {
        if let Some(batch) = answers.arrived(at(offset), epoch) {
            batch.push(at(offset), None, epoch, None, Some(b"x"), []);
        }
    }

    proptest! {
        #[test]
        fn each_offset_up_to_the_last_answered_is_in_exactly_one_of_the_two(
            log in prop::collection::btree_set(0i64..60, 0..60),
            wanted in prop::collection::btree_set(0i64..60, 1..60),
            low in 0i64..20,
            stop in 0usize..70,
        ) {
            let want = want(wanted.clone(), Identity::default());
            let mut answers = Answers::new(&want, &want.offsets);
            answers.miss_below(at(low).into(), Missing::Expired);
            for offset in log.iter().filter(|offset| **offset >= low).take(stop) {
                read(&mut answers, *offset, None);
            }
            if stop > 60 {
                answers.miss_rest(Missing::Absent);
            }
            let rest: BTreeSet<_> = answers.rest().iter().map(|offset| offset.get()).collect();
            let Some(reading) = answers.finish() else {
                prop_assert_eq!(rest, wanted);
                return Ok(());
            };
            prop_assert!(wanted.range(reading.through.get() + 1..).eq(&rest));
            let found: BTreeSet<_> = reading.found.offsets().iter().copied().collect();
            let missing: BTreeSet<_> = reading.missing.iter().map(|(offset, _)| offset.get()).collect();
            prop_assert!(found.is_disjoint(&missing));
            prop_assert!(found.iter().all(|offset| log.contains(offset) && *offset >= low));
            prop_assert!(missing.iter().all(|offset| !log.contains(offset) || *offset < low));
            prop_assert!(found.union(&missing).eq(wanted.range(..=reading.through.get())));
            for (offset, why) in reading.missing {
                prop_assert_eq!(why, if offset.get() < low { Missing::Expired } else { Missing::Absent });
            }
        }
    }

    #[test]
    fn a_message_of_another_leader_epoch_is_not_the_one_that_was_delivered() {
        let mut identity = Identity::new(None);
        identity.leader_epochs.push(at(1), Some(4));
        identity.leader_epochs.push(at(3), None);
        let want = want([1, 2, 3], identity);
        let mut answers = Answers::new(&want, &want.offsets);
        read(&mut answers, 1, Some(5));
        read(&mut answers, 2, Some(4));
        read(&mut answers, 3, Some(9));
        let reading = answers.finish().unwrap();
        assert_eq!(reading.missing, [(at(1), Missing::Replaced)]);
        assert_eq!(reading.found.offsets(), [2, 3], "where one of the two is not known, nothing is compared");
    }
}
