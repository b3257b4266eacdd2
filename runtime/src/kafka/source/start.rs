//! Where a partition begins: where the group has got to, or where it is configured to start.

use std::{collections::BTreeSet, thread, time::Duration};

use anyhow::{Context as _, Result};
use rdkafka::{
    TopicPartitionList,
    consumer::Consumer,
    error::{KafkaError, KafkaResult, RDKafkaErrorCode},
    topic_partition_list::TopicPartitionListElem,
};
use tracing::warn;

use super::thread::{ASK, Thread};
use crate::{
    config::Start,
    kafka::{list, pattern::Sources},
    message::TopicPartition,
    offset::NextOffset,
};

/// How often the brokers are asked something before the pipeline gives up, and after what pause.
const ASK_TIMES: usize = 6;
const ASK_AGAIN: Duration = Duration::from_millis(500);

impl Thread {
    /// Takes note of the partitions to which `start = "latest"` applies: those that are there before the group is joined,
    /// of topics that are new to it. One that appears later begins at its first message: what is produced until it is
    /// found is not old.
    pub(super) fn note_what_is_old(&mut self) -> Result<()> {
        if self.pipeline.start != Start::Latest {
            return Ok(());
        }
        let metadata = self.ask("the topics", || self.consumer.fetch_metadata(None, ASK))?;
        let sources = Sources::of(&self.pipeline.topics);
        let mut there = BTreeSet::new();
        for topic in metadata.topics().iter().filter(|topic| sources.find(topic.name()).is_some()) {
            let partitions =
                topic.partitions().iter().map(|partition| TopicPartition::new(topic.name(), partition.id()));
            there.extend(partitions);
        }
        if there.is_empty() {
            return Ok(());
        }
        let committed = self.committed(&list::of(&there))?;
        // All partitions of a topic are assigned at once, and committed.
        let known: BTreeSet<_> = list::positions(&committed).into_iter().map(|(source, _)| source.topic).collect();
        there.retain(|source| !known.contains(&source.topic));
        self.old = there;
        Ok(())
    }

    /// The committed offsets, and the configured start where there is none.
    pub(super) fn positions(&self, partitions: &TopicPartitionList) -> Result<Vec<(TopicPartition, NextOffset)>> {
        let committed = self.committed(partitions)?;
        let mut positions = Vec::with_capacity(committed.count());
        for element in committed.elements() {
            let source = TopicPartition::new(element.topic(), element.partition());
            let position = match element.offset() {
                rdkafka::Offset::Offset(offset) => NextOffset::new(offset),
                _ => None,
            };
            let position = match position {
                Some(position) => position,
                None => self.configured_start(&source)?,
            };
            positions.push((source, position));
        }
        Ok(positions)
    }

    fn committed(&self, partitions: &TopicPartitionList) -> Result<TopicPartitionList> {
        self.ask("the committed offsets", || {
            let committed = self.consumer.committed_offsets(partitions.clone(), ASK)?;
            // A partition without an answer is not one without a commit.
            committed.elements().iter().try_for_each(TopicPartitionListElem::error)?;
            Ok(committed)
        })
    }

    fn configured_start(&self, source: &TopicPartition) -> Result<NextOffset> {
        let (low, high) = self
            .ask(&format!("the watermarks of {source}"), || {
                self.consumer.fetch_watermarks(&source.topic, source.partition, ASK)
            })
            .or_else(|error| {
                if !is_unknown(&error) {
                    return Err(error);
                }
                warn!(partition = %source, "The topic is gone, or not there yet: what will be there is read from its start");
                Ok((0, 0))
            })?;
        let start = if self.old.contains(source) { high } else { low };
        NextOffset::new(start).with_context(|| format!("{source} has a negative watermark"))
    }

    /// Asks the brokers a few times before it gives up, as during an election.
    fn ask<T>(&self, what: &str, question: impl Fn() -> KafkaResult<T>) -> Result<T> {
        let mut time = 1;
        loop {
            match question() {
                Ok(answer) => return Ok(answer),
                Err(error) if time < ASK_TIMES => {
                    warn!(%error, group = self.pipeline.group, time, of = ASK_TIMES, "Cannot read {what}");
                }
                Err(error) => {
                    return Err(error).with_context(|| format!("cannot read {what} for group {}", self.pipeline.group));
                }
            }
            time += 1;
            thread::sleep(ASK_AGAIN);
        }
    }
}

/// Whether the brokers know no such partition. One that was assigned a moment ago may be deleted by now.
fn is_unknown(error: &anyhow::Error) -> bool {
    use RDKafkaErrorCode as Code;
    let code = error.downcast_ref::<KafkaError>().and_then(KafkaError::rdkafka_error_code);
    matches!(code, Some(Code::UnknownPartition | Code::UnknownTopic | Code::UnknownTopicOrPartition))
}
