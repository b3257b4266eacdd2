//! Start-up checks of a pipeline's topics, and the making of missing ones, before anything is read or written.

mod admin;
mod reach;
mod rules;

use std::collections::BTreeMap;

use admin::Admin;
use reach::Reach;
use rules::Found;

use super::{Cluster, pattern};
use crate::config::Pipeline;

/// What the checks found out: the topics of a pipeline by name.
#[derive(Clone, Debug, Default)]
pub struct Checked {
    /// Sources, outputs and routes.
    pub topics: BTreeMap<String, Topic>,
}

/// A topic that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topic {
    /// How many partitions it has.
    pub partitions: i32,
    /// Its `max.message.bytes`; `None` if the client may not know.
    pub max_message_bytes: Option<u64>,
}

/// Checks that the topics exist and may be used as the pipeline wants to use them, and makes those that a route says to
/// make. What is doubtful is logged as a warning; what cannot work is an error of one sentence. What the embedded broker
/// cannot answer is left out, and the log says so.
pub async fn prepare(cluster: &Cluster, pipeline: &Pipeline) -> anyhow::Result<Checked> {
    examine(cluster, pipeline, true).await
}

/// Waits until the brokers answer, however long that takes: a service that is started together with them need not be
/// started in any order.
///
/// # Errors
/// The brokers refuse this client, which waiting does not change, or no client can be made of these properties.
pub async fn await_brokers(cluster: &Cluster) -> anyhow::Result<()> {
    Reach::new(cluster)?.await_answer().await
}

/// Asks whether the brokers refuse this client. No answer is no refusal.
///
/// # Errors
/// As [`await_brokers`].
pub async fn knock(cluster: &Cluster) -> anyhow::Result<()> {
    Reach::new(cluster)?.knock().await
}

/// The same as [`prepare`], but makes nothing: a topic that a route says to make may be missing.
pub async fn check(cluster: &Cluster, pipeline: &Pipeline) -> anyhow::Result<Checked> {
    examine(cluster, pipeline, false).await
}

async fn examine(cluster: &Cluster, pipeline: &Pipeline, makes: bool) -> anyhow::Result<Checked> {
    let admin = Admin::connect(cluster)?;
    let by_pattern = pipeline.topics.iter().any(|topic| pattern::is_pattern(topic));
    let all = if by_pattern { admin.names().await? } else { Vec::new() };
    let wanted = rules::wanted(pipeline, &all);
    let mut found = admin.describe(&wanted).await?;
    if cluster.is_embedded() {
        tracing::info!(
            pipeline = pipeline.name,
            "The embedded broker knows no permissions and no configuration of topics: of these, nothing is checked"
        );
    } else {
        admin.configure(&wanted, &mut found).await;
        let (missing, existing): (Vec<_>, Vec<_>) = wanted.iter().copied().partition(|one| one.is_to_be_made(&found));
        // Nothing is made for a pipeline that cannot run.
        let warnings = rules::judge(pipeline, &existing, &found)?;
        if !makes {
            return Ok(Checked::new(&warnings, pipeline, found));
        }
        admin.create(&missing, rules::largest_message(&wanted, &found), &mut found).await?;
        admin.configure(&missing, &mut found).await;
    }
    let warnings = rules::judge(pipeline, &wanted, &found)?;
    Ok(Checked::new(&warnings, pipeline, found))
}

impl Checked {
    fn new(warnings: &[String], pipeline: &Pipeline, found: BTreeMap<String, Found>) -> Self {
        for warning in warnings {
            tracing::warn!(pipeline = pipeline.name, "{warning}");
        }
        Self { topics: found.into_iter().filter_map(|(name, found)| Some((name, known(found)?))).collect() }
    }
}

fn known(found: Found) -> Option<Topic> {
    match found {
        Found::Topic { partitions, configuration, .. } => {
            Some(Topic { partitions, max_message_bytes: configuration.map(|known| known.max_message_bytes) })
        }
        Found::Missing | Found::Refused(_) => None,
    }
}
