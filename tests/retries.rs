//! Retries: later messages go on, the attempt is raised, and the last one is rejected.

use std::collections::BTreeMap;

use crate::support::{Process, Record, Running, SOON, Scene, Stored, broker, counts, eventually};
use rustix::process::Signal;

const SMALL: &str = r#"
    batch = { messages = 4, wait = "5ms" }
"#;

/// Offset, code and attempts of each dead letter, in the order of their topic.
fn letters(scene: &Scene<'_>) -> Vec<(i64, String, u32)> {
    let letter = |letter: &Stored| {
        let header = |name: &str| letter.header(name).unwrap().to_owned();
        let number = |name: &str| header(name).parse().unwrap();
        (number("deadletter.offset"), header("deadletter.code"), u32::try_from(number("deadletter.attempts")).unwrap())
    };
    scene.letters().iter().map(letter).collect()
}

fn rejected(offset: i64, code: &str, attempts: u32) -> (i64, String, u32) {
    (offset, code.to_owned(), attempts)
}

#[test]
fn later_messages_go_on_while_one_waits_and_its_commit_waits_too() {
    let scene = Scene::new(broker(), "retries-order", 1, &[]);
    scene.produce(0, &["A", "Y3", "R", "A", "R", "R", "A", "R"]);
    let running = Running::start(&scene.config("delay = 1500", SMALL));
    eventually(SOON, "what is behind it is judged", || (letters(&scene).len() == 4).then_some(()));
    scene.await_committed(0, 1);
    scene.await_committed(0, 8);
    let now = |offset| rejected(offset, "now", 1);
    assert_eq!(letters(&scene), [now(2), now(4), now(5), now(7), rejected(1, "now", 3)]);
    let tally = running.stop().tally;
    assert_eq!((tally.delivered, tally.retried, tally.redelivered), (8, 2, 0));
}

#[test]
fn a_message_that_is_retried_too_often_is_rejected_with_what_the_guest_said() {
    let scene = Scene::new(broker(), "retries-exhausted", 1, &[]);
    scene.produce(0, &["Y", "A", "Y2", "Y", "Z3"]);
    let running = Running::start(&scene.config("delay = 50", &format!("retry = {{ attempts = 3 }}\n{SMALL}")));
    scene.await_committed(0, 5);
    let mut found = letters(&scene);
    found.sort();
    let exhausted = |offset| rejected(offset, "retries-exhausted", 3);
    assert_eq!(found, [exhausted(0), rejected(2, "now", 2), exhausted(3)]);
    let letter = scene.letters().into_iter().find(|letter| letter.header("deadletter.offset") == Some("3")).unwrap();
    assert_eq!(letter.header("deadletter.reason"), Some("busy: the dependency is away"));
    assert_eq!(letter.payload.as_deref(), Some(&b"Y"[..]));
    let tally = running.stop().tally;
    assert_eq!(tally.retried, 7);
    assert_eq!(tally.rejected, counts(&[("now", 1), ("retries-exhausted", 2)]));
}

#[test]
fn a_message_that_is_gone_when_its_retry_is_due_becomes_a_stub_or_is_accepted() {
    for then in ["stub", "accept"] {
        let scene = Scene::new(broker(), &format!("retries-gone-{then}"), 1, &[]);
        scene.produce(0, &["Y2", "Y2", "R"]);
        let config = scene.config("delay = 5000", &format!("on-gone = \"{then}\"\n{SMALL}"));
        let running = Running::start(&config);
        eventually(SOON, "what is behind them is judged", || (letters(&scene).len() == 1).then_some(()));
        scene.broker.delete_records(&scene.topic, 0, 1);
        scene.await_committed(0, 3);
        let mut found = letters(&scene);
        found.sort();
        let others = [rejected(1, "now", 2), rejected(2, "now", 1)];
        let tally = running.stop().tally;
        if then == "stub" {
            assert_eq!(found, [&[rejected(0, "payload-gone", 1)], &others[..]].concat());
            assert_eq!((tally.stubs, tally.gone), (counts(&[("expired", 1)]), 0));
        } else {
            assert_eq!(found, others);
            assert_eq!((tally.stubs, tally.gone), (counts(&[]), 1));
        }
    }
}

