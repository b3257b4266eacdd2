//! Routes by name, with the guest and the configuration of `examples/stale-messages`.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Output,
    time::{SystemTime, UNIX_EPOCH},
};

use crate::support::{Position, Record, Running, Scene, Stored, binary, broker, counts, guest, repository};

fn example(file: &str) -> PathBuf {
    repository().join("examples/stale-messages").join(file)
}

/// The example's configuration, for the broker of the tests and with a topic and a group of this name.
fn configuration(name: &str) -> String {
    let toml = fs::read_to_string(example("deadletter.toml")).unwrap();
    let toml = toml.replace("../../target/guests/stale.wasm", &guest("stale").display().to_string());
    let real = toml.replace("brokers = \"localhost:9092\"", &format!("brokers = \"{}\"", broker().servers));
    assert_ne!(real, toml);
    real.replace("\"orders", &format!("\"{name}"))
}

/// With a partition, and a timestamp that is so many minutes ago.
fn record(partition: i32, minutes: i64, payload: Option<&[u8]>) -> Record {
    let now = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap();
    let payload = payload.map(<[u8]>::to_vec);
    Record { partition: Some(partition), timestamp: Some(now - minutes * 60_000), payload, ..Record::default() }
}

/// One of them with all that a message may have.
fn stale() -> Vec<Record> {
    let headers = [("twice", Some(&b"1"[..])), ("null", None), ("twice", Some(b"\x00\xff")), ("", Some(b""))];
    let mut odd = record(0, 11, Some(b"\x00 not JSON \xff"));
    odd.key = Some(b"\xff".to_vec());
    odd.headers = headers.map(|(name, value)| (name.to_owned(), value.map(<[u8]>::to_vec))).into();
    let mut all = vec![odd, record(1, 11, None), record(0, 24 * 60, Some(b""))];
    // Many more than the five in a hundred that a route without a limit of its own takes.
    all.resize_with(200, || record(1, 60, Some(b"{}")));
    all
}

fn fresh_but_not_json() -> Vec<Record> {
    vec![record(0, 5, Some(b"{")), record(1, 0, Some(b"\xff")), record(1, 0, Some(b""))]
}

fn fresh() -> Vec<Record> {
    vec![record(0, 5, Some(b"{}")), record(1, 0, None), record(0, -5, Some(b"[1, 2]"))]
}

/// Produces them and keeps their positions.
fn produce(topic: &str, records: Vec<Record>) -> Vec<(Position, Record)> {
    let positions = broker().produce(topic, &records);
    positions.into_iter().zip(records).collect()
}

/// That the dead letters with a code are these messages, byte for byte, and name their route.
fn assert_are(letters: &[Stored], code: &str, route: &str, messages: &[(Position, Record)]) {
    let of_code: Vec<_> = letters.iter().filter(|letter| letter.header("deadletter.code") == Some(code)).collect();
    assert_eq!(of_code.len(), messages.len(), "{code}");
    for letter in of_code {
        let number = |name: &str| letter.header(name).unwrap().parse::<i64>().unwrap();
        let position = (i32::try_from(number("deadletter.partition")).unwrap(), number("deadletter.offset"));
        let (_, message) = messages.iter().find(|(at, _)| *at == position).expect("a dead letter of one of them");
        assert_eq!((&letter.key, &letter.payload), (&message.key, &message.payload), "{position:?}");
        let headers: Vec<_> =
            message.headers.iter().map(|(name, value)| (name.clone().into_bytes(), value.clone())).collect();
        assert_eq!(letter.headers[..headers.len()], headers, "{position:?}");
        assert_eq!(letter.headers.len(), headers.len() + 16, "{position:?}");
        assert_eq!(Some(number("deadletter.timestamp")), message.timestamp, "{position:?}");
        assert_eq!(letter.header("deadletter.route"), Some(route), "{position:?}");
        assert_eq!(letter.header("deadletter.payload-status"), Some("full"), "{position:?}");
        assert_eq!(letter.partition, position.0, "the partition of the route's topic");
    }
}

