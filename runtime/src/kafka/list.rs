//! rdkafka's lists of partitions, to and from ours.

use std::{borrow::Borrow, fmt::Write as _};

use rdkafka::TopicPartitionList;

use crate::{message::TopicPartition, offset::NextOffset};

/// Partitions without an offset.
pub(super) fn of<S: Borrow<TopicPartition>>(sources: impl IntoIterator<Item = S>) -> TopicPartitionList {
    let mut list = TopicPartitionList::new();
    for source in sources {
        list.add_partition(&source.borrow().topic, source.borrow().partition);
    }
    list
}

/// Partitions with the position to read or commit.
pub(super) fn at(positions: &[(TopicPartition, NextOffset)]) -> TopicPartitionList {
    let mut list = of(positions.iter().map(|(source, _)| source));
    for (source, position) in positions {
        let offset = rdkafka::Offset::Offset(position.get());
        let set = list.set_partition_offset(&source.topic, source.partition, offset);
        debug_assert!(set.is_ok(), "the partition was just added, and a position is not negative");
    }
    list
}

/// The partitions of a list.
pub(super) fn sources(list: &TopicPartitionList) -> Vec<TopicPartition> {
    list.elements().iter().map(|element| TopicPartition::new(element.topic(), element.partition())).collect()
}

/// The partitions of a list that have a position and no error.
pub(super) fn positions(list: &TopicPartitionList) -> Vec<(TopicPartition, NextOffset)> {
    let elements = list.elements();
    let positions = elements.iter().filter(|element| element.error().is_ok()).filter_map(|element| {
        let rdkafka::Offset::Offset(position) = element.offset() else { return None };
        Some((TopicPartition::new(element.topic(), element.partition()), NextOffset::new(position)?))
    });
    positions.collect()
}

/// For a log line: `orders[0]@17 orders[1]@4`.
pub(super) fn show<S: Show>(sources: &[S]) -> String {
    sources.iter().fold(String::new(), |mut line, source| {
        let gap = if line.is_empty() { "" } else { " " };
        let written = write!(line, "{gap}{}", source.show());
        debug_assert!(written.is_ok(), "a String takes whatever is written");
        line
    })
}

/// What a list shows of each of its elements.
pub(super) trait Show {
    fn show(&self) -> String;
}

impl Show for TopicPartition {
    fn show(&self) -> String {
        self.to_string()
    }
}

impl Show for (TopicPartition, NextOffset) {
    fn show(&self) -> String {
        format!("{}@{}", self.0, self.1)
    }
}
