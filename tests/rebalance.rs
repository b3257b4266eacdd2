//! Members that join and leave under load, under the oracle.

use std::collections::VecDeque;

use crate::support::{Oracle, Process, Running, SOON, Scene, broker, eventually, poll, runs};
use rustix::process::Signal;
use serde_json::json;

/// Most members of the group at a time; a change makes it one fewer, or this many again.
const MEMBERS: usize = 3;

fn group(assignor: &str) -> String {
    format!(
        r#"
        [kafka.consumer]
        "session.timeout.ms" = "3000"
        "heartbeat.interval.ms" = "300"
        "partition.assignment.strategy" = "{assignor}"
        "#
    )
}

/// The brokers have the times: they are lowered by the harness.
const CONSUMER_PROTOCOL: &str = r#"
    [kafka.consumer]
    "group.protocol" = "consumer"
"#;

#[test]
fn cooperative_members_join_and_leave_under_load() {
    churn("churn-cooperative", &group("cooperative-sticky"));
}

#[test]
fn eager_members_join_and_leave_under_load() {
    churn("churn-eager", &group("range"));
}

#[test]
fn members_of_the_consumer_protocol_join_and_leave_under_load() {
    churn("churn-consumer", CONSUMER_PROTOCOL);
}

/// Members join, and leave in order or not, while a producer goes on and messages are deferred.
fn churn(topic: &str, group: &str) {
    let mut oracle = Oracle::new(broker(), topic, 6);
    let config = oracle.config("", group);
    let start = |oracle: &mut Oracle<'_>| {
        oracle.start(&config, &[("RUST_LOG", "info,deadletter::kafka::source::rebalance=debug")])
    };
    let mut members: VecDeque<Process> = (1..MEMBERS).map(|_| start(&mut oracle)).collect();
    let mut took = Vec::new();
    let changes = runs(10, 100);
    for change in 0..changes {
        if members.len() < MEMBERS {
            let joining = start(&mut oracle);
            under_load(&mut oracle, change, "a member joins", || joining.stderr().contains(" Assigned "));
            members.push_back(joining);
        } else {
            let mut leaving = members.pop_front().unwrap();
            let in_order = change % 4 == 1;
            leaving.signal(if in_order { Signal::TERM } else { Signal::KILL });
            under_load(&mut oracle, change, "a member leaves", || !leaving.is_running());
            assert_eq!(leaving.wait(SOON).success(), in_order, "{}", leaving.stderr());
            took.extend(times(&leaving));
        }
        oracle.check();
        for member in &mut members {
            assert!(member.is_running(), "a member has ended:\n{}", member.stderr());
        }
    }
    let verdicts = oracle.check_end(4 * SOON);
    took.extend(members.iter().flat_map(times));
    took.sort_unstable();
    let percentile = |percent: usize| took[(took.len() - 1) * percent / 100];
    println!(
        "figure: {}",
        json!({
            "name": "rebalance", "assignor": topic.trim_start_matches("churn-"), "changes": changes, "rebalances": took.len(),
            "p50_ms": percentile(50), "p99_ms": percentile(99), "max_ms": percentile(100),
            "dead_letters": verdicts.rejected, "duplicates": verdicts.duplicates,
        })
    );
}

/// Goes on producing until something has happened.
fn under_load(oracle: &mut Oracle<'_>, seed: u64, what: &str, mut happened: impl FnMut() -> bool) {
    eventually(SOON, what, || {
        oracle.produce(200, seed);
        oracle.check_commits();
        happened().then_some(())
    });
}

/// How long each rebalance took, in milliseconds, as a process logged it.
fn times(process: &Process) -> Vec<u64> {
    let log = process.stderr();
    log.lines().filter_map(|line| line.split_once(" Rebalanced took_ms=")?.1.parse().ok()).collect()
}

#[test]
fn a_member_that_was_away_commits_nothing_when_it_is_back() {
    let mut oracle = Oracle::new(broker(), "away", 1);
    let config = oracle.config("", &group("range"));
    oracle.produce(500, 1);
    let mut away = oracle.start(&config, &[]);
    oracle.await_committed(SOON);
    away.signal(Signal::STOP);
    oracle.produce(500, 2);
    let mut present = oracle.start(&config, &[]);
    oracle.await_committed(SOON);
    oracle.check();
    // In order, and so that nobody is there to whom the partition belongs: the broker would take a commit of anybody.
    present.signal(Signal::TERM);
    assert!(present.wait(SOON).success(), "{}", present.stderr());
    away.signal(Signal::CONT);
    let is_back = |away: &Process| away.stderr().matches(" Assigned ").count() > 1;
    eventually(SOON, "the member is back", || {
        oracle.check_commits();
        is_back(&away).then_some(())
    });
    oracle.check_end(SOON);
    assert!(away.is_running(), "{}", away.stderr());
}

/// What becomes of a member that is not heard of, or does not poll, for three seconds.
const ABSENT: &str = r#"
    [kafka.consumer]
    "session.timeout.ms" = "3000"
    "heartbeat.interval.ms" = "300"
    "max.poll.interval.ms" = "3000"
"#;

/// Waits until a member is assigned something once more.
fn await_back(oracle: &mut Oracle<'_>, member: &Process) {
    eventually(SOON, "the member is back", || {
        oracle.check_commits();
        (member.stderr().matches(" Assigned partitions=").count() > 1).then_some(())
    });
}

