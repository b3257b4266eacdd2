//! How a process starts and ends.

use std::{
    fs::{self, File},
    path::Path,
};

use crate::support::{Broker, Oracle, Process, Running, SOON, Scene, broker, eventually, guest};
use rustix::process::Signal;

fn waits_for(process: &Process, line: &str) {
    let logged = || process.stderr().contains(line).then_some(());
    eventually(SOON, &format!("the log says {line:?}"), logged);
}

/// Its exit code, once it has ended.
fn code(process: &mut Process) -> Option<i32> {
    process.wait(SOON).code()
}

#[test]
fn an_idle_process_leaves_on_sigterm() {
    let mut oracle = Oracle::new(broker(), "idle", 2);
    // Whoever does not leave keeps the next one waiting for longer than this test waits.
    let config = oracle.config("", "[kafka.consumer]\n\"session.timeout.ms\" = \"300000\"");
    for _ in 0..3 {
        let mut process = oracle.start(&config, &[]);
        waits_for(&process, "Assigned partitions=");
        process.signal(Signal::TERM);
        assert_eq!(code(&mut process), Some(0), "{}", process.stderr());
    }
    let _next = oracle.start(&config, &[]);
    oracle.check_end(SOON);
}

#[test]
fn sigterm_in_the_middle_of_load_loses_and_repeats_nothing() {
    let mut oracle = Oracle::new(broker(), "load", 3);
    let config = oracle.config("", "");
    for _ in 0..5 {
        // Nothing that the guest could leave deferred when it is told to settle for the last time.
        oracle.produce_of(&b"AARE".repeat(500));
        let mut process = oracle.start(&config, &[]);
        let before = oracle.commits();
        eventually(SOON, "commits go on", || (oracle.commits() > before).then_some(()));
        process.signal(Signal::TERM);
        assert_eq!(code(&mut process), Some(0), "{}", process.stderr());
        assert_eq!(oracle.check().duplicates, 0);
    }
    let _last = oracle.start(&config, &[]);
    assert_eq!(oracle.check_end(2 * SOON).duplicates, 0);
}

#[test]
fn deferred_messages_are_settled_for_the_last_time_before_a_process_leaves() {
    let mut oracle = Oracle::new(broker(), "deferred", 1);
    // Nothing settles by itself: only `settle(last)` does, about half of them.
    let config = oracle.config("", "").replace("settle = \"50ms\"", "settle = \"5m\"");
    oracle.produce_of(&[b"A".as_slice(), &[b'D'; 50], b"A"].concat());
    let mut process = oracle.start(&config, &[]);
    eventually(SOON, "the first message is committed", || (oracle.commits() > 0).then_some(()));
    process.signal(Signal::TERM);
    assert_eq!(code(&mut process), Some(0), "{}", process.stderr());
    let settled = oracle.check().rejected;
    assert!((5..=45).contains(&settled), "settle(last) judged {settled} of 50");
    let _next = oracle.start(&oracle.config("", ""), &[]);
    oracle.check_end(SOON);
}

#[test]
fn a_second_sigterm_ends_it_at_once() {
    let mut oracle = Oracle::new(broker(), "impatient", 1);
    // Dead letters that will not be acknowledged for long keep it from ending by itself.
    let config = oracle.config("", "[kafka.consumer]\n\"session.timeout.ms\" = \"1000\"\n\"heartbeat.interval.ms\" = \"300\"\n[kafka.producer]\n\"linger.ms\" = \"50000\"");
    oracle.produce_of(&b"AR".repeat(50));
    let mut process = oracle.start(&config, &[]);
    eventually(SOON, "the first message is committed", || (oracle.commits() > 0).then_some(()));
    process.signal(Signal::TERM);
    waits_for(&process, "Draining");
    process.signal(Signal::TERM);
    assert_eq!(code(&mut process), Some(128 + 15), "{}", process.stderr());
    let _next = oracle.start(&oracle.config("", ""), &[]);
    oracle.check_end(SOON);
}

#[test]
fn a_broker_that_is_down_at_the_start_is_waited_for() {
    let broker = Broker::start(&[]);
    let mut oracle = Oracle::new(&broker, "down", 1);
    let config = oracle.config("", "[kafka.common]\n\"reconnect.backoff.max.ms\" = \"500\"");
    oracle.produce(100, 1);
    broker.stop();
    let mut given_up = oracle.start(&config, &[]);
    waits_for(&given_up, "Guest loaded");
    given_up.signal(Signal::TERM);
    assert_eq!(code(&mut given_up), Some(0), "{}", given_up.stderr());
    let mut patient = oracle.start(&config, &[]);
    waits_for(&patient, "Guest loaded");
    broker.resume();
    oracle.check_end(SOON);
    assert!(patient.is_running(), "{}", patient.stderr());
}

#[test]
fn a_log_that_cannot_be_written_stops_nothing() {
    let scene = Scene::new(broker(), "mute", 1, &[]);
    scene.produce(0, &["A", "R", "D", "A"]);
    let full = |_: &Path| File::options().write(true).open("/dev/full").unwrap();
    let mut process = Process::start_logging_to(&scene.config("", ""), &[], full);
    scene.await_committed(0, 4);
    process.signal(Signal::TERM);
    assert_eq!(code(&mut process), Some(0));
    assert_eq!(scene.letters().len(), 2);
}

