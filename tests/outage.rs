//! A broker or a topic that goes away and comes back, under the oracle.

use std::collections::BTreeMap;

use crate::support::{Broker, Oracle, Process, SOON, broker, eventually};
use rustix::process::Signal;

/// A broker that comes back is found soon.
const SOON_AGAIN: &str = r#"
    [kafka.common]
    "reconnect.backoff.max.ms" = "500"
"#;

fn waits_for(process: &Process, line: &str) {
    eventually(SOON, line, || process.stderr().contains(line).then_some(()));
}

/// With a broker of its own: that one will be away.
fn interrupted_reads(interrupt: fn(&Broker)) {
    let broker = Broker::start(&[]);
    let mut oracle = Oracle::new(&broker, "reads", 3);
    // Shadow reads all the time: what is deferred is settled by halves, and not before this has seen it.
    let config = oracle.config("", SOON_AGAIN).replace("settle = \"50ms\"", "settle = \"1s\"");
    let mut process = oracle.start(&config, &[]);
    for round in 0..3 {
        oracle.produce(2000, round);
        eventually(SOON, "late verdicts are read again", || oracle.has_late_letters().then_some(()));
        interrupt(&broker);
        broker.resume();
        oracle.check();
        assert!(process.is_running(), "{}", process.stderr());
    }
    oracle.check_end(4 * SOON);
}

#[test]
fn the_broker_is_stopped_during_shadow_reads() {
    interrupted_reads(Broker::stop);
}

#[test]
fn the_broker_is_killed_during_shadow_reads() {
    interrupted_reads(Broker::kill);
}

/// Everything is judged, and waits in the producer, when the broker goes; the process has to drain meanwhile.
fn interrupted_flush(interrupt: fn(&Broker)) {
    let broker = Broker::start(&[]);
    let mut oracle = Oracle::new(&broker, "flush", 3);
    let lingering = format!("{SOON_AGAIN}\n[kafka.producer]\n\"linger.ms\" = \"3000\"");
    let config = oracle.config("shutdown = \"60s\"", &lingering);
    oracle.produce_of(&b"ARDE".repeat(250));
    let mut process = oracle.start(&config, &[]);
    eventually(SOON, "the first message is committed", || (oracle.commits() > 0).then_some(()));
    process.signal(Signal::TERM);
    waits_for(&process, "Draining");
    interrupt(&broker);
    broker.resume();
    assert!(process.wait(2 * SOON).success(), "{}", process.stderr());
    oracle.check();
    let _next = oracle.start(&oracle.config("", SOON_AGAIN), &[]);
    oracle.check_end(SOON);
}

#[test]
fn the_broker_is_stopped_during_a_flush() {
    interrupted_flush(Broker::stop);
}

#[test]
fn the_broker_is_killed_during_a_flush() {
    interrupted_flush(Broker::kill);
}

/// How long the client takes a topic that is gone for one that is on its way.
const IMPATIENT: &str = r#"
    [kafka.producer]
    "topic.metadata.propagation.max.ms" = "1000"
    "topic.metadata.refresh.interval.ms" = "1000"
"#;

#[test]
fn the_topic_of_dead_letters_is_deleted_and_made_again() {
    let mut oracle = Oracle::new(broker(), "remade", 2);
    oracle.produce(500, 1);
    let mut process = oracle.start(&oracle.config("", IMPATIENT), &[]);
    oracle.await_committed(SOON);
    oracle.check();
    oracle.delete_dead_letters();
    oracle.produce(500, 2);
    waits_for(&process, "A record was not delivered");
    oracle.create_dead_letters();
    oracle.check_end(2 * SOON);
    assert!(process.is_running(), "{}", process.stderr());
}

#[test]
fn dead_letters_of_one_partition_that_are_not_delivered_hold_up_no_other() {
    let mut oracle = Oracle::new(broker(), "lopsided", 2);
    oracle.produce_of(b"RR");
    let mut process = oracle.start(&oracle.config("", IMPATIENT), &[]);
    oracle.await_committed(SOON);
    // With a partition fewer, there is no place for those of the second one.
    oracle.delete_dead_letters();
    broker().create_topic("lopsided.dlq", 1, &[]);
    oracle.produce_of(&b"RR".repeat(50));
    waits_for(&process, "A record was not delivered");
    let committed = |partition: i32| broker().committed("lopsided", "lopsided").get(&partition).copied();
    eventually(SOON, "the other one is committed", || (committed(0) == Some(51)).then_some(()));
    assert_eq!(committed(1), Some(1));
    broker().add_partitions("lopsided.dlq", 2);
    oracle.check_end(2 * SOON);
    assert!(process.is_running(), "{}", process.stderr());
}

#[test]
fn a_partition_that_ends_with_a_dead_letter_is_not_judged_again() {
    let mut oracle = Oracle::new(broker(), "last", 1);
    let config = oracle.config("", "");
    for last in [b'R', b'D'] {
        oracle.produce(50, u64::from(last));
        oracle.produce_of(&[last]);
        let mut process = oracle.start(&config, &[]);
        oracle.await_committed(SOON);
        process.signal(Signal::TERM);
        assert!(process.wait(SOON).success(), "{}", process.stderr());
        let verdicts = oracle.check();
        assert_eq!(verdicts.duplicates, 0);
        let ends = broker().ends("last");
        assert_eq!(broker().committed("last", "last"), ends, "after a last message of class {}", char::from(last));
    }
    let next = oracle.start(&config, &[]);
    waits_for(&next, &format!("Assigned partitions=last[0]@{}", broker().ends("last")[&0]));
    oracle.check_end(SOON);
    assert_eq!(broker().ends("last"), BTreeMap::from([(0, 103)]));
}
