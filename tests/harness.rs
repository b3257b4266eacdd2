//! The harness itself: a broker that keeps its data over a crash and a stop, and dies with the test process.

use std::collections::BTreeMap;

use crate::support::{Broker, Record, broker};

fn numbered(count: u32) -> Vec<Record> {
    (0..count).map(|number| Record::new(format!("key-{number}"), format!("payload {number}"))).collect()
}

#[test]
fn a_restarted_broker_still_has_what_was_produced() {
    let broker = Broker::start(&[("num.io.threads", "2")]);
    broker.create_topic("numbers", 2, &[]);
    let positions = broker.produce("numbers", &numbered(100));
    let before = broker.read("numbers");
    assert_eq!(before.len(), 100);
    for ((partition, offset), number) in positions.into_iter().zip(0..) {
        let record = before.iter().find(|record| (record.partition, record.offset) == (partition, offset)).unwrap();
        assert_eq!(record.payload, Some(format!("payload {number}").into_bytes()));
    }
    broker.kill();
    broker.resume();
    assert_eq!(broker.read("numbers"), before);
    broker.stop();
    broker.resume();
    assert_eq!(broker.read("numbers"), before);
}

#[test]
fn nulls_empty_values_and_repeated_headers_are_read_as_they_were_produced() {
    let record = Record {
        partition: Some(1),
        timestamp: Some(1_517_363_399_650),
        key: None,
        payload: Some(Vec::new()),
        headers: vec![
            ("twice".into(), Some(vec![0, 255])),
            ("null".into(), None),
            ("twice".into(), Some(b"second".to_vec())),
        ],
    };
    broker().create_topic("odd", 2, &[]);
    assert_eq!(
        broker().produce("odd", &[record.clone(), Record { payload: None, ..record.clone() }]),
        [(1, 0), (1, 1)]
    );
    let read = broker().read("odd");
    let headers: Vec<_> =
        record.headers.iter().map(|(name, value)| (name.clone().into_bytes(), value.clone())).collect();
    assert_eq!(read.len(), 2);
    assert_eq!((&read[0].key, &read[0].payload), (&None, &Some(Vec::new())));
    assert_eq!((read[0].timestamp, &read[0].headers), (record.timestamp, &headers));
    assert_eq!(read[1].payload, None);
    assert_eq!(read[0].header("twice"), Some("second"));
}

#[test]
fn aborted_and_open_transactions_are_not_read() {
    broker().create_topic("transactions", 1, &[]);
    broker().begin("transactions", &numbered(3)).commit();
    broker().begin("transactions", &numbered(4)).abort();
    let open = broker().begin("transactions", &numbered(5));
    assert_eq!(broker().read("transactions").len(), 3);
    open.commit();
    assert_eq!(broker().read("transactions").len(), 8);
}

#[test]
fn deleted_records_and_topics_are_gone() {
    broker().create_topic("short-lived", 1, &[]);
    broker().produce("short-lived", &numbered(10));
    broker().delete_records("short-lived", 0, 7);
    assert_eq!(broker().watermarks("short-lived"), BTreeMap::from([(0, (7, 10))]));
    assert_eq!(broker().read("short-lived").len(), 3);
    broker().delete_topic("short-lived");
    broker().create_topic("short-lived", 1, &[("cleanup.policy", "compact")]);
    assert_eq!(broker().ends("short-lived"), BTreeMap::from([(0, 0)]));
    assert_eq!(broker().committed("nobody", "short-lived"), BTreeMap::new());
}
