//! The earthquakes example: exact counts and identical bytes, on both brokers, for the real data and for broken copies.

use std::{collections::BTreeMap, fs, ops::RangeInclusive, path::Path, process::Command};

use crate::support::{Broker, broker, guest, repository};
use rand::{Rng, SeedableRng, rngs::StdRng};
use serde_json::{Map, Value};
use tempfile::TempDir;

const FOLDER: &str = "examples/earthquakes";
const ROUNDS: u64 = 5;

/// The example's configuration, with its one line changed for a real broker.
fn configuration(broker: Option<&Broker>) -> String {
    let embedded = fs::read_to_string(repository().join(FOLDER).join("earthquakes.toml")).unwrap();
    let module = guest("earthquakes").display().to_string();
    let toml = embedded.replace("../../target/guests/earthquakes.wasm", &module);
    let Some(broker) = broker else { return toml };
    let real = toml.replace("brokers = \"embedded\"", &format!("brokers = \"{}\"", broker.servers));
    assert_ne!(real, toml);
    real
}

/// Runs the example and returns its document.
fn run(toml: &str, events: &Path) -> Value {
    let folder = TempDir::new().unwrap();
    let config = folder.path().join("earthquakes.toml");
    fs::write(&config, toml).unwrap();
    let example = std::env::current_exe().unwrap().ancestors().nth(2).unwrap().join("examples/earthquakes");
    assert!(example.exists(), "the example is not built: run `cargo xtask test`");
    let output = Command::new(example).arg(&config).arg("--events").arg(events).arg("--json").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// `reread` of the unreviewed ones came from the log.
fn assert_outcome(report: &Value, produced: usize, codes: &BTreeMap<String, u64>, reread: RangeInclusive<u64>) {
    let dead_letters: u64 = codes.values().sum();
    let unreviewed = codes.get("unreviewed").copied().unwrap_or_default();
    assert_eq!(report["produced"], produced, "{report:#}");
    assert_eq!(report["accepted"], produced as u64 - dead_letters, "{report:#}");
    assert_eq!(report["deferred"], unreviewed, "{report:#}");
    assert_eq!(report["rejected"], serde_json::to_value(codes).unwrap(), "{report:#}");
    assert_eq!(report["dead-letters"]["by-code"], serde_json::to_value(codes).unwrap(), "{report:#}");
    assert_eq!(report["dead-letters"]["identical"], dead_letters, "{report:#}");
    assert!(reread.contains(&report["shadow-reads"]["found"].as_u64().unwrap()), "{report:#}");
    for position in report["positions"].as_array().unwrap() {
        assert_eq!(position["committed"].as_i64().unwrap_or(0), position["end"], "{report:#}");
    }
}

const UNREVIEWED: u64 = 269;

fn assert_real_data(toml: &str, reread: RangeInclusive<u64>) {
    let report = run(toml, &repository().join(FOLDER).join("earthquakes.jsonl"));
    let codes = [("not-an-earthquake", 28), ("no-location-quality", 465), ("unreviewed", UNREVIEWED)];
    assert_outcome(&report, 1_707, &codes.map(|(code, count)| (code.to_owned(), count)).into(), reread);
}

#[test]
fn a_week_of_earthquakes_is_judged_on_the_embedded_broker() {
    assert_real_data(&configuration(None), UNREVIEWED..=UNREVIEWED);
}

#[test]
fn a_week_of_earthquakes_is_judged_on_a_real_broker() {
    assert_real_data(&configuration(Some(broker())), UNREVIEWED..=UNREVIEWED);
}

/// On the same broker, with topics of its own.
fn with_recent(size: &str) -> String {
    let real = configuration(Some(broker())).replace("settle = ", "batch = { messages = 50 }\nsettle = ");
    real.replace("settle = ", &format!("recent = \"{size}\"\nsettle = "))
        .replace("topics = [\"earthquakes\"]", &format!("topics = [\"earthquakes-{size}\"]"))
        .replace("group = \"earthquakes\"", &format!("group = \"earthquakes-{size}\""))
        .replace("topic = \"earthquakes.dlq\"", &format!("topic = \"earthquakes-{size}.dlq\""))
}

#[test]
fn with_all_payloads_kept_nothing_is_read_again() {
    assert_real_data(&with_recent("64MiB"), 0..=0);
}

#[test]
fn payloads_that_were_kept_and_lost_are_read_again() {
    assert_real_data(&with_recent("512KiB"), 1..=UNREVIEWED - 1);
}

#[test]
fn broken_copies_of_the_data_are_judged_as_counted_independently() {
    let week = fs::read_to_string(repository().join(FOLDER).join("earthquakes.jsonl")).unwrap();
    let folder = TempDir::new().unwrap();
    for seed in 0..ROUNDS {
        let mut random = StdRng::seed_from_u64(seed);
        let events: Vec<_> = week.lines().map(|event| broken(event, &mut random)).collect();
        let mut codes = BTreeMap::new();
        for code in events.iter().filter_map(|event| code(event)) {
            *codes.entry(code.to_owned()).or_default() += 1;
        }
        assert_eq!(codes.len(), 4, "seed {seed} breaks the data in too few ways");
        let file = folder.path().join(format!("{seed}.jsonl"));
        fs::write(&file, events.join("\n")).unwrap();
        println!("seed {seed}");
        let unreviewed = codes.get("unreviewed").copied().unwrap_or_default();
        assert_outcome(&run(&configuration(None), &file), events.len(), &codes, unreviewed..=unreviewed);
    }
}

/// An event with, mostly, something about it changed.
fn broken(event: &str, random: &mut StdRng) -> String {
    let mut json: Value = serde_json::from_str(event).unwrap();
    let properties: &mut Map<String, Value> = json["properties"].as_object_mut().unwrap();
    let name = ["type", "nst", "dmin", "gap", "status", "mag"][random.random_range(0..6)];
    match random.random_range(0..8) {
        0 => return event[..event.len() / 2].to_owned(),
        1 => _ = properties.remove(name),
        2 => _ = properties.insert(name.to_owned(), Value::Null),
        3 => _ = properties.insert(name.to_owned(), "ice quake".into()),
        4 => _ = properties.insert("status".to_owned(), "automatic".into()),
        5 => properties.clear(),
        6 => json["properties"] = json["geometry"].take(),
        _ => return event.to_owned(),
    }
    json.to_string()
}

/// The rule of the example once more, in other terms: by the text of a field rather than by its path.
fn code(event: &str) -> Option<&'static str> {
    let Ok(Value::Object(mut event)) = serde_json::from_str(event) else { return Some("bad-json") };
    let properties =
        event.remove("properties").and_then(|properties| properties.as_object().cloned()).unwrap_or_default();
    let text = |name: &str| properties.get(name).map_or_else(|| "null".to_owned(), Value::to_string);
    if text("type") != "\"earthquake\"" {
        return Some("not-an-earthquake");
    }
    if [text("nst"), text("dmin"), text("gap")].iter().any(|text| text == "null") {
        return Some("no-location-quality");
    }
    (text("status") == "\"automatic\"").then_some("unreviewed")
}
