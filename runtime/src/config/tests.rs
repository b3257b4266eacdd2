use std::{ffi::OsString, path::Path, time::Duration};

use proptest::prelude::*;

use super::load::parse;
use super::*;
use crate::kafka::client;

const GOOD: &str = include_str!("../../../tests/config/good.toml");
const MINIMAL: &str = include_str!("../../../tests/config/minimal.toml");
const SECRET: &str = "hunter2-7f3a";

fn secrets(name: &str) -> Option<OsString> {
    (name == "SECRET").then(|| SECRET.into())
}

fn parse_text(text: &str) -> Result<Config, String> {
    parse(Path::new("dir/a.toml"), text, &secrets).map_err(|error| error.to_string())
}

#[test]
fn every_key_arrives_where_it_belongs() {
    let config = parse_text(GOOD).unwrap();
    assert_eq!(config.memory, Some(256 << 20));
    assert!(config.pipelines.values().all(|pipeline| pipeline.prefetch > 16 << 20));
    assert_eq!(
        config.clusters[DEFAULT_CLUSTER].brokers,
        Brokers::Servers("one:9092,[::1]:9093,SSL://three".to_owned())
    );
    assert_eq!(config.clusters[DEFAULT_CLUSTER].common.0["sasl.username"], "${deadletter}");
    assert_eq!(config.clusters[DEFAULT_CLUSTER].consumer.0["session.timeout.ms"], "30000");
    assert_eq!(config.clusters[DEFAULT_CLUSTER].consumer.0["check.crcs"], "true");
    assert_eq!(config.clusters[DEFAULT_CLUSTER].producer.0["compression.type"], "zstd");
    let shadow = &config.clusters[DEFAULT_CLUSTER].shadow;
    assert_eq!((shadow.readers, shadow.deadline, &*shadow.group_id), (3, Duration::from_secs(90), "shadow"));
    assert_eq!(shadow.seek_threshold, SeekThreshold::Offsets(400));

    let letters = &config.clusters["letters"];
    assert_eq!((&letters.brokers, letters.shadow.readers), (&Brokers::Servers("four:9092".to_owned()), 1));
    assert_eq!(letters.common.0["sasl.username"], "letters");

    let admin = config.admin.as_ref().unwrap();
    assert_eq!(admin.listen.to_string(), "[::1]:9464");
    let token = admin.token.as_ref().unwrap();
    assert!(token.is("0123456789abcdef-${not-a-variable}") && !token.is("0123456789abcdef"));

    let orders = &config.pipelines["orders"];
    assert_eq!((&*orders.name, &*orders.group, orders.start), ("orders", "orders-1", Start::Earliest));
    assert_eq!(orders.topics, ["orders", "returns"]);
    assert_eq!((orders.batch.messages, orders.batch.bytes, orders.batch.wait), (500, 512 << 10, Duration::ZERO));
    assert_eq!((orders.commit, orders.settle), (Duration::from_millis(500), Duration::from_millis(250)));
    assert_eq!((orders.instances, orders.in_hand, orders.shutdown), (7, 8 << 20, Duration::from_secs(5)));
    let open = &orders.open;
    assert_eq!((open.messages, open.age, open.grace), (50_000, Duration::from_hours(1), Duration::ZERO));
    assert_eq!((open.then, orders.on_gone), (OpenThen::Pause, OnGone::Accept));
    assert_eq!((orders.retry.attempts, orders.recent), (9, 4 << 20));
    assert_eq!(orders.on_out_of_range, OnOutOfRange::Latest);
    assert_eq!(orders.guest.module, Path::new("dir/guest.wasm"));
    assert_eq!((orders.guest.memory, orders.guest.deadline), (32 << 20, Duration::from_secs(2)));
    let settings: Vec<_> = orders.guest.settings.iter().map(|(name, value)| (&**name, &**value)).collect();
    let table = r#"{"y":"x","b":0}"#;
    assert_eq!(settings, [("z", "text"), ("a", "1"), ("list", "[1.5,true]"), ("table", table)], "in the file's order");

    assert_eq!(orders.outputs["enriched"].topic, "orders.enriched");
    let route = &orders.routes[DEAD_LETTER];
    assert_eq!((&*route.topic, route.partition), ("orders.dlq", PartitionChoice::Key));
    assert_eq!((route.timestamp, route.key), (TimestampChoice::Original, KeyChoice::Coordinates));
    assert_eq!(route.create.map(|create| (create.partitions, create.replicas)), Some((12, 3)));
    assert_eq!(route.dialects, [Dialect::Connect, Dialect::Spring, Dialect::Deadletter]);
    assert_eq!(config.pipelines["letters"].start, Start::Latest);
    assert_eq!((&*orders.cluster, &*config.pipelines["letters"].cluster), (DEFAULT_CLUSTER, "letters"));
}

