//! Dead letters to the last byte, from the batch in hand and read again.

use crate::support::{Running, SOON, Scene, Stored, broker, kafka};
use deadletter::{
    kafka::Producer,
    record::{Record, RecordHeader},
};

type Header = (&'static [u8], Option<&'static [u8]>);

struct Message {
    key: Option<&'static [u8]>,
    payload: Option<&'static [u8]>,
    headers: &'static [Header],
    /// The headers as lines.
    shown: &'static [&'static str],
}

const MESSAGES: &[Message] = &[
    Message { key: Some(b"key"), payload: Some(b"payload"), headers: &[], shown: &[] },
    Message { key: None, payload: Some(b"no key"), headers: &[(b"one", Some(b"1"))], shown: &["one=1"] },
    Message { key: Some(b"tombstone"), payload: None, headers: &[], shown: &[] },
    Message { key: Some(b""), payload: Some(b""), headers: &[(b"empty", Some(b""))], shown: &["empty="] },
    Message {
        key: Some(b"\x00\xff\xfe"),
        payload: Some(b"\xf0\x28\x8c\x28\x00"),
        headers: &[
            (b"twice", Some(b"1")),
            (b"null", None),
            (b"twice", Some(b"2")),
            (b"binary", Some(b"\x00\xff\x00")),
            (b"\xff\xfe\x80", Some(b"not UTF-8")),
            (b"", Some(b"no name")),
            (b"twice", Some(b"1")),
            (b"deadletter.version", Some(b"not ours")),
        ],
        shown: &[
            "twice=1",
            "null",
            "twice=2",
            r"binary=\x00\xff\x00",
            r"\xff\xfe\x80=not UTF-8",
            "=no name",
            "twice=1",
            "deadletter.version=not ours",
        ],
    },
];

const ALL: &str = r#"
    settle = "50ms"
    routes.dead-letter.dialects = ["spring", "connect", "deadletter"]
"#;

/// Through our own producer: no other here writes names that are not UTF-8.
fn produce(topic: &str) {
    let kafka = kafka(&broker().servers);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let producer = Producer::new(&kafka, &broker().servers);
        for message in MESSAGES {
            let header = |(name, value): &Header| RecordHeader { name: (*name).into(), value: value.map(Into::into) };
            let record = Record {
                topic: topic.into(),
                partition: Some(1),
                timestamp: Some(1_600_000_000_123),
                key: message.key.map(Into::into),
                payload: message.payload.map(Into::into),
                headers: message.headers.iter().map(header).collect(),
            };
            producer.send(&record, |result| result.unwrap()).await;
        }
        assert!(producer.flush(SOON).await);
    });
}

/// The headers as lines, without the values that differ from run to run.
fn lines(letter: &Stored) -> Vec<String> {
    let line = |(name, value): &(Vec<u8>, Option<Vec<u8>>)| {
        let name = name.escape_ascii().to_string();
        let varies = matches!(name.as_str(), "deadletter.failed-at" | "deadletter.guest");
        match value.as_ref().filter(|_| !varies) {
            Some(value) => format!("{name}={}", value.escape_ascii()),
            None => name,
        }
    };
    letter.headers.iter().map(line).collect()
}

