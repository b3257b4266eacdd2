//! Limits on open offsets, the settle tick, and a guest that is too slow.

use crate::support::{Running, SOON, Scene, broker, counts, eventually};

/// Eight open offsets, in batches of four.
fn eight(grace: &str, then: &str) -> String {
    format!(
        r#"
        batch = {{ messages = 4, wait = "5ms" }}
        open = {{ messages = 8, grace = "{grace}", then = "{then}" }}
        settle = "100ms"
        shutdown = "2s"
        "#
    )
}

#[test]
fn a_guest_settles_when_it_is_told_of_the_pressure() {
    let scene = Scene::new(broker(), "pressure", 1, &[]);
    scene.produce(0, &["D"; 22]);
    let running = Running::start(&scene.config(r#"settle = "pressure""#, &eight("1h", "pause")));
    scene.await_committed(0, 16);
    // What is left is within the limit: it stays open, and the end of the process leaves it so.
    let tally = running.stop().tally;
    assert_eq!(scene.rejected(0, "late"), (0..16).collect::<Vec<_>>());
    assert_eq!(tally.delivered, 22);
    assert!(tally.halted.is_empty());
}

#[test]
fn nothing_new_is_judged_at_the_limit() {
    let scene = Scene::new(broker(), "at-the-limit", 1, &[]);
    scene.produce(0, &["D"; 22]);
    let running = Running::start(&scene.config(r#"settle = "never""#, &eight("1h", "reject")));
    scene.await_log(&["WARN", "Open offsets are at their limit"]);
    assert_eq!(running.stop().tally.delivered, 8);
    assert!(scene.letters().is_empty());
}

#[test]
fn what_is_not_settled_within_the_grace_is_rejected_the_lowest_first() {
    let scene = Scene::new(broker(), "expired", 1, &[]);
    scene.produce(0, &["D"; 22]);
    // It names the expired offsets at the end nonetheless, which is no violation.
    let running = Running::start(&scene.config(r#"settle = "last""#, &eight("100ms", "reject")));
    scene.await_committed(0, 16);
    assert_eq!(scene.rejected(0, "deferral-expired"), (0..16).collect::<Vec<_>>());
    let tally = running.stop().tally;
    assert_eq!(tally.rejected, counts(&[("deferral-expired", 16), ("late", 6)]));
    assert_eq!(tally.failures, counts(&[]));
    assert_eq!(scene.rejected(0, "late"), (16..22).collect::<Vec<_>>());
    assert_eq!(scene.committed(0), Some(22));
}

#[test]
fn what_is_open_for_too_long_is_rejected() {
    let scene = Scene::new(broker(), "too-old", 1, &[]);
    scene.produce(0, &["D", "A", "H"]);
    let aged = r#"
        open = { age = "1s", grace = "100ms" }
        settle = "100ms"
    "#;
    let running = Running::start(&scene.config(r#"settle = "never""#, aged));
    scene.await_committed(0, 3);
    assert_eq!(scene.rejected(0, "deferral-expired"), [0, 2]);
    assert_eq!(running.stop().tally.rejected, counts(&[("deferral-expired", 2)]));
}

#[test]
fn a_partition_pauses_at_its_limit_if_it_is_told_to_and_no_other_does() {
    let scene = Scene::new(broker(), "pauses", 2, &[]);
    scene.produce(0, &["D"; 22]);
    scene.produce(1, &["R"]);
    let running = Running::start(&scene.config(r#"settle = "never""#, &eight("100ms", "pause")));
    scene.await_log(&["ERROR", "Paused", "pauses[0]", "within the grace"]);
    scene.produce(1, &["R"]);
    scene.await_committed(1, 2);
    let tally = running.stop().tally;
    assert_eq!((tally.delivered, tally.halted.len()), (10, 1));
    assert_eq!(scene.rejected(0, "deferral-expired"), [0; 0]);
}

#[test]
fn the_settle_tick_comes_while_batches_come_without_a_break() {
    let scene = Scene::new(broker(), "tick", 1, &[]);
    let payloads = [&["D"][..], &["S"; 100], &["R"]].concat();
    scene.produce(0, &payloads);
    let one_by_one = r#"
        batch = { messages = 1, wait = "5ms" }
        settle = "50ms"
    "#;
    let running = Running::start(&scene.config("", one_by_one));
    scene.await_committed(0, 102);
    let codes: Vec<_> =
        scene.letters().iter().map(|letter| letter.header("deadletter.code").unwrap().to_owned()).collect();
    assert_eq!(codes, ["late", "now"], "it settles before the last message");
    drop(running);
}

#[test]
fn a_slow_partition_is_paused_and_resumed_and_holds_up_no_other() {
    let scene = Scene::new(broker(), "slow", 2, &[]);
    let payloads = ["S", "R"].repeat(60);
    scene.produce(0, &payloads);
    scene.produce(1, &["A"].repeat(200));
    let small = r#"
        batch = { messages = 2, wait = "5ms" }
    "#;
    let running = Running::start(&scene.config("", small));
    eventually(SOON, "the quick partition is done", || (scene.committed(1) == Some(200)).then_some(()));
    assert!(scene.committed(0) < Some(120), "the slow one is done first");
    scene.await_committed(0, 120);
    let summary = running.stop();
    assert_eq!(scene.rejected(0, "now"), (0..60).map(|n| 2 * n + 1).collect::<Vec<_>>(), "each once");
    assert_eq!(summary.tally.delivered, 320, "each once");
    assert!(summary.source.pauses > 0);
}
