//! Pipelines: each one a main consumer, its lanes and a guest, over the clients that a cluster's pipelines share.

use std::{collections::BTreeMap, future::Future, pin::Pin, sync::Arc, time::Duration};

use anyhow::{Context as _, Result, anyhow};
use serde::Serialize;
use tokio::{task::JoinSet, time::Instant};
use tracing::{error, info};

use crate::{
    config::{self, Config},
    control::{Control, Operated},
    guest::{Compiler, Guest, LoadError, Setup},
    kafka::{
        Cluster, Clusters,
        shadow::Counts,
        source::{Source, SourceCounts, Stopped},
        topics,
    },
    lane::{Destinations, Instances, Lane, LaneBook, RecentQuota, Shared, Tally, TallyBook},
    record::Origin,
};

/// How long after the grace of a shutdown a pipeline may still be there: its client may take a while to leave the group.
const OVERDUE: Duration = Duration::from_secs(15);

/// What a process did.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Summary {
    /// By pipeline.
    pub pipelines: BTreeMap<String, PipelineSummary>,
    /// The shadow reads of each cluster, by name.
    pub shadow_reads: BTreeMap<String, Counts>,
}

/// What a pipeline did.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct PipelineSummary {
    /// Messages and verdicts.
    pub tally: Tally,
    /// The main consumer.
    pub source: SourceCounts,
}

/// Runs every pipeline of a configuration until `shutdown`, then drains them. What an operator asks of them comes through
/// `control`.
///
/// # Errors
/// The first pipeline that cannot start or go on; the others are drained first.
pub async fn run(
    config: Config,
    guests: Guests,
    control: &Control,
    shutdown: impl Future<Output = ()>,
) -> Result<Summary> {
    run_on(&Cluster::open_all(&config)?, config, guests, control, shutdown).await
}

/// The guest of each pipeline, by the pipeline's name.
pub type Guests = BTreeMap<String, Guest>;

/// Loads the guests of a configuration and tells each its settings: all that can be known without a network.
///
/// # Errors
/// The first module that is refused, or refuses its settings.
pub async fn load_guests(config: &Config, compiler: &Compiler) -> Result<Guests, LoadError> {
    let mut guests = BTreeMap::new();
    for (name, pipeline) in &config.pipelines {
        guests.insert(name.clone(), load_guest(pipeline, compiler).await?);
    }
    Ok(guests)
}

async fn load_guest(pipeline: &config::Pipeline, compiler: &Compiler) -> Result<Guest, LoadError> {
    let guest = Guest::load(Setup::from(pipeline), compiler).await?;
    info!(pipeline = %pipeline.name, module = %pipeline.guest.module.display(), digest = guest.digest(), "Guest loaded");
    Ok(guest)
}

/// As [`run`], on clusters that are open already.
///
/// # Errors
/// As [`run`].
pub async fn run_on(
    clusters: &Clusters,
    config: Config,
    mut guests: Guests,
    control: &Control,
    shutdown: impl Future<Output = ()>,
) -> Result<Summary> {
    tokio::pin!(shutdown);
    // Every pipeline is checked before the first one starts.
    let mut checked = tokio::select! {
        checked = check_topics(clusters, &config) => checked?,
        () = &mut shutdown => return Ok(Summary::default()),
    };
    let mut running = Vec::new();
    let mut stops = JoinSet::new();
    let mut not_started = None;
    for (name, pipeline) in config.pipelines {
        let checked = checked.remove(&name).unwrap_or_default();
        match Running::start(clusters, pipeline, guests.remove(&name), &checked) {
            Ok((started, stopped)) => {
                stops.spawn(async move { (name, stopped.await) });
                running.push(started);
            }
            Err(error) => {
                not_started = Some(error.context(format!("cannot start pipeline {name}")));
                break;
            }
        }
    }
    let all_started = not_started.is_none();
    let shutdown = async {
        if all_started {
            shutdown.await;
        }
    };
    let operated =
        |pipeline: &Running| Operated { shared: Arc::clone(&pipeline.shared), source: pipeline.source.clone() };
    control.began(clusters, running.iter().map(operated).collect());
    let failed = not_started.or(wait(&running, stops, control, shutdown).await);
    let shadow_reads = clusters.iter().map(|(name, cluster)| (name.clone(), cluster.shadow().counts()));
    let mut summary = Summary { shadow_reads: shadow_reads.collect(), ..Summary::default() };
    for pipeline in running {
        let name = pipeline.shared.pipeline.name.clone();
        summary.pipelines.insert(name, pipeline.summary());
    }
    match failed {
        None => Ok(summary),
        Some(error) => Err(error),
    }
}

