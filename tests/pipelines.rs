//! Several pipelines in one process.

use crate::support::{Broker, Operated, Process, SOON, Scene, Stored, broker};
use rustix::process::Signal;

/// Both in one process, as the pipelines `first` and `second`.
fn together(first: &str, second: &str) -> String {
    let (_, second) = second.split_once("[pipelines.scene]").unwrap();
    format!("{}\n[pipelines.second]\n{second}", first.replace("[pipelines.scene]", "[pipelines.first]"))
}

const MESSAGES: &[&str] = &["A", "R", "D", "A"];

#[test]
fn each_judges_its_own_messages_and_sigterm_drains_all() {
    let [left, right] = ["several-left", "several-right"].map(|topic| Scene::new(broker(), topic, 1, &[]));
    left.produce(0, MESSAGES);
    right.produce(0, &["R", "R"]);
    let settles_last = r#"settle = "last""#;
    let mut process = Process::start(&together(&left.config(settles_last, ""), &right.config("", "")));
    right.await_committed(0, 2);
    left.await_committed(0, 2);
    process.signal(Signal::TERM);
    assert_eq!(process.wait(SOON).code(), Some(0), "{}", process.stderr());
    assert_eq!((left.rejected(0, "now"), left.rejected(0, "late")), (vec![1], vec![2]));
    assert_eq!(right.rejected(0, "now"), [0, 1]);
    assert_eq!((left.committed(0), right.committed(0)), (Some(4), Some(2)));
    let pipeline = |letters: &[Stored]| letters[0].header("deadletter.pipeline").unwrap().to_owned();
    assert_eq!([pipeline(&left.letters()), pipeline(&right.letters())], ["first", "second"]);
}

#[test]
fn one_that_stops_is_named_and_the_others_are_drained() {
    let [good, bad] = ["several-good", "several-bad"].map(|topic| Scene::new(broker(), topic, 1, &[]));
    good.produce(0, MESSAGES);
    let limit = r#"limit = { ratio = 0, then = "stop" }"#;
    let stops = bad.config("", "").replace(r#"limit = "off""#, limit);
    let mut process = Process::start(&together(&good.config(r#"settle = "last""#, ""), &stops));
    good.await_committed(0, 2);
    bad.produce(0, &["R"]);
    assert_eq!(process.wait(SOON).code(), Some(1), "{}", process.stderr());
    let said = process.stderr();
    assert!(said.contains("pipeline second stopped: several-bad[0]: route `dead-letter` would get more"), "{said}");
    assert_eq!(good.rejected(0, "late"), [2]);
    assert_eq!((good.committed(0), bad.committed(0).unwrap_or_default()), (Some(4), 0));
}

#[test]
fn none_begins_while_another_one_cannot() {
    let [good, bad] = ["several-ready", "several-missing"].map(|topic| Scene::new(broker(), topic, 1, &[]));
    good.produce(0, MESSAGES);
    let misses = bad.config("", "").replace("several-missing.dlq", "several-nowhere");
    let mut process = Process::start(&together(&good.config("", ""), &misses));
    assert_eq!(process.wait(SOON).code(), Some(1), "{}", process.stderr());
    let said = process.stderr();
    assert!(said.contains("pipeline second: ") && said.contains("several-nowhere"), "{said}");
    assert!(good.letters().is_empty() && good.committed(0).is_none());
}

#[test]
fn pipelines_of_two_clusters_work_in_one_process_and_one_goes_on_without_the_other_ones_brokers() {
    let far = Broker::start(&[]);
    // The same names on both: nothing is taken from, or sent to, the other one.
    let [here, there] = [broker(), &far].map(|broker| Scene::new(broker, "clusters", 1, &[]));
    here.produce(0, MESSAGES);
    there.produce(0, &["D", "R", "D"]);
    let cluster = format!("[clusters.far]\nbrokers = \"{}\"\n[pipelines.second]\ncluster = \"far\"\n", far.servers);
    let config = together(&here.config("", ""), &there.config("", "")).replace("[pipelines.second]\n", &cluster);
    let mut operated = Operated::start(&config);
    here.await_committed(0, 4);
    there.await_committed(0, 3);
    assert_eq!((here.rejected(0, "now"), here.rejected(0, "late")), (vec![1], vec![2]));
    assert_eq!((there.rejected(0, "now"), there.rejected(0, "late")), (vec![1], vec![0, 2]));
    for (cluster, found) in [("kafka", 1.0), ("far", 2.0)] {
        let reads = format!("deadletter_shadow_reads_total{{cluster=\"{cluster}\",answer=\"found\"}}");
        operated.await_metric(&reads, |count| (count - found).abs() < 0.5);
    }
    let pause = ["pause", "clusters/0", "--reason", "which one?"];
    assert!(operated.refused(&pause).contains("first, second"), "both have it");
    far.stop();
    here.produce(0, &["R", "D"]);
    here.await_committed(0, 6);
    far.resume();
    there.produce(0, &["R"]);
    there.await_committed(0, 4);
    operated.process.signal(Signal::TERM);
    assert_eq!(operated.process.wait(SOON).code(), Some(0), "{}", operated.process.stderr());
}
