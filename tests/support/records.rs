//! Producing to a broker, with or without a transaction.

use std::{collections::BTreeMap, sync::Mutex, time::Duration};

use rdkafka::{
    ClientContext, Message as _, Offset, TopicPartitionList,
    consumer::Consumer as _,
    error::RDKafkaErrorCode,
    message::{DeliveryResult, Header, OwnedHeaders},
    producer::{BaseProducer, BaseRecord, Producer, ProducerContext},
};

use super::{Broker, SOON};

/// A record to be produced.
#[derive(Clone, Debug, Default)]
pub(crate) struct Record {
    /// `None` lets the key choose.
    pub(crate) partition: Option<i32>,
    /// Milliseconds since the epoch; `None` is now.
    pub(crate) timestamp: Option<i64>,
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) payload: Option<Vec<u8>>,
    pub(crate) headers: Vec<(String, Option<Vec<u8>>)>,
}

impl Record {
    /// A record of a key and a payload, for the partition that the key chooses.
    pub(crate) fn new(key: impl Into<Vec<u8>>, payload: impl Into<Vec<u8>>) -> Self {
        Self { key: Some(key.into()), payload: Some(payload.into()), ..Self::default() }
    }
}

/// Where a produced record is: partition and offset.
pub(crate) type Position = (i32, i64);

impl Broker {
    /// Produces records and waits for their acknowledgements; their positions in the order of `records`.
    pub(crate) fn produce(&self, topic: &str, records: &[Record]) -> Vec<Position> {
        let producer =
            self.client("producer").set("linger.ms", "5").create_with_context(Deliveries::default()).unwrap();
        send(&producer, topic, records)
    }

    /// Produces records in a transaction that stays open until it is committed or aborted.
    pub(crate) fn begin(&self, topic: &str, records: &[Record]) -> Transaction {
        let producer = self.transactional();
        let positions = send(&producer, topic, records);
        Transaction { producer, positions }
    }

    /// Commits a position of a group, for partition 0, in a transaction.
    pub(crate) fn begin_commit(&self, group: &str, topic: &str, position: i64) -> Transaction {
        let producer = self.transactional();
        let mut positions = TopicPartitionList::new();
        positions.add_partition_offset(topic, 0, Offset::Offset(position)).unwrap();
        let group = self.consumer(group).group_metadata().unwrap();
        producer.send_offsets_to_transaction(&positions, &group, SOON).unwrap();
        Transaction { producer, positions: Vec::new() }
    }

    fn transactional(&self) -> BaseProducer<Deliveries> {
        let mut client = self.client("transaction");
        client.set("transactional.id", format!("transaction-{:x}", rand::random::<u64>()));
        let producer: BaseProducer<Deliveries> = client.create_with_context(Deliveries::default()).unwrap();
        producer.init_transactions(SOON).unwrap();
        producer.begin_transaction().unwrap();
        producer
    }
}

/// Records in a transaction, acknowledged. Dropped as it is, the transaction stays open until the broker times it out.
pub(crate) struct Transaction {
    producer: BaseProducer<Deliveries>,
    /// Where the records are, in their order.
    pub(crate) positions: Vec<Position>,
}

impl Transaction {
    pub(crate) fn commit(self) {
        self.producer.commit_transaction(SOON).unwrap();
    }

    pub(crate) fn abort(self) {
        self.producer.abort_transaction(SOON).unwrap();
    }
}

/// Positions of acknowledged records by their place in what was sent.
#[derive(Default)]
struct Deliveries(Mutex<BTreeMap<usize, Position>>);

impl ClientContext for Deliveries {}

impl ProducerContext for Deliveries {
    type DeliveryOpaque = Box<usize>;

    fn delivery(&self, result: &DeliveryResult<'_>, index: Box<usize>) {
        if let Ok(message) = result {
            self.0.lock().unwrap().insert(*index, (message.partition(), message.offset()));
        }
    }
}

fn send(producer: &BaseProducer<Deliveries>, topic: &str, records: &[Record]) -> Vec<Position> {
    for (index, record) in records.iter().enumerate() {
        let mut next = BaseRecord::with_opaque_to(topic, Box::new(index));
        (next.partition, next.timestamp) = (record.partition, record.timestamp);
        (next.key, next.payload) = (record.key.as_deref(), record.payload.as_deref());
        let headers = record.headers.iter().map(|(key, value)| Header { key, value: value.as_deref() });
        next.headers = (!record.headers.is_empty()).then(|| headers.fold(OwnedHeaders::new(), OwnedHeaders::insert));
        while let Err((error, back)) = producer.send::<[u8], [u8]>(next) {
            assert_eq!(error.rdkafka_error_code(), Some(RDKafkaErrorCode::QueueFull), "{error}");
            producer.poll(Duration::from_millis(100));
            next = back;
        }
        producer.poll(Duration::ZERO);
    }
    producer.flush(SOON).unwrap();
    let positions = std::mem::take(&mut *producer.context().0.lock().unwrap());
    assert_eq!(positions.len(), records.len(), "records of {topic} were not acknowledged");
    positions.into_values().collect()
}
