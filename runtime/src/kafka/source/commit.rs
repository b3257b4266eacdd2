//! Commits: what the lanes say may be committed, and never anything else.

use std::sync::PoisonError;

use anyhow::Result;
use rdkafka::{
    consumer::{CommitMode, Consumer},
    error::KafkaError,
};
use tracing::warn;

use super::thread::Thread;
use crate::{
    kafka::{list, raw},
    message::TopicPartition,
    offset::NextOffset,
};

impl Thread {
    /// Commits what the lanes have settled since the last commit; everything, if that one failed.
    ///
    /// # Errors
    /// The group may not commit.
    pub(super) fn commit(&mut self) -> Result<()> {
        let failed = self.consumer.context().commit_failed.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(error) = failed {
            self.may_go_on(&error)?;
            self.slots.iter_mut().for_each(|slot| slot.committed = None);
        }
        let due: Vec<_> = self
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
        self.commit_positions(&due, CommitMode::Async);
        Ok(())
    }

    /// Commits everything that the lanes have settled, and waits for it: a commit before this one may have failed.
    pub(super) fn commit_for_good(&self) {
        let all: Vec<_> = self.slots.iter().map(|slot| (slot.source.clone(), slot.progress.committable())).collect();
        self.commit_positions(&all, CommitMode::Sync);
    }

    pub(super) fn commit_positions(&self, positions: &[(TopicPartition, NextOffset)], mode: CommitMode) {
        if positions.is_empty() {
            return;
        }
        kill_point!("before-commit");
        let positions = list::at(positions);
        let sent = match mode {
            CommitMode::Async => raw::commit(&self.consumer, &positions).map_err(KafkaError::ConsumerCommit),
            CommitMode::Sync => self.consumer.commit(&positions, mode),
        };
        if let Err(error) = sent {
            warn!(%error, "A commit failed; it is tried again");
            *self.consumer.context().commit_failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        }
        kill_point!("after-commit");
    }
}