/// The topics of each pipeline, once the brokers of every cluster answer.
async fn check_topics(clusters: &Clusters, config: &Config) -> Result<BTreeMap<String, topics::Checked>> {
    for cluster in clusters.values() {
        topics::await_brokers(cluster).await?;
    }
    let mut checked = BTreeMap::new();
    for (name, pipeline) in &config.pipelines {
        let topics = topics::prepare(cluster_of(clusters, pipeline)?, pipeline).await;
        checked.insert(name.clone(), topics.with_context(|| format!("pipeline {name}"))?);
    }
    Ok(checked)
}

fn cluster_of<'c>(clusters: &'c Clusters, pipeline: &config::Pipeline) -> Result<&'c Cluster> {
    clusters.get(&pipeline.cluster).with_context(|| format!("the cluster {} is not open", pipeline.cluster))
}

/// Until all have stopped: after `shutdown`, or after the first that failed, each drains.
async fn wait(
    running: &[Running],
    mut stops: JoinSet<(String, Stopped)>,
    control: &Control,
    shutdown: impl Future<Output = ()>,
) -> Option<anyhow::Error> {
    tokio::pin!(shutdown);
    let overdue = running.iter().map(|pipeline| pipeline.shared.pipeline.shutdown).max().unwrap_or_default() + OVERDUE;
    let mut failed = None;
    let mut draining = false;
    let stuck = tokio::time::sleep(Duration::MAX);
    tokio::pin!(stuck);
    loop {
        tokio::select! {
            () = &mut shutdown, if !draining => {}
            () = &mut stuck, if draining => {
                return failed.or_else(|| Some(anyhow!("not stopped {overdue:?} after the shutdown began; what was not committed comes again")));
            }
            stopped = stops.join_next() => match stopped {
                None => return failed,
                Some(Ok((_, Stopped::Drained))) => {}
                Some(Ok((name, Stopped::Failed(error)))) => {
                    error!(pipeline = name, "Stopped: {error:#}");
                    failed.get_or_insert_with(|| error.context(format!("pipeline {name} stopped")));
                }
                Some(Err(error)) => _ = failed.get_or_insert_with(|| error.into()),
            },
        }
        if !draining {
            draining = true;
            control.begin_drain();
            stuck.as_mut().reset(Instant::now() + overdue);
            for pipeline in running {
                pipeline.source.drain();
            }
        }
    }
}

type Stopping = Pin<Box<dyn Future<Output = Stopped> + Send>>;

struct Running {
    source: Source,
    shared: Arc<Shared>,
}

impl Running {
    fn start(
        clusters: &Clusters,
        pipeline: config::Pipeline,
        guest: Option<Guest>,
        checked: &topics::Checked,
    ) -> Result<(Self, Stopping)> {
        let cluster = cluster_of(clusters, &pipeline)?;
        let guest = guest.context("it has no guest")?;
        let origin =
            Origin { group: pipeline.group.clone(), pipeline: pipeline.name.clone(), guest: guest.digest().to_owned() };
        let routes = pipeline.routes.iter().map(|(name, route)| {
            let partitions = checked.topics.get(&route.topic).map(|topic| topic.partitions);
            (name.clone(), (route.clone(), partitions))
        });
        let destinations = Destinations {
            producer: cluster.producer().clone(),
            routes: routes.collect(),
            outputs: pipeline.outputs.iter().map(|(name, output)| (name.clone(), output.topic.clone())).collect(),
            origin,
        };
        let shared = Arc::new(Shared {
            instances: Arc::new(Instances::new(guest, pipeline.guest.memory, pipeline.instances)),
            destinations: Arc::new(destinations),
            shadow: cluster.shadow().clone(),
            recent: Arc::new(RecentQuota::new(pipeline.recent)),
            watermarks: cluster.watermarks().cloned(),
            tally: TallyBook::default(),
            lanes: LaneBook::default(),
            pipeline,
        });
        let lanes = Arc::clone(&shared);
        let (source, stopped) =
            Source::start(cluster, &shared.pipeline, Box::new(move |assigned| Lane::spawn(&lanes, assigned)))?;
        Ok((Self { source, shared }, Box::pin(stopped)))
    }

    fn summary(&self) -> PipelineSummary {
        PipelineSummary { tally: self.shared.tally.read(), source: self.source.counts() }
    }
}
