//! A cluster as one process reaches it: the clients that all pipelines share.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use tracing::info;

use super::{Embedded, Producer, ShadowReaders, TopicIds, Watermarks, pattern};
use crate::config::{Brokers, Config, Kafka};

/// The clients that all pipelines of a cluster share, and the mock cluster if the configuration asks for it.
pub struct Cluster {
    kafka: Kafka,
    servers: String,
    producer: Producer,
    shadow: ShadowReaders,
    watermarks: Watermarks,
    embedded: Option<Embedded>,
}

/// The clusters of a configuration by name.
pub type Clusters = BTreeMap<String, Cluster>;

impl Cluster {
    /// All clusters of a configuration, each as [`Cluster::open`] does.
    ///
    /// # Errors
    /// The first that could not be opened.
    pub fn open_all(config: &Config) -> Result<Clusters> {
        config.clusters.keys().map(|name| Ok((name.clone(), Self::open(config, name)?))).collect()
    }

    /// Connects to nothing yet, except that `brokers = "embedded"` starts the mock cluster, with every topic that the
    /// configuration names of it.
    ///
    /// # Errors
    /// The configuration has none of that name, or the mock cluster could not be started.
    pub fn open(config: &Config, name: &str) -> Result<Self> {
        let kafka = config.clusters.get(name).with_context(|| format!("the cluster {name} is not configured"))?;
        let (servers, embedded) = match &kafka.brokers {
            Brokers::Servers(servers) => (servers.clone(), None),
            Brokers::Embedded => {
                let embedded = Embedded::start(topics(config, name))?;
                let servers = embedded.servers().to_owned();
                info!(servers, "Embedded mock cluster: for a first look, and gone with this process");
                (servers, Some(embedded))
            }
        };
        let producer = Producer::new(kafka, &servers);
        let shadow = ShadowReaders::new(kafka, &servers, TopicIds::new(kafka, &servers));
        let watermarks = Watermarks::new(kafka, &servers);
        Ok(Self { kafka: kafka.clone(), servers, producer, shadow, watermarks, embedded })
    }

    /// How it was configured.
    pub fn kafka(&self) -> &Kafka {
        &self.kafka
    }

    /// `host:port`, comma-separated.
    pub fn servers(&self) -> &str {
        &self.servers
    }

    /// Whether it is the mock cluster in this process.
    pub fn is_embedded(&self) -> bool {
        self.embedded.is_some()
    }

    /// The producer.
    pub fn producer(&self) -> &Producer {
        &self.producer
    }

    /// The shadow readers.
    pub fn shadow(&self) -> &ShadowReaders {
        &self.shadow
    }

    /// Where logs end.
    pub fn log_ends(&self) -> &Watermarks {
        &self.watermarks
    }

    /// The watermarks; `None` where nothing is ever deleted.
    pub fn watermarks(&self) -> Option<&Watermarks> {
        (!self.is_embedded()).then_some(&self.watermarks)
    }
}

/// Every topic that the configuration names of a cluster, once, with its number of partitions.
fn topics(config: &Config, cluster: &str) -> BTreeMap<String, i32> {
    let mut topics = BTreeMap::new();
    for pipeline in config.pipelines.values().filter(|pipeline| pipeline.cluster == cluster) {
        let outputs = pipeline.outputs.values().map(|output| &output.topic);
        for topic in pipeline.topics.iter().filter(|topic| !pattern::is_pattern(topic)).chain(outputs) {
            topics.insert(topic.clone(), Embedded::PARTITIONS);
        }
        for route in pipeline.routes.values() {
            let partitions = route.create.map_or(Embedded::PARTITIONS, |create| create.partitions);
            topics.insert(route.topic.clone(), partitions);
        }
    }
    topics
}
