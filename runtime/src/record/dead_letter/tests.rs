use std::sync::Arc;

use proptest::{collection::vec, option, prelude::*};

use super::*;
use crate::{
    config::Dialect,
    message::{Batch, Header},
};

const FAILED_AT: i64 = 1_700_000_000_123;

fn origin() -> Origin {
    Origin { group: "billing".into(), pipeline: "orders".into(), guest: "sha256:c0ffee".into() }
}

fn route(dialects: &[Dialect]) -> Route {
    Route {
        limit: None,
        topic: "orders.dlq".into(),
        partition: PartitionChoice::Same,
        timestamp: TimestampChoice::Now,
        key: KeyChoice::Original,
        create: None,
        dialects: dialects.to_vec(),
    }
}

fn rejection() -> Rejection {
    Rejection { route: None, code: "no-amount".into(), reason: "amount is null – weiß".into() }
}

fn source() -> TopicPartition {
    TopicPartition::new("orders", 7)
}

fn letter<'a>(source: &'a TopicPartition, content: Content<'a>, rejection: &'a Rejection) -> DeadLetter<'a> {
    let offset = Offset::new(42).unwrap();
    DeadLetter { source, offset, content, rejection, attempts: 1, failed_at: FAILED_AT, headers: Headers::All }
}

fn batch(key: Option<&[u8]>, payload: Option<&[u8]>, headers: &[(&[u8], Option<&[u8]>)]) -> Batch {
    let mut batch = Batch::new(source());
    let headers = headers.iter().map(|(name, value)| Header { name, value: *value });
    batch.push(Offset::new(42).unwrap(), Some(Timestamp::Create(1_600_000_000_000)), Some(3), key, payload, headers);
    batch
}

/// Headers as lines, a null as `-`, and bytes where Spring has numbers.
fn lines(record: &Record<'_>) -> String {
    let line = |header: &RecordHeader<'_>| {
        let name = String::from_utf8_lossy(&header.name);
        let is_binary =
            ["partition", "offset", "timestamp"].iter().any(|what| *name == format!("kafka_dlt-original-{what}"));
        match header.value.as_deref() {
            None => format!("{name}=-\n"),
            Some(value) if is_binary => format!("{name}={value:02x?}\n"),
            Some(value) => format!("{name}={}\n", String::from_utf8_lossy(value)),
        }
    };
    record.headers.iter().map(line).collect()
}

const OURS: &str = "\
deadletter.version=1
deadletter.topic=orders
deadletter.partition=7
deadletter.offset=42
deadletter.timestamp=1600000000000
deadletter.timestamp-type=CreateTime
deadletter.group=billing
deadletter.pipeline=orders
deadletter.route=dead-letter
deadletter.code=no-amount
deadletter.reason=amount is null – weiß
deadletter.attempts=1
deadletter.guest=sha256:c0ffee
deadletter.failed-at=2023-11-14T22:13:20.123Z
deadletter.replays=0
deadletter.payload-status=full
";

const CONNECT: &str = "\
__connect.errors.topic=orders
__connect.errors.partition=7
__connect.errors.offset=42
__connect.errors.connector.name=orders
__connect.errors.task.id=7
__connect.errors.stage=dead-letter
__connect.errors.class.name=no-amount
__connect.errors.exception.class.name=no-amount
__connect.errors.exception.message=amount is null – weiß
";

const SPRING: &str = "\
kafka_dlt-exception-fqcn=no-amount
kafka_dlt-exception-cause-fqcn=no-amount
kafka_dlt-exception-message=amount is null – weiß
kafka_dlt-original-topic=orders
kafka_dlt-original-partition=[00, 00, 00, 07]
kafka_dlt-original-offset=[00, 00, 00, 00, 00, 00, 00, 2a]
kafka_dlt-original-timestamp=[00, 00, 01, 74, 87, 6e, 80, 00]
kafka_dlt-original-timestamp-type=CreateTime
kafka_dlt-original-consumer-group=billing
";

#[test]
fn the_originals_come_first_and_then_our_block() {
    let (source, rejection, origin, route) = (source(), rejection(), origin(), route(&[Dialect::Deadletter]));
    let batch = batch(Some(b"k"), Some(b"v"), &[(b"a", Some(b"1")), (b"a", None), (b"\xff\xfe", Some(b""))]);
    let content = Content::Full(batch.get(0).unwrap());
    let record = letter(&source, content, &rejection).to_record(&origin, &route, Some(5));
    assert_eq!(lines(&record), format!("a=1\na=-\n\u{fffd}\u{fffd}=\n{OURS}"));
    assert_eq!(record.topic, "orders.dlq");
    assert_eq!(record.partition, Some(2));
    assert_eq!(record.timestamp, None);
    assert_eq!(record.key.as_deref(), Some(&b"k"[..]));
    assert_eq!(record.payload.as_deref(), Some(&b"v"[..]));
}