#[test]
fn a_process_that_was_stopped_in_the_middle_of_its_work_comes_back() {
    let mut oracle = Oracle::new(broker(), "stopped", 2);
    let mut process = oracle.start(&oracle.config("", ABSENT), &[]);
    for seed in 0..3 {
        oracle.produce(3000, seed);
        let before = oracle.commits();
        eventually(SOON, "commits go on", || (oracle.commits() > before).then_some(()));
        process.signal(Signal::STOP);
        eventually(SOON, "the group has no member", || (broker().members("stopped") == 0).then_some(()));
        oracle.check();
        process.signal(Signal::CONT);
    }
    await_back(&mut oracle, &process);
    oracle.check_end(2 * SOON);
    assert!(process.is_running(), "{}", process.stderr());
}

#[test]
fn a_member_that_does_not_poll_for_too_long_commits_nothing_and_comes_back() {
    let mut oracle = Oracle::new(broker(), "stuck", 1);
    let config = oracle.config("", ABSENT);
    oracle.produce(500, 1);
    // Its thread stops with a commit in its hand, while the client goes on with its heartbeats.
    let mut stuck = oracle.start(&config, &[("FAILPOINTS", "before-commit=1*off->1*sleep(15000)->off")]);
    eventually(SOON, "the member leaves the group", || {
        let log = stuck.stderr();
        (log.contains("Assigned partitions=stuck") && broker().members("stuck") == 0).then_some(())
    });
    let mut present = oracle.start(&config, &[]);
    oracle.produce(500, 2);
    oracle.await_committed(SOON);
    present.signal(Signal::TERM);
    assert!(present.wait(SOON).success(), "{}", present.stderr());
    await_back(&mut oracle, &stuck);
    oracle.check_end(SOON);
    assert!(stuck.is_running(), "{}", stuck.stderr());
}

#[test]
fn a_guest_that_is_slow_keeps_its_member_in_the_group() {
    let scene = Scene::new(broker(), "slow-member", 2, &[]);
    scene.produce(0, &[&["X"][..], &["A"; 400]].concat());
    let small = r#"
        batch = { messages = 4, wait = "5ms" }
        guest.deadline = "4s"
        shutdown = "1s"
    "#;
    let running = Running::start(&(scene.config(r#"fail = "timeout""#, small) + ABSENT));
    scene.await_log(&["WARN", "The guest failed", "ran out of time"]);
    scene.produce(1, &["R"]);
    scene.await_committed(1, 1);
    assert_eq!(scene.lines(&[" Assigned "]).len(), 1);
    assert_eq!(scene.lines(&[" Revoked "]), [""; 0]);
    drop(running);
}

#[test]
fn two_members_of_one_partition_take_turns() {
    let mut oracle = Oracle::new(broker(), "turns", 1);
    let config = oracle.config("", &group("cooperative-sticky"));
    oracle.produce(500, 1);
    let mut first = oracle.start(&config, &[]);
    eventually(SOON, "the first is assigned the partition", || {
        first.stderr().contains("Assigned partitions=turns").then_some(())
    });
    let second = oracle.start(&config, &[]);
    eventually(SOON, "the second is assigned nothing", || second.stderr().contains(" Assigned ").then_some(()));
    oracle.check();
    first.signal(Signal::TERM);
    let handed_over = || second.stderr().contains("Assigned partitions=turns").then_some(());
    assert!(poll(SOON, handed_over).is_some(), "the second does not take over:\n{}", second.stderr());
    assert!(first.wait(SOON).success(), "{}", first.stderr());
    oracle.check_end(SOON);
}

#[test]
fn rebalances_and_shadow_reads_leave_nothing_behind() {
    let scene = Scene::new(broker(), "tidy", 2, &[]);
    let tick = "settle = \"50ms\"\nbatch = { messages = 4, wait = \"5ms\" }";
    let process = Process::start(&(scene.config("", tick) + &group("range")));
    // A member that reads another topic: whenever it comes or goes, everybody gives up everything, and gets it back.
    let other = Scene::new(broker(), "tidy-other", 1, &[]);
    let other = (other.config("", "") + &group("range")).replace("group = \"tidy-other\"", "group = \"tidy\"");
    let mut had = (0, 0);
    let rounds = i64::try_from(runs(15, 100)).unwrap();
    for round in 1..=rounds {
        for partition in 0..2 {
            scene.produce(partition, &["D"; 50]);
        }
        let assigned = || process.stderr().matches(" Assigned partitions=tidy").count();
        let before = assigned();
        let passing = Running::start(&other);
        eventually(SOON, "the other member is there", || (assigned() > before).then_some(()));
        for partition in 0..2 {
            scene.await_committed(partition, 50 * round);
        }
        drop(passing);
        if round == 5 {
            had = process.threads_and_files();
        }
    }
    let has = process.threads_and_files();
    println!(
        "figure: {}",
        json!({ "name": "tidy", "rounds": rounds, "threads": has.0, "files": has.1, "before": had })
    );
    // Threads that wait for blocking work come and go.
    assert!(has.0 <= had.0 + 5 && has.1 <= had.1 + 5, "{has:?} threads and files, {had:?} before");
}
