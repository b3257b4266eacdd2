//! Topics and groups of a broker, by rdkafka alone. Nothing here goes through the code under test but the accessor of
//! headers, since rdkafka's own panics on names that are not UTF-8.

use std::{
    collections::{BTreeMap, BTreeSet},
    thread,
    time::{Duration, Instant},
};

use deadletter::{kafka, message::Header};
use rdkafka::{
    ClientConfig, Message as _, Offset, TopicPartitionList,
    admin::{AdminClient, AdminOptions, NewPartitions, NewTopic, ResourceSpecifier, TopicReplication},
    client::DefaultClientContext,
    consumer::{BaseConsumer, Consumer},
    error::KafkaError,
    message::BorrowedMessage,
};

use super::{Broker, SOON, eventually};

/// Names and values in order, duplicates included.
pub(crate) type Headers = Vec<(Vec<u8>, Option<Vec<u8>>)>;

/// A record as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) partition: i32,
    pub(crate) offset: i64,
    /// Milliseconds since the epoch.
    pub(crate) timestamp: Option<i64>,
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) payload: Option<Vec<u8>>,
    pub(crate) headers: Headers,
}

impl Stored {
    /// The text of the last header of that name.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let (_, value) = self.headers.iter().rfind(|(named, _)| named == name.as_bytes())?;
        value.as_deref().map(|value| std::str::from_utf8(value).unwrap())
    }
}

impl Broker {
    /// Creates a topic with some of its configuration, and waits until it can be used.
    pub(crate) fn create_topic(&self, topic: &str, partitions: i32, config: &[(&str, &str)]) {
        let mut new = NewTopic::new(topic, partitions, TopicReplication::Fixed(1));
        for (key, value) in config {
            new = new.set(key, value);
        }
        let results = wait(self.admin().create_topics([&new], &AdminOptions::new())).unwrap();
        results.into_iter().next().unwrap().unwrap();
        self.await_leaders(topic, usize::try_from(partitions).unwrap());
    }

    fn await_leaders(&self, topic: &str, partitions: usize) {
        eventually(SOON, "the topic has leaders", || {
            let metadata = self.consumer("metadata").fetch_metadata(Some(topic), SOON).ok()?;
            let leaders = metadata.topics().first()?.partitions().iter().filter(|partition| partition.leader() >= 0);
            (leaders.count() == partitions).then_some(())
        });
    }

    /// Gives a topic more partitions, as many as this in all, and waits until they can be used.
    pub(crate) fn add_partitions(&self, topic: &str, count: usize) {
        let new = NewPartitions::new(topic, count);
        let results = wait(self.admin().create_partitions([&new], &AdminOptions::new())).unwrap();
        results.into_iter().next().unwrap().unwrap();
        self.await_leaders(topic, count);
    }

    /// Deletes a topic, and waits until it is gone.
    pub(crate) fn delete_topic(&self, topic: &str) {
        let results = wait(self.admin().delete_topics(&[topic], &AdminOptions::new())).unwrap();
        results.into_iter().next().unwrap().unwrap();
        eventually(SOON, "the topic is gone", || (!self.has_topic(topic)).then_some(()));
    }

    /// Whether there is a topic of this name; asking does not make one.
    pub(crate) fn has_topic(&self, topic: &str) -> bool {
        let metadata = self.consumer("metadata").fetch_metadata(None, SOON).unwrap();
        metadata.topics().iter().any(|known| known.name() == topic)
    }

    /// A value of a topic's configuration.
    pub(crate) fn topic_config(&self, topic: &str, key: &str) -> String {
        let topics = [ResourceSpecifier::Topic(topic)];
        let described = wait(self.admin().describe_configs(&topics, &AdminOptions::new())).unwrap();
        let described = described.into_iter().next().unwrap().unwrap();
        described.get(key).unwrap().value.clone().unwrap()
    }

    /// Deletes the records of a partition before an offset, as retention would.
    pub(crate) fn delete_records(&self, topic: &str, partition: i32, before: i64) {
        let mut offsets = TopicPartitionList::new();
        offsets.add_partition_offset(topic, partition, Offset::Offset(before)).unwrap();
        let deleted = wait(self.admin().delete_records(&offsets, &AdminOptions::new())).unwrap();
        deleted.elements().first().unwrap().error().unwrap();
    }