#[test]
fn what_is_left_out_has_the_documented_default() {
    let config = parse_text(MINIMAL).unwrap();
    assert!(config.admin.is_none(), "nobody listens unasked");
    let shadow = &config.clusters[DEFAULT_CLUSTER].shadow;
    assert_eq!((shadow.readers, shadow.seek_threshold), (2, SeekThreshold::Auto));
    assert_eq!((shadow.deadline, &*shadow.group_id), (Duration::from_secs(10), "deadletter-shadow"));
    let orders = &config.pipelines["orders"];
    assert_eq!((orders.batch.messages, orders.batch.bytes), (1000, 1 << 20));
    assert_eq!((orders.batch.wait, orders.commit), (Duration::from_millis(20), Duration::from_secs(1)));
    assert!(orders.instances >= 1);
    assert_eq!((orders.in_hand, orders.prefetch, orders.guest.memory), (16 << 20, 16 << 20, 64 << 20));
    assert_eq!((config.memory, config.clusters[DEFAULT_CLUSTER].unacknowledged), (None, 32 << 20));
    assert_eq!((orders.settle, orders.shutdown), (Duration::from_secs(1), Duration::from_secs(30)));
    assert_eq!((orders.guest.deadline, orders.guest.settings.len()), (Duration::from_secs(10), 0));
    let open = &orders.open;
    assert_eq!((open.messages, open.age, open.grace), (1_000_000, Duration::from_mins(10), Duration::from_secs(30)));
    assert_eq!((open.then, orders.on_gone), (OpenThen::Reject, OnGone::Stub));
    assert_eq!((orders.retry.attempts, orders.recent), (5, 0));
    assert_eq!(orders.on_out_of_range, OnOutOfRange::Stop);
    assert!(orders.outputs.is_empty());
    let route = &orders.routes[DEAD_LETTER];
    assert_eq!((route.partition, route.timestamp), (PartitionChoice::Same, TimestampChoice::Now));
    assert_eq!((route.key, route.create.is_none()), (KeyChoice::Original, true));
    assert_eq!(route.dialects, [Dialect::Deadletter]);
}

#[test]
fn the_embedded_broker_has_a_name() {
    let config = parse_text(&MINIMAL.replace("localhost:9092", "embedded")).unwrap();
    assert_eq!(config.clusters[DEFAULT_CLUSTER].brokers, Brokers::Embedded);
}

#[test]
fn every_host_owned_property_is_refused_in_every_table() {
    for name in client::HOST_OWNED {
        for table in ["kafka.common", "kafka.consumer", "clusters.other.producer"] {
            let error =
                parse_text(&format!("{MINIMAL}\n[{table}]\n\"{name}\" = \"1\"\n[clusters.other]\nbrokers = \"a:1\""));
            let error = error.unwrap_err();
            assert!(error.contains(&format!("{table}.")) && error.contains("the host owns"), "{error}");
        }
    }
}

