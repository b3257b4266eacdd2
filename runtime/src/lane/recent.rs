//! The old way, as an option: what a guest leaves open is kept in memory for a while, in front of the shadow readers. An
//! entry that is lost costs a read of the log, never a message.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use crate::{
    kafka::shadow::Reading,
    message::Batch,
    offset::{NextOffset, Offset},
};

/// The bytes of an answer, about as many as of a turn of a shadow reader.
const ANSWER_BYTES: usize = 1 << 20;

/// The bytes that the lanes of a pipeline may keep, shared evenly.
#[derive(Debug)]
pub struct RecentQuota {
    bytes: usize,
    lanes: AtomicUsize,
}

impl RecentQuota {
    /// None of it is used yet.
    pub const fn new(bytes: usize) -> Self {
        Self { bytes, lanes: AtomicUsize::new(0) }
    }

    fn share(&self) -> usize {
        self.bytes / self.lanes.load(Ordering::Relaxed).max(1)
    }
}

/// Batches of one partition that were delivered lately and are not settled, oldest first.
#[derive(Debug)]
pub(super) struct Recent {
    quota: Arc<RecentQuota>,
    batches: VecDeque<Arc<Batch>>,
    bytes: usize,
}

impl Recent {
    pub(super) fn new(quota: Arc<RecentQuota>) -> Self {
        quota.lanes.fetch_add(1, Ordering::Relaxed);
        Self { quota, batches: VecDeque::new(), bytes: 0 }
    }

    /// Keeps a batch that was just delivered, in the place of the oldest ones.
    pub(super) fn keep(&mut self, batch: &Arc<Batch>) {
        self.bytes += batch.bytes();
        self.batches.push_back(Arc::clone(batch));
        let share = self.quota.share();
        self.drop_while(|recent, _| recent.bytes > share);
    }

    /// Nothing below a position is wanted again. What other lanes have a claim to by now is let go, too.
    pub(super) fn forget_below(&mut self, committable: NextOffset) {
        let share = self.quota.share();
        self.drop_while(|recent, oldest| recent.bytes > share || oldest.next().is_none_or(|next| next <= committable));
    }

    fn drop_while(&mut self, is_over: impl Fn(&Self, &Batch) -> bool) {
        while let Some(oldest) = self.batches.front()
            && is_over(self, oldest)
        {
            self.bytes -= oldest.bytes();
            self.batches.pop_front();
        }
    }

    /// What it has of the first of some wanted offsets, up to one that it has not. `None` if that is the very first one.
    pub(super) fn read(&self, wanted: &[Offset]) -> Option<Reading> {
        let mut found = Batch::new(self.batches.front()?.source().clone());
        let mut through = None;
        let kept = wanted.iter().map_while(|offset| self.batch_of(*offset)?.find(*offset));
        for message in kept {
            found.push_copy(&message);
            through = Some(message.offset);
            if found.bytes() >= ANSWER_BYTES {
                break;
            }
        }
        Some(Reading { found, missing: Vec::new(), through: through?, share: None })
    }

    /// How many of some wanted offsets come before the first one that it has.
    pub(super) fn missing(&self, wanted: &[Offset]) -> usize {
        let has = |offset: &Offset| self.batch_of(*offset).is_some_and(|batch| batch.find(*offset).is_some());
        wanted.iter().position(has).unwrap_or(wanted.len())
    }

    fn batch_of(&self, offset: Offset) -> Option<&Batch> {
        let later = self.batches.partition_point(|batch| batch.first().is_some_and(|first| first <= offset));
        self.batches.get(later.checked_sub(1)?).map(|batch| &**batch)
    }
}

impl Drop for Recent {
    fn drop(&mut self) {
        self.quota.lanes.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::message::TopicPartition;

    fn at(raw: i64) -> Offset {
        Offset::new(raw).unwrap()
    }

    fn batch(offsets: &[i64]) -> Arc<Batch> {
        let mut batch = Batch::new(TopicPartition::new("orders", 0));
        for &offset in offsets {
            batch.push(at(offset), None, None, None, Some(&offset.to_le_bytes()), []);
        }
        Arc::new(batch)
    }

    fn offsets(reading: Option<Reading>) -> Vec<i64> {
        reading.map(|reading| reading.found.offsets().to_vec()).unwrap_or_default()
    }

    proptest! {
        #[test]
        fn what_is_kept_is_the_youngest_within_the_share_and_what_is_read_is_the_front_of_what_is_wanted(
            lengths in prop::collection::vec(1usize..20, 1..20),
            share in 0usize..5_000,
            below in 0i64..200,
            wanted in prop::collection::btree_set(0i64..200, 1..50),
        ) {
            let mut recent = Recent::new(Arc::new(RecentQuota::new(share)));
            let (mut next, mut batches) = (0, Vec::new());
            for length in lengths {
                // With holes, as in a log.
                let offsets: Vec<_> = (next..).step_by(2).take(length).collect();
                next += 2 * i64::try_from(length).unwrap();
                batches.push(batch(&offsets));
                recent.keep(batches.last().unwrap());
            }
            recent.forget_below(NextOffset::new(below).unwrap());
            let mut left = share;
            let fits = batches.iter().rev().take_while(|batch| {
                let rest = left.checked_sub(batch.bytes());
                left = rest.unwrap_or_default();
                rest.is_some()
            });
            let kept: std::collections::BTreeSet<_> = fits
                .filter(|batch| batch.next().unwrap().get() > below)
                .flat_map(|batch| batch.offsets().to_vec())
                .collect();
            let expected: Vec<_> = wanted.iter().copied().take_while(|offset| kept.contains(offset)).collect();
            let wanted: Vec<_> = wanted.into_iter().map(at).collect();
            let reading = recent.read(&wanted);
            if let Some(reading) = &reading {
                prop_assert_eq!(reading.through, at(*expected.last().unwrap()));
                for message in reading.found.iter() {
                    let payload = message.offset.get().to_le_bytes();
                    prop_assert_eq!(message.payload, Some(payload.as_slice()));
                }
            }
            prop_assert_eq!(offsets(reading), expected);
            let missing = wanted.iter().take_while(|offset| !kept.contains(&offset.get())).count();
            prop_assert_eq!(recent.missing(&wanted), missing);
        }
    }

    #[test]
    fn a_lane_that_comes_takes_its_share_from_the_others() {
        let quota = Arc::new(RecentQuota::new(2 * batch(&[0]).bytes()));
        let mut first = Recent::new(Arc::clone(&quota));
        first.keep(&batch(&[0]));
        first.keep(&batch(&[1]));
        assert_eq!(offsets(first.read(&[at(0), at(1)])), [0, 1]);
        let second = Recent::new(quota);
        first.forget_below(at(0).into());
        assert!(first.read(&[at(0)]).is_none());
        assert_eq!(offsets(first.read(&[at(1)])), [1]);
        drop(second);
        first.keep(&batch(&[2]));
        assert_eq!(offsets(first.read(&[at(1), at(2)])), [1, 2]);
    }

    #[test]
    fn without_a_quota_nothing_is_kept() {
        let mut recent = Recent::new(Arc::new(RecentQuota::new(0)));
        recent.keep(&batch(&[0]));
        assert!(recent.read(&[at(0)]).is_none());
    }
}
