//! `group.protocol=consumer` and static members. (Members that join and leave under load are in `rebalance`.)

use std::{collections::BTreeSet, sync::LazyLock};

use crate::support::{Broker, Oracle, Process, Running, SOON, Scene, broker, eventually, poll};
use rustix::process::Signal;

/// A broker that keeps the partitions of a member that is away for a while.
static PATIENT: LazyLock<Broker> = LazyLock::new(|| Broker::start(&[("group.consumer.session.timeout.ms", "45000")]));

/// Members of a protocol; static ones if they have an id.
fn members(protocol: &str, id: Option<&str>) -> String {
    let id = id.map(|id| format!("\"group.instance.id\" = \"{id}\"")).unwrap_or_default();
    format!("[kafka.consumer]\n\"group.protocol\" = \"{protocol}\"\n{id}\n")
}

fn await_line(process: &Process, words: &str) {
    let logged = poll(SOON, || process.stderr().contains(words).then_some(()));
    assert!(logged.is_some(), "no {words:?} in the log:\n{}", process.stderr());
}

/// The partitions that a process has, as it logged what it was assigned and what was revoked.
fn held(process: &Process) -> BTreeSet<String> {
    let mut held = BTreeSet::new();
    for line in process.stderr().lines() {
        if let Some((_, assigned)) = line.split_once(" Assigned partitions=") {
            let names = assigned.split_whitespace().filter_map(|partition| partition.split_once('@'));
            held.extend(names.map(|(name, _)| name.to_owned()));
        } else if let Some((_, revoked)) = line.split_once(" Revoked partitions=") {
            revoked.split_whitespace().for_each(|name| _ = held.remove(name));
        }
    }
    held
}

/// How often a process was assigned something, or had to give it up.
fn rebalances(process: &Process) -> usize {
    process.stderr().matches(" Assigned partitions=").count() + process.stderr().matches(" Revoked partitions=").count()
}

fn ends_with(process: &mut Process, words: &str) {
    assert_eq!(process.wait(SOON).code(), Some(1), "{}", process.stderr());
    assert!(process.stderr().contains(words), "{}", process.stderr());
}

#[test]
fn messages_are_rejected_from_the_batch_and_from_the_log() {
    let scene = Scene::new(broker(), "modern", 2, &[]);
    for partition in 0..2 {
        scene.produce(partition, &["A", "R", "D", "A", "R", "D"]);
    }
    let config = scene.config("", "settle = \"50ms\"") + &members("consumer", Some("one"));
    let running = Running::start(&config);
    for partition in 0..2 {
        scene.await_committed(partition, 6);
        assert_eq!(scene.rejected(partition, "now"), [1, 4]);
        assert_eq!(scene.rejected(partition, "late"), [2, 5]);
    }
    let summary = running.stop();
    assert_eq!((summary.tally.delivered, summary.source.failed_commits), (12, 0));
}

#[test]
fn the_partitions_of_a_killed_member_are_taken_over() {
    let mut oracle = Oracle::new(broker(), "taken-over", 4);
    let config = oracle.config("", &members("consumer", None));
    let mut first = oracle.start(&config, &[]);
    await_line(&first, "Assigned partitions=taken-over");
    let second = oracle.start(&config, &[]);
    await_line(&second, "Assigned partitions=taken-over");
    oracle.produce(500, 1);
    first.signal(Signal::KILL);
    first.wait(SOON);
    oracle.produce(500, 2);
    oracle.check_end(SOON);
    assert_eq!(held(&second).len(), 4);
}

#[test]
fn an_expired_position_becomes_the_earliest() {
    let mut oracle = Oracle::new(broker(), "protocol-expired", 1);
    let config = oracle.config("on-out-of-range = \"earliest\"", &members("consumer", None));
    oracle.produce_of(&[b'A'; 10]);
    let mut process = oracle.start(&config, &[]);
    oracle.await_committed(SOON);
    process.signal(Signal::TERM);
    assert!(process.wait(SOON).success(), "{}", process.stderr());
    oracle.produce_of(&[b'R'; 90]);
    broker().delete_records("protocol-expired", 0, 60);
    let _process = oracle.start(&config, &[]);
    oracle.await_committed(SOON);
    assert_eq!(broker().read("protocol-expired.dlq").len(), 40);
}

