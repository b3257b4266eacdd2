//! Asking the cluster about topics, and making them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use rdkafka::{
    admin::{AdminClient, AdminOptions, ConfigResource, NewTopic, ResourceSpecifier, TopicReplication},
    client::Client,
    error::{KafkaError, KafkaResult, RDKafkaErrorCode},
};

use super::{
    super::{
        Cluster, client,
        context::Context,
        raw::{self, Question},
    },
    rules::{Configuration, DEFAULT_MAX_MESSAGE_BYTES, Found, Topics, Wanted},
};
use crate::config::CreateTopic;

/// Bounds on one question, and on how long a topic may take to be seen after it was made.
const TIMEOUT: Duration = Duration::from_secs(10);
const SEEN: Duration = Duration::from_secs(30);
const SEEN_POLL: Duration = Duration::from_millis(50);

pub(super) struct Admin {
    client: Arc<AdminClient<Context>>,
    servers: String,
    embedded: bool,
}

impl Admin {
    pub(super) fn connect(cluster: &Cluster) -> anyhow::Result<Self> {
        let client = client::admin(cluster.kafka(), cluster.servers())
            .create_with_context(Context)
            .context("cannot make a client for the checks of topics")?;
        Ok(Self { client: Arc::new(client), servers: cluster.servers().to_owned(), embedded: cluster.is_embedded() })
    }

    /// The names of all topics that this client may see.
    pub(super) async fn names(&self) -> anyhow::Result<Vec<String>> {
        let client = Arc::clone(&self.client);
        let asked = tokio::task::spawn_blocking(move || {
            let metadata = client.inner().fetch_metadata(None, TIMEOUT)?;
            Ok::<_, KafkaError>(metadata.topics().iter().map(|topic| topic.name().to_owned()).collect())
        });
        asked.await?.with_context(|| format!("cannot ask the brokers at {:?} for the names of topics", self.servers))
    }