/// The messages of a test, by what becomes of them.
struct Produced {
    stale: Vec<(Position, Record)>,
    broken: Vec<(Position, Record)>,
    accepted: u64,
}

/// Makes the topic and produces to it; the topics of the routes are made by the pipeline.
fn scene(topic: &str) -> (Scene<'static>, Produced) {
    broker().create_topic(topic, 2, &[]);
    let produced = Produced {
        stale: produce(topic, stale()),
        broken: produce(topic, fresh_but_not_json()),
        accepted: produce(topic, fresh()).len() as u64,
    };
    (Scene { broker: broker(), topic: topic.to_owned() }, produced)
}

/// Runs until everything is committed.
fn run(scene: &Scene<'_>, toml: &str, produced: &Produced) {
    let running = Running::start(toml);
    for (partition, end) in broker().ends(&scene.topic) {
        scene.await_committed(partition, end);
    }
    let tally = running.stop().tally;
    let rejected = counts(&[("not-json", produced.broken.len() as u64), ("stale", produced.stale.len() as u64)]);
    assert_eq!((tally.accepted, tally.rejected, tally.stubs), (produced.accepted, rejected, counts(&[])));
}

#[test]
fn what_is_rejected_goes_to_the_route_that_the_guest_names() {
    let (scene, produced) = scene("orders");
    run(&scene, &configuration("orders"), &produced);
    let (letters, backlog) = (scene.letters(), broker().read("orders.backlog"));
    assert_eq!((letters.len(), backlog.len()), (produced.broken.len(), produced.stale.len()));
    assert_are(&letters, "not-json", "dead-letter", &produced.broken);
    assert_are(&backlog, "stale", "backlog", &produced.stale);
    let reason = backlog[0].header("deadletter.reason").unwrap();
    assert!(reason.starts_with("it is ") && reason.ends_with("s old, more than max-age, which is 600s"), "{reason}");
}

#[test]
fn a_route_that_is_not_configured_is_the_dead_letter_route() {
    let (scene, produced) = scene("unrouted");
    let toml = configuration("unrouted");
    let (without_backlog, backlog) = toml.split_once("[pipelines.orders.routes.backlog]").unwrap();
    assert!(backlog.contains("limit = \"off\""));
    run(&scene, &format!("{without_backlog}\n[pipelines.orders.routes.dead-letter.limit]\nratio = 1.0"), &produced);
    let letters = scene.letters();
    assert_eq!(letters.len(), produced.broken.len() + produced.stale.len());
    assert_are(&letters, "not-json", "dead-letter", &produced.broken);
    assert_are(&letters, "stale", "dead-letter", &produced.stale);
    assert!(!broker().has_topic("unrouted.backlog"));
}

/// `deadletter test` of the example's guest.
fn test(arguments: &[&str]) -> Output {
    let mut command = binary(["test"]);
    command.arg(guest("stale")).args(arguments).arg("--input").arg("json").arg(example("sample.jsonl"));
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache");
    command.env_remove("RUST_LOG").env("DEADLETTER_CACHE", cache).output().unwrap()
}

#[test]
fn the_sample_is_judged_as_expected() {
    let expected = example("expected.txt");
    let output = test(&["--settings", "max-age=10m", "--expect", expected.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{said}{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_setting_that_is_wrong_is_refused_before_the_start() {
    for (settings, sentence) in [
        (&["--settings", "max-age=soon"][..], "`max-age` is \"soon\" (allowed: a whole number above 0 with a unit"),
        (&["--settings", "maxage=10m"], "there is no setting `maxage` (allowed: `max-age`)"),
        (&[], "the setting `max-age` is missing"),
    ] {
        let output = test(settings);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(64), "{said}");
        assert!(said.contains(sentence), "{said}");
    }
}
