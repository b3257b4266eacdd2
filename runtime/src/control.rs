//! A running process as an operator reaches it: what it says of itself, and how it is told what to do.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::{Notify, oneshot},
    time::{Instant, timeout_at},
};

use crate::{
    kafka::{Cluster, Clusters, Producer, ShadowReaders, Watermarks, shadow, source::Source},
    lane::{Line, Shared},
    message::TopicPartition,
    offset::{NextOffset, Offset},
    operator::{Ask, LaneReport, LaneStatus, PipelineStatus, Reason, Refusal, Status},
    pipeline::PipelineSummary,
    times::TimesCounted,
};

/// How long a lane may take to answer: it does so between any two steps, also while its guest runs.
const ANSWER: Duration = Duration::from_secs(5);

/// Cheap to clone. Knows nothing until the pipelines run.
#[derive(Clone, Default)]
pub struct Control(Arc<Inner>);

#[derive(Default)]
struct Inner {
    running: Mutex<Running>,
    draining: AtomicBool,
    drain: Notify,
}

#[derive(Clone, Default)]
struct Running {
    pipelines: Vec<Operated>,
    /// By cluster.
    clients: BTreeMap<String, Clients>,
}

/// A pipeline that runs.
#[derive(Clone)]
pub struct Operated {
    /// What its lanes share.
    pub shared: Arc<Shared>,
    /// Its main consumer.
    pub source: Source,
}

/// What is asked of a cluster.
#[derive(Clone)]
struct Clients {
    log_ends: Watermarks,
    shadow: ShadowReaders,
    producer: Producer,
}

/// Everything that can be seen of a process at one moment.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// How it stands.
    pub status: Status,
    /// What each pipeline has done, by name.
    pub pipelines: BTreeMap<String, Figures>,
    /// What the clients have done that the pipelines of a cluster share, by the cluster's name.
    pub clusters: BTreeMap<String, ClusterFigures>,
}

/// What the clients of a cluster have done so far, in numbers.
#[derive(Clone, Debug, Default)]
pub struct ClusterFigures {
    /// What the shadow readers have done.
    pub shadow_reads: shadow::Counts,
    /// How long their answers took.
    pub shadow_turns: TimesCounted,
    /// Bytes of records that the producer holds without an acknowledgement.
    pub unacknowledged_bytes: usize,
}

/// What a pipeline has done so far, in numbers.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// Messages, verdicts, commits.
    pub summary: PipelineSummary,
    /// How long the calls to the guest took.
    pub calls: TimesCounted,
    /// Bytes of linear memory that its instances take.
    pub guest_memory: usize,
}

/// Which partition is meant.
#[derive(Clone, Debug)]
pub struct Target {
    /// The pipeline's name; not needed where only one reads the partition.
    pub pipeline: Option<String>,
    /// The partition.
    pub source: TopicPartition,
}

impl Control {
    /// The pipelines run from now on.
    pub fn began(&self, clusters: &Clusters, pipelines: Vec<Operated>) {
        let clients = |cluster: &Cluster| Clients {
            log_ends: cluster.log_ends().clone(),
            shadow: cluster.shadow().clone(),
            producer: cluster.producer().clone(),
        };
        let clients = clusters.iter().map(|(name, cluster)| (name.clone(), clients(cluster))).collect();
        *self.0.running.lock().unwrap_or_else(PoisonError::into_inner) = Running { pipelines, clients };
    }

    /// The process is on its way out.
    pub fn begin_drain(&self) {
        self.0.draining.store(true, Ordering::Release);
    }

    /// Asks the process to finish what is in hand and to end, as SIGTERM does.
    pub fn drain(&self) {
        self.begin_drain();
        self.0.drain.notify_one();
    }

    /// Returns once [`Control::drain`] was called.
    pub async fn drained(&self) {
        self.0.drain.notified().await;
    }

