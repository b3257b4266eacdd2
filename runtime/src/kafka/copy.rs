//! The one copy of a message: out of the client's memory, into a batch.

use rdkafka::{Message as _, message::BorrowedMessage};

use super::raw;
use crate::{
    message::{Batch, Timestamp},
    offset::Offset,
};

/// Copies a message, whose offset this is, to the end of a batch.
pub(super) fn push(batch: &mut Batch, offset: Offset, message: &BorrowedMessage<'_>) {
    let timestamp = match message.timestamp() {
        rdkafka::Timestamp::NotAvailable => None,
        rdkafka::Timestamp::CreateTime(millis) => Some(Timestamp::Create(millis)),
        rdkafka::Timestamp::LogAppendTime(millis) => Some(Timestamp::Append(millis)),
    };
    // Only looked for when the payload has been copied: they come right behind it, and are then in the cache.
    let headers = std::iter::once(message).flat_map(raw::headers);
    batch.push(offset, timestamp, raw::leader_epoch(message), message.key(), message.payload(), headers);
}
