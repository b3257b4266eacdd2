//! Shadow reads on a real broker.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use crate::support::{Record, SOON, broker, kafka};
use deadletter::{
    config::SeekThreshold,
    kafka::{
        ShadowReaders, TopicIds,
        shadow::{Identity, ReadError, Reading, Want},
        topic_ids::{Existence, TopicId},
    },
    message::TopicPartition,
    offset::Offset,
    record::Missing,
};
use rdkafka::{
    ClientConfig,
    mocking::MockCluster,
    producer::{BaseProducer, BaseRecord, Producer as _},
};

fn shadow(seek_threshold: SeekThreshold) -> ShadowReaders {
    shadow_within(SOON, seek_threshold)
}

/// Readers with a deadline for each read.
fn shadow_within(deadline: Duration, seek_threshold: SeekThreshold) -> ShadowReaders {
    let servers = &broker().servers;
    let mut kafka = kafka(servers);
    (kafka.shadow.deadline, kafka.shadow.seek_threshold) = (deadline, seek_threshold);
    ShadowReaders::new(&kafka, servers, TopicIds::new(&kafka, servers))
}

/// A topic of its own for each test.
struct Topic(String);

impl Topic {
    fn new(partitions: i32, config: &[(&str, &str)]) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let topic = Self(format!("shadow-{}", COUNT.fetch_add(1, Ordering::Relaxed)));
        broker().create_topic(&topic.0, partitions, config);
        topic
    }

    fn source(&self, partition: i32) -> TopicPartition {
        TopicPartition::new(self.0.as_str(), partition)
    }

    /// Produces payloads to a partition, in order.
    fn produce(&self, partition: i32, payloads: impl IntoIterator<Item: AsRef<[u8]>>) {
        let record = |payload: &[u8]| Record { partition: Some(partition), ..payload_only(payload) };
        let records: Vec<_> = payloads.into_iter().map(|payload| record(payload.as_ref())).collect();
        broker().produce(&self.0, &records);
    }

    fn want(&self, identity: Identity, offsets: impl IntoIterator<Item = i64>) -> Want {
        Want::new(self.source(0), Arc::new(identity), offsets.into_iter().map(at).collect()).unwrap()
    }

    async fn id(&self) -> TopicId {
        let servers = &broker().servers;
        match TopicIds::new(&kafka(servers), servers).get(&self.0.as_str().into(), None).await.unwrap() {
            Existence::Is(id) => id,
            other => panic!("a real broker knows topic ids, not {other:?}"),
        }
    }
}

fn payload_only(payload: impl Into<Vec<u8>>) -> Record {
    Record { payload: Some(payload.into()), ..Record::default() }
}

fn at(raw: i64) -> Offset {
    Offset::new(raw).unwrap()
}

/// Reads all of a want, turn by turn; checks that each offset is answered once.
async fn read_all(shadow: &ShadowReaders, want: Want, wanted: &[i64]) -> Vec<Reading> {
    let (mut readings, mut list, mut rest) = (shadow.read(want), Vec::new(), wanted);
    while let Some(reading) = readings.next().await.unwrap() {
        let (turn, after) = rest.split_at(rest.partition_point(|offset| *offset <= reading.through.get()));
        let found = reading.found.offsets().iter().copied();
        let answered: BTreeSet<_> = found.chain(reading.missing.iter().map(|(offset, _)| offset.get())).collect();
        assert!(!turn.is_empty() && answered.iter().eq(turn), "answered {answered:?} of {turn:?}");
        assert_eq!(reading.found.len() + reading.missing.len(), turn.len(), "each once");
        rest = after;
        list.push(Reading { share: None, ..reading });
    }
    assert_eq!(rest, [0; 0], "all of them");
    list
}

/// Reads what one turn answers.
async fn read(shadow: &ShadowReaders, want: Want) -> Reading {
    shadow.read(want).next().await.unwrap().unwrap()
}

fn missing(reading: &Reading) -> Vec<(i64, Missing)> {
    reading.missing.iter().map(|(offset, missing)| (offset.get(), *missing)).collect()
}