    /// How the process stands.
    pub async fn status(&self) -> Status {
        let running = self.running();
        let lines: Vec<_> = running.pipelines.iter().map(|pipeline| pipeline.shared.lanes.lines()).collect();
        let reports = reports(&lines).await;
        let ends = running.log_ends(&lines).await;
        let each = running.pipelines.iter().zip(&lines).zip(reports);
        let pipelines = each.map(|((pipeline, lines), reports)| {
            let name = pipeline.shared.pipeline.name.clone();
            let ends = ends.get(&pipeline.shared.pipeline.cluster);
            (name, pipeline.status(lines, reports, ends))
        });
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            draining: self.0.draining.load(Ordering::Acquire),
            pipelines: pipelines.collect(),
        }
    }

    /// Everything that can be seen.
    pub async fn view(&self) -> View {
        let status = self.status().await;
        let running = self.running();
        let figures = running.pipelines.iter().map(|Operated { shared, source }| {
            let figures = Figures {
                summary: PipelineSummary { tally: shared.tally.read(), source: source.counts() },
                calls: shared.instances.call_times(),
                guest_memory: shared.instances.guest_memory(),
            };
            (shared.pipeline.name.clone(), figures)
        });
        let pipelines = figures.collect();
        let figures = running.clients.into_iter().map(|(name, clients)| {
            let figures = ClusterFigures {
                shadow_reads: clients.shadow.counts(),
                shadow_turns: clients.shadow.turns(),
                unacknowledged_bytes: clients.producer.unacknowledged(),
            };
            (name, figures)
        });
        View { status, pipelines, clusters: figures.collect() }
    }

    /// Asks nothing more of the guest for a partition.
    ///
    /// # Errors
    /// Nothing was changed.
    pub async fn pause(&self, target: &Target, reason: Reason) -> Result<(), Refusal> {
        self.change(target, |answer| Ask::Pause(reason, answer)).await
    }

    /// Goes on with a partition that is paused, by whomever.
    ///
    /// # Errors
    /// As [`Control::pause`].
    pub async fn resume(&self, target: &Target, reason: Reason) -> Result<(), Refusal> {
        self.change(target, |answer| Ask::Resume(reason, answer)).await
    }

    /// Settles an open message of a paused partition with a stub.
    ///
    /// # Errors
    /// As [`Control::pause`].
    pub async fn skip(&self, target: &Target, offset: Offset, reason: Reason) -> Result<(), Refusal> {
        self.change(target, |answer| Ask::Skip(offset, reason, answer)).await
    }

    async fn change(
        &self,
        target: &Target,
        ask: impl FnOnce(oneshot::Sender<Result<(), Refusal>>) -> Ask,
    ) -> Result<(), Refusal> {
        let line = self.line(target)?;
        let (answer, answered) = oneshot::channel();
        line.ask(ask(answer));
        match timeout_at(Instant::now() + ANSWER, answered).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) | Err(_) => Err(Refusal::Silent),
        }
    }

    fn line(&self, target: &Target) -> Result<Line, Refusal> {
        let mut found = BTreeMap::new();
        for Operated { shared, .. } in self.running().pipelines {
            let name = &shared.pipeline.name;
            let is_meant = target.pipeline.as_ref().is_none_or(|meant| meant == name);
            if let Some(line) = shared.lanes.lines().remove(&target.source).filter(|_| is_meant) {
                found.insert(name.clone(), line);
            }
        }
        if found.len() > 1 {
            let pipelines = found.into_keys().collect();
            return Err(Refusal::Ambiguous { partition: target.source.to_string(), pipelines });
        }
        found.into_values().next().ok_or_else(|| Refusal::NotHere(target.source.to_string()))
    }

    fn running(&self) -> Running {
        self.0.running.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Where the logs of some partitions end.
type Ends = BTreeMap<TopicPartition, NextOffset>;

impl Running {
    /// Where the logs of these partitions of each pipeline end, by cluster.
    async fn log_ends(&self, lines: &[BTreeMap<TopicPartition, Line>]) -> BTreeMap<String, Ends> {
        let mut ends = BTreeMap::new();
        for (name, clients) in &self.clients {
            let here =
                self.pipelines.iter().zip(lines).filter(|(pipeline, _)| pipeline.shared.pipeline.cluster == *name);
            let mut sources: Vec<_> = here.flat_map(|(_, lines)| lines.keys()).cloned().collect();
            sources.sort_unstable();
            sources.dedup();
            ends.insert(name.clone(), clients.log_ends.ends(sources).await);
        }
        ends
    }
}

impl Operated {
    fn status(
        &self,
        lines: &BTreeMap<TopicPartition, Line>,
        reports: Vec<(TopicPartition, LaneReport)>,
        ends: Option<&Ends>,
    ) -> PipelineStatus {
        let status = |(source, report)| {
            let committed = lines.get(&source).map(|line| line.progress.committed()).unwrap_or_default();
            lane_status(&source, report, committed, ends.and_then(|ends| ends.get(&source)).copied())
        };
        let origin = &self.shared.destinations.origin;
        PipelineStatus {
            group: origin.group.clone(),
            guest: origin.guest.clone(),
            assigned: self.source.counts().rebalances > 0,
            lanes: reports.into_iter().map(status).collect(),
        }
    }
}

/// What each lane says of itself. All are asked before the first is waited for; one that does not answer in time is left
/// out, and named in the log.
async fn reports(pipelines: &[BTreeMap<TopicPartition, Line>]) -> Vec<Vec<(TopicPartition, LaneReport)>> {
    let ask = |line: &Line| {
        let (answer, answered) = oneshot::channel();
        line.ask(Ask::Report(answer));
        answered
    };
    let asked: Vec<Vec<_>> = pipelines
        .iter()
        .map(|lines| lines.iter().map(|(source, line)| (source.clone(), ask(line))).collect())
        .collect();
    let by = Instant::now() + ANSWER;
    let mut answers = Vec::with_capacity(asked.len());
    for lines in asked {
        let mut reports = Vec::with_capacity(lines.len());
        for (source, answered) in lines {
            match timeout_at(by, answered).await {
                Ok(Ok(report)) => reports.push((source, report)),
                Ok(Err(_)) => {} // it ended meanwhile
                Err(_) => tracing::error!(partition = %source, "The lane does not say how it stands: a defect"),
            }
        }
        answers.push(reports);
    }
    answers
}

fn lane_status(
    source: &TopicPartition,
    report: LaneReport,
    committed: NextOffset,
    end: Option<NextOffset>,
) -> LaneStatus {
    LaneStatus {
        topic: source.topic.to_string(),
        partition: source.partition,
        position: report.position.get(),
        committed: committed.get(),
        end: end.map(NextOffset::get),
        open: report.open,
        deferred: report.deferred,
        oldest_open_seconds: report.oldest_open.map(|age| age.as_secs_f64()),
        unacknowledged: report.unacknowledged,
        paused: report.paused,
    }
}