    /// All records of a topic that are committed, by partition and offset, from its beginnings to its ends of now.
    pub(crate) fn read(&self, topic: &str) -> Vec<Stored> {
        let consumer = self.consumer("read");
        let mut open: BTreeSet<_> = self.partitions(topic).into_iter().collect();
        let mut assignment = TopicPartitionList::new();
        for partition in &open {
            assignment.add_partition_offset(topic, *partition, Offset::Beginning).unwrap();
        }
        consumer.assign(&assignment).unwrap();
        let mut records = Vec::new();
        let mut progress = Instant::now();
        while !open.is_empty() {
            assert!(progress.elapsed() < SOON, "the broker sends nothing of {topic}, after {} records", records.len());
            match consumer.poll(Duration::from_millis(100)) {
                Some(Ok(message)) => records.push(stored(&message)),
                Some(Err(KafkaError::PartitionEOF(partition))) => _ = open.remove(&partition),
                // Errors of the connection are news: the client goes on by itself.
                Some(Err(_)) | None => continue,
            }
            progress = Instant::now();
        }
        records.sort_by_key(|record| (record.partition, record.offset));
        records
    }

    /// The low and the high watermark of each partition.
    pub(crate) fn watermarks(&self, topic: &str) -> BTreeMap<i32, (i64, i64)> {
        let consumer = self.consumer("watermarks");
        let watermarks = |partition| (partition, consumer.fetch_watermarks(topic, partition, SOON).unwrap());
        self.partitions(topic).into_iter().map(watermarks).collect()
    }

    /// The position behind the last record of each partition.
    pub(crate) fn ends(&self, topic: &str) -> BTreeMap<i32, i64> {
        self.watermarks(topic).into_iter().map(|(partition, (_, end))| (partition, end)).collect()
    }

    /// The position that a group has committed for each partition; a partition without one is left out.
    pub(crate) fn committed(&self, group: &str, topic: &str) -> BTreeMap<i32, i64> {
        let consumer = self.consumer(group);
        let mut wanted = TopicPartitionList::new();
        for partition in self.partitions(topic) {
            wanted.add_partition(topic, partition);
        }
        // The coordinator may be on its way up.
        let committed = eventually(SOON, "the group's coordinator answers", || {
            consumer.committed_offsets(wanted.clone(), Duration::from_secs(5)).ok()
        });
        let offsets = committed.elements().into_iter().map(|element| (element.partition(), element.offset().to_raw()));
        offsets.filter_map(|(partition, offset)| Some((partition, offset.filter(|offset| *offset >= 0)?))).collect()
    }

    /// How many members a group has.
    pub(crate) fn members(&self, group: &str) -> usize {
        let groups = self.consumer("members").fetch_group_list(Some(group), SOON).unwrap();
        groups.groups().iter().map(|group| group.members().len()).sum()
    }

    fn partitions(&self, topic: &str) -> Vec<i32> {
        let metadata = self.consumer("metadata").fetch_metadata(Some(topic), SOON).unwrap();
        let topic = metadata.topics().first().unwrap();
        assert!(topic.error().is_none(), "{}: {:?}", topic.name(), topic.error());
        topic.partitions().iter().map(rdkafka::metadata::MetadataPartition::id).collect()
    }

    pub(super) fn client(&self, id: &str) -> ClientConfig {
        let mut client = ClientConfig::new();
        client.set("bootstrap.servers", &self.servers).set("client.id", format!("test-{id}"));
        // After a restart of the broker, tests should not wait for a client that backs off.
        client.set("reconnect.backoff.max.ms", "250");
        client
    }

    fn admin(&self) -> AdminClient<DefaultClientContext> {
        self.client("admin").create().unwrap()
    }

    pub(crate) fn consumer(&self, group: &str) -> BaseConsumer {
        let mut client = self.client("consumer");
        client.set("group.id", group).set("enable.auto.commit", "false").set("enable.partition.eof", "true");
        client.set("fetch.wait.max.ms", "10").create().unwrap()
    }
}

fn stored(message: &BorrowedMessage<'_>) -> Stored {
    Stored {
        partition: message.partition(),
        offset: message.offset(),
        timestamp: message.timestamp().to_millis(),
        key: message.key().map(<[u8]>::to_vec),
        payload: message.payload().map(<[u8]>::to_vec),
        headers: headers(message),
    }
}

fn headers(message: &BorrowedMessage<'_>) -> Headers {
    let owned = |header: Header<'_>| (header.name.to_vec(), header.value.map(<[u8]>::to_vec));
    kafka::headers(message).map(owned).collect()
}

/// Blocks on rdkafka's admin calls, also from within an asynchronous test.
fn wait<F: Future<Output: Send> + Send>(future: F) -> F::Output {
    let run = || tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future);
    thread::scope(|scope| scope.spawn(run).join().unwrap())
}