#[tokio::test]
async fn whatever_the_offsets_and_the_threshold_what_is_read_is_what_was_produced() {
    let topic = Topic::new(1, &[]);
    let payload = |offset: i64| format!("{offset}:{}", "x".repeat(usize::try_from(offset * 7919 % 2_000).unwrap()));
    topic.produce(0, (0..5_000).map(payload));
    let mut random: Vec<i64> = (0..300).map(|n: i64| n * n * 7919 % 5_000).collect();
    random.sort_unstable();
    random.dedup();
    let consecutive: Vec<i64> = (0..5_000).collect();
    let every_second: Vec<i64> = (1..5_000).step_by(2).collect();
    let identity = Identity::new(Some(topic.id().await));
    for threshold in [SeekThreshold::Auto, SeekThreshold::Offsets(0), SeekThreshold::Bytes(16 << 10)] {
        let shadow = shadow(threshold);
        for wanted in [&consecutive, &every_second, &random] {
            let want = topic.want(identity.clone(), wanted.iter().copied());
            let readings = read_all(&shadow, want, wanted).await;
            let found: Vec<_> = readings
                .iter()
                .flat_map(|reading| reading.found.iter())
                .map(|message| (message.offset.get(), String::from_utf8(message.payload.unwrap().to_vec()).unwrap()))
                .collect();
            let expected: Vec<_> = wanted.iter().map(|offset| (*offset, payload(*offset))).collect();
            assert_eq!(found, expected);
        }
        let counts = shadow.counts();
        assert_eq!(counts.found, (consecutive.len() + every_second.len() + random.len()) as u64);
        assert_eq!((counts.expired, counts.absent, counts.replaced, counts.deadline), (0, 0, 0, 0));
        if threshold == SeekThreshold::Offsets(0) {
            assert_eq!(counts.read_through, 0, "nothing is read through");
        } else {
            assert!(counts.positionings < 1_000, "gaps of one are read through: {counts:?}");
        }
    }
}

#[tokio::test]
async fn keys_payloads_headers_and_timestamps_come_back_as_they_were() {
    let topic = Topic::new(1, &[]);
    let headers = [("twice", Some(&b"1"[..])), ("null", None), ("twice", Some(b"\x00\xff\xfe")), ("", Some(b""))];
    let full = Record {
        partition: Some(0),
        timestamp: Some(1_234_567),
        key: Some(b"k\xff".to_vec()),
        payload: Some(b"\x00p".to_vec()),
        headers: headers.map(|(name, value)| (name.to_owned(), value.map(<[u8]>::to_vec))).to_vec(),
    };
    let null = Record { timestamp: Some(7), ..Record::default() };
    broker().produce(&topic.0, &[full, null, Record { timestamp: Some(8), ..Record::new("", "") }]);

    let reading = read(&shadow(SeekThreshold::Auto), topic.want(Identity::default(), 0..3)).await;
    let messages: Vec<_> = reading.found.iter().collect();
    let [full, null, empty] = &messages[..] else { panic!("three messages, not {}", messages.len()) };
    assert_eq!((full.key, full.payload), (Some(&b"k\xff"[..]), Some(&b"\x00p"[..])));
    assert_eq!(full.timestamp.unwrap().millis(), 1_234_567);
    assert_eq!(full.leader_epoch, Some(0));
    let read: Vec<_> = full.headers().map(|header| (header.name, header.value)).collect();
    assert_eq!(read, headers.map(|(name, value)| (name.as_bytes(), value)));
    assert_eq!((null.key, null.payload, null.headers().len()), (None, None, 0));
    assert_eq!((empty.key, empty.payload), (Some(&b""[..]), Some(&b""[..])));
}

#[tokio::test]
async fn deleted_records_are_expired_and_the_next_read_works() {
    let topic = Topic::new(1, &[]);
    topic.produce(0, (0..20).map(|n| n.to_string()));
    let shadow = shadow(SeekThreshold::Auto);
    let before = read(&shadow, topic.want(Identity::default(), [3])).await;
    assert_eq!(before.found.offsets(), [3]);
    broker().delete_records(&topic.0, 0, 10);

    let reading = read(&shadow, topic.want(Identity::default(), [2, 9, 10, 15])).await;
    assert_eq!(missing(&reading), [(2, Missing::Expired), (9, Missing::Expired)]);
    assert_eq!(reading.found.offsets(), [10, 15]);
    let again = read(&shadow, topic.want(Identity::default(), [4])).await;
    assert_eq!(missing(&again), [(4, Missing::Expired)]);
    let next = read(&shadow, topic.want(Identity::default(), [19])).await;
    assert_eq!(next.found.offsets(), [19]);
    assert_eq!(shadow.counts().expired, 3);
}

#[tokio::test]
async fn offsets_behind_the_end_are_absent_and_the_next_read_works() {
    let topic = Topic::new(1, &[]);
    topic.produce(0, (0..5).map(|n| n.to_string()));
    let shadow = shadow(SeekThreshold::Auto);
    for wanted in [vec![5], vec![2, 5], vec![1_000], vec![3, 6, 1_000]] {
        let reading = read_all(&shadow, topic.want(Identity::default(), wanted.clone()), &wanted).await;
        let found: Vec<_> = reading.iter().flat_map(|reading| reading.found.offsets().to_vec()).collect();
        assert_eq!(found, wanted.iter().copied().filter(|offset| *offset < 5).collect::<Vec<_>>());
        assert!(reading.iter().flat_map(missing).all(|(_, missing)| missing == Missing::Absent));
        let next = read(&shadow, topic.want(Identity::default(), [4])).await;
        assert_eq!(next.found.offsets(), [4]);
    }
    topic.produce(0, ["five"]);
    let grown = read(&shadow, topic.want(Identity::default(), [5])).await;
    assert_eq!(
        grown.found.find(at(5)).unwrap().payload,
        Some(&b"five"[..]),
        "an end met earlier is not believed for ever"
    );
}

