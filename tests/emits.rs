//! Records that a guest emits: none without its answer, and no commit without them.

use std::collections::BTreeSet;

use crate::support::{Running, Scene, broker, counts};

fn copies(scene: &Scene<'_>) -> BTreeSet<String> {
    let records = scene.broker.read(&scene.copies());
    records.into_iter().map(|record| String::from_utf8(record.payload.unwrap()).unwrap()).collect()
}

#[test]
fn what_a_call_emits_is_in_its_topic_before_the_commit() {
    let scene = Scene::new(broker(), "emits", 1, &[]);
    scene.produce(0, &["E0", "A", "E2", "R", "E4"]);
    let running = Running::start(&scene.config("", ""));
    scene.await_committed(0, 5);
    assert_eq!(copies(&scene), ["E0", "E2", "E4"].map(str::to_owned).into());
    assert_eq!(running.stop().tally.emitted, 3);
}

#[test]
fn what_a_call_emits_is_dropped_when_it_fails() {
    for how in ["trap", "no luck", "contract"] {
        let scene = Scene::new(broker(), &format!("emits-nothing-{}", how.replace(' ', "-")), 1, &[]);
        scene.produce(0, &["E", "E"]);
        let running = Running::start(&scene.config(&format!(r#"fail = "{how}", fail-at = 1"#), ""));
        scene.await_log(&["ERROR", "Paused", "the fault is the guest's"]);
        assert_eq!(running.stop().tally.emitted, 0);
        assert!(copies(&scene).is_empty(), "{how}");
    }
}

#[test]
fn an_output_that_is_not_configured_is_an_error_for_the_guest() {
    let scene = Scene::new(broker(), "emits-elsewhere", 1, &[]);
    scene.produce(0, &["E", "E"]);
    let running = Running::start(&scene.config(r#"output = "elsewhere""#, ""));
    scene.await_log(&["ERROR", "Paused", "there is no output `elsewhere`"]);
    // The batch twice, and each message twice.
    assert_eq!(running.stop().tally.failures, counts(&[("the guest answered with an error", 6)]));
}

#[test]
fn the_commit_waits_for_an_output_whose_topic_is_away() {
    let scene = Scene::new(broker(), "emits-later", 1, &[]);
    scene.produce(0, &["A"]);
    let impatient = "[kafka.producer]\n\"delivery.timeout.ms\" = \"3000\"\n\"topic.metadata.propagation.max.ms\" = \"500\"\n[pipelines.scene]";
    let running = Running::start(&scene.config("", "").replace("[pipelines.scene]", impatient));
    scene.await_committed(0, 1);
    scene.broker.delete_topic(&scene.copies());
    scene.produce(0, &["E1", "A"]);
    scene.await_log(&["ERROR", "A record was not delivered", "committable=1"]);
    assert_eq!(scene.committed(0), Some(1));
    scene.broker.create_topic(&scene.copies(), 1, &[]);
    scene.await_committed(0, 3);
    assert_eq!(copies(&scene), ["E1".to_owned()].into());
    assert_eq!(running.stop().tally.emitted, 1);
}
