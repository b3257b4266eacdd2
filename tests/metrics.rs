//! Each metric, read after what it counts was caused; and their documentation.
#![allow(clippy::float_cmp, reason = "counts are whole numbers")]

use std::{collections::BTreeSet, fs, process::Command, sync::Mutex};

use crate::support::{Broker, Operated, Scene, broker, promtool, repository};
use deadletter::admin::{METRICS, Metric};

const SMALL: &str = r#"
    batch = { messages = 4, bytes = "64KiB", wait = "5ms" }
    settle = "50ms"
"#;

/// Which names a test of this file has read, and found to be what it caused.
static READ: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Waits for a sample, and takes note of its name.
fn read(operated: &Operated, sample: &str, is: impl Fn(f64) -> bool) -> f64 {
    let value = operated.await_metric(sample, is);
    READ.lock().unwrap().insert(sample.split('{').next().unwrap().to_owned());
    value
}

fn lane(name: &str, topic: &str, partition: i32) -> String {
    format!("{name}{{pipeline=\"scene\",topic=\"{topic}\",partition=\"{partition}\"}}")
}

fn of(name: &str) -> String {
    format!("{name}{{pipeline=\"scene\"}}")
}

/// What Prometheus' own check says of a page.
fn assert_valid(page: &str) {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), page).unwrap();
    let input = fs::File::open(file.path()).unwrap();
    let checked = Command::new(promtool()).args(["check", "metrics"]).stdin(input).output().unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
}

fn verdicts_and_dead_letters() {
    let scene = Scene::new(broker(), "m-verdicts", 1, &[]);
    scene.produce(0, &["A", "R", "D", "H", "E", "A", "R", "S"]);
    let operated = Operated::start(&scene.config("", SMALL));
    scene.await_committed(0, 8);
    let verdicts = |outcome: &str, code: &str| {
        format!("deadletter_verdicts_total{{pipeline=\"scene\",outcome=\"{outcome}\",code=\"{code}\"}}")
    };
    read(&operated, &of("deadletter_messages_total"), |count| count == 8.0);
    read(&operated, &verdicts("accept", ""), |count| count == 5.0);
    read(&operated, &verdicts("defer", ""), |count| count == 2.0);
    read(&operated, &verdicts("reject", "now"), |count| count == 2.0);
    read(&operated, &verdicts("reject", "late"), |count| count == 1.0);
    read(&operated, &of("deadletter_dead_letters_total"), |count| count == 3.0);
    read(&operated, &of("deadletter_emitted_records_total"), |count| count == 1.0);
    read(&operated, "deadletter_shadow_reads_total{cluster=\"kafka\",answer=\"found\"}", |count| count == 1.0);
    read(&operated, "deadletter_shadow_positionings_total{cluster=\"kafka\"}", |count| count >= 1.0);
    read(&operated, "deadletter_shadow_read_bytes_total{cluster=\"kafka\"}", |count| count >= 1.0);
    read(&operated, "deadletter_shadow_read_seconds_count{cluster=\"kafka\"}", |count| count >= 1.0);
    read(&operated, "deadletter_shadow_read_seconds_sum{cluster=\"kafka\"}", |seconds| seconds > 0.0);
    let calls = read(&operated, &of("deadletter_guest_call_seconds_count"), |count| count >= 3.0);
    read(&operated, "deadletter_guest_call_seconds_bucket{pipeline=\"scene\",le=\"+Inf\"}", |count| count >= calls);
    read(&operated, &of("deadletter_guest_memory_bytes"), |bytes| bytes >= 65536.0);
    read(&operated, "process_resident_memory_bytes", |bytes| bytes > 1e6);
    read(&operated, "deadletter_commits_total{pipeline=\"scene\",result=\"ok\"}", |count| count >= 1.0);
    read(&operated, &of("deadletter_rebalances_total"), |count| count == 1.0);
    read(&operated, &of("deadletter_longest_rebalance_seconds"), |seconds| seconds > 0.0);
    read(&operated, &of("deadletter_assigned_partitions"), |count| count == 1.0);
    let version = env!("CARGO_PKG_VERSION");
    read(&operated, &format!("deadletter_build_info{{version=\"{version}\"}}"), |one| one == 1.0);
    assert_valid(&operated.get("/metrics").1);
    let metrics = operated.metrics();
    let info = metrics.keys().find(|name| name.starts_with("deadletter_pipeline_info{")).unwrap();
    assert!(info.contains("group=\"m-verdicts\",guest=\"sha256:"), "{info}");
    READ.lock().unwrap().insert("deadletter_pipeline_info".to_owned());
}

