//! Commits: what the lanes say may be committed, and never anything else.

use std::{
    sync::{PoisonError, atomic::Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::Result;
use rdkafka::{
    TopicPartitionList,
    consumer::{CommitMode, Consumer},
    error::{KafkaError, KafkaResult, RDKafkaErrorCode},
};
use tracing::warn;

use super::thread::Thread;
use crate::{
    kafka::{list, raw},
    message::TopicPartition,
    offset::NextOffset,
};

/// How long a commit that is waited for is made again because of a stale epoch, and after what pause: what a revocation
/// leaves for it.
const STALE_FOR: Duration = Duration::from_millis(500);
const STALE_AGAIN: Duration = Duration::from_millis(20);

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
    pub(super) fn commit_for_good(&mut self) {
        let all: Vec<_> = self.slots.iter().map(|slot| (slot.source.clone(), slot.progress.committable())).collect();
        self.commit_positions(&all, CommitMode::Sync);
    }

    pub(super) fn commit_positions(&mut self, positions: &[(TopicPartition, NextOffset)], mode: CommitMode) {
        if positions.is_empty() {
            return;
        }
        kill_point!("before-commit");
        let partitions = list::at(positions);
        let sent = match mode {
            CommitMode::Async => raw::commit(&self.consumer, &partitions).map_err(KafkaError::ConsumerCommit),
            CommitMode::Sync => self.commit_and_wait(&partitions),
        };
        match sent {
            Ok(()) if matches!(mode, CommitMode::Sync) => self.have_committed(positions),
            Ok(()) => {}
            Err(error) => {
                warn!(%error, "A commit failed; it is tried again");
                self.count(|counts| counts.failed_commits += 1);
                *self.consumer.context().commit_failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            }
        }
        kill_point!("after-commit");
    }

    /// Once more where the group has moved on to another epoch, of which the next heartbeat tells.
    fn commit_and_wait(&self, partitions: &TopicPartitionList) -> KafkaResult<()> {
        let by = Instant::now() + STALE_FOR;
        loop {
            let answer = self.consumer.commit(partitions, CommitMode::Sync);
            let is_stale = |error: &KafkaError| error.rdkafka_error_code() == Some(RDKafkaErrorCode::StaleMemberEpoch);
            if !answer.as_ref().is_err_and(is_stale) || Instant::now() > by {
                return answer;
            }
            thread::sleep(STALE_AGAIN);
        }
    }

    /// Takes note of what the group said of commits.
    pub(super) fn note_commits(&mut self) {
        let context = self.consumer.context();
        if !context.answered.swap(false, Ordering::AcqRel) {
            return;
        }
        let answers = std::mem::take(&mut *context.commits.lock().unwrap_or_else(PoisonError::into_inner));
        for answer in answers {
            match answer {
                Some(positions) => self.have_committed(&positions),
                None => self.count(|counts| counts.failed_commits += 1),
            }
        }
    }

    fn have_committed(&mut self, positions: &[(TopicPartition, NextOffset)]) {
        self.count(|counts| counts.commits += 1);
        for (source, position) in positions {
            self.old.remove(source);
            if let Some(slot) = self.slots.iter().find(|slot| slot.source == *source) {
                slot.progress.have_committed(*position);
            }
        }
    }
}
