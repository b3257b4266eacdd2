//! Shadow readers: re-read any message from the log by partition and offset, through clients that join no group.
//!
//! A partition belongs to one reader thread, which serves requests in turns. [`plan`] decides what one positioning serves,
//! [`threshold`] from what was measured up to which gap to read through, [`turn`] makes answers of what comes.

mod answers;
mod counts;
mod cursor;
mod identity;
mod plan;
mod reader;
mod threshold;
mod turn;

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::{Arc, OnceLock},
    thread,
    time::Duration,
};

use tokio::{sync::oneshot, time};

use self::{
    counts::Counters,
    reader::{Reader, Request},
};
pub use self::{counts::Counts, identity::Identity};
use super::{
    inbox,
    topic_ids::{Existence, TopicIds},
};
use crate::{
    config::Kafka,
    message::{Batch, TopicPartition},
    offset::Offset,
};

/// How much one turn may cost, so that nobody waits long for the next.
const TURN_BYTES: usize = 1 << 20;
/// Requests that a reader holds at most.
const QUEUE: usize = 256;
/// When to wonder whether a silent topic is still there, and how long to wait before believing that it is not: a broker
/// whose metadata lag may say so of a topic that exists.
const SILENCE: Duration = Duration::from_secs(1);
/// How long to wait after a question about a topic could not be answered.
const AGAIN: Duration = Duration::from_millis(100);

/// The shadow readers of a cluster. Cheap to clone; threads and clients start on first use, and clients are closed when
/// idle.
#[derive(Clone, Debug)]
pub struct ShadowReaders(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    kafka: Kafka,
    servers: String,
    topic_ids: TopicIds,
    first: OnceLock<inbox::Sender<Request>>,
    more: Vec<OnceLock<inbox::Sender<Request>>>,
    counters: Arc<Counters>,
}

/// Offsets of one partition that are wanted again.
#[derive(Clone, Debug)]
pub struct Want {
    source: TopicPartition,
    identity: Arc<Identity>,
    offsets: Vec<Offset>,
    last: Offset,
}

impl Want {
    /// `None` unless the offsets ascend and there is at least one. `identity` is that of what was delivered there.
    pub fn new(source: TopicPartition, identity: Arc<Identity>, offsets: Vec<Offset>) -> Option<Self> {
        let ascends = offsets.is_sorted_by(|before, after| before < after);
        let last = *offsets.last().filter(|_| ascends)?;
        Some(Self { source, identity, offsets, last })
    }
}

/// The answers to the first wanted offsets: each up to `through` is in exactly one of `found` and `missing`.
#[derive(Clone, Debug)]
pub struct Reading {
    /// The messages, as they were delivered.
    pub found: Batch,
    /// What is not to be had any more, ascending.
    pub missing: Vec<(Offset, Missing)>,
    /// The last offset that is answered.
    pub through: Offset,
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

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// Not within the configured deadline. Nothing is known of the messages: ask again.
    #[error("the brokers did not answer a shadow read within its deadline")]
    Deadline,
    /// The reader has ended.
    #[error("the shadow reader has ended")]
    Closed,
}

impl ShadowReaders {
    /// Connects to nothing yet.
    pub fn new(kafka: &Kafka, servers: &str, topic_ids: TopicIds) -> Self {
        let more = std::iter::repeat_with(OnceLock::new).take(kafka.shadow.readers.saturating_sub(1)).collect();
        let (kafka, servers) = (kafka.clone(), servers.to_owned());
        Self(Arc::new(Inner { kafka, servers, topic_ids, first: OnceLock::new(), more, counters: Arc::default() }))
    }

