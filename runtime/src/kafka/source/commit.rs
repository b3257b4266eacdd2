//! Commits: what the lanes say may be committed, and never anything else.

use std::sync::atomic::Ordering;

use rdkafka::consumer::{CommitMode, Consumer};
use tracing::warn;

use super::thread::Thread;
use crate::{kafka::list, message::TopicPartition, offset::NextOffset};

impl Thread {
    /// Commits what the lanes have settled since the last commit.
    pub(super) fn commit(&mut self, mode: CommitMode) {
        if self.consumer.context().uncommitted.swap(false, Ordering::AcqRel) {
            self.slots.iter_mut().for_each(|slot| slot.committed = None);
        }
        let due: Vec<(TopicPartition, NextOffset)> = self
            .slots
            .iter_mut()
            .filter_map(|slot| {
                let committable = slot.progress.committable();
                let is_new = slot.committed.is_none_or(|committed| committed < committable);
                is_new.then(|| {
                    slot.committed = Some(committable);
                    (slot.source.clone(), committable)
                })
            })
            .collect();
        self.commit_positions(&due, mode);
    }

    pub(super) fn commit_positions(&self, positions: &[(TopicPartition, NextOffset)], mode: CommitMode) {
        if positions.is_empty() {
            return;
        }
        kill_point!("before-commit");
        if let Err(error) = self.consumer.commit(&list::at(positions), mode) {
            warn!(%error, "A commit failed; it is tried again");
            self.consumer.context().uncommitted.store(true, Ordering::Release);
        }
        kill_point!("after-commit");
    }
}