#[test]
fn an_instance_that_is_lost_burns_no_attempt() {
    let scene = Scene::new(broker(), "retries-lost", 1, &[]);
    scene.produce(0, &["Y3", "D", "A", "A", "R", "A", "A", "A"]);
    // Each instance fails at its third batch; what it had open and what it failed at goes to the next one.
    let running = Running::start(&scene.config(r#"delay = 300, fail = "trap", fail-at = 3, settle = "last""#, SMALL));
    eventually(SOON, "all but the deferred one are judged", || (letters(&scene).len() == 2).then_some(()));
    let tally = running.stop().tally;
    assert_eq!(letters(&scene), [rejected(4, "now", 1), rejected(0, "now", 3), rejected(1, "late", 1)]);
    assert!(tally.failures["the guest trapped"] >= 2, "{tally:?}");
    assert_eq!((scene.committed(0), tally.halted.len()), (Some(8), 0));
}

#[test]
fn a_process_that_stops_does_not_wait_for_retries() {
    let scene = Scene::new(broker(), "retries-stop", 1, &[]);
    scene.produce(0, &["A", "Y2", "R"]);
    let running = Running::start(&scene.config("delay = 300_000", &format!("shutdown = \"1h\"\n{SMALL}")));
    eventually(SOON, "what is behind it is judged", || (letters(&scene).len() == 1).then_some(()));
    drop(running);
    assert_eq!(scene.committed(0), Some(1));
    let running = Running::start(&scene.config("delay = 50", SMALL));
    scene.await_committed(0, 3);
    drop(running);
    // It is attempt 1 again for whoever has the partition next.
    assert_eq!(letters(&scene)[1..], [rejected(2, "now", 1), rejected(1, "now", 2)]);
}

/// 100,000 messages of 1 KiB, all of which wait for a retry at the same time.
#[test]
fn a_storm_of_retries_takes_no_more_memory_than_none() {
    const COUNT: i64 = 100_000;
    let scene = Scene::new(broker(), "retries-storm", 1, &[]);
    let class = |number: i64| if number % 100 == 0 { "Y3" } else { "Z2" };
    for first in (0..COUNT).step_by(10_000) {
        let record = |number| Record::new("", format!("{}{}", class(number), ".".repeat(1022)));
        broker().produce(&scene.topic, &(first..first + 10_000).map(record).collect::<Vec<_>>());
    }
    let run = |settings: &str, group: &str| {
        let limit = format!("open = {{ messages = {COUNT}, age = \"2s\", grace = \"1s\" }}");
        let config =
            scene.config(settings, &limit).replace("group = \"retries-storm\"", &format!("group = \"{group}\""));
        let mut process = Process::start(&config);
        let committed = || broker().committed(group, &scene.topic).get(&0) == Some(&COUNT);
        eventually(4 * SOON, "all is committed", || committed().then_some(()));
        let peak = process.peak_memory();
        process.signal(Signal::TERM);
        assert!(process.wait(SOON).success(), "{}", process.stderr());
        (peak, process.stderr())
    };
    let (none, _) = run(r#"class = "A""#, "retries-storm-none");
    let (storm, log) = run("delay = 15_000", "retries-storm-all");
    assert!(log.contains("Open offsets are at their limit"), "all wait at the same time:\n{log}");
    let attempts: BTreeMap<i64, u32> =
        letters(&scene).into_iter().map(|(offset, _, attempts)| (offset, attempts)).collect();
    assert_eq!(attempts, (0..COUNT).step_by(100).map(|offset| (offset, 3)).collect());
    assert_eq!(letters(&scene).len(), attempts.len(), "each once");
    println!("peak memory: {} KiB without retries, {} KiB with", none >> 10, storm >> 10);
    assert!(storm < none + (16 << 20), "{storm} against {none}");
}
