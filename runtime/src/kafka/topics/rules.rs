//! What a pipeline wants of its topics, and what is wrong with those that were found. Pure.

use std::{collections::BTreeMap, fmt, time::Duration};

use anyhow::bail;

use crate::{
    config::{CreateTopic, KeyChoice, Pipeline, Route, TimestampChoice},
    kafka::pattern::{self, Sources},
};

/// `max.message.bytes` of a topic unless the broker says otherwise.
pub(super) const DEFAULT_MAX_MESSAGE_BYTES: u64 = 1_048_588;

/// One use of a topic; a topic may have several.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted<'a> {
    pub(super) topic: &'a str,
    pub(super) pipeline: &'a str,
    pub(super) role: Role<'a>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Role<'a> {
    Source,
    Output(&'a str),
    Route(&'a str, &'a Route),
}

/// What the cluster says of a topic.
#[derive(Clone, Debug)]
pub(super) enum Found {
    Missing,
    /// The topic may exist; the client may not know, or the broker could not say.
    Refused(String),
    Topic {
        partitions: i32,
        /// `None` where the broker does not say.
        may_read: Option<bool>,
        may_write: Option<bool>,
        /// `None` where it was not asked for, or may not be known.
        configuration: Option<Configuration>,
    },
}

/// What matters of a topic's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Configuration {
    pub(super) max_message_bytes: u64,
    /// Whether a later record of the same key may take the place of an earlier one.
    pub(super) compacts: bool,
    /// For how long records are kept; `None` is for ever.
    pub(super) retention: Option<Duration>,
}

pub(super) type Topics = BTreeMap<String, Found>;

impl fmt::Display for Wanted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { topic, pipeline, role } = self;
        match role {
            Role::Source => write!(f, "topic {topic:?} of pipeline {pipeline:?}"),
            Role::Output(name) => write!(f, "topic {topic:?} of output {name:?} of pipeline {pipeline:?}"),
            Role::Route(name, _) => write!(f, "topic {topic:?} of route {name:?} of pipeline {pipeline:?}"),
        }
    }
}

impl Wanted<'_> {
    /// The key of the configuration that names the topic.
    fn key(&self) -> String {
        let pipeline = self.pipeline;
        match self.role {
            Role::Source => format!("pipelines.{pipeline}.topics"),
            Role::Output(name) => format!("pipelines.{pipeline}.outputs.{name}.topic"),
            Role::Route(name, _) => format!("pipelines.{pipeline}.routes.{name}.topic"),
        }
    }

    /// Whether it is missing, and a route says how to make it.
    pub(super) fn is_to_be_made(self, found: &Topics) -> bool {
        self.create().is_some() && matches!(found.get(self.topic), Some(Found::Missing))
    }

    /// How to make it.
    pub(super) fn create(self) -> Option<CreateTopic> {
        match self.role {
            Role::Route(_, route) => route.create,
            Role::Source | Role::Output(_) => None,
        }
    }
}

/// Every use of a topic, sources first. Those that patterns match are among the names of all topics.
pub(super) fn wanted<'a>(pipeline: &'a Pipeline, all: &'a [String]) -> Vec<Wanted<'a>> {
    let patterns = Sources::of(&pipeline.topics);
    let named = pipeline.topics.iter().filter(|topic| !pattern::is_pattern(topic));
    let matched = all.iter().filter(|topic| patterns.find(topic).is_some_and(pattern::is_pattern));
    let sources = named.chain(matched).map(|topic| (topic, Role::Source));
    let outputs = pipeline.outputs.iter().map(|(name, output)| (&output.topic, Role::Output(name)));
    let routes = pipeline.routes.iter().map(|(name, route)| (&route.topic, Role::Route(name, route)));
    let all = sources.chain(outputs).chain(routes);
    all.map(|(topic, role)| Wanted { topic, pipeline: &pipeline.name, role }).collect()
}

/// The largest message that a source lets through, as far as that is known.
pub(super) fn largest_message(wanted: &[Wanted<'_>], found: &Topics) -> Option<u64> {
    sources(wanted, found).map(|source| source.max_message_bytes).max()
}

/// The configuration of the sources, as far as it is known.
fn sources<'f>(wanted: &[Wanted<'_>], found: &'f Topics) -> impl Iterator<Item = &'f Configuration> {
    let sources = wanted.iter().filter(|one| matches!(one.role, Role::Source));
    sources.filter_map(|one| configuration(found, one.topic))
}