    /// Answers a prefix, of at least one, of the wanted offsets: what a turn of about 1 MiB holds. The caller asks again
    /// for the rest; with two requests under way for a partition, the reader never waits for the caller.
    pub async fn read(&self, want: Want) -> Result<Reading, ReadError> {
        let counters = &self.0.counters;
        let Ok(reading) = time::timeout(self.0.kafka.shadow.deadline, self.answer(Arc::new(want))).await else {
            counters.deadline.add(1);
            return Err(ReadError::Deadline);
        };
        let reading = reading?;
        counters.found.add(reading.found.len() as u64);
        for (_, missing) in &reading.missing {
            match missing {
                Missing::Expired => counters.expired.add(1),
                Missing::Absent => counters.absent.add(1),
                Missing::Replaced => counters.replaced.add(1),
            }
        }
        Ok(reading)
    }

    /// What was done so far.
    pub fn counts(&self) -> Counts {
        self.0.counters.counts()
    }

    async fn answer(&self, want: Arc<Want>) -> Result<Reading, ReadError> {
        let (answer, answered) = oneshot::channel();
        let request = Request::new(Arc::clone(&want), answer);
        self.reader(&want.source).send(request).await.map_err(|_| ReadError::Closed)?;
        let (reading, broker) = tokio::select! {
            served = answered => served.map_err(|_| ReadError::Closed)?,
            // A topic that is gone does not answer.
            reading = self.gone(&want) => return Ok(reading),
        };
        // Asked after the read: an id never comes back, so if it is the same now, this topic is what was read.
        if want.identity.topic_id().is_some() && self.is_another(&want, broker).await {
            return Ok(replaced(&want, reading.through));
        }
        Ok(reading)
    }

    /// A partition always has the same reader, so that its next request goes on where the last one ended.
    fn reader(&self, source: &TopicPartition) -> &inbox::Sender<Request> {
        let mut hasher = DefaultHasher::new();
        source.topic.hash(&mut hasher);
        let spread = hasher.finish().wrapping_add(u64::from(source.partition.cast_unsigned()));
        let count = self.0.more.len() as u64 + 1;
        let index = usize::try_from(spread % count).unwrap_or_default();
        let slot = index.checked_sub(1).and_then(|index| self.0.more.get(index)).unwrap_or(&self.0.first);
        slot.get_or_init(|| {
            let (sender, receiver) = inbox::channel(QUEUE);
            let reader = Reader::new(&self.0.kafka, &self.0.servers, receiver, Arc::clone(&self.0.counters));
            if let Err(error) = thread::Builder::new().name(format!("shadow-{index}")).spawn(move || reader.run()) {
                tracing::error!("cannot start a shadow reader: {error}");
            }
            sender
        })
    }

    /// Returns once the topic that the messages were delivered from is no more.
    async fn gone(&self, want: &Want) -> Reading {
        loop {
            time::sleep(SILENCE).await;
            if self.is_another(want, None).await {
                return replaced(want, want.last);
            }
        }
    }

    /// Whether the topic is no longer the one that the messages were delivered from. Asked twice before it is believed.
    async fn is_another(&self, want: &Want, broker: Option<i32>) -> bool {
        self.seems_another(want, broker).await && {
            time::sleep(SILENCE).await;
            self.seems_another(want, broker).await
        }
    }

    async fn seems_another(&self, want: &Want, broker: Option<i32>) -> bool {
        loop {
            match self.0.topic_ids.get(&want.source.topic, broker).await {
                Ok(Existence::Is(id)) => return want.identity.topic_id().is_some_and(|delivered| delivered != id),
                Ok(Existence::Unidentified) => return false,
                Ok(Existence::Gone) => return true,
                Err(error) => {
                    tracing::debug!("{error}");
                    time::sleep(AGAIN).await;
                }
            }
        }
    }
}

/// All wanted offsets up to one are of another topic.
fn replaced(want: &Want, through: Offset) -> Reading {
    let missing = want.offsets.iter().take_while(|offset| **offset <= through);
    let missing = missing.map(|offset| (*offset, Missing::Replaced)).collect();
    Reading { found: Batch::new(want.source.clone()), missing, through }
}