#[tokio::test]
async fn what_a_transaction_wrote_is_found_whether_aborted_or_open_and_its_marker_is_absent() {
    let topic = Topic::new(1, &[]);
    broker().begin(&topic.0, &["a0", "a1", "a2"].map(payload_only)).abort();
    let shadow = shadow(SeekThreshold::Auto);
    let at_the_tail = read(&shadow, topic.want(Identity::default(), [1, 3])).await;
    assert_eq!(at_the_tail.found.find(at(1)).unwrap().payload, Some(&b"a1"[..]));
    assert_eq!(missing(&at_the_tail), [(3, Missing::Absent)], "the marker, with nothing behind it");

    let _open = broker().begin(&topic.0, &[payload_only("open")]);
    let reading = read(&shadow, topic.want(Identity::default(), 0..5)).await;
    assert_eq!(reading.found.offsets(), [0, 1, 2, 4]);
    assert_eq!(missing(&reading), [(3, Missing::Absent)]);
    assert_eq!(reading.found.find(at(4)).unwrap().payload, Some(&b"open"[..]));
}

#[tokio::test]
async fn compacted_away_is_absent() {
    let config = [
        ("cleanup.policy", "compact"),
        ("segment.ms", "100"),
        ("min.cleanable.dirty.ratio", "0.001"),
        ("max.compaction.lag.ms", "100"),
    ];
    let topic = Topic::new(1, &config);
    let shadow = shadow(SeekThreshold::Auto);
    let until = Instant::now() + 2 * SOON;
    // The segment that is written to is never compacted, so keep writing until the cleaner has come by.
    loop {
        broker().produce(&topic.0, &[Record::new("same", "again")]);
        let reading = read(&shadow, topic.want(Identity::default(), [0])).await;
        if missing(&reading) == [(0, Missing::Absent)] {
            break;
        }
        assert_eq!(reading.found.offsets(), [0]);
        assert!(Instant::now() < until, "the cleaner did not come by");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn a_topic_that_was_made_again_has_replaced_the_messages() {
    let topic = Topic::new(1, &[]);
    topic.produce(0, (0..10).map(|n| format!("old {n}")));
    let (old, shadow) = (topic.id().await, shadow(SeekThreshold::Auto));
    let before = read(&shadow, topic.want(Identity::new(Some(old)), [3])).await;
    assert_eq!(before.found.find(at(3)).unwrap().payload, Some(&b"old 3"[..]));

    broker().delete_topic(&topic.0);
    let deleted = read(&shadow, topic.want(Identity::new(Some(old)), [3, 5])).await;
    assert_eq!(missing(&deleted), [(3, Missing::Replaced), (5, Missing::Replaced)]);

    broker().create_topic(&topic.0, 1, &[]);
    topic.produce(0, (0..10).map(|n| format!("new {n}")));
    let recreated = read_all(&shadow, topic.want(Identity::new(Some(old)), [3, 5, 70]), &[3, 5, 70]).await;
    let all: Vec<_> = recreated.iter().flat_map(missing).collect();
    assert_eq!(all, [(3, Missing::Replaced), (5, Missing::Replaced), (70, Missing::Replaced)]);

    let now = topic.id().await;
    assert_ne!(now, old);
    let next = read(&shadow, topic.want(Identity::new(Some(now)), [3])).await;
    assert_eq!(next.found.find(at(3)).unwrap().payload, Some(&b"new 3"[..]));
}

#[tokio::test]
async fn another_leader_epoch_has_replaced_the_message() {
    let topic = Topic::new(1, &[]);
    topic.produce(0, (0..3).map(|n| n.to_string()));
    let mut identity = Identity::new(Some(topic.id().await));
    identity.leader_epochs.push(at(0), Some(0));
    identity.leader_epochs.push(at(1), Some(7));
    let reading = read(&shadow(SeekThreshold::Auto), topic.want(identity, [0, 1])).await;
    assert_eq!(reading.found.offsets(), [0]);
    assert_eq!(missing(&reading), [(1, Missing::Replaced)]);
}

#[tokio::test]
async fn a_read_that_nobody_answers_ends_at_its_deadline_and_others_are_served_meanwhile() {
    let topic = Topic::new(2, &[]);
    topic.produce(0, ["here"]);
    let shadow = shadow_within(Duration::from_secs(5), SeekThreshold::Auto);
    // The topic exists, and has no partition 99.
    let nowhere = Want::new(topic.source(99), Arc::default(), vec![at(0)]).unwrap();
    let mut blocked = shadow.read(nowhere);
    let blocked = tokio::spawn(async move { blocked.next().await });
    let mut served = 0;
    while !blocked.is_finished() {
        assert_eq!(read(&shadow, topic.want(Identity::default(), [0])).await.found.offsets(), [0]);
        served += 1;
    }
    assert_eq!(blocked.await.unwrap().unwrap_err(), ReadError::Deadline);
    assert!(served > 0);
    assert_eq!(shadow.counts().deadline, 1);
}

#[tokio::test]
async fn a_long_want_is_served_in_turns_with_others_in_between() {
    let topic = Topic::new(2, &[]);
    topic.produce(0, (0..4_000).map(|_| "x".repeat(1_024)));
    topic.produce(1, ["single"]);
    // One reader for both lanes, and a positioning for each offset.
    let shadow = shadow(SeekThreshold::Offsets(0));
    let scattered: Vec<_> = (0..4_000).step_by(2).collect();
    let long = tokio::spawn({
        let (shadow, want) = (shadow.clone(), topic.want(Identity::default(), scattered.clone()));
        async move { read_all(&shadow, want, &scattered).await.len() }
    });
    let mut singles = 0;
    while !long.is_finished() {
        let want = Want::new(topic.source(1), Arc::default(), vec![at(0)]).unwrap();
        assert_eq!(read(&shadow, want).await.found.offsets(), [0]);
        singles += 1;
    }
    let turns = long.await.unwrap();
    assert!(singles >= turns / 3, "{singles} single reads between {turns} turns");
}

#[tokio::test]
async fn a_dropped_read_is_discarded_and_the_next_one_works() {
    let topic = Topic::new(1, &[]);
    topic.produce(0, (0..10).map(|n| n.to_string()));
    let shadow = shadow(SeekThreshold::Auto);
    for offset in 0..10 {
        let mut dropped = shadow.read(topic.want(Identity::default(), [offset]));
        tokio::select! {
            biased;
            _ = dropped.next() => {}
            () = std::future::ready(()) => {}
        }
    }
    let reading = read(&shadow, topic.want(Identity::default(), [7])).await;
    assert_eq!(reading.found.find(at(7)).unwrap().payload, Some(&b"7"[..]));
}

#[tokio::test]
async fn a_dropped_call_loses_no_answer() {
    let topic = Topic::new(1, &[]);
    topic.produce(0, (0..3_000).map(|_| "x".repeat(1_024)));
    let (shadow, identity) = (shadow(SeekThreshold::Auto), Identity::new(Some(topic.id().await)));
    let mut readings = shadow.read(topic.want(identity, 0..3_000));
    let (mut found, mut dropped, until) = (Vec::new(), 0, Instant::now() + SOON);
    loop {
        match tokio::time::timeout(Duration::from_micros(50), readings.next()).await {
            Ok(Ok(Some(reading))) => found.extend_from_slice(reading.found.offsets()),
            Ok(Ok(None)) => break,
            Ok(Err(error)) => panic!("{error}"),
            Err(_) => dropped += 1,
        }
        assert!(Instant::now() < until, "no end after {dropped} dropped calls");
    }
    assert!(dropped > 0);
    assert!(found.iter().copied().eq(0..3_000));
}

#[tokio::test]
async fn a_partition_is_read_on_when_its_leader_changes() {
    let cluster = MockCluster::new(2).unwrap();
    let servers = cluster.bootstrap_servers();
    cluster.create_topic("elected", 1, 2).unwrap();
    let producer: BaseProducer = ClientConfig::new().set("bootstrap.servers", &servers).create().unwrap();
    for _ in 0..500 {
        producer.send(BaseRecord::<(), _>::to("elected").partition(0).payload(&[b'x'; 1_024])).unwrap();
    }
    producer.flush(SOON).unwrap();
    let kafka = kafka(&servers);
    let shadow = ShadowReaders::new(&kafka, &servers, TopicIds::new(&kafka, &servers));
    for leader in [1, 2, 1, 2] {
        let wanted: Vec<_> = (0..500).step_by(3).collect();
        let want =
            Want::new(TopicPartition::new("elected", 0), Arc::default(), wanted.iter().copied().map(at).collect());
        let mut readings = shadow.read(want.unwrap());
        let mut found = readings.next().await.unwrap().unwrap().found.offsets().to_vec();
        cluster.partition_leader("elected", 0, Some(leader)).unwrap();
        while let Some(reading) = readings.next().await.unwrap() {
            found.extend_from_slice(reading.found.offsets());
        }
        assert_eq!(found, wanted);
    }
}
