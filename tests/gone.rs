//! Messages whose payload is not to be had any more when they are rejected.

use crate::support::{Record, Running, SOON, Scene, broker, counts, eventually};

/// The guest settles everything as soon as eight offsets are open: that is when the test wants it to.
const EIGHT: &str = r#"
    batch = { messages = 4, wait = "5ms" }
    open = { messages = 8, grace = "1h" }
"#;
const SETTLE: &str = r#"settle = "pressure""#;

/// Four deferred messages, and waits until they are.
fn defer(scene: &Scene<'_>, config: &str) -> Running {
    scene.produce(0, &["D0", "D1", "D2", "D3", "R4"]);
    deferred(scene, config)
}

fn deferred(scene: &Scene<'_>, config: &str) -> Running {
    let running = Running::start(config);
    eventually(SOON, "the messages before the rejected one are judged", || scene.letters().pop());
    running
}

/// Four more, which make the guest settle all.
fn settle(scene: &Scene<'_>) {
    scene.produce(0, &["D5", "D6", "D7", "D8"]);
    scene.await_committed(0, 9);
}

/// Source offset, status and payload of each late dead letter, by offset.
fn late(scene: &Scene<'_>) -> Vec<(i64, String, Option<String>)> {
    let mut late: Vec<_> = scene
        .letters()
        .into_iter()
        .filter(|letter| letter.header("deadletter.code") == Some("late"))
        .map(|letter| {
            let payload = letter.payload.as_ref().map(|payload| String::from_utf8(payload.clone()).unwrap());
            let offset = letter.header("deadletter.offset").unwrap().parse().unwrap();
            (offset, letter.header("deadletter.payload-status").unwrap().to_owned(), payload)
        })
        .collect();
    late.sort();
    late
}

fn full(offset: i64) -> (i64, String, Option<String>) {
    (offset, "full".to_owned(), Some(format!("D{offset}")))
}

fn stub(offset: i64, status: &str) -> (i64, String, Option<String>) {
    (offset, status.to_owned(), None)
}

#[test]
fn an_expired_message_becomes_a_stub() {
    let scene = Scene::new(broker(), "gone-expired", 1, &[]);
    let running = defer(&scene, &scene.config(SETTLE, EIGHT));
    scene.broker.delete_records(&scene.topic, 0, 3);
    settle(&scene);
    let expected =
        [stub(0, "expired"), stub(1, "expired"), stub(2, "expired"), full(3), full(5), full(6), full(7), full(8)];
    assert_eq!(late(&scene), expected);
    assert_eq!(running.stop().tally.stubs, counts(&[("expired", 3)]));
    assert_eq!(scene.lines(&["ERROR", "The payload of a message is gone", "status=\"expired\""]).len(), 3);
    let letter = scene.letters().into_iter().find(|letter| letter.header("deadletter.offset") == Some("1")).unwrap();
    let headers: Vec<_> = letter.headers.iter().map(|(name, _)| String::from_utf8_lossy(name).into_owned()).collect();
    let known = "version topic partition offset group pipeline route code reason attempts guest failed-at replays payload-status";
    assert_eq!(headers, known.split(' ').map(|name| format!("deadletter.{name}")).collect::<Vec<_>>());
    assert_eq!((letter.key, letter.payload), (None, None));
}

#[test]
fn an_expired_message_is_accepted_where_that_is_asked_for() {
    let scene = Scene::new(broker(), "gone-accepted", 1, &[]);
    let running = defer(&scene, &scene.config(SETTLE, &format!("on-gone = \"accept\"\n{EIGHT}")));
    scene.broker.delete_records(&scene.topic, 0, 3);
    settle(&scene);
    assert_eq!(late(&scene), [full(3), full(5), full(6), full(7), full(8)]);
    let tally = running.stop().tally;
    assert_eq!((tally.stubs, tally.gone), (counts(&[]), 3));
}

