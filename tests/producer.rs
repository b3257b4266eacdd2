//! What the producer puts into a topic of a real broker, and what it answers when the broker refuses.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    sync::mpsc,
    time::{Duration, Instant, SystemTime},
};

use crate::support::{Headers, SOON, broker, kafka};
use deadletter::{
    config::{CreateTopic, Dialect, KeyChoice, PartitionChoice, Properties, Route, TimestampChoice},
    kafka::{DeliveryError, Producer},
    message::{Batch, Header, Timestamp, TopicPartition},
    offset::Offset,
    record::{self, Content, DeadLetter, Missing, Origin, Record, RecordHeader, Stub},
    verdict::Rejection,
};

fn producer(properties: &[(&str, &str)]) -> Producer {
    let own = properties.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    let mut kafka = kafka(&broker().servers);
    kafka.producer = Properties(own.collect());
    Producer::new(&kafka, &broker().servers)
}

/// Sends one record and waits for its answer.
async fn send(producer: &Producer, record: &Record<'_>) -> Result<(), DeliveryError> {
    let (sender, receiver) = mpsc::channel();
    producer.send(record, move |result| sender.send(result).unwrap()).await;
    assert!(producer.flush(SOON).await);
    receiver.try_recv().expect("a flush that ended has brought every answer")
}

fn owned(headers: &[RecordHeader<'_>]) -> Headers {
    headers.iter().map(|header| (header.name.to_vec(), header.value.as_ref().map(|value| value.to_vec()))).collect()
}

fn header(name: &'static [u8], value: Option<&'static [u8]>) -> RecordHeader<'static> {
    RecordHeader { name: name.into(), value: value.map(Cow::Borrowed) }
}

#[tokio::test]
async fn every_byte_of_a_record_arrives() {
    let topic = "producer-bytes";
    broker().create_topic(topic, 3, &[]);
    let producer = producer(&[]);
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
            topic: Cow::Borrowed(topic),
            partition: Some(2),
            timestamp: Some(1_600_000_000_000),
            key: key.map(Cow::Borrowed),
            payload: payload.map(Cow::Borrowed),
            headers: headers.clone(),
        };
        assert_eq!(send(&producer, &record).await, Ok(()));
    }
    let read = broker().read(topic);
    assert_eq!(read.len(), bodies.len());
    for (read, (key, payload)) in read.iter().zip(bodies) {
        assert_eq!((read.partition, read.timestamp), (2, Some(1_600_000_000_000)));
        assert_eq!((read.key.as_deref(), read.payload.as_deref()), (key, payload));
        assert_eq!(read.headers, owned(&headers));
    }
}

#[tokio::test]
async fn without_a_partition_the_key_chooses_and_without_a_timestamp_the_clock_does() {
    let topic = "producer-choice";
    broker().create_topic(topic, 8, &[]);
    let producer = producer(&[]);
    let before = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis();
    for key in [&b"a"[..], b"b", b"c", b"a", b"b", b"c"] {
        let record = Record { topic: Cow::Borrowed(topic), key: Some(key.into()), ..Record::default() };
        assert_eq!(send(&producer, &record).await, Ok(()));
    }
    let mut partitions = BTreeMap::new();
    for read in broker().read(topic) {
        assert!(read.timestamp.unwrap() >= i64::try_from(before).unwrap());
        let first = *partitions.entry(read.key).or_insert(read.partition);
        assert_eq!(first, read.partition, "one key, one partition");
    }
    assert_eq!(partitions.len(), 3);
}

#[tokio::test]
async fn a_dead_letter_and_its_stub_arrive_as_made() {
    let topic = "producer-dlq";
    broker().create_topic(topic, 4, &[]);
    let producer = producer(&[]);
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
        topic: topic.to_owned(),
        partition: PartitionChoice::Same,
        timestamp: TimestampChoice::Original,
        key: KeyChoice::Original,
        create: Some(CreateTopic { partitions: 4, replicas: 1 }),
        limit: None,
        dialects: vec![Dialect::Deadletter, Dialect::Connect],
    };
    let origin = Origin { group: "g".into(), pipeline: "p".into(), guest: "sha256:00".into() };
    let rejection = Rejection { route: None, code: "bad".into(), reason: "why".into() };
    let full = Content::Full(batch.get(0).unwrap());
    let stub = Content::Stub(Stub::Missing(Missing::Expired), None);
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
            headers: record::Headers::All,
        };
        let record = letter.to_record(&origin, &route, Some(4));
        assert_eq!(send(&producer, &record).await, Ok(()));
        let read = broker().read(topic).pop().unwrap();
        assert_eq!((read.partition, read.key.as_deref(), read.payload.as_deref()), (3, key, payload));
        assert!(timestamp.is_none_or(|timestamp| read.timestamp == Some(timestamp)));
        let originals = originals.map(|(name, value)| (name.to_vec(), value.map(<[u8]>::to_vec)));
        assert_eq!(read.headers[..kept], originals[..kept]);
        assert_eq!(read.headers.len(), kept + made);
        assert_eq!(read.headers[kept], (b"deadletter.version".to_vec(), Some(b"1".to_vec())));
        assert_eq!(read.headers, owned(&record.headers));
    }
}

