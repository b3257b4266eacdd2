//! A guest that fails, and not because of a message: an instance is lost, and nothing with it.

use crate::support::{Process, Running, SOON, Scene, broker, counts, eventually};

/// Ways to fail, and what each is called.
const WAYS: &[(&str, &str)] = &[
    ("trap", "the guest trapped"),
    ("timeout", "the guest ran out of time"),
    ("memory", "the guest ran out of memory"),
    ("no luck", "the guest answered with an error"),
    ("contract", "the guest broke the contract"),
];

const SMALL: &str = r#"
    batch = { messages = 4, bytes = "64KiB", wait = "5ms" }
    settle = "100ms"
    guest.deadline = "300ms"
    guest.memory = "24MiB"
"#;

/// Twenty messages of four classes in turn.
fn fill(scene: &Scene<'_>, partition: i32) {
    let payloads: Vec<_> = (0..20).map(|number| format!("{}{number}", ["D", "R", "A", "H"][number % 4])).collect();
    scene.produce(partition, &payloads.iter().map(String::as_str).collect::<Vec<_>>());
}

fn assert_judged(scene: &Scene<'_>, partition: i32) {
    scene.await_committed(partition, 20);
    assert_eq!(scene.rejected(partition, "late"), [0, 4, 8, 12, 16], "{}", scene.topic);
    assert_eq!(scene.rejected(partition, "now"), [1, 5, 9, 13, 17], "{}", scene.topic);
}

/// After a restart, what was not committed is judged again.
fn assert_judged_at_least_once(scene: &Scene<'_>) {
    scene.await_committed(0, 20);
    for (code, first) in [("late", 0), ("now", 1)] {
        let mut rejected = scene.rejected(0, code);
        rejected.dedup();
        assert_eq!(rejected, [first, first + 4, first + 8, first + 12, first + 16], "{}", scene.topic);
    }
}

#[test]
fn an_instance_that_fails_is_replaced_and_nothing_is_lost() {
    for (index, (way, kind)) in WAYS.iter().enumerate() {
        let scene = Scene::new(broker(), &format!("fails-once-{index}"), 1, &[]);
        fill(&scene, 0);
        let running = Running::start(&scene.config(&format!(r#"fail = "{way}", fail-at = 4, settle = "last""#), SMALL));
        scene.await_log(&["WARN", "The guest failed", kind]);
        eventually(SOON, "all is judged", || (scene.rejected(0, "now").len() == 5).then_some(()));
        let tally = running.stop().tally;
        assert_judged(&scene, 0);
        assert!(tally.failures.get(*kind) >= Some(&1), "{way}: {tally:?}");
        assert!(tally.redelivered >= 6, "{way}: {tally:?}");
        assert!(tally.halted.is_empty(), "{way}: {tally:?}");
    }
}

#[test]
fn settle_that_fails_settles_on_a_fresh_instance_as_long_as_something_is_settled() {
    let scene = Scene::new(broker(), "settle-fails", 1, &[]);
    fill(&scene, 0);
    // Every instance fails at its second settle; the first one settles.
    let running = Running::start(&scene.config(r#"fail = "trap", fail-settle-at = 2"#, SMALL));
    for number in 1..=5 {
        eventually(SOON, "all is judged", || (scene.rejected(0, "late").len() == 5 * number).then_some(()));
        fill(&scene, 0);
        eventually(SOON, "it fails", || (scene.lines(&["The guest failed", "settle("]).len() >= number).then_some(()));
    }
    scene.await_committed(0, 120);
    assert!(running.stop().tally.halted.is_empty());
}

#[test]
fn settle_that_fails_three_times_and_settles_nothing_pauses_the_partition() {
    let scene = Scene::new(broker(), "settle-fails-thrice", 1, &[]);
    fill(&scene, 0);
    let running = Running::start(&scene.config(r#"fail = "trap", fail-settle-at = 2, settle = "pressure""#, SMALL));
    scene.await_log(&["ERROR", "Paused", "settle(tick) failed 3 times"]);
    let tally = running.stop().tally;
    assert_eq!(tally.failures, counts(&[("the guest trapped", 3)]));
    assert_eq!(scene.rejected(0, "now").len(), 5);
    // What is still open is judged by the next process.
    let running = Running::start(&scene.config("", SMALL));
    assert_judged_at_least_once(&scene);
    assert!(running.stop().tally.halted.is_empty());
}

#[test]
fn a_paused_partition_takes_no_room_from_the_others() {
    let scene = Scene::new(broker(), "paused-room", 2, &[]);
    scene.produce(0, &["X"; 40]);
    let room = r#"
        batch = { messages = 4, bytes = "1KiB", wait = "5ms" }
        in-hand = "1KiB"
    "#;
    let running = Running::start(&scene.config(r#"fail = "trap""#, room));
    scene.await_log(&["ERROR", "Paused"]);
    fill(&scene, 1);
    assert_judged(&scene, 1);
    drop(running);
}

#[test]
fn a_guest_that_fails_while_the_process_stops_loses_nothing() {
    for (index, failing) in ["fail-settle-at = 1", "fail-at = 3"].iter().enumerate() {
        let scene = Scene::new(broker(), &format!("fails-at-the-end-{index}"), 1, &[]);
        fill(&scene, 0);
        let slow = r#"
            batch = { messages = 4, wait = "5ms" }
            settle = "10m"
            shutdown = "20s"
        "#;
        let running = Running::start(&scene.config(&format!(r#"fail = "trap", {failing}, settle = "last""#), slow));
        eventually(SOON, "it judges", || (!scene.letters().is_empty()).then_some(()));
        drop(running);
        let running = Running::start(&scene.config("", SMALL));
        assert_judged_at_least_once(&scene);
        drop(running);
    }
}

#[test]
fn settings_that_the_guest_refuses_end_the_start_with_64() {
    let scene = Scene::new(broker(), "refused", 1, &[]);
    let mut process = Process::start(&scene.config(r#"refuse = "no schema""#, ""));
    assert_eq!(process.wait(SOON).code(), Some(64), "{}", process.stderr());
    assert!(process.stderr().contains("it refuses the settings: no schema"), "{}", process.stderr());
}
