//! The memory of a process is as its budget says, whatever waits: behind a slow guest, or for a topic that is away.

use std::time::Instant;

use crate::support::{Operated, Record, SOON, Scene, broker};

const PARTITIONS: i32 = 12;
/// Each partition has this many messages of 16 KiB: 96 MiB together.
const EACH: usize = 512;
const BUDGET: u64 = 64 << 20;

fn config(scene: &Scene<'_>, settings: &str, more: &str) -> String {
    format!("memory = \"64MiB\"\n{}", scene.config(settings, "settle = \"100ms\"\nshutdown = \"1s\"") + more)
}

/// Messages of one class, random behind their first byte.
fn fill(scene: &Scene<'_>, class: u8) {
    for partition in 0..PARTITIONS {
        let record = |_| {
            let mut payload = vec![0; 16 << 10];
            rand::RngCore::fill_bytes(&mut rand::rng(), &mut payload);
            payload[0] = class;
            Record { partition: Some(partition), payload: Some(payload), ..Record::default() }
        };
        scene.broker.produce(&scene.topic, &(0..EACH).map(record).collect::<Vec<_>>());
    }
}

/// The most that it had, without the memory of its guests, in a sentence that is printed and told if it is too much.
fn check(what: &str, operated: &Operated) {
    let guests = operated.metrics()["deadletter_guest_memory_bytes{pipeline=\"scene\"}"];
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bytes")]
    let without_guests = operated.process.peak_memory().saturating_sub(guests as u64);
    let figure = serde_json::json!({ "name": what, "budget": BUDGET, "peak": without_guests, "guests": guests });
    println!("figure: {figure}");
    assert!(without_guests <= BUDGET + BUDGET / 4, "{figure}");
}

#[test]
fn a_flood_before_a_slow_guest() {
    let scene = Scene::new(broker(), "budget-slow", PARTITIONS, &[]);
    fill(&scene, b'S');
    let operated = Operated::start(&config(&scene, "", ""));
    operated.await_metric("deadletter_full_lanes_total{pipeline=\"scene\"}", |count| count >= 12.0);
    for partition in 0..PARTITIONS {
        operated.eventually("each partition goes on", || scene.committed(partition).filter(|position| *position > 0));
    }
    check("slow guest", &operated);
}

/// How long the client takes a topic that is gone for one that is on its way.
const PATIENT: &str = r#"
    [kafka.producer]
    "topic.metadata.propagation.max.ms" = "60000"
    "topic.metadata.refresh.interval.ms" = "1000"
"#;

#[test]
fn dead_letters_that_wait_for_their_topic_at_once_and_late() {
    for (class, topic) in [(b'R', "budget-now"), (b'D', "budget-late")] {
        let scene = Scene::new(broker(), topic, PARTITIONS, &[]);
        let operated = Operated::start(&config(&scene, "", PATIENT));
        broker().delete_topic(&scene.dead_letters());
        fill(&scene, class);
        // All that there may be, in records of 16 KiB.
        let unacknowledged = "deadletter_unacknowledged_bytes{cluster=\"kafka\"}";
        operated.await_metric(unacknowledged, |bytes| bytes > 7e6);
        let mut last = (0.0, Instant::now());
        operated.eventually("nothing moves any more", || {
            let bytes = operated.metrics()[unacknowledged];
            if (bytes - last.0).abs() >= 1.0 {
                last = (bytes, Instant::now());
            }
            (last.1.elapsed() >= SOON / 30).then_some(())
        });
        check(topic, &operated);
        broker().create_topic(&scene.dead_letters(), PARTITIONS, &[]);
        for partition in 0..PARTITIONS {
            scene.await_committed(partition, i64::try_from(EACH).unwrap());
        }
        assert_eq!(scene.letters().len(), EACH * usize::try_from(PARTITIONS).unwrap());
        check(topic, &operated);
    }
}