#[tokio::test]
async fn only_the_record_that_is_itself_too_large_for_its_topic_is_refused() {
    let topic = "producer-small";
    broker().create_topic(topic, 1, &[("max.message.bytes", "10000")]);
    // All within one batch, which is then far above the topic's limit.
    let producer = producer(&[("linger.ms", "500")]);
    let (sender, receiver) = mpsc::channel();
    for (index, size) in [1000, 1000, 20_000, 1000].into_iter().cycle().take(100).enumerate() {
        let payload = vec![b'x'; size];
        let headers = vec![header(b"\xff", None)];
        let record = Record {
            topic: Cow::Borrowed(topic),
            payload: Some(payload.into()),
            timestamp: Some(1_000 + i64::try_from(index).unwrap()),
            headers,
            ..Record::default()
        };
        let sender = sender.clone();
        producer.send(&record, move |result| sender.send((size, result)).unwrap()).await;
    }
    assert!(producer.flush(SOON).await);
    let answers: Vec<_> = receiver.try_iter().collect();
    assert_eq!(answers.len(), 100);
    for (size, answer) in answers {
        assert_eq!(answer, if size > 10_000 { Err(DeliveryError::TooLarge) } else { Ok(()) });
    }
    let read = broker().read(topic);
    assert_eq!(read.len(), 75);
    for record in read {
        assert_eq!(record.headers, [(vec![0xff], None)]);
        assert!(record.timestamp < Some(2_000), "its own timestamp: {record:?}");
    }
    let small = Record { topic: Cow::Borrowed(topic), ..Record::default() };
    assert_eq!(send(&producer, &small).await, Ok(()), "the producer stays of use");
    assert_eq!(producer.unacknowledged(), 0);
}

#[tokio::test]
async fn a_missing_topic_fails_the_record_and_is_not_made() {
    let topic = "producer-missing";
    let producer = producer(&[("topic.metadata.propagation.max.ms", "1000")]);
    let record = Record { topic: Cow::Borrowed(topic), ..Record::default() };
    let answer = send(&producer, &record).await;
    assert!(matches!(&answer, Err(DeliveryError::Failed(reason)) if reason.contains("UnknownTopic")), "{answer:?}");
    assert!(!broker().has_topic(topic));
}

#[tokio::test]
async fn a_partition_that_does_not_exist_fails_the_record() {
    let topic = "producer-partition";
    broker().create_topic(topic, 1, &[]);
    let producer = producer(&[]);
    let record = Record { topic: Cow::Borrowed(topic), partition: Some(7), ..Record::default() };
    let answer = send(&producer, &record).await;
    assert!(matches!(&answer, Err(DeliveryError::Failed(reason)) if reason.contains("UnknownPartition")), "{answer:?}");
}

#[tokio::test]
async fn a_topic_that_is_deleted_and_made_again_takes_records_again() {
    let topic = "producer-again";
    broker().create_topic(topic, 1, &[]);
    let producer = producer(&[("topic.metadata.propagation.max.ms", "1000")]);
    let record = Record { topic: Cow::Borrowed(topic), ..Record::default() };
    for _ in 0..10 {
        assert_eq!(send(&producer, &record).await, Ok(()));
    }
    broker().delete_topic(topic);
    let end = Instant::now() + SOON;
    while send(&producer, &record).await.is_ok() {
        assert!(Instant::now() < end, "records are still acknowledged for a topic that is gone");
    }
    broker().create_topic(topic, 1, &[]);
    while let Err(error) = send(&producer, &record).await {
        assert!(Instant::now() < end, "{error}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(!broker().read(topic).is_empty());
}
