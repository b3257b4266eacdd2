//! What the producer puts into a topic of a real broker, and what it answers when the broker refuses.
//!
//! `DEADLETTER_BROKER` is the broker's address.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "it is test code")]

use std::{
    borrow::Cow,
    collections::BTreeMap,
    sync::{
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    time::{Duration, Instant},
};

use deadletter::{
    config::{
        Brokers, CreateTopic, Dialect, Kafka, KeyChoice, PartitionChoice, Properties, Route, SeekThreshold, Shadow,
        TimestampChoice,
    },
    kafka::{DeliveryError, Producer},
    message::{Batch, Header, Timestamp, TopicPartition},
    offset::Offset,
    record::{Content, DeadLetter, Missing, Origin, Record, RecordHeader},
    verdict::Rejection,
};
use rdkafka::{
    ClientConfig, Message as _,
    admin::{AdminClient, AdminOptions, NewTopic, TopicReplication},
    client::DefaultClientContext,
    consumer::{BaseConsumer, Consumer as _},
    topic_partition_list::TopicPartitionList,
};

/// Every wait ends with this.
const DEADLINE: Duration = Duration::from_mins(1);

fn broker() -> String {
    std::env::var("DEADLETTER_BROKER").expect("DEADLETTER_BROKER must hold the address of a broker, host:port")
}

fn kafka(properties: &[(&str, &str)]) -> Kafka {
    let own = properties.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    Kafka {
        brokers: Brokers::Servers(broker()),
        common: Properties::default(),
        consumer: Properties::default(),
        producer: Properties(own.collect::<BTreeMap<_, _>>()),
        shadow: Shadow {
            readers: 1,
            seek_threshold: SeekThreshold::Auto,
            deadline: DEADLINE,
            group_id: "shadow".into(),
        },
    }
}

/// A name that no other test and no earlier run has.
fn unique(name: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis();
    format!("{name}-{now}-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

fn admin() -> AdminClient<DefaultClientContext> {
    ClientConfig::new().set("bootstrap.servers", broker()).create().unwrap()
}

async fn create(topic: &str, partitions: i32, properties: &[(&str, &str)]) {
    let mut new = NewTopic::new(topic, partitions, TopicReplication::Fixed(1));
    for (key, value) in properties {
        new = new.set(key, value);
    }
    admin().create_topics([&new], &AdminOptions::new()).await.unwrap().pop().unwrap().unwrap();
}

/// Sends one record and waits for its answer.
async fn send(producer: &Producer, record: &Record<'_>) -> Result<(), DeliveryError> {
    let (sender, receiver) = mpsc::channel();
    producer.send(record, move |result| sender.send(result).unwrap()).await;
    assert!(producer.flush(DEADLINE).await);
    receiver.try_recv().expect("a flush that ended has brought every answer")
}

type Headers = Vec<(Vec<u8>, Option<Vec<u8>>)>;

#[derive(Debug, PartialEq)]
struct Read {
    partition: i32,
    timestamp: Option<i64>,
    key: Option<Vec<u8>>,
    payload: Option<Vec<u8>>,
    headers: Headers,
}

/// The first records of a topic, partition after partition.
fn read(topic: &str, partitions: i32, count: usize) -> Vec<Read> {
    let consumer: BaseConsumer =
        ClientConfig::new().set("bootstrap.servers", broker()).set("group.id", "test").create().unwrap();
    let mut from = TopicPartitionList::new();
    for partition in 0..partitions {
        from.add_partition_offset(topic, partition, rdkafka::Offset::Beginning).unwrap();
    }
    consumer.assign(&from).unwrap();
    let end = Instant::now() + DEADLINE;
    let mut records = Vec::new();
    while records.len() < count {
        assert!(Instant::now() < end, "only {} of {count} records in {topic}", records.len());
        let Some(message) = consumer.poll(Duration::from_millis(100)) else { continue };
        let message = message.unwrap();
        records.push(Read {
            partition: message.partition(),
            timestamp: message.timestamp().to_millis(),
            key: message.key().map(<[u8]>::to_vec),
            payload: message.payload().map(<[u8]>::to_vec),
            headers: raw::headers(&message),
        });
    }
    records.sort_by_key(|record| record.partition);
    records
}

#[allow(unsafe_code, reason = "rdkafka's own accessor panics on a header name that is not UTF-8")]
mod raw {
    use std::{ffi::CStr, ptr, slice};

    use rdkafka::{bindings as sys, message::BorrowedMessage};

    pub(super) fn headers(message: &BorrowedMessage<'_>) -> super::Headers {
        let none = sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR;
        let mut list = ptr::null_mut();
        let mut headers = Vec::new();
        // SAFETY: the message owns the list and what its entries point to, and is borrowed until they are copied.
        unsafe {
            if sys::rd_kafka_message_headers(message.ptr(), &raw mut list) != none {
                return headers;
            }
            let (mut name, mut value, mut size) = (ptr::null(), ptr::null(), 0);
            while sys::rd_kafka_header_get_all(list, headers.len(), &raw mut name, &raw mut value, &raw mut size)
                == none
            {
                let value = (!value.is_null()).then(|| slice::from_raw_parts(value.cast::<u8>(), size).to_vec());
                headers.push((CStr::from_ptr(name).to_bytes().to_vec(), value));
            }
        }
        headers
    }
}

fn header(name: &'static [u8], value: Option<&'static [u8]>) -> RecordHeader<'static> {
    RecordHeader { name: name.into(), value: value.map(Cow::Borrowed) }
}

#[tokio::test]
async fn every_byte_of_a_record_arrives() {
    let topic = unique("bytes");
    create(&topic, 3, &[]).await;
    let producer = Producer::new(&kafka(&[]), &broker());
    let binary: Vec<u8> = (0..=255).collect();
    let bodies = [
        (None, None),
        (Some(&b""[..]), Some(&b""[..])),
        (None, Some(&b""[..])),
        (Some(&b"key"[..]), None),
        (Some(&binary[..]), Some(&binary[..])),
    ];
    let headers = vec![
        header(b"twice", Some(b"1")),
        header(b"null", None),
        header(b"twice", Some(b"2")),
        header(b"empty", Some(b"")),
        header(b"", Some(b"no name")),
        header(b"\xff\xfe\x80", Some(b"\x00\xff\x00")),
        header("größe".as_bytes(), Some("ß".as_bytes())),
        header(b"twice", Some(b"1")),
    ];
    for (key, payload) in bodies {
        let record = Record {
            topic: Cow::Borrowed(&topic),
            partition: Some(2),
            timestamp: Some(1_600_000_000_000),
            key: key.map(Cow::Borrowed),
            payload: payload.map(Cow::Borrowed),
            headers: headers.clone(),
        };
        assert_eq!(send(&producer, &record).await, Ok(()));
    }
    let expected: Headers = headers
        .iter()
        .map(|header| (header.name.to_vec(), header.value.as_ref().map(|value| value.to_vec())))
        .collect();
    for (read, (key, payload)) in read(&topic, 3, bodies.len()).iter().zip(bodies) {
        assert_eq!((read.partition, read.timestamp), (2, Some(1_600_000_000_000)));
        assert_eq!((read.key.as_deref(), read.payload.as_deref()), (key, payload));
        assert_eq!(read.headers, expected);
    }
}

#[tokio::test]
async fn without_a_partition_the_key_chooses_and_without_a_timestamp_the_clock_does() {
    let topic = unique("choice");
    create(&topic, 8, &[]).await;
    let producer = Producer::new(&kafka(&[]), &broker());
    let before = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis();
    for key in [&b"a"[..], b"b", b"c", b"a", b"b", b"c"] {
        let record = Record { topic: Cow::Borrowed(&topic), key: Some(key.into()), ..Record::default() };
        assert_eq!(send(&producer, &record).await, Ok(()));
    }
    let mut partitions = BTreeMap::new();
    for read in read(&topic, 8, 6) {
        assert!(read.timestamp.unwrap() >= i64::try_from(before).unwrap());
        let first = *partitions.entry(read.key).or_insert(read.partition);
        assert_eq!(first, read.partition, "one key, one partition");
    }
    assert_eq!(partitions.len(), 3);
}

#[tokio::test]
async fn a_dead_letter_and_its_stub_arrive_as_made() {
    let topic = unique("dlq");
    create(&topic, 4, &[]).await;
    let producer = Producer::new(&kafka(&[]), &broker());
    let source = TopicPartition::new("orders", 7);
    let mut batch = Batch::new(source.clone());
    let originals = [(&b"\xff"[..], None), (b"trace", Some(&b"1"[..])), (b"trace", Some(b""))];
    batch.push(
        Offset::new(42).unwrap(),
        Some(Timestamp::Create(1_600_000_000_000)),
        None,
        Some(b""),
        Some(b"\x00payload\xff"),
        originals.map(|(name, value)| Header { name, value }),
    );
    let route = Route {
        topic: topic.clone(),
        partition: PartitionChoice::Same,
        timestamp: TimestampChoice::Original,
        key: KeyChoice::Original,
        create: Some(CreateTopic { partitions: 4, replicas: 1 }),
        dialects: vec![Dialect::Deadletter, Dialect::Connect],
    };
    let origin = Origin { group: "g".into(), pipeline: "p".into(), guest: "sha256:00".into() };
    let rejection = Rejection { route: None, code: "bad".into(), reason: "why".into() };
    let full = Content::Full(batch.get(0).unwrap());
    let stub = Content::Stub(Missing::Expired, None);
    for (content, key, payload, timestamp, kept, made) in [
        (full, Some(&b""[..]), Some(&b"\x00payload\xff"[..]), Some(1_600_000_000_000), 3, 25),
        (stub, None, None, None, 0, 23),
    ] {
        let letter = DeadLetter {
            source: &source,
            offset: Offset::new(42).unwrap(),
            content,
            rejection: &rejection,
            attempts: 1,
            failed_at: 0,
        };
        let record = letter.to_record(&origin, &route, Some(4));
        assert_eq!(send(&producer, &record).await, Ok(()));
        let read = read(&topic, 4, if kept > 0 { 1 } else { 2 }).pop().unwrap();
        assert_eq!((read.partition, read.key.as_deref(), read.payload.as_deref()), (3, key, payload));
        assert!(timestamp.is_none_or(|timestamp| read.timestamp == Some(timestamp)));
        let originals = originals.map(|(name, value)| (name.to_vec(), value.map(<[u8]>::to_vec)));
        assert_eq!(read.headers[..kept], originals[..kept]);
        assert_eq!(read.headers.len(), kept + made);
        assert_eq!(read.headers[kept], (b"deadletter.version".to_vec(), Some(b"1".to_vec())));
        let sent: Headers = record
            .headers
            .iter()
            .map(|header| (header.name.to_vec(), header.value.as_ref().map(|value| value.to_vec())))
            .collect();
        assert_eq!(read.headers, sent);
    }
}

#[tokio::test]
async fn only_the_record_that_is_itself_too_large_for_its_topic_is_refused() {
    let topic = unique("small");
    create(&topic, 1, &[("max.message.bytes", "10000")]).await;
    // All within one batch, which is then far above the topic's limit.
    let producer = Producer::new(&kafka(&[("linger.ms", "500")]), &broker());
    let (sender, receiver) = mpsc::channel();
    for (index, size) in [1000, 1000, 20_000, 1000].into_iter().cycle().take(100).enumerate() {
        let payload = vec![b'x'; size];
        let headers = vec![header(b"\xff", None)];
        let record = Record {
            topic: Cow::Borrowed(&topic),
            payload: Some(payload.into()),
            timestamp: Some(1_000 + i64::try_from(index).unwrap()),
            headers,
            ..Record::default()
        };
        let sender = sender.clone();
        producer.send(&record, move |result| sender.send((size, result)).unwrap()).await;
    }
    assert!(producer.flush(DEADLINE).await);
    let answers: Vec<_> = receiver.try_iter().collect();
    assert_eq!(answers.len(), 100);
    for (size, answer) in answers {
        assert_eq!(answer, if size > 10_000 { Err(DeliveryError::TooLarge) } else { Ok(()) });
    }
    let read = read(&topic, 1, 75);
    for record in read {
        assert_eq!(record.headers, [(vec![0xff], None)]);
        assert!(record.timestamp < Some(2_000), "its own timestamp: {record:?}");
    }
    let small = Record { topic: Cow::Borrowed(&topic), ..Record::default() };
    assert_eq!(send(&producer, &small).await, Ok(()), "the producer stays of use");
    assert_eq!(producer.unacknowledged(), 0);
}

#[tokio::test]
async fn a_missing_topic_fails_the_record_and_is_not_made() {
    let topic = unique("missing");
    let producer = Producer::new(&kafka(&[("topic.metadata.propagation.max.ms", "1000")]), &broker());
    let record = Record { topic: Cow::Borrowed(&topic), ..Record::default() };
    let answer = send(&producer, &record).await;
    assert!(matches!(&answer, Err(DeliveryError::Failed(reason)) if reason.contains("UnknownTopic")), "{answer:?}");
    let metadata = admin().inner().fetch_metadata(None, DEADLINE).unwrap();
    assert!(metadata.topics().iter().all(|existing| existing.name() != topic));
}

#[tokio::test]
async fn a_partition_that_does_not_exist_fails_the_record() {
    let topic = unique("partition");
    create(&topic, 1, &[]).await;
    let producer = Producer::new(&kafka(&[]), &broker());
    let record = Record { topic: Cow::Borrowed(&topic), partition: Some(7), ..Record::default() };
    let answer = send(&producer, &record).await;
    assert!(matches!(&answer, Err(DeliveryError::Failed(reason)) if reason.contains("UnknownPartition")), "{answer:?}");
}

#[tokio::test]
async fn a_topic_that_is_deleted_and_made_again_takes_records_again() {
    let topic = unique("again");
    create(&topic, 1, &[]).await;
    let producer = Producer::new(&kafka(&[("topic.metadata.propagation.max.ms", "1000")]), &broker());
    let record = Record { topic: Cow::Borrowed(&topic), ..Record::default() };
    for _ in 0..10 {
        assert_eq!(send(&producer, &record).await, Ok(()));
    }
    admin().delete_topics(&[&topic], &AdminOptions::new()).await.unwrap().pop().unwrap().unwrap();
    let end = Instant::now() + DEADLINE;
    while send(&producer, &record).await.is_ok() {
        assert!(Instant::now() < end, "records are still acknowledged for a topic that is gone");
    }
    create(&topic, 1, &[]).await;
    let start = Instant::now();
    while let Err(error) = send(&producer, &record).await {
        assert!(Instant::now() < end, "{error}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    eprintln!("recovered in {:?}", start.elapsed());
    assert!(!read(&topic, 1, 1).is_empty());
}
