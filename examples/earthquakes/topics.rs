//! The topics of the example as anyone sees them: produced to and read by a client that knows nothing of deadletter.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use rdkafka::{
    ClientConfig, Message as _, Offset, TopicPartitionList,
    admin::{AdminClient, AdminOptions, NewTopic, TopicReplication},
    client::DefaultClientContext,
    consumer::{BaseConsumer, Consumer},
    message::{BorrowedMessage, Headers as _},
    metadata::MetadataPartition,
    producer::{FutureProducer, FutureRecord},
};
use serde::Serialize;

const PARTITIONS: i32 = 4;
const PATIENCE: Duration = Duration::from_secs(30);

/// Partition and offset.
pub(crate) type Coordinates = (i32, i64);

/// What is produced.
pub(crate) struct Event {
    pub(crate) key: String,
    pub(crate) payload: Vec<u8>,
}

/// A record as it was read.
pub(crate) struct Stored {
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) payload: Option<Vec<u8>>,
    pub(crate) headers: BTreeMap<String, String>,
}

/// How far a group has come in a partition.
#[derive(Serialize)]
pub(crate) struct Position {
    partition: i32,
    /// `None` before the first commit.
    pub(crate) committed: Option<i64>,
    pub(crate) end: i64,
}

impl Position {
    /// Whether all that was there is settled. A partition without messages is, and has no commit.
    pub(crate) fn is_settled(&self) -> bool {
        self.committed.unwrap_or(0) == self.end
    }

    pub(crate) fn cells(&self) -> [String; 3] {
        let committed = self.committed.map_or_else(|| "none".to_owned(), |offset| offset.to_string());
        [self.partition.to_string(), committed, self.end.to_string()]
    }
}

/// A topic, and where it ended before this run.
pub(crate) struct Topic {
    name: String,
    client: ClientConfig,
    /// For questions about a group, which it does not join.
    consumer: BaseConsumer,
    begins: BTreeMap<i32, i64>,
}

impl Topic {
    /// Makes the topic unless it is there. `group` is the one to ask about.
    pub(crate) async fn open(servers: &str, name: &str, group: &str) -> Result<Self> {
        let mut client = ClientConfig::new();
        client.set("bootstrap.servers", servers).set("client.id", "earthquakes-example");
        let consumer = client.clone().set("group.id", group).set("enable.auto.commit", "false").create()?;
        let mut topic = Self { name: name.to_owned(), client, consumer, begins: BTreeMap::new() };
        // The embedded broker has its topics, and cannot be asked to create one.
        if !topic.exists()? {
            topic.create().await.with_context(|| format!("cannot create the topic {name}"))?;
        }
        topic.begins = topic.first_ends().await?;
        Ok(topic)
    }

    fn exists(&self) -> Result<bool> {
        let metadata = self.consumer.fetch_metadata(Some(&self.name), PATIENCE).context("no answer from the broker")?;
        Ok(metadata.topics().iter().any(|topic| topic.error().is_none() && !topic.partitions().is_empty()))
    }

    async fn create(&self) -> Result<()> {
        let admin: AdminClient<DefaultClientContext> = self.client.create()?;
        let new = NewTopic::new(&self.name, PARTITIONS, TopicReplication::Fixed(1));
        let options = AdminOptions::new().operation_timeout(Some(PATIENCE));
        for result in admin.create_topics([&new], &options).await? {
            result.map_err(|(_, error)| error)?;
        }
        Ok(())
    }

    /// Produces all, and returns them by where they are.
    pub(crate) async fn produce(&self, events: Vec<Event>) -> Result<BTreeMap<Coordinates, Event>> {
        let producer: FutureProducer = self.client.create()?;
        let mut placed = BTreeMap::new();
        // By the thousand: each is then one or two batches of a partition.
        let mut events = events.into_iter().peekable();
        while events.peek().is_some() {
            let chunk: Vec<_> = events.by_ref().take(1_000).collect();
            let records =
                chunk.iter().map(|event| FutureRecord::to(&self.name).key(&event.key).payload(&event.payload));
            let sent: Vec<_> = records.map(|record| producer.send_result(record).map_err(|(error, _)| error)).collect();
            for (event, delivery) in chunk.into_iter().zip(sent) {
                let delivery = delivery?.await?.map_err(|(error, _)| error)?;
                placed.insert((delivery.partition, delivery.offset), event);
            }
        }
        Ok(placed)
    }

    /// What has come since it was opened.
    pub(crate) fn read(&self) -> Result<Vec<Stored>> {
        let mut open = self.ends()?;
        open.retain(|partition, end| self.begins.get(partition) != Some(end));
        let mut assignment = TopicPartitionList::new();
        for partition in open.keys() {
            let begin = self.begins.get(partition).copied().unwrap_or_default();
            assignment.add_partition_offset(&self.name, *partition, Offset::Offset(begin))?;
        }
        self.consumer.assign(&assignment)?;
        let mut records = Vec::new();
        while !open.is_empty() {
            let message =
                self.consumer.poll(PATIENCE).with_context(|| format!("no answer while reading {}", self.name))??;
            open.retain(|partition, end| *partition != message.partition() || message.offset() + 1 < *end);
            records.push(stored(&message));
        }
        Ok(records)
    }

    /// How far the group has come.
    pub(crate) fn positions(&self) -> Result<Vec<Position>> {
        let ends = self.ends()?;
        let mut wanted = TopicPartitionList::new();
        for partition in ends.keys() {
            wanted.add_partition(&self.name, *partition);
        }
        let committed = self.consumer.committed_offsets(wanted, PATIENCE)?;
        let committed = |partition| match committed.find_partition(&self.name, partition)?.offset() {
            Offset::Offset(offset) => Some(offset),
            _ => None,
        };
        let position = |(partition, end)| Position { partition, committed: committed(partition), end };
        Ok(ends.into_iter().map(position).collect())
    }

    /// The same, of a topic that was made just now: it may have no leader yet.
    async fn first_ends(&self) -> Result<BTreeMap<i32, i64>> {
        let by = Instant::now() + PATIENCE;
        loop {
            match self.ends() {
                Err(_) if Instant::now() < by => tokio::time::sleep(Duration::from_millis(100)).await,
                ends => return ends,
            }
        }
    }

    /// The end of each partition.
    fn ends(&self) -> Result<BTreeMap<i32, i64>> {
        let metadata = self.consumer.fetch_metadata(Some(&self.name), PATIENCE)?;
        let topic = metadata.topics().first().context("the broker does not know the topic")?;
        let end = |partition| Ok((partition, self.consumer.fetch_watermarks(&self.name, partition, PATIENCE)?.1));
        topic.partitions().iter().map(MetadataPartition::id).map(end).collect()
    }
}

fn stored(message: &BorrowedMessage<'_>) -> Stored {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let headers = message.headers().into_iter().flat_map(|headers| headers.iter());
    Stored {
        key: message.key().map(<[u8]>::to_vec),
        payload: message.payload().map(<[u8]>::to_vec),
        headers: headers.map(|header| (header.key.to_owned(), text(header.value.unwrap_or_default()))).collect(),
    }
}
