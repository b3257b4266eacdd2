//! Messages and batches: plain data between Kafka and the guest.
//!
//! A [`Batch`] is columnar: each message is copied once, into arenas from which both the guest's columns and the
//! dead letter's slices come.

mod column;
#[cfg(test)]
mod tests;

use std::{fmt, str::FromStr, sync::Arc};

pub use column::Column;

use crate::offset::{NextOffset, Offset};

/// What the columns themselves take for each message, and for each header of it.
const FIXED: usize = 8 + 8 + 1 + 4 + 2 * (4 + 4) + 4;
const HEADER: usize = 16;

/// One partition of one topic; cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicPartition {
    /// The topic's name.
    pub topic: Arc<str>,
    /// The partition's number.
    pub partition: i32,
}

impl TopicPartition {
    /// A partition of a topic.
    pub fn new(topic: impl Into<Arc<str>>, partition: i32) -> Self {
        Self { topic: topic.into(), partition }
    }
}

impl fmt::Display for TopicPartition {
    /// `orders[3]`, as Kafka's own tools write it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]", self.topic, self.partition)
    }
}

/// What cannot be a partition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a partition is written orders/3, or orders[3] as in the log")]
pub struct NotAPartition;

impl FromStr for TopicPartition {
    type Err = NotAPartition;

    /// `orders[3]`, or `orders/3`, which needs no quotes in a shell.
    fn from_str(text: &str) -> Result<Self, NotAPartition> {
        let bracketed = text.strip_suffix(']').and_then(|text| text.rsplit_once('['));
        let (topic, partition) = bracketed.or_else(|| text.rsplit_once('/')).ok_or(NotAPartition)?;
        let partition = partition.parse().ok().filter(|partition| *partition >= 0).ok_or(NotAPartition)?;
        if topic.is_empty() || topic.contains(['/', '[']) {
            return Err(NotAPartition);
        }
        Ok(Self::new(topic, partition))
    }
}

/// A record's timestamp in milliseconds since the epoch, and who set it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timestamp {
    /// Set by whoever produced it (`CreateTime`).
    Create(i64),
    /// Set by the broker (`LogAppendTime`).
    Append(i64),
}

impl Timestamp {
    /// Milliseconds since the epoch.
    pub const fn millis(self) -> i64 {
        match self {
            Self::Create(millis) | Self::Append(millis) => millis,
        }
    }

    /// Kafka's name for who set it.
    pub const fn kind(self) -> &'static str {
        match self {
            Self::Create(_) => "CreateTime",
            Self::Append(_) => "LogAppendTime",
        }
    }
}

/// One header as it is on the wire: a name may be any bytes and may come twice, a value may be null.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header<'a> {
    /// Mostly UTF-8, but nothing in Kafka demands it.
    pub name: &'a [u8],
    /// `None` is a null, which is not the same as an empty value.
    pub value: Option<&'a [u8]>,
}

/// One message of a batch, borrowed from its arenas.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// Where it is in its partition.
    pub offset: Offset,
    /// 1, and one more for each retry.
    pub attempt: u32,
    /// `None` where the record has none.
    pub timestamp: Option<Timestamp>,
    /// The leader epoch under which it was written; `None` where the broker does not say.
    pub leader_epoch: Option<i32>,
    /// `None` is a null key.
    pub key: Option<&'a [u8]>,
    /// `None` is a tombstone.
    pub payload: Option<&'a [u8]>,
    headers: HeaderSpans<'a>,
}

impl<'a> Message<'a> {
    /// What it takes in a batch, in bytes.
    pub fn bytes(&self) -> usize {
        let length = |value: Option<&[u8]>| value.map_or(0, <[u8]>::len);
        let headers = self.headers().map(|header| header.name.len() + length(header.value) + HEADER);
        length(self.key) + length(self.payload) + headers.sum::<usize>() + FIXED
    }