#[test]
fn a_message_that_was_compacted_away_becomes_a_stub() {
    let compacting = [
        ("cleanup.policy", "compact"),
        ("segment.ms", "100"),
        ("min.cleanable.dirty.ratio", "0.01"),
        ("min.compaction.lag.ms", "0"),
        ("max.compaction.lag.ms", "100"),
    ];
    let scene = Scene::new(broker(), "gone-compacted", 1, &compacting);
    let produce = |key: &str, payload: &str| {
        scene.broker.produce(&scene.topic, &[Record::new(key, payload)]);
    };
    for offset in 0..4 {
        produce(&format!("key-{offset}"), &format!("D{offset}"));
    }
    produce("other", "R4");
    let running = deferred(&scene, &scene.config(SETTLE, EIGHT));
    produce("key-0", "A");
    produce("key-1", "A");
    // A segment that is written to is not compacted: each record of its own time begins a new one.
    let mut produced = 7;
    eventually(SOON, "the log is compacted", || {
        produce("filler", "A");
        produced += 1;
        let offsets: Vec<_> = scene.broker.read(&scene.topic).iter().map(|record| record.offset).collect();
        (!offsets.contains(&0) && !offsets.contains(&1)).then_some(())
    });
    for number in 0..4 {
        produce(&format!("more-{number}"), "D");
    }
    scene.await_committed(0, produced + 4);
    assert_eq!(late(&scene)[..4], [stub(0, "gone"), stub(1, "gone"), full(2), full(3)]);
    assert_eq!(running.stop().tally.stubs, counts(&[("gone", 2)]));
}

#[test]
fn messages_of_open_and_aborted_transactions_are_read_again_as_they_were_delivered() {
    for end in ["open", "aborted"] {
        let scene = Scene::new(broker(), &format!("transaction-{end}"), 1, &[]);
        let record = |payload: &str| Record { partition: Some(0), ..Record::new("key", payload) };
        let begin = scene.broker.begin(&scene.topic, &["D0", "D1", "D2", "D3", "R4"].map(record));
        let uncommitted = "[kafka.consumer]\n\"isolation.level\" = \"read_uncommitted\"\n[pipelines.scene]";
        let config = scene.config(SETTLE, EIGHT).replace("[pipelines.scene]", uncommitted);
        let running = deferred(&scene, &config);
        let mut transaction = Some(begin);
        if end == "aborted" {
            transaction.take().unwrap().abort();
        }
        scene.produce(0, &["D", "D", "D", "D"]);
        eventually(SOON, "all have their dead letters", || (late(&scene).len() == 8).then_some(()));
        assert_eq!(late(&scene)[..4], [full(0), full(1), full(2), full(3)], "{end}");
        assert_eq!(running.stop().tally.stubs, counts(&[]), "{end}");
    }
}

