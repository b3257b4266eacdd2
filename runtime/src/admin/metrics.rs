//! `/metrics`: the counts of a process in Prometheus' text format. The names are stable; `docs/METRICS.md` explains them.
//!
//! The counts are plain numbers elsewhere, so that counting costs no more than adding; they become text when asked for.

use std::{collections::BTreeMap, fmt::Write as _, fs};

use super::http::Response;
use crate::{
    control::{ClusterFigures, Figures, View},
    guest::FailureKind,
    operator::{LaneStatus, PausedBy, PipelineStatus},
    times::{BOUNDS, TimesCounted},
};

/// One name of `/metrics`.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Stable.
    pub name: &'static str,
    /// `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
    /// The names of its labels, in order.
    pub labels: &'static [&'static str],
    /// One sentence.
    pub help: &'static str,
}

const LANE: &[&str] = &["pipeline", "topic", "partition"];
const PIPELINE: &[&str] = &["pipeline"];
const CLUSTER: &[&str] = &["cluster"];

const fn metric(name: &'static str, kind: &'static str, labels: &'static [&'static str], help: &'static str) -> Metric {
    Metric { name, kind, labels, help }
}

/// All there are, in the order of the page.
pub const METRICS: &[Metric] = &[
    metric("deadletter_build_info", "gauge", &["version"], "Always 1; its label is the version."),
    metric("deadletter_draining", "gauge", &[], "1 while the process is on its way out."),
    metric("process_resident_memory_bytes", "gauge", &[], "Memory that the process has resident."),
    metric(
        "deadletter_pipeline_info",
        "gauge",
        &["pipeline", "group", "guest"],
        "Always 1; its labels are the group and the digest of the guest.",
    ),
    metric("deadletter_assigned_partitions", "gauge", PIPELINE, "Partitions that this process has."),
    metric(
        "deadletter_paused_partitions",
        "gauge",
        &["pipeline", "by"],
        "Partitions that are paused, by the host or by an operator.",
    ),
    metric("deadletter_held_partitions", "gauge", PIPELINE, "Partitions that wait because the guest holds."),
    metric(
        "deadletter_position_lag",
        "gauge",
        LANE,
        "Offsets between what the guest was given and the end of the log.",
    ),
    metric("deadletter_committed_lag", "gauge", LANE, "Offsets between what is committed and the end of the log."),
    metric("deadletter_open_messages", "gauge", LANE, "Messages that no verdict settled yet."),
    metric(
        "deadletter_deferred_messages",
        "gauge",
        LANE,
        "Those of the open messages that no running call has in hand.",
    ),
    metric(
        "deadletter_oldest_open_seconds",
        "gauge",
        LANE,
        "For how long the oldest open message is open; 0 if none is.",
    ),
    metric(
        "deadletter_unacknowledged_dead_letters",
        "gauge",
        LANE,
        "Rejected messages whose dead letters are not acknowledged; they hold the commit.",
    ),
    metric("deadletter_messages_total", "counter", PIPELINE, "Messages given to the guest for the first time."),
    metric(
        "deadletter_redelivered_messages_total",
        "counter",
        PIPELINE,
        "Messages given to it again because an instance was lost.",
    ),
    metric(
        "deadletter_retried_messages_total",
        "counter",
        PIPELINE,
        "Messages given to it again because their retry was due.",
    ),
    metric(
        "deadletter_recent_messages_total",
        "counter",
        PIPELINE,
        "Messages that were wanted again and still in memory (`recent`).",
    ),
    metric(
        "deadletter_verdicts_total",
        "counter",
        &["pipeline", "outcome", "code"],
        "Messages by verdict; a rejection has a code.",
    ),
    metric(
        "deadletter_dead_letters_total",
        "counter",
        PIPELINE,
        "Dead letters that were acknowledged, stubs included.",
    ),
    metric(
        "deadletter_stubs_total",
        "counter",
        &["pipeline", "status"],
        "Dead letters without their payload, by payload-status.",
    ),
    metric(
        "deadletter_gone_accepted_total",
        "counter",
        PIPELINE,
        "Rejected messages whose payload was gone, accepted because of on-gone.",
    ),
    metric(
        "deadletter_emitted_records_total",
        "counter",
        PIPELINE,
        "Records that the guest emitted and that were acknowledged.",
    ),
    metric(
        "deadletter_produce_errors_total",
        "counter",
        PIPELINE,
        "Records whose delivery failed; they are sent again.",
    ),
    metric("deadletter_guest_failures_total", "counter", &["pipeline", "kind"], "Calls that failed."),
    metric(
        "deadletter_isolations_total",
        "counter",
        PIPELINE,
        "Batches at which the guest failed, so that the message at fault was looked for.",
    ),
    metric("deadletter_guest_call_seconds", "histogram", PIPELINE, "How long the calls to the guest took."),
    metric("deadletter_guest_memory_bytes", "gauge", PIPELINE, "Linear memory of all instances of the guest."),
    metric(
        "deadletter_commits_total",
        "counter",
        &["pipeline", "result"],
        "Commits that the group took, and those that failed.",
    ),
    metric("deadletter_rebalances_total", "counter", PIPELINE, "Assignments and revocations."),
    metric(
        "deadletter_longest_rebalance_seconds",
        "gauge",
        PIPELINE,
        "The longest time that one of them stopped the consumer.",
    ),
    metric(
        "deadletter_full_lanes_total",
        "counter",
        PIPELINE,
        "Times that a partition waited because its lane was full.",
    ),
    metric(
        "deadletter_shadow_reads_total",
        "counter",
        &["cluster", "answer"],
        "Messages that were read again, by answer; `deadline` counts reads that are tried again.",
    ),
    metric(
        "deadletter_shadow_read_seconds",
        "histogram",
        CLUSTER,
        "How long each turn of a shadow read was waited for.",
    ),
    metric("deadletter_shadow_positionings_total", "counter", CLUSTER, "Times that a shadow reader was positioned."),
    metric(
        "deadletter_shadow_read_through_messages_total",
        "counter",
        CLUSTER,
        "Messages that a shadow reader read on its way and nobody wanted.",
    ),
    metric("deadletter_shadow_read_bytes_total", "counter", CLUSTER, "Bytes of all messages that shadow readers read."),
    metric(
        "deadletter_unacknowledged_bytes",
        "gauge",
        CLUSTER,
        "Bytes of records that the producer holds without an acknowledgement.",
    ),
];

