//! Holds: a dependency is away, and everything waits in order.

use std::time::{Duration, SystemTime};

use crate::support::{Running, SOON, Scene, Stored, broker, counts};

const SMALL: &str = r#"
    batch = { messages = 20, wait = "5ms" }
    open = { age = "1s", grace = "0s" }
    settle = "100ms"
"#;

/// When the dependency is back, if it is away for so long from now on.
fn back_after(away: Duration) -> String {
    let back = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap() + away;
    format!(r#"delay = 200, back = "{}""#, back.as_millis())
}

/// Messages of which some need the dependency, from a number on.
fn fill(scene: &Scene<'_>, numbers: std::ops::Range<usize>) {
    let payloads: Vec<_> = numbers.map(|number| format!("{}{number}", ["E", "E", "W"][number % 3])).collect();
    scene.produce(0, &payloads.iter().map(String::as_str).collect::<Vec<_>>());
}

/// The numbers of what was judged, in order.
fn judged(scene: &Scene<'_>) -> Vec<usize> {
    let payload = |copy: Stored| String::from_utf8(copy.payload.unwrap()).unwrap();
    scene.broker.read(&scene.copies()).into_iter().map(|copy| payload(copy).split_off(1).parse().unwrap()).collect()
}

#[test]
fn the_order_is_kept_while_a_dependency_is_away() {
    let scene = Scene::new(broker(), "holds-order", 1, &[]);
    fill(&scene, 0..300);
    let running = Running::start(&scene.config(&back_after(Duration::from_secs(4)), SMALL));
    scene.await_log(&["INFO", "The guest holds", "offset=2", "the dependency is away"]);
    scene.await_committed(0, 2);
    assert_eq!(judged(&scene), [0, 1], "what is behind it waits");
    fill(&scene, 300..400);
    scene.await_committed(0, 400);
    assert_eq!(judged(&scene), (0..400).collect::<Vec<_>>(), "each once, in order");
    scene.await_log(&["INFO", "The guest holds no longer"]);
    let tally = running.stop().tally;
    assert!(tally.redelivered > 18 && tally.holding.is_empty(), "{tally:?}");
    assert_eq!((tally.rejected, tally.failures), (counts(&[]), counts(&[])));
    assert!(scene.letters().is_empty());
}

#[test]
fn a_hold_is_not_an_attempt_and_what_was_said_of_later_messages_is_void() {
    let scene = Scene::new(broker(), "holds-attempt", 1, &[]);
    scene.produce(0, &["R", "W", "R", "Y2"]);
    let running = Running::start(&scene.config(&back_after(Duration::from_secs(2)), SMALL));
    scene.await_committed(0, 4);
    let attempts = |letter: &Stored| letter.header("deadletter.attempts").unwrap().to_owned();
    assert_eq!(scene.letters().iter().map(attempts).collect::<Vec<_>>(), ["1", "1", "2"]);
    assert_eq!(running.stop().tally.rejected, counts(&[("now", 3)]), "each once");
}

#[test]
fn a_guest_that_holds_still_settles_what_it_deferred() {
    let scene = Scene::new(broker(), "holds-settle", 1, &[]);
    scene.produce(0, &["D", "H", "W", "R"]);
    let running = Running::start(&scene.config(r#"delay = 300_000, back = "9999999999999""#, SMALL));
    scene.await_committed(0, 2);
    assert_eq!(scene.rejected(0, "late"), [0]);
    drop(running);
    assert_eq!(scene.committed(0), Some(2));
}

#[test]
fn a_hold_that_lasts_is_an_alarm_and_holds_up_no_other_partition() {
    let scene = Scene::new(broker(), "holds-alarm", 2, &[]);
    scene.produce(0, &["A", "W"]);
    let running = Running::start(&scene.config(&back_after(10 * SOON), &format!("shutdown = \"1h\"\n{SMALL}")));
    scene.await_committed(0, 1);
    scene.produce(1, &["R", "A", "R"]);
    scene.await_committed(1, 3);
    scene.await_log(&["WARN", "The guest still holds", "holds-alarm[0]", "offset=1", "busy"]);
    // It waits for nothing at its end: whoever has the partition next goes on at the commit.
    drop(running);
    assert_eq!(scene.committed(0), Some(1));
    let running = Running::start(&scene.config("", SMALL));
    scene.await_committed(0, 2);
    assert_eq!(running.stop().tally.delivered, 1);
}
