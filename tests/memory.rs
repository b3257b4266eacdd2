//! Memory does not depend on the bytes of uncommitted messages: half of 2,000,000 messages deferred takes what a run
//! takes that accepts everything, and what was deferred is there when it is rejected at last.

use std::collections::BTreeSet;

use crate::support::{Process, Record, SOON, Scene, broker, eventually, guest, runs};
use rand::{RngCore as _, SeedableRng as _, rngs::StdRng};
use rustix::process::Signal;

const PARTITIONS: i32 = 4;
const BYTES: usize = 1_024;
/// Messages that are produced at a time.
const PART: i64 = 20_000;
/// What a run that defers half of the messages may take above one that defers none.
const ALLOWED: u64 = 8 << 20;

/// The payload of a message: follows from its coordinates, and differs in every byte.
fn payload(partition: i32, offset: i64) -> Vec<u8> {
    let mut payload = vec![0; BYTES];
    StdRng::seed_from_u64(offset.cast_unsigned() << 8 | u64::from(partition.unsigned_abs())).fill_bytes(&mut payload);
    payload
}

fn key(partition: i32, offset: i64) -> Vec<u8> {
    format!("{partition}/{offset}").into_bytes()
}

/// As the guest `testing-sampling` chooses.
fn is_rejected(offset: i64) -> bool {
    let mut bits = offset.cast_unsigned().wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (bits ^ (bits >> 31)).is_multiple_of(200)
}

fn produce(topic: &str, each: i64) {
    broker().create_topic(topic, PARTITIONS, &[]);
    let messages = (0..PARTITIONS).flat_map(|partition| (0..each).map(move |offset| (partition, offset)));
    let record = |(partition, offset)| Record {
        partition: Some(partition),
        payload: Some(payload(partition, offset)),
        ..Record::new(key(partition, offset), "")
    };
    let mut records = messages.map(record).peekable();
    while records.peek().is_some() {
        let part: Vec<_> = records.by_ref().take(usize::try_from(PART).unwrap()).collect();
        broker().produce(topic, &part);
    }
}

/// Runs until everything is committed; the most memory that the process had.
fn run(topic: &str, group: &str, each: i64, defer: bool) -> u64 {
    broker().create_topic(group, PARTITIONS, &[]);
    let config = format!(
        r#"
        [kafka]
        brokers = "{}"
        [pipelines.memory]
        topics = ["{topic}"]
        group = "{group}"
        start = "earliest"
        guest = {{ module = "{}", settings = {{ defer = "{defer}", until = "{each}" }} }}
        open = {{ messages = {each}, age = "1h" }}
        [pipelines.memory.routes.dead-letter]
        topic = "{group}"
        limit = "off"
        "#,
        broker().servers,
        guest("testing-sampling").display(),
    );
    let mut process = Process::start(&config);
    let ends = broker().ends(topic);
    eventually(10 * SOON, "everything is committed", || (broker().committed(group, topic) == ends).then_some(()));
    let peak = process.peak_memory();
    process.signal(Signal::TERM);
    assert!(process.wait(SOON).success(), "{}", process.stderr());
    peak
}

#[test]
fn deferring_half_of_all_messages_takes_no_more_memory_than_accepting_them() {
    let messages = runs(200_000, 2_000_000);
    let each = i64::try_from(messages).unwrap() / i64::from(PARTITIONS);
    produce("many", each);
    let deferring = run("many", "deferring", each, true);
    // How far a run fills its bounds differs from one to the next, and on a busy machine by a lot.
    let mut accepting = 0;
    for again in 0..3 {
        accepting = accepting.max(run("many", &format!("accepting-{again}"), each, false));
        if deferring <= accepting + ALLOWED {
            break;
        }
    }
    let rejected = |partition| (0..each).filter(|offset| is_rejected(*offset)).map(move |offset| (partition, offset));
    let mut expected: BTreeSet<_> = (0..PARTITIONS).flat_map(rejected).collect();
    let rejected = expected.len();
    for letter in broker().read("deferring") {
        let offset = letter.header("deadletter.offset").unwrap().parse().unwrap();
        let partition = letter.partition;
        assert!(expected.remove(&(partition, offset)), "a dead letter too many: {partition}, {offset}");
        assert_eq!(letter.header("deadletter.partition"), Some(partition.to_string().as_str()));
        assert_eq!(letter.header("deadletter.topic"), Some("many"));
        assert_eq!(letter.header("deadletter.reason"), Some(offset.to_string().as_str()));
        assert_eq!(letter.key, Some(key(partition, offset)));
        assert!(letter.payload == Some(payload(partition, offset)), "the payload of {partition}, {offset}");
    }
    assert!(expected.is_empty(), "{} of {rejected} dead letters are missing", expected.len());
    assert_eq!(broker().read("accepting-0"), []);
    println!(
        "figure: {}",
        serde_json::json!({ "name": "memory", "messages": messages, "rejected": rejected, "accepting": accepting, "deferring": deferring })
    );
    assert!(deferring <= accepting + ALLOWED, "{deferring} bytes with half deferred, {accepting} with all accepted");
    for topic in ["many", "deferring"] {
        broker().delete_topic(topic);
    }
}

/// What may wait between a fast source and a slow guest: batches in hand, prefetch, and a fetch beyond it.
const WAITING: u64 = (2 + 2 + 1) << 20;
const BOUNDS: &str = r#"
    batch = { messages = 16, bytes = "256KiB", wait = "5ms" }
    in-hand = "2MiB"
    shutdown = "1s"
"#;
const PREFETCH: &str = r#"
    [kafka.consumer]
    "queued.max.messages.kbytes" = "2048"
    "fetch.message.max.bytes" = "262144"
"#;

/// The most memory with so many messages of 16 KiB in each partition, when the first ones are judged, slowly.
fn run_slowly(topic: &str, each: i64, until: i64) -> u64 {
    let scene = Scene::new(broker(), topic, PARTITIONS, &[]);
    let message =
        |partition| Record { partition: Some(partition), payload: Some([b'S'].repeat(16 << 10)), ..Record::default() };
    for _ in 0..each / until {
        let part: Vec<_> = (0..PARTITIONS).flat_map(|partition| (0..until).map(move |_| message(partition))).collect();
        broker().produce(topic, &part);
    }
    let mut process = Process::start(&(scene.config("", BOUNDS) + PREFETCH));
    for partition in 0..PARTITIONS {
        eventually(SOON, "the first messages are judged", || (scene.committed(partition) >= Some(until)).then_some(()));
    }
    let peak = process.peak_memory();
    assert!(process.is_running(), "{}", process.stderr());
    peak
}

#[test]
fn a_slow_guest_behind_a_fast_source_takes_no_more_memory_than_is_configured() {
    let little = run_slowly("trickle", 64, 64);
    let much = run_slowly("flood", 1024, 64);
    println!("figure: {}", serde_json::json!({ "name": "back-pressure", "little": little, "much": much }));
    assert!(much <= little + WAITING, "{much} bytes with 64 MiB before a slow guest, {little} with 4 MiB");
}