pub(super) fn response(view: &View) -> Response {
    let body = page(view, resident_memory());
    Response { code: 200, content_type: "text/plain; version=0.0.4; charset=utf-8", body }
}

/// The samples of a page: lines by name.
#[derive(Default)]
struct Page(BTreeMap<&'static str, String>);

fn page(view: &View, resident: Option<u64>) -> String {
    let mut page = Page::default();
    page.add("deadletter_build_info", &[&view.status.version], 1);
    page.add("deadletter_draining", &[], u8::from(view.status.draining));
    if let Some(resident) = resident {
        page.add("process_resident_memory_bytes", &[], resident);
    }
    for (name, status) in &view.status.pipelines {
        page.pipeline(name, status);
    }
    for (name, figures) in &view.pipelines {
        page.messages(name, figures);
        page.work(name, figures);
    }
    for (name, figures) in &view.clusters {
        page.cluster(name, figures);
    }
    page.finish()
}

impl Page {
    /// One sample, with the values of the labels in the order of [`METRICS`].
    fn add(&mut self, name: &'static str, labels: &[&str], value: impl std::fmt::Display) {
        let metric = METRICS.iter().find(|metric| metric.name == name);
        debug_assert!(metric.is_some_and(|metric| metric.labels.len() == labels.len()), "{name} is as in METRICS");
        let names = metric.map_or(&[][..], |metric| metric.labels);
        let labels = names.iter().copied().zip(labels.iter().copied());
        self.line(name, name, labels, value);
    }

    fn line<'a>(
        &mut self,
        family: &'static str,
        name: &str,
        labels: impl Iterator<Item = (&'a str, &'a str)>,
        value: impl std::fmt::Display,
    ) {
        let labels: Vec<_> = labels.map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let written = writeln!(self.0.entry(family).or_default(), "{name}{labels} {value}");
        debug_assert!(written.is_ok(), "a String takes whatever is written");
    }

    fn histogram(&mut self, name: &'static str, labels: &[(&str, &str)], times: &TimesCounted) {
        let bounds = BOUNDS.iter().map(ToString::to_string).chain(["+Inf".to_owned()]);
        for (bound, count) in bounds.zip(times.cumulative) {
            let labels = labels.iter().copied().chain([("le", bound.as_str())]);
            self.line(name, &format!("{name}_bucket"), labels, count);
        }
        self.line(name, &format!("{name}_sum"), labels.iter().copied(), times.sum.as_secs_f64());
        self.line(name, &format!("{name}_count"), labels.iter().copied(), times.count());
    }

    fn pipeline(&mut self, name: &str, status: &PipelineStatus) {
        self.add("deadletter_pipeline_info", &[name, &status.group, &status.guest], 1);
        self.add("deadletter_assigned_partitions", &[name], status.lanes.len());
        for (by, word) in [(PausedBy::Host, "host"), (PausedBy::Operator, "operator")] {
            let paused = |lane: &&LaneStatus| lane.paused.as_ref().is_some_and(|paused| paused.by == by);
            self.add("deadletter_paused_partitions", &[name, word], status.lanes.iter().filter(paused).count());
        }
        for lane in &status.lanes {
            let partition = lane.partition.to_string();
            let labels = [name, &lane.topic, &partition];
            if let Some(end) = lane.end {
                self.add("deadletter_position_lag", &labels, end.saturating_sub(lane.position).max(0));
                self.add("deadletter_committed_lag", &labels, end.saturating_sub(lane.committed).max(0));
            }
            self.add("deadletter_open_messages", &labels, lane.open);
            self.add("deadletter_deferred_messages", &labels, lane.deferred);
            self.add("deadletter_oldest_open_seconds", &labels, lane.oldest_open_seconds.unwrap_or_default());
            self.add("deadletter_unacknowledged_dead_letters", &labels, lane.unacknowledged);
        }
    }

    fn messages(&mut self, name: &str, figures: &Figures) {
        let tally = &figures.summary.tally;
        self.add("deadletter_held_partitions", &[name], tally.holding.len());
        self.add("deadletter_messages_total", &[name], tally.delivered);
        self.add("deadletter_redelivered_messages_total", &[name], tally.redelivered);
        self.add("deadletter_retried_messages_total", &[name], tally.retried);
        self.add("deadletter_recent_messages_total", &[name], tally.recent);
        self.add("deadletter_verdicts_total", &[name, "accept", ""], tally.accepted);
        self.add("deadletter_verdicts_total", &[name, "defer", ""], tally.deferred);
        for (code, count) in &tally.rejected {
            self.add("deadletter_verdicts_total", &[name, "reject", code], count);
        }
        self.add("deadletter_dead_letters_total", &[name], tally.dead_letters);
        for (status, count) in &tally.stubs {
            self.add("deadletter_stubs_total", &[name, status], count);
        }
        self.add("deadletter_gone_accepted_total", &[name], tally.gone);
        self.add("deadletter_emitted_records_total", &[name], tally.emitted);
        self.add("deadletter_produce_errors_total", &[name], tally.delivery_failures);
    }

    fn work(&mut self, name: &str, figures: &Figures) {
        let (tally, source) = (&figures.summary.tally, &figures.summary.source);
        for kind in FailureKind::ALL {
            let count = tally.failures.get(&kind.to_string()).copied().unwrap_or_default();
            self.add("deadletter_guest_failures_total", &[name, kind.name()], count);
        }
        self.add("deadletter_isolations_total", &[name], tally.isolations);
        self.histogram("deadletter_guest_call_seconds", &[("pipeline", name)], &figures.calls);
        self.add("deadletter_guest_memory_bytes", &[name], figures.guest_memory);
        self.add("deadletter_commits_total", &[name, "ok"], source.commits);
        self.add("deadletter_commits_total", &[name, "failed"], source.failed_commits);
        self.add("deadletter_rebalances_total", &[name], source.rebalances);
        self.add("deadletter_longest_rebalance_seconds", &[name], source.longest_rebalance.as_secs_f64());
        self.add("deadletter_full_lanes_total", &[name], source.pauses);
    }

    fn cluster(&mut self, name: &str, figures: &ClusterFigures) {
        let reads = &figures.shadow_reads;
        for (answer, count) in [
            ("found", reads.found),
            ("expired", reads.expired),
            ("gone", reads.absent),
            ("replaced", reads.replaced),
            ("deadline", reads.deadline),
        ] {
            self.add("deadletter_shadow_reads_total", &[name, answer], count);
        }
        self.histogram("deadletter_shadow_read_seconds", &[("cluster", name)], &figures.shadow_turns);
        self.add("deadletter_shadow_positionings_total", &[name], reads.positionings);
        self.add("deadletter_shadow_read_through_messages_total", &[name], reads.read_through);
        self.add("deadletter_shadow_read_bytes_total", &[name], reads.bytes);
        self.add("deadletter_unacknowledged_bytes", &[name], figures.unacknowledged_bytes);
    }

    fn finish(&self) -> String {
        let families = METRICS.iter().filter_map(|Metric { name, kind, help, .. }| {
            let samples = self.0.get(name)?;
            Some(format!("# HELP {name} {help}\n# TYPE {name} {kind}\n{samples}"))
        });
        families.collect()
    }
}