#[test]
fn the_blocks_come_in_one_order_whatever_that_of_the_configuration() {
    let (source, rejection, origin) = (source(), rejection(), origin());
    let batch = batch(None, None, &[]);
    for (dialects, expected) in [
        (&[Dialect::Connect][..], CONNECT.to_string()),
        (&[Dialect::Spring], SPRING.to_string()),
        (&[Dialect::Deadletter, Dialect::Connect], format!("{OURS}{CONNECT}")),
        (&[Dialect::Spring, Dialect::Connect, Dialect::Deadletter], format!("{OURS}{CONNECT}{SPRING}")),
    ] {
        let route = route(dialects);
        let content = Content::Full(batch.get(0).unwrap());
        let record = letter(&source, content, &rejection).to_record(&origin, &route, None);
        assert_eq!(lines(&record), expected);
    }
}

#[test]
fn what_is_essential_stays_of_one_dialect_and_all_of_the_message() {
    let (source, rejection, origin) = (source(), rejection(), origin());
    let batch = batch(Some(b"k"), Some(b"v"), &[(b"a", Some(b"1"))]);
    let ours = "\
deadletter.version=1
deadletter.topic=orders
deadletter.partition=7
deadletter.offset=42
deadletter.timestamp=1600000000000
deadletter.timestamp-type=CreateTime
deadletter.route=dead-letter
deadletter.code=no-amount
deadletter.replays=0
deadletter.payload-status=full
";
    let connects = "\
__connect.errors.topic=orders
__connect.errors.partition=7
__connect.errors.offset=42
__connect.errors.exception.class.name=no-amount
";
    let springs = "\
kafka_dlt-exception-fqcn=no-amount
kafka_dlt-original-topic=orders
kafka_dlt-original-partition=[00, 00, 00, 07]
kafka_dlt-original-offset=[00, 00, 00, 00, 00, 00, 00, 2a]
kafka_dlt-original-timestamp=[00, 00, 01, 74, 87, 6e, 80, 00]
kafka_dlt-original-timestamp-type=CreateTime
";
    for (dialects, expected) in [
        (&[Dialect::Deadletter][..], ours),
        (&[Dialect::Connect, Dialect::Deadletter], ours),
        (&[Dialect::Spring, Dialect::Connect], connects),
        (&[Dialect::Spring], springs),
    ] {
        let route = route(dialects);
        let mut letter = letter(&source, Content::Full(batch.get(0).unwrap()), &rejection);
        letter.headers = Headers::Essential;
        let record = letter.to_record(&origin, &route, None);
        assert_eq!(lines(&record), format!("a=1\n{expected}"));
        assert_eq!((record.key.as_deref(), record.payload.as_deref()), (Some(&b"k"[..]), Some(&b"v"[..])));
    }
}

#[test]
fn a_stub_has_coordinates_but_nothing_of_the_message() {
    let (source, rejection, origin) = (source(), rejection(), origin());
    let absent = OURS.replace("deadletter.timestamp=1600000000000\ndeadletter.timestamp-type=CreateTime\n", "");
    let appended = OURS.replace("CreateTime", "LogAppendTime");
    for (why, timestamp, expected) in [
        (Stub::Missing(Missing::Expired), None, absent.replace("=full", "=expired")),
        (Stub::Missing(Missing::Absent), None, absent.replace("=full", "=gone")),
        (Stub::Missing(Missing::Replaced), None, absent.replace("=full", "=replaced")),
        (Stub::TooLarge, Some(Timestamp::Append(1_600_000_000_000)), appended.replace("=full", "=too-large")),
    ] {
        let mut route = route(&[Dialect::Deadletter]);
        let stub = letter(&source, Content::Stub(why, timestamp), &rejection);
        let record = stub.to_record(&origin, &route, Some(5));
        assert_eq!((lines(&record), record.key, record.payload), (expected.clone(), None, None));

        route.key = KeyChoice::Coordinates;
        let record = stub.to_record(&origin, &route, Some(5));
        assert_eq!(record.key.as_deref(), Some(&b"orders/7/42"[..]));
        assert_eq!((lines(&record), record.payload), (expected, None));
    }
}