fn lags_and_open_messages() {
    let scene = Scene::new(broker(), "m-lags", 2, &[]);
    scene.produce(0, &["A", "D", "D", "A", "A"]);
    let operated = Operated::start(&scene.config(r#"settle = "never""#, SMALL));
    scene.await_committed(0, 1);
    let of = |name: &str| lane(name, "m-lags", 0);
    read(&operated, &of("deadletter_position_lag"), |lag| lag == 0.0);
    read(&operated, &of("deadletter_committed_lag"), |lag| lag == 4.0);
    read(&operated, &of("deadletter_open_messages"), |open| open == 2.0);
    read(&operated, &of("deadletter_deferred_messages"), |deferred| deferred == 2.0);
    read(&operated, &of("deadletter_oldest_open_seconds"), |age| age > 0.0);
    operated.must(&["pause", "m-lags/0"]);
    let paused = |by: &str| format!("deadletter_paused_partitions{{pipeline=\"scene\",by=\"{by}\"}}");
    read(&operated, &paused("operator"), |count| count == 1.0);
    read(&operated, &paused("host"), |count| count == 0.0);
    scene.produce(0, &["A"; 7]);
    read(&operated, &of("deadletter_position_lag"), |lag| lag == 7.0);
    operated.must(&["skip", "m-lags/0", "1", "--reason", "to count it"]);
    read(&operated, "deadletter_stubs_total{pipeline=\"scene\",status=\"skipped\"}", |count| count == 1.0);
}

fn failures_and_redeliveries() {
    for (fail, kind) in [
        ("trap", "trap"),
        ("memory", "out-of-memory"),
        ("no luck", "error"),
        ("contract", "contract"),
        ("timeout", "timeout"),
    ] {
        let scene = Scene::new(broker(), &format!("m-fails-{kind}"), 1, &[]);
        scene.produce(0, &["H"; 12]);
        let limits = "guest.deadline = \"300ms\"\nguest.memory = \"24MiB\"";
        let settings = format!(r#"fail = "{fail}", fail-at = 3, settle = "last""#);
        let operated = Operated::start(&scene.config(&settings, &format!("{SMALL}\n{limits}")));
        let failures = format!("deadletter_guest_failures_total{{pipeline=\"scene\",kind=\"{kind}\"}}");
        read(&operated, &failures, |count| count >= 1.0);
        read(&operated, &of("deadletter_redelivered_messages_total"), |count| count >= 8.0);
    }
}

fn retries_holds_and_isolation() {
    let scene = Scene::new(broker(), "m-retries", 1, &[]);
    scene.produce(0, &["Z3", "A", "D", "A"]);
    let operated = Operated::start(&scene.config("", &format!("{SMALL}\nrecent = \"1MiB\"")));
    scene.await_committed(0, 4);
    read(&operated, &of("deadletter_retried_messages_total"), |count| count == 2.0);
    // The deferred one, and two attempts.
    read(&operated, &of("deadletter_recent_messages_total"), |count| count == 3.0);
    let scene = Scene::new(broker(), "m-isolated", 1, &[]);
    scene.produce(0, &["A", "X", "A"]);
    let operated = Operated::start(&scene.config(r#"fail = "trap""#, SMALL));
    scene.await_committed(0, 3);
    read(&operated, &of("deadletter_isolations_total"), |count| count == 1.0);
    let scene = Scene::new(broker(), "m-holds", 1, &[]);
    scene.produce(0, &["A", "W"]);
    let operated = Operated::start(&scene.config(r#"back = "99999999999999""#, SMALL));
    read(&operated, &of("deadletter_held_partitions"), |count| count == 1.0);
}

fn payloads_that_are_gone() {
    let scene = Scene::new(broker(), "m-gone", 1, &[]);
    scene.produce(0, &["D"; 10]);
    let operated =
        Operated::start(&scene.config("", &format!("{}\non-gone = \"accept\"", SMALL.replace("50ms", "5s"))));
    read(&operated, &lane("deadletter_deferred_messages", "m-gone", 0), |deferred| deferred == 10.0);
    broker().delete_records("m-gone", 0, 6);
    scene.await_committed(0, 10);
    read(&operated, &of("deadletter_gone_accepted_total"), |count| count == 6.0);
    read(&operated, "deadletter_shadow_reads_total{cluster=\"kafka\",answer=\"expired\"}", |count| count == 6.0);
}

fn reading_through() {
    let scene = Scene::new(broker(), "m-through", 1, &[]);
    let payloads: Vec<_> = (0..40).map(|number| if number % 4 == 0 { "D" } else { "A" }).collect();
    scene.produce(0, &payloads);
    let config = scene.config("", &SMALL.replace("50ms", "2s"));
    let operated = Operated::start(&format!("{config}\n[kafka.shadow]\nseek-threshold = 1000\n"));
    scene.await_committed(0, 40);
    read(&operated, "deadletter_shadow_read_through_messages_total{cluster=\"kafka\"}", |count| count >= 27.0);
}

fn dead_letters_that_cannot_be_delivered() {
    let scene = Scene::new(broker(), "m-undelivered", 1, &[]);
    let quick =
        "[kafka.producer]\n\"delivery.timeout.ms\" = \"2000\"\n\"topic.metadata.propagation.max.ms\" = \"500\"\n";
    let operated = Operated::start(&(quick.to_owned() + &scene.config("", SMALL)));
    broker().delete_topic(&scene.dead_letters());
    scene.produce(0, &["R"; 3]);
    read(&operated, &of("deadletter_produce_errors_total"), |count| count >= 3.0);
    read(&operated, &lane("deadletter_unacknowledged_dead_letters", "m-undelivered", 0), |count| count == 3.0);
    read(&operated, "deadletter_unacknowledged_bytes{cluster=\"kafka\"}", |bytes| bytes > 0.0);
    broker().create_topic(&scene.dead_letters(), 1, &[]);
    scene.await_committed(0, 3);
    read(&operated, &lane("deadletter_unacknowledged_dead_letters", "m-undelivered", 0), |count| count == 0.0);
}

fn commits_that_fail() {
    let broker = Broker::start(&[]);
    let scene = Scene::new(&broker, "m-commits", 1, &[]);
    scene.produce(0, &["H"; 10]);
    let quick = "[kafka.common]\n\"socket.timeout.ms\" = \"3000\"\n";
    let operated = Operated::start(&(quick.to_owned() + &scene.config("", &SMALL.replace("50ms", "3s"))));
    read(&operated, &lane("deadletter_deferred_messages", "m-commits", 0), |deferred| deferred == 10.0);
    broker.stop();
    read(&operated, "deadletter_commits_total{pipeline=\"scene\",result=\"failed\"}", |count| count >= 1.0);
    broker.resume();
    scene.await_committed(0, 10);
    read(&operated, &lane("deadletter_committed_lag", "m-commits", 0), |lag| lag == 0.0);
}

fn slow_guests_and_the_end() {
    let scene = Scene::new(broker(), "m-slow", 1, &[]);
    scene.produce(0, &["S"; 400]);
    let operated = Operated::start(&scene.config("", SMALL));
    read(&operated, &of("deadletter_full_lanes_total"), |count| count >= 1.0);
    operated.must(&["drain"]);
    read(&operated, "deadletter_draining", |draining| draining == 1.0);
}

#[test]
fn each_metric_says_what_was_caused() {
    verdicts_and_dead_letters();
    lags_and_open_messages();
    failures_and_redeliveries();
    retries_holds_and_isolation();
    payloads_that_are_gone();
    reading_through();
    dead_letters_that_cannot_be_delivered();
    commits_that_fail();
    slow_guests_and_the_end();
    let read = READ.lock().unwrap().clone();
    let has = |metric: &Metric| read.iter().any(|name| name.strip_prefix(metric.name).is_some_and(is_suffix));
    let unread: Vec<_> = METRICS.iter().filter(|metric| !has(metric)).map(|metric| metric.name).collect();
    assert!(unread.is_empty(), "no test reads {unread:?}");
}

/// What a histogram appends to its name.
fn is_suffix(rest: &str) -> bool {
    ["", "_bucket", "_sum", "_count"].contains(&rest)
}

#[test]
fn the_documentation_has_exactly_what_is_exported() {
    let file = repository().join("docs/METRICS.md");
    let documented = fs::read_to_string(&file).unwrap();
    let rows = METRICS.iter().map(|Metric { name, kind, labels, help }| {
        let labels: Vec<_> = labels.iter().map(|label| format!("`{label}`")).collect();
        format!("| `{name}` | {kind} | {} | {help} |", labels.join(" "))
    });
    let is_row = |line: &&str| line.starts_with("| `");
    let (documented, exported): (Vec<_>, Vec<_>) = (documented.lines().filter(is_row).collect(), rows.collect());
    assert_eq!(documented, exported, "{}", file.display());
}