/// A label's value as the format has it.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Bytes; `None` where the system does not say.
fn resident_memory() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::Status;

    fn view() -> View {
        let lane = LaneStatus {
            topic: "orders".to_owned(),
            partition: 3,
            position: 90,
            committed: 40,
            end: Some(100),
            open: 50,
            deferred: 30,
            oldest_open_seconds: Some(1.5),
            unacknowledged: 2,
            paused: None,
        };
        let pipeline = PipelineStatus {
            group: "a \"b\"\\".to_owned(),
            guest: "sha256:00".to_owned(),
            assigned: true,
            lanes: vec![lane],
        };
        let mut figures = Figures::default();
        figures.summary.tally.reject("bad", 7);
        figures.summary.tally.stubs.insert("expired".to_owned(), 1);
        figures.calls.cumulative = [1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 3];
        View {
            status: Status { version: "1".to_owned(), draining: false, pipelines: [("p".to_owned(), pipeline)].into() },
            pipelines: [("p".to_owned(), figures)].into(),
            clusters: [("kafka".to_owned(), ClusterFigures::default())].into(),
        }
    }

    #[test]
    fn each_metric_is_on_the_page_with_its_labels() {
        let page = page(&view(), Some(4096));
        for Metric { name, kind, .. } in METRICS {
            assert!(page.contains(&format!("# TYPE {name} {kind}\n{name}")), "{name} is missing:\n{page}");
        }
        for line in [
            "deadletter_position_lag{pipeline=\"p\",topic=\"orders\",partition=\"3\"} 10",
            "deadletter_committed_lag{pipeline=\"p\",topic=\"orders\",partition=\"3\"} 60",
            "deadletter_verdicts_total{pipeline=\"p\",outcome=\"reject\",code=\"bad\"} 7",
            "deadletter_guest_call_seconds_bucket{pipeline=\"p\",le=\"0.0005\"} 1",
            "deadletter_guest_call_seconds_bucket{pipeline=\"p\",le=\"+Inf\"} 3",
            "deadletter_guest_call_seconds_count{pipeline=\"p\"} 3",
            "deadletter_pipeline_info{pipeline=\"p\",group=\"a \\\"b\\\"\\\\\",guest=\"sha256:00\"} 1",
        ] {
            assert!(page.contains(&format!("\n{line}\n")), "{line} is missing:\n{page}");
        }
    }

    #[test]
    fn a_lag_that_is_not_known_is_left_out() {
        let mut view = view();
        view.status.pipelines.values_mut().flat_map(|pipeline| &mut pipeline.lanes).for_each(|lane| lane.end = None);
        let page = page(&view, None);
        assert!(
            !page.contains("_lag") && !page.contains("process_resident") && page.contains("deadletter_open_messages{")
        );
    }

    #[test]
    fn names_are_those_that_prometheus_advises() {
        for Metric { name, kind, help, .. } in METRICS {
            assert_eq!(name.ends_with("_total"), *kind == "counter", "{name}");
            assert!(help.ends_with('.') && !help.contains('\n'), "{name}: {help}");
        }
    }
}
