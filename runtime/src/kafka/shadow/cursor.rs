//! A client that stands at one offset of one partition.

use std::time::{Duration, Instant};

use rdkafka::{
    ClientConfig, Message as _, Offset as Position, TopicPartitionList,
    consumer::{BaseConsumer, Consumer as _},
    error::{KafkaError, KafkaResult},
    message::BorrowedMessage,
    types::RDKafkaErrorCode,
};

use crate::{
    kafka::context::Context,
    message::TopicPartition,
    offset::{NextOffset, Offset},
};

/// How long a seek may block. It is a matter of the client's own threads, not of the broker.
const SEEK: Duration = Duration::from_secs(1);
/// How long to wait for the watermarks, for which a turn waits.
const WATERMARKS: Duration = Duration::from_secs(1);

/// One client with at most one partition assigned: errors carry no coordinates, so they must be about that one.
pub(super) struct Cursor {
    consumer: BaseConsumer<Context>,
    at: Option<At>,
    used: Instant,
}

struct At {
    source: TopicPartition,
    next: NextOffset,
    /// No error has come since it was assigned. After an out-of-range error every seek fails.
    sound: bool,
}

/// What comes next at the cursor.
pub(super) enum Event<'c> {
    /// The message at or behind the position.
    Message(Offset, BorrowedMessage<'c>),
    /// Something else.
    Pause(Pause),
}

/// Why no message comes.
#[derive(Debug)]
pub(super) enum Pause {
    /// The end of the partition, perhaps as it was a while ago.
    End,
    /// The position is not in the log; or an earlier one was not (such an error can come late).
    OutOfRange,
    /// Something is wrong that may pass by itself.
    News(KafkaError),
    /// Nothing for now.
    Nothing,
}

impl Cursor {
    pub(super) fn new(config: &ClientConfig) -> KafkaResult<Self> {
        Ok(Self { consumer: config.create_with_context(Context)?, at: None, used: Instant::now() })
    }

    /// Where it stands in a partition and can go on from.
    pub(super) fn position(&self, source: &TopicPartition) -> Option<NextOffset> {
        self.at.as_ref().filter(|at| at.sound && at.source == *source).map(|at| at.next)
    }

    /// Makes an offset the next one: by a seek within the assigned partition, else by assigning it anew.
    pub(super) fn place(&mut self, source: &TopicPartition, offset: Offset) -> KafkaResult<()> {
        let TopicPartition { topic, partition } = source;
        let position = Position::Offset(offset.get());
        let seeks = self.position(source).is_some();
        self.at = None;
        if !seeks || self.consumer.seek(topic, *partition, position, SEEK).is_err() {
            let mut assignment = TopicPartitionList::with_capacity(1);
            assignment.add_partition_offset(topic, *partition, position)?;
            self.consumer.assign(&assignment)?;
        }
        self.at = Some(At { source: source.clone(), next: offset.into(), sound: true });
        Ok(())
    }

    /// Waits for what comes next.
    pub(super) fn next(&mut self, wait: Duration) -> Event<'_> {
        let Some(at) = &mut self.at else { return Event::Pause(Pause::Nothing) };
        match self.consumer.poll(wait) {
            None => Event::Pause(Pause::Nothing),
            Some(Ok(message)) => {
                // Never trust that nothing of an earlier position is left in the queue.
                let offset = Offset::new(message.offset())
                    .filter(|offset| NextOffset::from(*offset) >= at.next)
                    .filter(|_| message.partition() == at.source.partition && message.topic() == &*at.source.topic);
                let Some(offset) = offset else { return Event::Pause(Pause::Nothing) };
                at.next = offset.next();
                Event::Message(offset, message)
            }
            Some(Err(KafkaError::PartitionEOF(_))) => Event::Pause(Pause::End),
            Some(Err(KafkaError::MessageConsumption(
                RDKafkaErrorCode::AutoOffsetReset | RDKafkaErrorCode::OffsetOutOfRange,
            ))) => {
                at.sound = false;
                Event::Pause(Pause::OutOfRange)
            }
            Some(Err(error)) => {
                at.sound = false;
                Event::Pause(Pause::News(error))
            }
        }
    }

    /// The lowest offset of the log and the one behind its end, as its leader says now.
    pub(super) fn watermarks(&self, source: &TopicPartition) -> KafkaResult<(i64, i64)> {
        self.consumer.fetch_watermarks(&source.topic, source.partition, WATERMARKS)
    }

    /// The next position is reached by assigning anew.
    pub(super) fn mistrust(&mut self) {
        if let Some(at) = &mut self.at {
            at.sound = false;
        }
    }

    /// Stops fetching: at the end of a partition, a client that waits for more asks for it all the time.
    pub(super) fn rest(&mut self) {
        if self.at.take().is_some()
            && let Err(error) = self.consumer.unassign()
        {
            tracing::warn!("a shadow reader cannot let go of its partition: {error}");
        }
    }

    /// How long it was not used.
    pub(super) fn idle(&self) -> Duration {
        self.used.elapsed()
    }

    /// It is used now.
    pub(super) fn touch(&mut self) {
        self.used = Instant::now();
    }
}
