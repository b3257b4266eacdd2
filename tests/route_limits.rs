//! Limits on what goes to a route: a bad deployment must not drain a topic into its dead letters.

use crate::support::{Process, Running, SOON, Scene, broker, counts};

const SMALL: &str = r#"batch = { messages = 10, wait = "5ms" }"#;

/// With a limit on the dead-letter route. A class that the guest takes every message for is in `settings`.
fn config(scene: &Scene<'_>, settings: &str, limit: &str) -> String {
    let off = r#"limit = "off""#;
    let config = scene.config(settings, SMALL);
    assert!(config.contains(off));
    config.replace(off, &format!("limit = {limit}"))
}

#[test]
fn a_guest_that_rejects_everything_pauses_and_nothing_beyond_the_limit_is_produced() {
    let scene = Scene::new(broker(), "bad-deploy", 2, &[]);
    scene.produce(0, &vec!["A"; 2000]);
    scene.produce(1, &["A"; 30]);
    let bad = Running::start(&config(&scene, r#"class = "R""#, "{ ratio = 0.05 }"));
    scene.await_log(&["ERROR", "bad-deploy[0]", "Paused", "route `dead-letter` would get more than 50", "limit.ratio"]);
    scene.await_committed(1, 30);
    let tally = bad.stop().tally;
    assert_eq!(tally.rejected, counts(&[("now", 80)]), "5 batches of one partition, and all of the other one");
    assert_eq!(scene.rejected(0, "now"), (0..50).collect::<Vec<_>>());
    assert_eq!(scene.committed(0), Some(50));
    // The module is mended: who starts next takes up where it stopped.
    let good = Running::start(&config(&scene, "", "{ ratio = 0.05 }"));
    scene.await_committed(0, 2000);
    assert_eq!(good.stop().tally.accepted, 1950);
    assert_eq!(scene.rejected(0, "now").len(), 50);
}

#[test]
fn a_new_owner_lets_through_a_little_before_it_pauses_again() {
    let scene = Scene::new(broker(), "half-open", 1, &[]);
    scene.produce(0, &["R"; 100]);
    for starts in 1..=2 {
        let running = Running::start(&config(&scene, "", "{ ratio = 1.0, consecutive = 20 }"));
        scene.await_committed(0, 20 * starts);
        scene.await_log(&["ERROR", "half-open[0]", "Paused", "more than 20 messages in a row (limit.consecutive)"]);
        running.stop();
        assert_eq!(scene.rejected(0, "now"), (0..20 * starts).collect::<Vec<_>>());
    }
}

#[test]
fn what_was_accepted_in_between_makes_room_again() {
    let scene = Scene::new(broker(), "in-between", 1, &[]);
    let payloads: Vec<_> = (0..3000).map(|number| if number % 25 == 0 { "R" } else { "A" }).collect();
    scene.produce(0, &payloads);
    let running = Running::start(&config(&scene, "", "{ ratio = 0.05, consecutive = 1 }"));
    scene.await_committed(0, 3000);
    assert_eq!(running.stop().tally.rejected, counts(&[("now", 120)]));
}

#[test]
fn late_rejections_count_too() {
    let scene = Scene::new(broker(), "late-ones", 1, &[]);
    scene.produce(0, &["D"; 60]);
    let running = Running::start(&config(&scene, "", "{ ratio = 0.05 }"));
    scene.await_log(&["ERROR", "late-ones[0]", "Paused", "route `dead-letter` would get more than 50"]);
    running.stop();
    assert!(scene.letters().is_empty());
    assert_eq!(scene.committed(0).unwrap_or_default(), 0);
}

#[test]
fn what_the_host_would_expire_counts_too() {
    let scene = Scene::new(broker(), "expiring", 1, &[]);
    scene.produce(0, &["D"; 60]);
    let config = config(&scene, r#"settle = "never""#, "{ ratio = 0.05 }");
    let running = Running::start(&config.replace("commit =", "open = { age = \"1s\", grace = \"100ms\" }\ncommit ="));
    scene.await_log(&["ERROR", "expiring[0]", "Paused", "route `dead-letter` would get more than 50"]);
    running.stop();
    assert!(scene.letters().is_empty());
}

#[test]
fn messages_at_which_the_guest_fails_count_too() {
    let scene = Scene::new(broker(), "culprits", 1, &[]);
    let payloads: Vec<_> = (0..100).map(|number| if number % 10 == 4 { "X" } else { "A" }).collect();
    scene.produce(0, &payloads);
    let running = Running::start(&config(&scene, r#"fail = "trap""#, "{ ratio = 0.003 }"));
    scene.await_log(&["ERROR", "culprits[0]", "Paused", "route `dead-letter` would get more than 3"]);
    let tally = running.stop().tally;
    assert_eq!((tally.rejected, tally.halted.len()), (counts(&[("guest-trap", 3)]), 1));
    assert_eq!(scene.rejected(0, "guest-trap"), [4, 14, 24]);
    assert_eq!(scene.committed(0), Some(34));
}

#[test]
fn a_message_that_is_only_suspected_counts_too() {
    let scene = Scene::new(broker(), "suspects", 1, &[]);
    scene.produce(0, &["X", "A"]);
    let config = config(&scene, r#"fail = "trap""#, "{ ratio = 0 }").replace("messages = 10", "messages = 1");
    let running = Running::start(&config);
    scene.await_log(&["ERROR", "suspects[0]", "Paused", "route `dead-letter` would get more than 0"]);
    running.stop();
    assert!(scene.letters().is_empty());
    assert_eq!(scene.committed(0).unwrap_or_default(), 0);
}

#[test]
fn with_stop_the_process_ends_with_an_error() {
    let scene = Scene::new(broker(), "stops", 1, &[]);
    scene.produce(0, &["R"; 100]);
    let mut process = Process::start(&config(&scene, "", r#"{ consecutive = 20, ratio = 1, then = "stop" }"#));
    let status = process.wait(SOON);
    assert_eq!(status.code(), Some(1), "{}", process.stderr());
    let said = process.stderr();
    assert!(said.contains("stops[0]: route `dead-letter` would get more than 20 messages in a row"), "{said}");
    assert_eq!(scene.rejected(0, "now"), (0..20).collect::<Vec<_>>());
    assert_eq!(scene.committed(0), Some(20));
}
