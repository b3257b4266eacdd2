//! The dead letter: a rejected message, or the coordinates of one, as a record for its route.

use std::borrow::Cow;

use super::{Record, RecordHeader, dialect};
use crate::{
    config::{DEAD_LETTER, KeyChoice, PartitionChoice, Route, TimestampChoice},
    message::{Message, Timestamp, TopicPartition},
    offset::Offset,
    verdict::Rejection,
};

/// Who rejects: the same for every dead letter of a pipeline while its guest stays the same.
#[derive(Clone, Debug)]
pub struct Origin {
    /// The consumer group.
    pub group: String,
    /// The pipeline's name.
    pub pipeline: String,
    /// The digest of the guest's module.
    pub guest: String,
}

/// A rejected message on its way to a route.
#[derive(Clone, Debug)]
pub struct DeadLetter<'a> {
    /// Where it came from.
    pub source: &'a TopicPartition,
    /// Its offset there.
    pub offset: Offset,
    /// What there is of it.
    pub content: Content<'a>,
    /// Why it was rejected, and to which route.
    pub rejection: &'a Rejection,
    /// How often it was handed to a guest; at least 1.
    pub attempts: u32,
    /// When it was rejected, in milliseconds since the epoch.
    pub failed_at: i64,
    /// Which of our headers it gets.
    pub headers: Headers,
}

/// Which of our headers a dead letter gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Headers {
    /// Those of every dialect of its route.
    All,
    /// Those of one dialect that say which message it is and what it takes to replay it: beside the payload there is
    /// no room for more.
    Essential,
}

/// What there is of a rejected message.
#[derive(Clone, Debug)]
pub enum Content<'a> {
    /// All of it.
    Full(Message<'a>),
    /// Its coordinates, why there is no more, and its timestamp where that is still known.
    Stub(Stub, Option<Timestamp>),
}

/// Why a dead letter comes without its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stub {
    /// The message is not to be had any more.
    Missing(Missing),
    /// The route's topic does not take a record of this size.
    TooLarge,
    /// An operator skipped the message; its payload is where it was.
    Skipped,
}

impl Stub {
    /// The value of `deadletter.payload-status`.
    pub const fn status(self) -> &'static str {
        match self {
            Self::Missing(missing) => missing.status(),
            Self::TooLarge => "too-large",
            Self::Skipped => "skipped",
        }
    }
}

/// Why a message is not to be had any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Missing {
    /// Below the log's lowest offset: taken by retention, or deleted.
    Expired,
    /// Not in the log: compacted away, cut off by an unclean election, or never a message.
    Absent,
    /// The topic was deleted, and perhaps made again, or the log was rewritten: what is there now is another message.
    Replaced,
}

impl Missing {
    /// The value of `deadletter.payload-status`.
    pub const fn status(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Absent => "gone",
            Self::Replaced => "replaced",
        }
    }
}

impl<'a> Content<'a> {
    /// The value of `deadletter.payload-status`.
    pub const fn status(&self) -> &'static str {
        match self {
            Self::Full(_) => "full",
            Self::Stub(stub, _) => stub.status(),
        }
    }

    /// The message's timestamp, where it has one that is still known.
    pub const fn timestamp(&self) -> Option<Timestamp> {
        match self {
            Self::Full(message) => message.timestamp,
            Self::Stub(_, timestamp) => *timestamp,
        }
    }

    const fn message(&self) -> Option<&Message<'a>> {
        match self {
            Self::Full(message) => Some(message),
            Self::Stub(..) => None,
        }
    }
}

impl<'a> DeadLetter<'a> {
    /// The name of the route that it takes.
    pub fn route(&self) -> &'a str {
        self.rejection.route.as_deref().unwrap_or(DEAD_LETTER)
    }

    /// The record to produce: key, payload and headers of the message byte for byte, then one block of headers for
    /// each dialect, or as much of it as `headers` says. A stub has neither payload nor the message's headers.
    ///
    /// `partitions` is the number of partitions of the route's topic; without it the key chooses.
    pub fn to_record(&self, origin: &'a Origin, route: &'a Route, partitions: Option<i32>) -> Record<'a> {
        let message = self.content.message();
        let originals = message
            .into_iter()
            .flat_map(Message::headers)
            .map(|header| RecordHeader { name: Cow::Borrowed(header.name), value: header.value.map(Cow::Borrowed) });
        Record {
            topic: Cow::Borrowed(&route.topic),
            partition: match route.partition {
                PartitionChoice::Same => partitions.and_then(|count| self.source.partition.checked_rem(count)),
                PartitionChoice::Key => None,
            },
            timestamp: match route.timestamp {
                TimestampChoice::Now => None,
                TimestampChoice::Original => self.content.timestamp().map(Timestamp::millis),
            },
            key: match route.key {
                KeyChoice::Original => message.and_then(|message| message.key).map(Cow::Borrowed),
                KeyChoice::Coordinates => Some(Cow::Owned(self.coordinates().into_bytes())),
            },
            payload: message.and_then(|message| message.payload).map(Cow::Borrowed),
            headers: originals.chain(dialect::headers(self, origin, &route.dialects)).collect(),
        }
    }

    /// `topic/partition/offset`; a topic's name has no slash.
    fn coordinates(&self) -> String {
        format!("{}/{}/{}", self.source.topic, self.source.partition, self.offset)
    }
}

#[cfg(test)]
mod tests;