/// Lines that put a secret where librdkafka or we refuse it.
const REFUSED: &[&str] = &[
    "\"security.protocol\" = \"SECRET\"",
    "\"security.protocol\" = \"${SECRET}\"",
    "\"sasl.pass\" = \"SECRET\"",
    "\"sasl.password\" = [\"SECRET\"]",
    "\"sasl.password\" = { is = \"SECRET\" }",
    "\"sasl.password\" = \"SECRET${\"",
    "\"sasl.password\" = \"${UNSET}SECRET\"",
    "\"sasl.password\" = \"SECRET\\u0000\"",
    "\"group.id\" = \"SECRET\"",
    "sasl.password = \"SECRET\"",
    "\"sasl.password\" = SECRET",
    "\"sasl.password\" = \"SECRET",
];

#[test]
fn no_error_shows_the_value_of_a_property() {
    for line in REFUSED {
        let line = if line.contains("${SECRET}") { (*line).to_owned() } else { line.replace("SECRET", SECRET) };
        for table in ["[kafka.common]", "[clusters.other]\nbrokers = \"other:1\"\n[clusters.other.producer]"] {
            let refused = parse(Path::new("a.toml"), &format!("{MINIMAL}\n{table}\n{line}\n"), &secrets).unwrap_err();
            assert!(!format!("{refused} {refused:?}").contains(SECRET), "{refused:?}");
        }
    }
}

#[test]
fn nothing_shows_the_token_of_operators() {
    let with = |token: &str| parse_text(&format!("[admin]\nlisten = \"127.0.0.1:1\"\ntoken = {token}\n{MINIMAL}"));
    for bad in
        ["\"${SECRET}\"", "\"${SECRET} and spaces\"", "[\"hunter2-7f3a\"]", "{ is = \"hunter2-7f3a\" }", "hunter2-7f3a"]
    {
        let error = with(bad).unwrap_err();
        assert!(!error.contains(SECRET), "{error}");
    }
    let config = with("\"${SECRET}${SECRET}\"").unwrap();
    assert!(config.admin.as_ref().unwrap().token.as_ref().unwrap().is(&SECRET.repeat(2)));
    assert!(!format!("{config:?}").contains(SECRET));
}

#[test]
fn the_debug_of_a_configuration_shows_no_property() {
    let text = format!("{MINIMAL}\n[kafka.common]\n\"sasl.password\" = \"${{SECRET}}\"\n");
    let config = parse_text(&text).unwrap();
    assert_eq!(config.clusters[DEFAULT_CLUSTER].common.0["sasl.password"], SECRET);
    let debug = format!("{config:?}");
    assert!(debug.contains("sasl.password") && !debug.contains(SECRET), "{debug}");
}

#[test]
fn what_an_error_quotes_stays_within_its_line() {
    let long = "x".repeat(100_000);
    for line in [r#""a\nb\u001b" = 1"#, &format!("[pipelines.orders.batch]\nwait = \"{long}\"")] {
        let error = parse_text(&format!("{MINIMAL}\n{line}\n")).unwrap_err();
        assert!(error.len() < 600 && !error.contains(char::is_control), "{error}");
    }
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in any::<String>()) {
        drop(parse_text(&text));
    }

    #[test]
    fn a_changed_file_is_read_or_refused_in_short_lines(
        at in 0..GOOD.len(),
        length in 0..40_usize,
        insert in "[\\[\\]{}=\"'.,a-z0-9 \n${}^-]{0,12}",
    ) {
        let (before, rest) = GOOD.split_at(at);
        let after: String = rest.chars().skip(length).collect();
        let changed = format!("{before}{insert}{after}");
        if let Err(error) = parse_text(&changed) {
            for line in error.lines() {
                prop_assert!(line.starts_with("dir/a.toml") && line.len() < 600, "{line}");
            }
        }
    }

    #[test]
    fn a_secret_stays_one_whatever_else_is_wrong(at in 0..GOOD.len(), insert in "[\\[\\]{}=\"'.,a-z0-9 \n]{0,12}") {
        let secret = format!("\"sasl.password\" = \"{SECRET}\"\n");
        let (before, after) = GOOD.split_at(at);
        let changed = format!("{before}{insert}{after}").replace(".common]\n", &format!(".common]\n{secret}"));
        if let Err(error) = parse_text(&changed) {
            prop_assert!(!error.contains(SECRET), "{error}");
        }
    }
}