    /// Its headers in order, duplicates included.
    pub fn headers(&self) -> impl ExactSizeIterator<Item = Header<'a>> + use<'a> {
        let HeaderSpans { names, values, first, last } = self.headers;
        (first..last).map(move |index| Header { name: names.get(index).unwrap_or_default(), value: values.get(index) })
    }
}

#[derive(Clone, Copy, Debug)]
struct HeaderSpans<'a> {
    names: &'a Column,
    values: &'a Column,
    first: usize,
    last: usize,
}

/// Messages of one partition, offsets ascending, with gaps where the log has them.
///
/// The arenas of a batch hold less than 4 GiB; [`Batch::push`] is only called while [`Batch::bytes`] is far below that
/// (batches are closed at their configured size, and a single Kafka record is at most 2 GiB).
#[derive(Clone, Debug)]
pub struct Batch {
    source: TopicPartition,
    offsets: Vec<i64>,
    /// Empty where no attempt is above 1.
    attempts: Vec<u32>,
    timestamps: Vec<i64>,
    appended: Vec<bool>,
    leader_epochs: Vec<i32>,
    keys: Column,
    payloads: Column,
    header_ends: Vec<u32>,
    header_names: Column,
    header_values: Column,
}

impl Batch {
    /// An empty batch.
    pub fn new(source: TopicPartition) -> Self {
        Self {
            source,
            offsets: Vec::new(),
            attempts: Vec::new(),
            timestamps: Vec::new(),
            appended: Vec::new(),
            leader_epochs: Vec::new(),
            keys: Column::default(),
            payloads: Column::default(),
            header_ends: Vec::new(),
            header_names: Column::default(),
            header_values: Column::default(),
        }
    }

    /// An empty batch of the same partition with room for as much as this one has, so that it need not grow.
    #[must_use]
    pub fn another(&self) -> Self {
        Self {
            source: self.source.clone(),
            offsets: Vec::with_capacity(self.len()),
            attempts: Vec::new(),
            timestamps: Vec::with_capacity(self.len()),
            appended: Vec::with_capacity(self.len()),
            leader_epochs: Vec::with_capacity(self.len()),
            keys: Column::with_room_of(&self.keys),
            payloads: Column::with_room_of(&self.payloads),
            header_ends: Vec::with_capacity(self.len()),
            header_names: Column::with_room_of(&self.header_names),
            header_values: Column::with_room_of(&self.header_values),
        }
    }