    /// All topics wanted, without their configuration.
    pub(super) async fn describe(&self, wanted: &[Wanted<'_>]) -> anyhow::Result<Topics> {
        let names: BTreeSet<String> = wanted.iter().map(|wanted| wanted.topic.to_owned()).collect();
        let (client, embedded) = (Arc::clone(&self.client), self.embedded);
        let asked = tokio::task::spawn_blocking(move || -> anyhow::Result<Topics> {
            let client = client.inner();
            if embedded {
                return Ok(list(client, &names)?);
            }
            let in_order: Vec<_> = names.iter().map(String::as_str).collect();
            let described = raw::describe(client, &in_order, Question { broker: None, permissions: true }, TIMEOUT)?;
            Ok(names.into_iter().zip(described.iter().map(found)).collect())
        });
        asked.await?.with_context(|| format!("cannot ask the brokers at {:?} about topics", self.servers))
    }

    /// Adds the configuration of topics; says so where it may not be known.
    pub(super) async fn configure(&self, wanted: &[Wanted<'_>], topics: &mut Topics) {
        for wanted in wanted {
            let Some(Found::Topic { configuration, .. }) = topics.get_mut(wanted.topic) else { continue };
            if configuration.is_some() {
                continue;
            }
            match self.configuration(wanted.topic).await {
                Ok(known) => *configuration = Some(known),
                Err(error) => tracing::info!(
                    "The configuration of {wanted} cannot be read ({error:#}): its limits, compaction and retention are \
                     not checked"
                ),
            }
        }
    }

    async fn configuration(&self, topic: &str) -> anyhow::Result<Configuration> {
        let options = AdminOptions::new().request_timeout(Some(TIMEOUT));
        let resources = self.client.describe_configs(&[ResourceSpecifier::Topic(topic)], &options).await?;
        let resource = resources.into_iter().next().context("the broker did not answer")??;
        let value = |name: &str| value(&resource, name).with_context(|| format!("the broker gave no {name}"));
        let policies: Vec<_> = value("cleanup.policy")?.split(',').map(str::trim).collect();
        let retention: i64 = value("retention.ms")?.parse().context("retention.ms")?;
        let expires = policies.contains(&"delete");
        Ok(Configuration {
            max_message_bytes: value("max.message.bytes")?.parse().context("max.message.bytes")?,
            compacts: policies.contains(&"compact"),
            retention: u64::try_from(retention).ok().filter(|_| expires).map(Duration::from_millis),
        })
    }

    /// Makes missing topics of routes, with room for the largest message, and waits until they are seen.
    pub(super) async fn create(
        &self,
        missing: &[Wanted<'_>],
        largest: Option<u64>,
        topics: &mut Topics,
    ) -> anyhow::Result<()> {
        let by_name: BTreeMap<_, _> = missing.iter().map(|one| (one.topic, *one)).collect();
        let missing: Vec<_> = by_name.into_values().collect();
        let largest = largest.filter(|largest| *largest > DEFAULT_MAX_MESSAGE_BYTES);
        for (one, create) in missing.iter().filter_map(|one| Some((one, one.create()?))) {
            self.create_one(one, create, largest).await?;
        }
        let end = Instant::now() + SEEN;
        while !missing.is_empty() {
            let seen = self.describe(&missing).await?;
            let unseen = missing.iter().find(|one| !matches!(seen.get(one.topic), Some(Found::Topic { .. })));
            let Some(unseen) = unseen else {
                topics.extend(seen);
                break;
            };
            if Instant::now() > end {
                bail!("{unseen} was created but cannot be seen: check the cluster, then start again");
            }
            tokio::time::sleep(SEEN_POLL).await;
        }
        Ok(())
    }

    async fn create_one(&self, wanted: &Wanted<'_>, create: CreateTopic, largest: Option<u64>) -> anyhow::Result<()> {
        let limit = largest.map(|largest| largest.to_string());
        let mut topic = NewTopic::new(wanted.topic, create.partitions, TopicReplication::Fixed(create.replicas));
        topic = topic.set("cleanup.policy", "delete");
        if let Some(limit) = &limit {
            topic = topic.set("max.message.bytes", limit);
        }
        let options = AdminOptions::new().request_timeout(Some(TIMEOUT)).operation_timeout(Some(TIMEOUT));
        let answers = self.client.create_topics([&topic], &options).await;
        let answer = answers.with_context(|| format!("cannot create {wanted}"))?.into_iter().next();
        match answer.with_context(|| format!("cannot create {wanted}: the broker did not answer"))? {
            Ok(_) => tracing::info!(partitions = create.partitions, replicas = create.replicas, "Created {wanted}"),
            // Another process was faster.
            Err((_, RDKafkaErrorCode::TopicAlreadyExists)) => {}
            Err((_, code)) => bail!(
                "cannot create {wanted} with {} partitions and {} replicas: {code}; create it by hand, or correct the \
                 route's create",
                create.partitions,
                create.replicas
            ),
        }
        Ok(())
    }
}

/// For the embedded broker, which does not describe topics.
fn list(client: &Client<Context>, names: &BTreeSet<String>) -> KafkaResult<Topics> {
    let metadata = client.fetch_metadata(None, TIMEOUT)?;
    let partitions = |name: &str| {
        let topic = metadata.topics().iter().find(|topic| topic.name() == name)?;
        i32::try_from(topic.partitions().len()).ok()
    };
    let found = |name: &str| match partitions(name) {
        Some(partitions) => Found::Topic { partitions, may_read: None, may_write: None, configuration: None },
        None => Found::Missing,
    };
    Ok(names.iter().map(|name| (name.clone(), found(name))).collect())
}

fn found(described: &Result<raw::Description, RDKafkaErrorCode>) -> Found {
    match described {
        Ok(raw::Description { partitions, allowed, .. }) => Found::Topic {
            partitions: *partitions,
            may_read: allowed.map(|allowed| allowed.read),
            may_write: allowed.map(|allowed| allowed.write),
            configuration: None,
        },
        Err(RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::UnknownTopic) => Found::Missing,
        Err(code) => Found::Refused(code.to_string()),
    }
}

fn value<'r>(resource: &'r ConfigResource, name: &str) -> Option<&'r str> {
    resource.get(name)?.value.as_deref()
}