#[test]
fn a_missing_topic_is_named() {
    let oracle = Oracle::new(broker(), "named", 1);
    for missing in ["topics = [\"named\"]", "topic = \"named.dlq\""] {
        let elsewhere = missing.replace("named", "no-such");
        let mut process = Process::start(&oracle.config("", "").replace(missing, &elsewhere));
        assert_eq!(code(&mut process), Some(1), "{}", process.stderr());
        let log = process.stderr();
        let said = log.lines().last().unwrap_or_default();
        assert!(said.starts_with("error: ") && said.contains("no-such"), "{log}");
    }
}

#[test]
fn a_bad_module_is_bad_input() {
    let oracle = Oracle::new(broker(), "module", 1);
    let module = guest("testing-oracle").display().to_string();
    let bad = tempfile::NamedTempFile::new().unwrap();
    fs::write(bad.path(), "not a module").unwrap();
    let mut process = Process::start(&oracle.config("", "").replace(&module, &bad.path().display().to_string()));
    assert_eq!(code(&mut process), Some(64), "{}", process.stderr());
    assert!(process.stderr().contains(&bad.path().display().to_string()), "{}", process.stderr());
}

/// `start = "latest"` is for a partition of which nothing was ever committed: it must not skip what came between two runs.
#[test]
fn nothing_that_came_between_two_runs_is_skipped_by_start_latest() {
    let mut oracle = Oracle::new(broker(), "latest", 1);
    let config = oracle.config("", "").replace("start = \"earliest\"", "start = \"latest\"");
    let mut first = oracle.start(&config, &[]);
    waits_for(&first, "Assigned partitions=latest[0]@0");
    first.signal(Signal::TERM);
    assert_eq!(code(&mut first), Some(0), "{}", first.stderr());
    oracle.produce(100, 1);
    let _second = oracle.start(&config, &[]);
    oracle.check_end(SOON);
    assert_eq!(broker().committed("latest", "latest").get(&0), Some(&101));
}

/// 100 messages, of which the first 60 expire while 10 are committed.
fn out_of_range(topic: &str, choice: &str) -> (Oracle<'static>, Process) {
    let mut oracle = Oracle::new(broker(), topic, 1);
    let config = oracle.config(&format!("on-out-of-range = \"{choice}\""), "");
    oracle.produce_of(&[b'A'; 10]);
    let mut process = oracle.start(&config, &[]);
    oracle.await_committed(SOON);
    process.signal(Signal::TERM);
    assert_eq!(code(&mut process), Some(0), "{}", process.stderr());
    oracle.produce_of(&[b'R'; 90]);
    broker().delete_records(topic, 0, 60);
    let process = oracle.start(&config, &[]);
    (oracle, process)
}

#[test]
fn an_expired_position_stops_the_partition_by_default() {
    let (_oracle, process) = out_of_range("expired-stop", "stop");
    waits_for(&process, "the position is outside of the log");
    assert_eq!(broker().committed("expired-stop", "expired-stop").get(&0), Some(&10));
}

#[test]
fn an_expired_position_becomes_the_earliest() {
    let (oracle, _process) = out_of_range("expired-earliest", "earliest");
    oracle.await_committed(SOON);
    assert_eq!(broker().read("expired-earliest.dlq").len(), 40);
}

#[test]
fn an_expired_position_becomes_the_latest() {
    let (mut oracle, process) = out_of_range("expired-latest", "latest");
    waits_for(&process, "was outside of the log; messages may be lost");
    oracle.produce_of(b"R");
    oracle.await_committed(SOON);
    assert_eq!(broker().read("expired-latest.dlq").len(), 1);
}

#[test]
fn what_is_open_stays_open_when_the_position_moves_forward() {
    let scene = Scene::new(broker(), "expired-ahead", 1, &[]);
    scene.produce(0, &[&["D", "R"][..], &["S"; 1000], &["R"]].concat());
    let far_behind = r#"
        batch = { messages = 2, wait = "5ms" }
        on-out-of-range = "earliest"
        shutdown = "2s"
    "#;
    let running = Running::start(&scene.config(r#"settle = "never""#, far_behind));
    eventually(SOON, "the first batch is judged", || scene.letters().pop());
    broker().delete_records(&scene.topic, 0, 950);
    scene.await_log(&["WARN", "The position was outside of the log", "low=950"]);
    eventually(SOON, "it goes on", || (scene.rejected(0, "now") == [1, 1002]).then_some(()));
    let tally = running.stop().tally;
    assert!(tally.delivered < 500, "{tally:?}");
    assert_eq!(scene.lines(&[" Assigned "]).len(), 1);
    assert_eq!(scene.committed(0).unwrap_or_default(), 0, "the first message is still open");
}

/// A commit that is part of a transaction is not to be had before the transaction ends.
#[test]
fn a_commit_that_cannot_be_read_yet_is_waited_for() {
    let scene = Scene::new(broker(), "unstable", 1, &[]);
    scene.produce(0, &["R"; 10]);
    let transaction = broker().begin_commit("unstable", "unstable", 7);
    let running = Running::start(&scene.config("", ""));
    scene.await_log(&["WARN", "Cannot read the committed offsets"]);
    transaction.commit();
    scene.await_committed(0, 10);
    assert_eq!(scene.rejected(0, "now"), [7, 8, 9]);
    drop(running);
}
