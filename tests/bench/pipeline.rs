//! Pass-through: the real process on a real broker against a bare loop of rdkafka with the same settings of the consumer.
//!
//! Both sum every word of every payload. The guest tells the sum of each batch as the reason of one rejection; the times
//! of these dead letters are the measurement, so that starting the process, compiling the guest and joining the group do
//! not count on one side only, and the sum of the sums shows that nothing was left out.
#![allow(clippy::cast_precision_loss, reason = "its figures are no exact ones")]

#[path = "../support/mod.rs"]
mod support;

use std::fs;

use deadletter::{
    config::{Config, DEFAULT_CLUSTER},
    kafka::client,
};
use rand::{RngCore as _, SeedableRng as _, rngs::StdRng};
use rdkafka::{
    Offset, TopicPartitionList,
    consumer::{BaseConsumer, Consumer as _},
};
use rustix::process::Signal;
use serde_json::json;
use support::{
    Process, Record, SOON, Stored,
    bare::{Summed, median, sum_messages},
    broker, eventually, guest,
};

const PARTITIONS: i32 = 4;
const MESSAGES: usize = 600_000;
const BYTES: usize = 1_024;
/// Messages that are produced at a time.
const PART: usize = 20_000;
const ROUNDS: usize = 5;
const TOPIC: &str = "source";

fn main() {
    broker().create_topic(TOPIC, PARTITIONS, &[]);
    produce();
    // The first one warms the page cache.
    let expected = bare().sum;
    let (mut bares, mut lazy, mut plain) = (vec![], vec![], vec![]);
    for round in 0..ROUNDS {
        let bare = bare().rate;
        let ratio = |guest: &str| {
            let run = hosted(guest, &format!("{guest}-{round}"));
            assert_eq!(run.sum, expected, "{guest} has read each word of each message once");
            (run.rate, run.rate / bare)
        };
        lazy.push(ratio("testing-lazy"));
        plain.push(ratio("testing-plain"));
        bares.push(bare);
    }
    let rates = |runs: &[(f64, f64)]| runs.iter().map(|(rate, _)| *rate).collect();
    let ratios = |runs: &[(f64, f64)]| runs.iter().map(|(_, ratio)| *ratio).collect();
    for (name, rates) in [("bare loop", bares), ("lazy guest", rates(&lazy)), ("plain guest", rates(&plain))] {
        println!(
            "{}",
            json!({"name": format!("pipeline: {name}"), "value": median(rates).round(), "unit": "messages/s"})
        );
    }
    for (name, ratios, least) in [("lazy guest", ratios(&lazy), 0.75), ("plain guest", ratios(&plain), 0.55)] {
        let value = (median(ratios) * 1000.0).round() / 1000.0;
        println!(
            "{}",
            json!({"name": format!("pipeline: {name} to bare loop"), "value": value, "unit": "×", "at-least": least})
        );
    }
}

fn produce() {
    let mut payload = vec![0; BYTES];
    StdRng::seed_from_u64(1).fill_bytes(&mut payload);
    for part in 0..MESSAGES / PART {
        let record = |number: usize| {
            payload[..8].copy_from_slice(&number.to_le_bytes());
            let partition = Some(i32::try_from(number).unwrap() % PARTITIONS);
            Record { partition, payload: Some(payload.clone()), ..Record::default() }
        };
        let records: Vec<_> = (part * PART..(part + 1) * PART).map(record).collect();
        broker().produce(TOPIC, &records);
    }
}

/// A consumer as the pipelines have it, without anything around it.
fn bare() -> Summed {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bare.toml");
    fs::write(&file, config("testing-lazy", "bare")).unwrap();
    let config = Config::load(&file).unwrap();
    let consumer: BaseConsumer =
        client::source(&config.clusters[DEFAULT_CLUSTER], &broker().servers, &config.pipelines["bench"])
            .create()
            .unwrap();
    let mut start = TopicPartitionList::new();
    for partition in 0..PARTITIONS {
        start.add_partition_offset(TOPIC, partition, Offset::Offset(0)).unwrap();
    }
    consumer.assign(&start).unwrap();
    sum_messages(&consumer, u32::try_from(MESSAGES).unwrap())
}

/// The same through `deadletter run`, until everything is committed.
fn hosted(guest: &str, group: &str) -> Summed {
    broker().create_topic(group, PARTITIONS, &[]);
    let mut process = Process::start(&config(guest, group));
    await_committed(group);
    process.signal(Signal::TERM);
    assert!(process.wait(SOON).success(), "{}", process.stderr());
    let run = judged(group);
    broker().delete_topic(group);
    run
}

fn config(module: &str, group: &str) -> String {
    format!(
        r#"
        [kafka]
        brokers = "{}"
        [pipelines.bench]
        topics = ["{TOPIC}"]
        group = "{group}"
        start = "earliest"
        guest = {{ module = "{}", settings = {{ mode = "sum" }} }}
        [pipelines.bench.routes.dead-letter]
        topic = "{group}"
        limit = "off"
        "#,
        broker().servers,
        guest(module).display(),
    )
}

/// With one client for all questions: a new one for each would be a load of its own.
fn await_committed(group: &str) {
    let mut wanted = TopicPartitionList::new();
    wanted.add_partition_range(TOPIC, 0, PARTITIONS - 1);
    let consumer = broker().consumer(group);
    eventually(SOON, "everything is committed", || {
        let committed = consumer.committed_offsets(wanted.clone(), SOON).ok()?;
        let count: i64 =
            committed.elements().iter().filter_map(|element| element.offset().to_raw()).filter(|at| *at > 0).sum();
        (usize::try_from(count) == Ok(MESSAGES)).then_some(())
    });
}

/// What the dead letters tell: when each batch was judged, and its sum.
fn judged(topic: &str) -> Summed {
    let letters = broker().read(topic);
    let number = |letter: &Stored, name: &str| letter.header(name).unwrap().parse::<u64>().unwrap();
    let time = |letter: &&Stored| humantime::parse_rfc3339(letter.header("deadletter.failed-at").unwrap()).unwrap();
    let (first, last) = (letters.iter().min_by_key(time).unwrap(), letters.iter().max_by_key(time).unwrap());
    // The batch with which the time begins is the first one of its partition: it ends where the next one begins.
    let of_first = letters.iter().filter(|letter| letter.partition == first.partition);
    let of_first =
        of_first.map(|letter| number(letter, "deadletter.offset")).filter(|offset| *offset > 0).min().unwrap();
    let seconds = time(&last).duration_since(time(&first)).unwrap().as_secs_f64();
    let sums = letters.iter().map(|letter| number(letter, "deadletter.reason"));
    Summed { rate: (MESSAGES as u64 - of_first) as f64 / seconds, sum: sums.fold(0, u64::wrapping_add) }
}
