//! What the client tells the main consumer's thread from inside of a poll.

use std::{
    collections::VecDeque,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use rdkafka::{
    ClientContext, TopicPartitionList,
    config::RDKafkaLogLevel,
    consumer::{BaseConsumer, Consumer, ConsumerContext},
    error::{KafkaError, KafkaResult},
    topic_partition_list::TopicPartitionListElem,
    types::RDKafkaRespErr,
};
use tracing::{debug, warn};

use crate::{
    kafka::{context, list},
    message::TopicPartition,
    offset::NextOffset,
};

/// The positions that the group has now; `None` of a commit that failed.
pub(super) type Committed = Option<Vec<(TopicPartition, NextOffset)>>;

/// Rebalances as the client announces them; the thread carries them out right after the poll that brought them.
#[derive(Default)]
pub(super) struct Rebalances {
    pub(super) announced: Mutex<VecDeque<(RDKafkaRespErr, TopicPartitionList)>>,
    /// Why a commit failed, since the last one was sent.
    pub(super) commit_failed: Mutex<Option<KafkaError>>,
    /// What became of commits.
    pub(super) commits: Mutex<Vec<Committed>>,
    /// Whether there is anything in `commits`.
    pub(super) answered: AtomicBool,
    /// Nobody carries out rebalances any more.
    pub(super) closing: AtomicBool,
}

impl ClientContext for Rebalances {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        context::log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        debug!(%error, reason, "Kafka client");
    }
}

impl ConsumerContext for Rebalances {
    fn rebalance(&self, consumer: &BaseConsumer<Self>, error: RDKafkaRespErr, partitions: &mut TopicPartitionList) {
        if self.closing.load(Ordering::Acquire) {
            // Closing waits for an answer, and there is nobody left to give one.
            if let Err(error) = consumer.unassign() {
                debug!(%error, "Cannot unassign while closing");
            }
            return;
        }
        self.announced.lock().unwrap_or_else(PoisonError::into_inner).push_back((error, partitions.clone()));
    }

    fn commit_callback(&self, result: KafkaResult<()>, partitions: &TopicPartitionList) {
        // It may have failed for some partitions only.
        let each = || partitions.elements().iter().try_for_each(TopicPartitionListElem::error);
        let answer = match result.and_then(|()| each()) {
            Ok(()) => Some(list::positions(partitions)),
            Err(error) => {
                warn!(%error, "A commit failed; it is tried again");
                *self.commit_failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                None
            }
        };
        self.commits.lock().unwrap_or_else(PoisonError::into_inner).push(answer);
        self.answered.store(true, Ordering::Release);
    }
}
