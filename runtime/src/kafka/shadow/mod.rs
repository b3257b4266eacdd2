//! Shadow readers: re-read any message from the log by partition and offset, through clients that join no group.
//!
//! A partition belongs to one reader thread, which serves requests in turns. `plan` decides what one positioning serves,
//! `threshold` from what was measured up to which gap to read through, `turn` makes answers of what comes.

mod answers;
mod counts;
mod cursor;
mod identity;
mod plan;
mod reader;
mod readings;
mod threshold;
mod turn;

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::{Arc, OnceLock},
    thread,
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use self::{
    counts::Counters,
    reader::{Reader, Request},
};
pub use self::{counts::Counts, identity::Identity, readings::Readings};
use super::{inbox, topic_ids::TopicIds};
use crate::{
    config::Kafka,
    message::{Batch, TopicPartition},
    offset::Offset,
    record::Missing,
    times::TimesCounted,
};

/// About what one turn may cost at most, in bytes, so that nobody waits long for the next.
pub const TURN_BYTES: usize = 1 << 20;
/// Turns that are being read or are in use, for each reader: what bounds the memory that they take.
pub const TURNS: usize = 4;
/// Requests that a reader holds at most.
const QUEUE: usize = 256;

/// The shadow readers of a cluster. Cheap to clone; threads and clients start on first use, and clients are closed when
/// idle.
#[derive(Clone, Debug)]
pub struct ShadowReaders(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    kafka: Kafka,
    servers: String,
    topic_ids: TopicIds,
    readers: Vec<OnceLock<inbox::Sender<Request>>>,
    turns: Arc<Semaphore>,
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

/// The answers of one turn, about 1 MiB at most: each wanted offset behind the turn before, up to `through`, is in
/// exactly one of `found` and `missing`.
#[derive(Clone, Debug)]
pub struct Reading {
    /// The messages, as they were delivered.
    pub found: Batch,
    /// What is not to be had any more, ascending.
    pub missing: Vec<(Offset, Missing)>,
    /// The last offset that is answered.
    pub through: Offset,
    /// The turn's place among those that there may be, free again when the last clone is dropped; `None` if the answers
    /// took no turn of a reader.
    pub share: Option<Arc<OwnedSemaphorePermit>>,
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
        let readers = std::iter::repeat_with(OnceLock::new).take(kafka.shadow.readers).collect();
        let turns = Arc::new(Semaphore::new(TURNS * kafka.shadow.readers));
        let (kafka, servers) = (kafka.clone(), servers.to_owned());
        Self(Arc::new(Inner { kafka, servers, topic_ids, readers, turns, counters: Arc::default() }))
    }

    /// Reads what is wanted, lazily: see [`Readings::next`].
    pub fn read(&self, want: Want) -> Readings {
        Readings::new(self.clone(), want)
    }

    /// What was done so far.
    pub fn counts(&self) -> Counts {
        self.0.counters.counts()
    }

    /// How long each turn was waited for that brought answers.
    pub fn turns(&self) -> TimesCounted {
        self.0.counters.turns.counted()
    }

    /// A partition always has the same reader, so that its next request goes on where the last one ended. `None` if no
    /// readers are configured.
    fn reader(&self, source: &TopicPartition) -> Option<&inbox::Sender<Request>> {
        let mut hasher = DefaultHasher::new();
        source.topic.hash(&mut hasher);
        let spread = hasher.finish().wrapping_add(u64::from(source.partition.cast_unsigned()));
        let index = usize::try_from(spread.checked_rem(self.0.readers.len() as u64)?).ok()?;
        let started = self.0.readers.get(index)?.get_or_init(|| {
            let (sender, receiver) = inbox::channel(QUEUE);
            let reader = Reader::new(&self.0.kafka, &self.0.servers, receiver, Arc::clone(&self.0.counters));
            if let Err(error) = thread::Builder::new().name(format!("shadow-{index}")).spawn(move || reader.run()) {
                tracing::error!("cannot start a shadow reader: {error}");
            }
            sender
        });
        Some(started)
    }
}