/// Warnings; the first thing that cannot work is an error.
pub(super) fn judge(pipeline: &Pipeline, wanted: &[Wanted<'_>], found: &Topics) -> anyhow::Result<Vec<String>> {
    let largest = largest_message(wanted, found);
    let oldest = sources(wanted, found).map(|source| source.retention.unwrap_or(Duration::MAX)).max();
    let mut warnings = unmatched(pipeline, wanted);
    for one in wanted {
        usable(one, found.get(one.topic))?;
        let Some(known) = configuration(found, one.topic) else { continue };
        match one.role {
            Role::Source => warnings.extend(kept_long_enough(one, known, pipeline.open.age)),
            Role::Output(_) => {}
            Role::Route(_, route) => {
                takes_equal_keys(one, known, route)?;
                warnings.extend(takes_large_messages(one, known, largest));
                if route.timestamp == TimestampChoice::Original {
                    warnings.extend(takes_old_messages(one, known, oldest));
                }
            }
        }
    }
    Ok(warnings)
}

/// Patterns for which there is no topic yet.
fn unmatched(pipeline: &Pipeline, wanted: &[Wanted<'_>]) -> Vec<String> {
    let mut unmatched = Vec::new();
    for entry in pipeline.topics.iter().filter(|entry| pattern::is_pattern(entry)) {
        let sources = Sources::of(std::slice::from_ref(entry));
        let is_match = |one: &Wanted<'_>| matches!(one.role, Role::Source) && sources.find(one.topic).is_some();
        if !wanted.iter().any(is_match) {
            unmatched.push(format!(
                "no topic matches {entry:?} of pipelines.{}.topics yet: messages come once there is one",
                pipeline.name
            ));
        }
    }
    unmatched
}

fn usable(wanted: &Wanted<'_>, found: Option<&Found>) -> anyhow::Result<()> {
    let key = wanted.key();
    match (found, wanted.role) {
        (None | Some(Found::Missing), Role::Route(name, _)) => {
            let pipeline = wanted.pipeline;
            bail!("{wanted} does not exist: create it, or say how in pipelines.{pipeline}.routes.{name}.create")
        }
        (None | Some(Found::Missing), _) => bail!("{wanted} does not exist: create it, or correct {key}"),
        (Some(Found::Refused(reason)), _) => bail!("{wanted} cannot be described: {reason}; check its ACLs, or {key}"),
        (Some(Found::Topic { may_read: Some(false), .. }), Role::Source) => {
            bail!("{wanted} may not be read by this client: grant it READ on the topic, or correct {key}")
        }
        (Some(Found::Topic { may_write: Some(false), .. }), Role::Output(_) | Role::Route(..)) => {
            bail!("{wanted} may not be written by this client: grant it WRITE on the topic, or correct {key}")
        }
        (Some(Found::Topic { .. }), _) => Ok(()),
    }
}

fn takes_equal_keys(wanted: &Wanted<'_>, known: &Configuration, route: &Route) -> anyhow::Result<()> {
    if known.compacts && route.key == KeyChoice::Original {
        bail!(
            "{wanted} is compacted, so dead letters of the same key would replace each other: set its cleanup.policy to \
             \"delete\", or the route's key to \"coordinates\""
        );
    }
    Ok(())
}

fn takes_large_messages(wanted: &Wanted<'_>, known: &Configuration, largest: Option<u64>) -> Option<String> {
    let (limit, largest) = (known.max_message_bytes, largest?);
    (limit < largest).then(|| {
        format!(
            "{wanted} takes records of up to {limit} bytes (max.message.bytes), its source up to {largest}: dead letters \
             of larger messages come with fewer headers, or without their payload; raise it to {largest} and some room for headers"
        )
    })
}

fn takes_old_messages(wanted: &Wanted<'_>, known: &Configuration, oldest: Option<Duration>) -> Option<String> {
    let retention = known.retention.filter(|retention| oldest.is_some_and(|oldest| *retention < oldest))?;
    Some(format!(
        "{wanted} keeps records for {}, less than its source, and gets the messages' own timestamps: a dead letter of an \
         old message is deleted soon after it is written; set the route's timestamp to \"now\", or keep its records longer",
        humantime::format_duration(retention)
    ))
}

fn kept_long_enough(wanted: &Wanted<'_>, known: &Configuration, age: Duration) -> Option<String> {
    let retention = known.retention.filter(|retention| *retention <= age)?;
    Some(format!(
        "{wanted} keeps messages for {} (retention.ms), and open.age lets them be open for {}: their payload may be gone \
         when they are rejected; keep them longer, or lower open.age",
        humantime::format_duration(retention),
        humantime::format_duration(age)
    ))
}

fn configuration<'f>(found: &'f Topics, topic: &str) -> Option<&'f Configuration> {
    match found.get(topic)? {
        Found::Topic { configuration, .. } => configuration.as_ref(),
        Found::Missing | Found::Refused(_) => None,
    }
}

#[cfg(test)]
mod tests;