#[test]
fn spring_has_a_value_for_a_timestamp_that_is_not_known() {
    let (source, rejection, origin, route) = (source(), rejection(), origin(), route(&[Dialect::Spring]));
    let stub = letter(&source, Content::Stub(Stub::Missing(Missing::Expired), None), &rejection);
    let lines = lines(&stub.to_record(&origin, &route, None));
    assert!(lines.contains("-timestamp=[ff, ff, ff, ff, ff, ff, ff, ff]\n"), "{lines}");
    assert!(lines.contains("-timestamp-type=NoTimestampType\n"), "{lines}");
}

#[test]
fn a_dead_letter_of_a_dead_letter_keeps_the_first_block() {
    let (source, rejection, origin, route) = (source(), rejection(), origin(), route(&[Dialect::Deadletter]));
    let first = batch(Some(b"k"), Some(b"v"), &[(b"a", Some(b"1"))]);
    let content = Content::Full(first.get(0).unwrap());
    let first = letter(&source, content, &rejection).to_record(&origin, &route, None);

    let dlq = TopicPartition::new("orders.dlq", 2);
    let mut second = Batch::new(dlq.clone());
    let headers = first.headers.iter().map(|header| Header { name: &header.name, value: header.value.as_deref() });
    second.push(Offset::new(9).unwrap(), None, None, first.key.as_deref(), first.payload.as_deref(), headers);
    let again = Rejection { route: Some("parked".into()), code: "twice".into(), reason: String::new() };
    let content = Content::Full(second.get(0).unwrap());
    let letter = DeadLetter {
        source: &dlq,
        offset: Offset::new(9).unwrap(),
        content,
        rejection: &again,
        attempts: 3,
        failed_at: i64::MAX,
        headers: Headers::All,
    };
    let expected = format!(
        "a=1\n{OURS}\
deadletter.version=1
deadletter.topic=orders.dlq
deadletter.partition=2
deadletter.offset=9
deadletter.group=billing
deadletter.pipeline=orders
deadletter.route=parked
deadletter.code=twice
deadletter.reason=
deadletter.attempts=3
deadletter.guest=sha256:c0ffee
deadletter.failed-at=9999-12-31T23:59:59.999Z
deadletter.replays=0
deadletter.payload-status=full
"
    );
    assert_eq!(lines(&letter.to_record(&origin, &route, None)), expected);
}

#[test]
fn the_route_chooses_partition_and_timestamp() {
    let (source, rejection, origin) = (source(), rejection(), origin());
    let batch = batch(None, None, &[]);
    let letter = letter(&source, Content::Full(batch.get(0).unwrap()), &rejection);
    let mut route = route(&[Dialect::Deadletter]);
    for (partitions, expected) in [(None, None), (Some(0), None), (Some(1), Some(0)), (Some(8), Some(7))] {
        assert_eq!(letter.to_record(&origin, &route, partitions).partition, expected);
    }
    route.partition = PartitionChoice::Key;
    route.timestamp = TimestampChoice::Original;
    let record = letter.to_record(&origin, &route, Some(8));
    assert_eq!((record.partition, record.timestamp), (None, Some(1_600_000_000_000)));
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..40)
}

proptest! {
    #[test]
    fn key_payload_and_headers_of_the_message_are_kept_byte_for_byte(
        key in option::of(bytes()),
        payload in option::of(bytes()),
        headers in vec((bytes(), option::of(bytes())), 0..8),
        failed_at: i64,
    ) {
        let borrowed: Vec<_> = headers.iter().map(|(name, value)| (name.as_slice(), value.as_deref())).collect();
        let batch = batch(key.as_deref(), payload.as_deref(), &borrowed);
        let (source, rejection, origin) = (source(), Arc::new(rejection()), origin());
        let route = route(&[Dialect::Connect, Dialect::Deadletter, Dialect::Spring]);
        let mut letter = letter(&source, Content::Full(batch.get(0).unwrap()), &rejection);
        letter.failed_at = failed_at;
        let record = letter.to_record(&origin, &route, Some(3));
        prop_assert_eq!(record.key.as_deref(), key.as_deref());
        prop_assert_eq!(record.payload.as_deref(), payload.as_deref());
        let kept: Vec<_> = record.headers.iter().map(|header| (&*header.name, header.value.as_deref())).collect();
        prop_assert_eq!(&kept[..headers.len()], &borrowed[..]);
        prop_assert_eq!(kept.len(), headers.len() + 16 + 9 + 9);
    }
}
