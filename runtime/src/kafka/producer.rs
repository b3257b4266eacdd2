//! The producer of a cluster: dead letters and emitted records, with an answer for each.

mod channel;
mod reports;
#[cfg(test)]
mod tests;

use std::{fmt, sync::Arc, time::Duration};

use channel::Channel;
use rdkafka::error::RDKafkaErrorCode;
use reports::{Done, Waiting};
use tokio::sync::Semaphore;

use super::{client, raw};
use crate::{config, record::Record};

/// What librdkafka and our own books take for a record and for each of its headers, beside their bytes; rounded up.
/// Stops small records from growing in number.
const RECORD_OVERHEAD: usize = 512;
const HEADER_OVERHEAD: usize = 64;

/// How long to wait when librdkafka's own queue is full, which our bound on bytes should never let happen.
const FULL_BACKOFF: Duration = Duration::from_millis(20);

/// Produces records. Cheap to clone and shared by all pipelines of a cluster; connects at the first record, and anew
/// after a fatal error.
///
/// When the last clone is dropped, whatever has no acknowledgement fails.
#[derive(Clone)]
pub struct Producer {
    bytes: Arc<Semaphore>,
    /// The whole bound.
    most: u32,
    channel: Arc<Channel>,
}

/// Why a record was not acknowledged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeliveryError {
    /// The topic does not take a record of this size, not even alone in a batch.
    #[error("the record is too large for its topic")]
    TooLarge,
    /// What librdkafka said, one line. The record may be in the topic nonetheless.
    #[error("{0}")]
    Failed(String),
}

impl Producer {
    /// Connects to nothing yet.
    pub fn new(kafka: &config::Kafka, servers: &str) -> Self {
        let together = client::producer(kafka, servers);
        let mut alone = together.clone();
        alone.set("batch.num.messages", "1");
        let most = u32::try_from(kafka.unacknowledged).unwrap_or(u32::MAX);
        Self {
            bytes: Arc::new(Semaphore::new(most as usize)),
            most,
            channel: Channel::new(together, Some(Channel::new(alone, None))),
        }
    }

    /// Sends a record, once few enough bytes are without acknowledgement. One that is larger than the whole bound waits
    /// until it is alone.
    ///
    /// `done` is called exactly once, with what became of it: mostly by the client's thread, so it must be quick, but
    /// before this returns if the record is refused at once. A future that is dropped before it is ready has sent
    /// nothing, and drops `done` uncalled.
    pub async fn send(&self, record: &Record<'_>, done: impl FnOnce(Result<(), DeliveryError>) + Send + 'static) {
        let mut done: Done = Box::new(done);
        let mut permit = match Arc::clone(&self.bytes).acquire_many_owned(cost(record).min(self.most)).await {
            Ok(permit) => permit,
            Err(closed) => return done(Err(DeliveryError::Failed(closed.to_string()))),
        };
        loop {
            let waiting = Waiting::new(record.timestamp, permit, done);
            match self.channel.enqueue(waiting, |client, id| raw::produce(client, record, id)) {
                Ok(()) => break,
                Err((refused, waiting)) if refused.code == RDKafkaErrorCode::QueueFull => {
                    let Some(back) = waiting.into_parts() else { return };
                    (permit, done) = back;
                    tokio::time::sleep(FULL_BACKOFF).await;
                }
                Err((refused, waiting)) => return waiting.refuse(refused),
            }
        }
        kill_point!("producer-enqueued");
    }

    /// Waits until every record sent so far is acknowledged or has failed, and says whether that was in time. Records
    /// sent meanwhile wait, too.
    pub async fn flush(&self, within: Duration) -> bool {
        tokio::time::timeout(within, self.bytes.acquire_many(self.most)).await.is_ok()
    }

    /// Whether so many bytes more may be without an acknowledgement, or nothing is.
    pub fn has_room_for(&self, bytes: usize) -> bool {
        self.bytes.available_permits() >= bytes.min(self.most as usize)
    }

    /// Bytes without an acknowledgement, with what the client takes beside the records' own.
    pub fn unacknowledged(&self) -> usize {
        (self.most as usize).saturating_sub(self.bytes.available_permits())
    }
}

impl fmt::Debug for Producer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Producer").field("unacknowledged", &self.unacknowledged()).finish_non_exhaustive()
    }
}

/// The bytes to count for a record.
fn cost(record: &Record<'_>) -> u32 {
    let headers = record.headers.iter().map(|header| {
        let value = header.value.as_ref().map_or(0, |value| value.len());
        HEADER_OVERHEAD + header.name.len() + value
    });
    let body = [&record.key, &record.payload].into_iter().flatten().map(|bytes| bytes.len());
    let bytes = RECORD_OVERHEAD + headers.chain(body).sum::<usize>();
    u32::try_from(bytes).unwrap_or(u32::MAX)
}
