//! The alerts and the dashboard of `examples/monitoring`: valid, and about metrics that are there.

use std::{
    collections::BTreeSet,
    fs,
    path::PathBuf,
    process::{Command, Output},
};

use crate::support::{promtool, repository};
use deadletter::admin::METRICS;
use serde_json::Value;

fn folder() -> PathBuf {
    repository().join("examples/monitoring")
}

fn check(arguments: &[&str]) -> Output {
    Command::new(promtool()).args(arguments).current_dir(folder()).output().unwrap()
}

fn assert_valid(arguments: &[&str]) {
    let output = check(arguments);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
}

/// The names of metrics in an expression.
fn names(expression: &str) -> BTreeSet<&str> {
    let words = expression.split(|char: char| !char.is_ascii_alphanumeric() && char != '_');
    words.filter(|word| word.starts_with("deadletter_") || word.starts_with("process_")).collect()
}

fn assert_exported(expression: &str) {
    for name in names(expression) {
        let is = |metric: &str, kind: &str| match name.strip_prefix(metric) {
            Some("") => kind != "histogram",
            Some(suffix) => kind == "histogram" && ["_bucket", "_sum", "_count"].contains(&suffix),
            None => false,
        };
        assert!(METRICS.iter().any(|metric| is(metric.name, metric.kind)), "{name} in {expression}");
    }
}

fn dashboard() -> Value {
    serde_json::from_str(&fs::read_to_string(folder().join("dashboard.json")).unwrap()).unwrap()
}

/// The queries of all panels, with Grafana's variables filled in.
fn queries() -> Vec<String> {
    let dashboard = dashboard();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    let query = |target: &Value| target["expr"].as_str().unwrap().replace("$__rate_interval", "5m");
    targets.map(query).map(|query| query.replace("$job", ".*").replace("$pipeline", ".*")).collect()
}

#[test]
fn the_alerts_are_valid_and_fire_when_they_should() {
    assert_valid(&["check", "rules", "alerts.yml"]);
    assert_valid(&["check", "config", "prometheus.yml"]);
    assert_valid(&["test", "rules", "alerts.test.yml"]);
    let rules = fs::read_to_string(folder().join("alerts.yml")).unwrap();
    let is_text = |line: &str| line.trim_start().starts_with("description:");
    let expressions: Vec<_> = rules.lines().filter(|line| !is_text(line)).collect();
    assert!(!names(&rules).is_empty());
    assert_exported(&expressions.join("\n"));
}

#[test]
fn the_dashboard_asks_only_for_what_is_exported() {
    let queries = queries();
    assert!(queries.len() > 20, "{queries:?}");
    for query in &queries {
        assert!(!names(query).is_empty(), "{query}");
        assert_exported(query);
    }
    let shown: BTreeSet<_> = queries.iter().flat_map(|query| names(query)).collect();
    for name in ["deadletter_position_lag", "deadletter_committed_lag", "deadletter_paused_partitions"] {
        assert!(shown.contains(name), "{name}");
    }
}

/// As rules, which promtool parses.
#[test]
fn every_query_of_the_dashboard_is_one() {
    let rule =
        |(number, query): (usize, String)| format!("      - record: panel:query:{number}\n        expr: {query:?}\n");
    let rules: String = queries().into_iter().enumerate().map(rule).collect();
    let file = tempfile::NamedTempFile::with_suffix(".yml").unwrap();
    fs::write(file.path(), format!("groups:\n  - name: dashboard\n    rules:\n{rules}")).unwrap();
    assert_valid(&["check", "rules", &file.path().display().to_string()]);
}

#[test]
fn panels_have_a_title_a_place_and_a_data_source() {
    let dashboard = dashboard();
    let mut ids = BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        assert!(ids.insert(panel["id"].as_u64().unwrap()) && !panel["title"].as_str().unwrap().is_empty(), "{panel}");
        let place = |side: &str| panel["gridPos"][side].as_u64().unwrap();
        assert!(place("x") + place("w") <= 24 && place("h") > 0, "{panel}");
        assert_eq!(panel["datasource"]["uid"], "${datasource}", "{panel}");
    }
}
