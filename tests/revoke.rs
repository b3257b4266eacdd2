//! A partition that goes to a second member, which begins where the first one has got to.

use std::{
    collections::BTreeMap,
    fs,
    sync::{
        Arc,
        mpsc::{self, RecvTimeoutError},
    },
    time::Instant,
};

use crate::support::guests::compiler;
use crate::support::{Running, SOON, Scene, broker, eventually};
use deadletter::{
    config::{Config, DEFAULT_CLUSTER},
    guest::{Guest, Setup},
    kafka::{
        Cluster,
        source::{Assigned, Delivery, Ending, InHand, Order},
    },
    lane::{Destinations, Instances, Lane, LaneBook, RecentQuota, Shared, TallyBook},
    message::{Batch, TopicPartition},
    offset::{NextOffset, Offset},
    record::Origin,
};

/// Nothing settles but when it is told that it is for the last time.
const LAST: &str = r#"settle = "last""#;

fn config(scene: &Scene<'_>, settings: &str, assignor: &str, producer: &str) -> String {
    let more = r#"
        batch = { messages = 4, wait = "5ms" }
        settle = "10m"
        shutdown = "5s"
    "#;
    let kafka = format!(
        r#"
        [kafka.consumer]
        "heartbeat.interval.ms" = "300"
        "partition.assignment.strategy" = "{assignor}"
        [kafka.producer]
        {producer}
        "#
    );
    scene.config(settings, more) + &kafka
}

/// Where the partition began that a second member was assigned: the last line that says so.
fn handed_over(scene: &Scene<'_>) -> (i32, i64) {
    let parsed = |line: &str| {
        let (_, assigned) = line.split_once(" Assigned partitions=")?;
        let (partition, start) = assigned.strip_prefix(&scene.topic)?.strip_prefix('[')?.split_once("]@")?;
        Some((partition.parse().ok()?, start.parse().ok()?))
    };
    // The first member is assigned both.
    let lines = eventually(SOON, "a partition is handed over", || {
        let lines = scene.lines(&[" Assigned partitions="]);
        (lines.iter().any(|line| line.contains("[0]@") != line.contains("[1]@"))).then_some(lines)
    });
    lines.iter().find_map(|line| parsed(line)).unwrap()
}

/// Eight messages in each partition, all deferred but the first and the last one.
fn deferring<'b>(topic: &str) -> Scene<'b> {
    let scene = Scene::new(broker(), topic, 2, &[]);
    for partition in 0..2 {
        scene.produce(partition, &["R", "D", "D", "D", "D", "D", "D", "R"]);
    }
    scene
}

/// Waits until the last message of a partition was judged so many times.
fn await_last(scene: &Scene<'_>, partition: i32, times: usize) {
    eventually(SOON, "the last message is judged", || {
        let rejected = scene.rejected(partition, "now");
        (rejected.iter().filter(|offset| **offset == 7).count() == times).then_some(())
    });
}