fn block(topic: &str, offset: usize, code: &str) -> Vec<String> {
    // Spring writes eight bytes; all of our offsets fit into the last.
    let timestamp = 1_600_000_000_123_i64.to_be_bytes();
    format!(
        "deadletter.version=1|deadletter.topic={topic}|deadletter.partition=1|deadletter.offset={offset}|\
         deadletter.timestamp=1600000000123|deadletter.timestamp-type=CreateTime|deadletter.group={topic}|\
         deadletter.pipeline=scene|deadletter.route=dead-letter|deadletter.code={code}|\
         deadletter.reason=as its class says|deadletter.attempts=1|deadletter.guest|deadletter.failed-at|\
         deadletter.replays=0|deadletter.payload-status=full|\
         __connect.errors.topic={topic}|__connect.errors.partition=1|__connect.errors.offset={offset}|\
         __connect.errors.connector.name=scene|__connect.errors.task.id=1|__connect.errors.stage=dead-letter|\
         __connect.errors.class.name={code}|__connect.errors.exception.class.name={code}|\
         __connect.errors.exception.message=as its class says|\
         kafka_dlt-exception-fqcn={code}|kafka_dlt-exception-cause-fqcn={code}|\
         kafka_dlt-exception-message=as its class says|kafka_dlt-original-topic={topic}|\
         kafka_dlt-original-partition=\\x00\\x00\\x00\\x01|\
         kafka_dlt-original-offset=\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x{offset:02x}|\
         kafka_dlt-original-timestamp={}|kafka_dlt-original-timestamp-type=CreateTime|\
         kafka_dlt-original-consumer-group={topic}",
        timestamp.escape_ascii()
    )
    .split('|')
    .map(str::to_owned)
    .collect()
}

fn judged(scene: &Scene<'_>, class: &str, more: &str) -> Vec<Stored> {
    let running = Running::start(&scene.config(&format!(r#"class = "{class}""#), more));
    scene.await_committed(1, i64::try_from(MESSAGES.len()).unwrap());
    drop(running);
    scene.letters()
}

#[test]
fn a_dead_letter_is_its_message_and_our_headers() {
    for (class, code) in [("R", "now"), ("D", "late")] {
        let scene = Scene::new(broker(), &format!("golden-{code}"), 3, &[]);
        produce(&scene.topic);
        let letters = judged(&scene, class, ALL);
        assert_eq!(letters.len(), MESSAGES.len());
        for (offset, (message, letter)) in MESSAGES.iter().zip(&letters).enumerate() {
            assert_eq!(letter.partition, 1, "{code} {offset}");
            assert_eq!(letter.key.as_deref(), message.key, "{code} {offset}");
            assert_eq!(letter.payload.as_deref(), message.payload, "{code} {offset}");
            let originals = message.shown.iter().map(|line| (*line).to_owned());
            let expected: Vec<_> = originals.chain(block(&scene.topic, offset, code)).collect();
            assert_eq!(lines(letter), expected, "{code} {offset}");
        }
    }
}

#[test]
fn a_dead_letter_of_a_dead_letter_keeps_the_first_block() {
    let first = Scene::new(broker(), "golden-first", 3, &[]);
    produce(&first.topic);
    let original = r#"routes.dead-letter.timestamp = "original""#;
    let letters = judged(&first, "R", &format!("{ALL}\n{original}"));
    let second = Scene { broker: broker(), topic: first.dead_letters() };
    broker().create_topic(&second.dead_letters(), 3, &[]);
    broker().create_topic(&second.copies(), 3, &[]);
    let again = judged(&second, "D", ALL);
    assert_eq!(again.len(), letters.len());
    for (offset, (letter, again)) in letters.iter().zip(&again).enumerate() {
        assert_eq!(letter.timestamp, Some(1_600_000_000_123), "{offset}");
        assert_eq!((&again.key, &again.payload), (&letter.key, &letter.payload), "{offset}");
        assert_eq!(again.headers[..letter.headers.len()], letter.headers, "{offset}");
        assert_eq!(lines(again)[letter.headers.len()..], block(&second.topic, offset, "late"), "{offset}");
    }
}

#[test]
fn a_dead_letter_may_be_keyed_by_its_coordinates() {
    let scene = Scene::new(broker(), "golden-keyed", 3, &[]);
    produce(&scene.topic);
    let letters = judged(&scene, "R", r#"routes.dead-letter.key = "coordinates""#);
    let keys: Vec<_> = letters.iter().map(|letter| String::from_utf8(letter.key.clone().unwrap()).unwrap()).collect();
    assert_eq!(keys, (0..MESSAGES.len()).map(|offset| format!("golden-keyed/1/{offset}")).collect::<Vec<_>>());
    assert!(letters.iter().all(|letter| letter.headers.iter().all(|(name, _)| !name.starts_with(b"__connect"))));
}