#[test]
fn a_group_changes_over_while_it_runs() {
    let mut oracle = Oracle::new(broker(), "changes-over", 4);
    let [classic, consumer] = ["classic", "consumer"].map(|protocol| oracle.config("", &members(protocol, None)));
    oracle.produce(500, 1);
    let mut old = oracle.start(&classic, &[]);
    oracle.await_committed(SOON);
    let new = oracle.start(&consumer, &[]);
    await_line(&new, "Assigned partitions=changes-over");
    oracle.produce(500, 2);
    oracle.await_committed(SOON);
    old.signal(Signal::TERM);
    assert!(old.wait(SOON).success(), "{}", old.stderr());
    oracle.produce(500, 3);
    oracle.check_end(SOON);
    assert_eq!(held(&new).len(), 4);
}

#[test]
fn a_static_member_of_a_classic_group_comes_back_to_its_partitions() {
    comes_back("static-classic", "classic");
}

#[test]
fn a_static_member_of_the_consumer_protocol_comes_back_to_its_partitions() {
    comes_back("static-consumer", "consumer");
}

/// A member stops in order and starts again, and the other one notices nothing.
fn comes_back(topic: &str, protocol: &str) {
    let mut oracle = Oracle::new(&PATIENT, topic, 4);
    let [first, second] = ["one", "two"].map(|id| oracle.config("", &members(protocol, Some(id))));
    let mut goes = oracle.start(&first, &[]);
    await_line(&goes, "Assigned partitions=static");
    let stays = oracle.start(&second, &[]);
    eventually(SOON, "each has two partitions", || (held(&goes).len() == 2 && held(&stays).len() == 2).then_some(()));
    let (had, before) = (held(&goes), rebalances(&stays));
    // Nothing that the guest could leave deferred when it is told to settle for the last time.
    oracle.produce_of(&b"AARE".repeat(500));
    goes.signal(Signal::TERM);
    assert!(goes.wait(SOON).success(), "{}", goes.stderr());
    oracle.check();
    let back = oracle.start(&first, &[]);
    oracle.produce_of(&b"AARE".repeat(50));
    assert_eq!(oracle.check_end(SOON).duplicates, 0, "it has committed all that it had judged");
    assert_eq!(held(&back), had);
    assert_eq!(rebalances(&stays), before, "{}", stays.stderr());
}

#[test]
fn a_static_member_of_a_classic_group_ends_when_another_process_takes_its_id() {
    let mut oracle = Oracle::new(broker(), "fenced", 2);
    let config = oracle.config("", &members("classic", Some("one")));
    let mut first = oracle.start(&config, &[]);
    await_line(&first, "Assigned partitions=fenced");
    let mut second = oracle.start(&config, &[]);
    ends_with(&mut first, "another process has joined group fenced with the same group.instance.id");
    oracle.produce(500, 1);
    oracle.check_end(SOON);
    assert!(second.is_running(), "{}", second.stderr());
}

#[test]
fn a_static_member_of_the_consumer_protocol_keeps_its_id_until_its_session_ends() {
    const TAKEN: &str = "group taken has a member with the same group.instance.id";
    let mut oracle = Oracle::new(broker(), "taken", 2);
    let config = oracle.config("", &members("consumer", Some("one")));
    let mut first = oracle.start(&config, &[]);
    await_line(&first, "Assigned partitions=taken");
    ends_with(&mut oracle.start(&config, &[]), TAKEN);
    oracle.produce(500, 1);
    oracle.await_committed(SOON);
    first.signal(Signal::KILL);
    first.wait(SOON);
    let _second = eventually(SOON, "its id is given to the next process", || {
        let mut next = oracle.start(&config, &[]);
        let is_let_in = || {
            let is_running = next.is_running();
            (next.stderr().contains(" Assigned ") || !is_running).then_some(is_running)
        };
        let is_let_in = poll(SOON, is_let_in).unwrap();
        if !is_let_in {
            ends_with(&mut next, TAKEN);
        }
        is_let_in.then_some(next)
    });
    oracle.check_end(SOON);
}