#[test]
fn what_is_deferred_is_settled_and_acknowledged_before_a_partition_goes() {
    let scene = deferring("handed-over");
    // Acknowledgements come late: whoever does not wait for them cannot commit.
    let config = config(&scene, LAST, "cooperative-sticky", r#""linger.ms" = "700""#);
    let first = Running::start(&config);
    for partition in 0..2 {
        await_last(&scene, partition, 1);
    }
    let second = Running::start(&config);
    let (partition, start) = handed_over(&scene);
    assert_eq!(start, 8, "the second member begins behind everything");
    assert_eq!(scene.rejected(partition, "late"), (1..7).collect::<Vec<_>>());
    assert_eq!(scene.rejected(1 - partition, "late"), [0; 0], "the other one stays open");
    let (first, second) = (first.stop().tally, second.stop().tally);
    assert_eq!((first.delivered, second.delivered), (16, 0));
    assert_eq!(scene.rejected(1 - partition, "late"), (1..7).collect::<Vec<_>>());
}

#[test]
fn a_guest_that_fails_while_its_partition_goes_loses_nothing() {
    for (index, (fail, kind)) in
        [("trap", "the guest trapped"), ("no luck", "the guest answered with an error")].iter().enumerate()
    {
        let scene = deferring(&format!("fails-and-goes-{index}"));
        let failing = format!(r#"fail = "{fail}", fail-settle-at = 1, {LAST}"#);
        let first = Running::start(&config(&scene, &failing, "cooperative-sticky", ""));
        for partition in 0..2 {
            await_last(&scene, partition, 1);
        }
        let second = Running::start(&config(&scene, LAST, "cooperative-sticky", ""));
        let (partition, start) = handed_over(&scene);
        assert_eq!(start, 1, "nothing is committed that was not settled");
        await_last(&scene, partition, 2);
        let second = second.stop().tally;
        assert_eq!(second.delivered, 7);
        assert_eq!(scene.rejected(partition, "late"), (1..7).collect::<Vec<_>>());
        assert_eq!(scene.committed(partition), Some(8));
        let failures = first.stop().tally.failures;
        assert!(failures.get(*kind).is_some_and(|count| *count >= 1), "{failures:?}");
    }
}

#[test]
fn a_paused_partition_is_read_again_when_it_comes_back() {
    let scene = Scene::new(broker(), "comes-back", 1, &[]);
    scene.produce(0, &[&["R", "A", "A", "A"][..], &["X"; 400]].concat());
    let first = Running::start(&config(&scene, r#"fail = "trap""#, "range", ""));
    scene.await_log(&["ERROR", "Paused"]);
    // A member of the same group that reads another topic: everybody gives up everything, and gets it back.
    let other = Scene::new(broker(), "comes-back-other", 1, &[]);
    let other_topic = config(&other, "", "range", "");
    let _second = Running::start(&other_topic.replace(r#"group = "comes-back-other""#, r#"group = "comes-back""#));
    eventually(SOON, "it fails again", || (scene.lines(&["ERROR", "Paused"]).len() == 2).then_some(()));
    let summary = first.stop();
    assert!(summary.source.pauses > 1, "{summary:?}");
    assert_eq!(scene.committed(0), Some(4));
}

/// What the lanes of a scene share, with a guest that fails at the class `X`.
async fn shared(scene: &Scene<'_>, fail: &str) -> Arc<Shared> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("deadletter.toml");
    fs::write(&file, scene.config(&format!(r#"fail = "{fail}", {LAST}"#), r#"settle = "10m""#)).unwrap();
    let config = Config::load(&file).unwrap();
    let cluster = Cluster::open(&config, DEFAULT_CLUSTER).unwrap();
    let pipeline = config.pipelines["scene"].clone();
    let guest = Guest::load(Setup::from(&pipeline), compiler()).await.unwrap();
    let origin = Origin { group: scene.topic.clone(), pipeline: "scene".to_owned(), guest: guest.digest().to_owned() };
    let routes = pipeline.routes.iter().map(|(name, route)| (name.clone(), (route.clone(), Some(1)))).collect();
    let outputs = BTreeMap::from([("copies".to_owned(), scene.copies())]);
    Arc::new(Shared {
        instances: Arc::new(Instances::new(guest, pipeline.guest.memory, 1)),
        destinations: Arc::new(Destinations { producer: cluster.producer().clone(), routes, outputs, origin }),
        shadow: cluster.shadow().clone(),
        recent: Arc::new(RecentQuota::new(0)),
        watermarks: None,
        tally: TallyBook::default(),
        lanes: LaneBook::default(),
        pipeline,
    })
}

fn delivery(source: &TopicPartition, first: i64, payloads: &[&str]) -> Delivery {
    let mut batch = Batch::new(source.clone());
    for (offset, payload) in (first..).zip(payloads) {
        batch.push(Offset::new(offset).unwrap(), None, None, None, Some(payload.as_bytes()), []);
    }
    Delivery { in_hand: InHand { batch: Arc::new(batch), share: None }, restarts: 0 }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lane_ends_at_once_when_its_guest_fails_while_its_partition_goes() {
    for fail in ["trap", "no luck"] {
        let scene = Scene::new(broker(), &format!("ends-{}", fail.len()), 1, &[]);
        let shared = shared(&scene, fail).await;
        let source = TopicPartition::new(scene.topic.as_str(), 0);
        let lane =
            Lane::spawn(&shared, Assigned { source: source.clone(), start: NextOffset::default(), topic_id: None });
        lane.batches.send(delivery(&source, 0, &["R", "D"])).await.unwrap();
        lane.batches.send(delivery(&source, 2, &["S", "S", "S", "S", "S", "X"])).await.unwrap();
        eventually(SOON, "the call that fails has begun", || (shared.tally.read().delivered == 8).then_some(()));
        // It is to end by itself, not at its deadline.
        let (done, ended) = mpsc::channel();
        assert!(lane.orders.send(Order::Revoke(Ending { by: Instant::now() + 60 * SOON, done })).is_ok());
        assert_eq!(ended.recv_timeout(SOON), Err(RecvTimeoutError::Disconnected), "the lane has ended");
        assert_eq!(lane.progress.committable().get(), 1);
        let tally = shared.tally.read();
        assert_eq!((tally.failures.values().sum::<u64>(), tally.redelivered), (1, 0), "{tally:?}");
    }
}