#[test]
fn a_message_of_a_topic_that_was_made_anew_becomes_a_stub() {
    let scene = Scene::new(broker(), "gone-replaced", 1, &[]);
    let running = defer(&scene, &scene.config(r#"settle = "last""#, EIGHT));
    scene.broker.delete_topic(&scene.topic);
    scene.broker.create_topic(&scene.topic, 1, &[]);
    scene.produce(0, &["A"; 9]);
    let stubs = running.stop().tally.stubs;
    assert_eq!(stubs, counts(&[("replaced", 4)]));
    assert_eq!(late(&scene), [0, 1, 2, 3].map(|offset| stub(offset, "replaced")));
}

#[test]
fn a_message_too_large_for_its_route_goes_with_fewer_headers_and_then_becomes_a_stub() {
    for (class, code) in [("R", "now"), ("D", "late")] {
        let scene = Scene { broker: broker(), topic: format!("too-large-{code}") };
        broker().create_topic(&scene.topic, 1, &[]);
        broker().create_topic(&scene.copies(), 1, &[]);
        broker().create_topic(&scene.dead_letters(), 1, &[("max.message.bytes", "4000")]);
        // Our headers take about 1,000 bytes, or 350.
        let payload = |size| Some("x".repeat(size).into_bytes());
        let headers = vec![("trace".to_owned(), Some(b"1".to_vec())), ("trace".to_owned(), None)];
        let key = Some(b"key".to_vec());
        let sizes = [0, 2500, 3500, 3800, 8000, 0];
        let records = sizes.map(|size| Record {
            key: key.clone(),
            payload: payload(size),
            headers: headers.clone(),
            ..Record::default()
        });
        broker().produce(&scene.topic, &records);
        let dialects = r#"routes.dead-letter.dialects = ["deadletter", "connect"]"#;
        let running =
            Running::start(&scene.config(&format!(r#"class = "{class}""#), &format!("settle = \"50ms\"\n{dialects}")));
        scene.await_committed(0, 6);
        assert_eq!(running.stop().tally.stubs, counts(&[("too-large", 2)]), "{code}");

        let mut letters = scene.letters();
        letters.sort_by_key(|letter| letter.header("deadletter.offset").unwrap().to_owned());
        let got: Vec<_> = letters
            .iter()
            .map(|letter| {
                let size = letter.payload.as_ref().map(Vec::len);
                (letter.header("deadletter.payload-status").unwrap(), size, letter.headers.len())
            })
            .collect();
        let (all, few, stub) = (2 + 16 + 9, 2 + 10, 16 - 2 + 9);
        let expected = [
            ("full", Some(0), all),
            ("full", Some(2500), all),
            ("full", Some(3500), few),
            ("too-large", None, stub),
            ("too-large", None, stub),
            ("full", Some(0), all),
        ];
        assert_eq!(got, expected, "{code}");
        let lean = &letters[2];
        assert_eq!((&lean.key, &lean.payload), (&key, &payload(3500)), "{code}");
        let names: Vec<_> = lean.headers.iter().map(|(name, _)| String::from_utf8_lossy(name).into_owned()).collect();
        let known = "version topic partition offset timestamp timestamp-type route code replays payload-status";
        let ours: Vec<_> = known.split(' ').map(|name| format!("deadletter.{name}")).collect();
        assert_eq!(names, [vec!["trace".to_owned(); 2], ours].concat(), "{code}");
        assert_eq!(lean.header("deadletter.code"), Some(code));
        assert_eq!(scene.lines(&["WARN", "does not take a record of this size"]).len(), 3, "each once: {code}");
        assert_eq!(scene.lines(&["ERROR", "a stub goes in its place"]).len(), 2, "{code}");
    }
}

#[test]
fn a_route_that_takes_not_even_a_stub_pauses_the_partition() {
    let scene = Scene { broker: broker(), topic: "too-small".to_owned() };
    broker().create_topic(&scene.topic, 1, &[]);
    broker().create_topic(&scene.copies(), 1, &[]);
    broker().create_topic(&scene.dead_letters(), 1, &[("max.message.bytes", "200")]);
    scene.produce(0, &["A", "R", "A"]);
    let running = Running::start(&scene.config("", "shutdown = \"1s\""));
    scene.await_log(&["ERROR", "Paused", "does not even take offset 1"]);
    assert_eq!(running.stop().tally.stubs, counts(&[("too-large", 1)]));
    assert_eq!(scene.committed(0), Some(1));
}

#[test]
fn a_warning_comes_when_retention_comes_close_to_open_messages() {
    let scene = Scene::new(broker(), "head-room", 1, &[]);
    scene.produce(0, &["A"; 100]);
    let running = defer(&scene, &scene.config(r#"settle = "never""#, ""));
    scene.await_committed(0, 100);
    scene.broker.delete_records(&scene.topic, 0, 60);
    scene.await_log(&["WARN", "Retention comes close", "committable=100"]);
    drop(running);
}