    /// Copies a message to the end. Its offset is above all that are there.
    pub fn push<'h>(
        &mut self,
        offset: Offset,
        timestamp: Option<Timestamp>,
        leader_epoch: Option<i32>,
        key: Option<&[u8]>,
        payload: Option<&[u8]>,
        headers: impl IntoIterator<Item = Header<'h>>,
    ) {
        debug_assert!(self.offsets.last().is_none_or(|last| *last < offset.get()), "offsets of a batch ascend");
        self.offsets.push(offset.get());
        self.timestamps.push(timestamp.map_or(-1, Timestamp::millis));
        self.appended.push(matches!(timestamp, Some(Timestamp::Append(_))));
        self.leader_epochs.push(leader_epoch.unwrap_or(-1));
        self.keys.push(key);
        self.payloads.push(payload);
        for header in headers {
            self.header_names.push(Some(header.name));
            self.header_values.push(header.value);
        }
        self.header_ends.push(u32::try_from(self.header_names.lengths().len()).unwrap_or(u32::MAX));
    }

    /// Copies a message of another batch to the end, without its attempt.
    pub fn push_copy(&mut self, message: &Message<'_>) {
        let Message { offset, timestamp, leader_epoch, key, payload, .. } = *message;
        self.push(offset, timestamp, leader_epoch, key, payload, message.headers());
    }

    /// Some of its messages, by index, ascending, as a batch of their own.
    #[must_use]
    pub fn part(&self, indices: impl IntoIterator<Item = usize>) -> Self {
        let mut part = Self::new(self.source.clone());
        for message in indices.into_iter().filter_map(|index| self.get(index)) {
            part.push_copy(&message);
            if !self.attempts.is_empty() {
                part.attempts.push(message.attempt);
            }
        }
        part
    }

    /// How many messages from `start` on are within both limits; at least one, if there is one.
    pub fn within(&self, start: usize, messages: usize, bytes: usize) -> usize {
        let mut left = bytes;
        let fits = (start..self.len()).map_while(|index| self.get(index)).take_while(|message| {
            let rest = left.checked_sub(message.bytes());
            left = rest.unwrap_or_default();
            rest.is_some()
        });
        fits.take(messages).count().max(1).min(self.len().saturating_sub(start))
    }

    /// The batch with the attempt of each message.
    #[must_use]
    pub fn at_attempts(mut self, attempt: impl Fn(Offset) -> u32) -> Self {
        self.attempts = self.iter().map(|message| attempt(message.offset)).collect();
        if self.attempts.iter().all(|attempt| *attempt == 1) {
            self.attempts = Vec::new();
        }
        self
    }

    /// The partition that all messages are of.
    pub fn source(&self) -> &TopicPartition {
        &self.source
    }

    /// How many messages.
    pub fn len(&self) -> usize {
        self.offsets.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.offsets.is_empty()
    }

    /// Bytes that the batch holds: keys, payloads, headers, and what the columns themselves take.
    pub fn bytes(&self) -> usize {
        let arenas = [&self.keys, &self.payloads, &self.header_names, &self.header_values];
        arenas.iter().map(|column| column.bytes().len()).sum::<usize>()
            + self.offsets.len() * FIXED
            + self.header_names.lengths().len() * HEADER
    }

    /// The message at an index.
    pub fn get(&self, index: usize) -> Option<Message<'_>> {
        let offset = Offset::new(*self.offsets.get(index)?)?;
        let millis = self.timestamps.get(index).copied().filter(|millis| *millis >= 0);
        let appended = self.appended.get(index).copied().unwrap_or_default();
        let first = index.checked_sub(1).and_then(|before| self.header_ends.get(before)).map_or(0, |end| *end as usize);
        let last = self.header_ends.get(index).map_or(first, |end| *end as usize);
        Some(Message {
            offset,
            attempt: self.attempts.get(index).copied().unwrap_or(1),
            timestamp: millis.map(if appended { Timestamp::Append } else { Timestamp::Create }),
            leader_epoch: self.leader_epochs.get(index).copied().filter(|epoch| *epoch >= 0),
            key: self.keys.get(index),
            payload: self.payloads.get(index),
            headers: HeaderSpans { names: &self.header_names, values: &self.header_values, first, last },
        })
    }

    /// The message of an offset, if it is in the batch.
    pub fn find(&self, offset: Offset) -> Option<Message<'_>> {
        self.get(self.offsets.binary_search(&offset.get()).ok()?)
    }

    /// All messages, offsets ascending.
    pub fn iter(&self) -> impl Iterator<Item = Message<'_>> + '_ {
        (0..self.len()).filter_map(|index| self.get(index))
    }

    /// The column of offsets.
    pub fn offsets(&self) -> &[i64] {
        &self.offsets
    }

    /// The lowest offset.
    pub fn first(&self) -> Option<Offset> {
        self.offsets.first().copied().and_then(Offset::new)
    }

    /// The position behind the last message.
    pub fn next(&self) -> Option<NextOffset> {
        self.offsets.last().copied().and_then(Offset::new).map(Offset::next)
    }

    /// The column of timestamps in milliseconds, -1 where a record has none.
    pub fn timestamps(&self) -> &[i64] {
        &self.timestamps
    }

    /// The column of leader epochs, -1 where the broker does not say.
    pub fn leader_epochs(&self) -> &[i32] {
        &self.leader_epochs
    }

    /// The column of keys.
    pub fn keys(&self) -> &Column {
        &self.keys
    }

    /// The column of payloads.
    pub fn payloads(&self) -> &Column {
        &self.payloads
    }
}
