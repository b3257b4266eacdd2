//! A cluster as one process reaches it: the clients that all pipelines share.

use std::collections::BTreeMap;

use anyhow::Result;
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

impl Cluster {
    /// Connects to nothing yet, except that `brokers = "embedded"` starts the mock cluster, with every topic that the
    /// configuration names.
    ///
    /// # Errors
    /// The mock cluster could not be started.
    pub fn open(config: &Config) -> Result<Self> {
        let (servers, embedded) = match &config.kafka.brokers {
            Brokers::Servers(servers) => (servers.clone(), None),
            Brokers::Embedded => {
                let embedded = Embedded::start(topics(config))?;
                let servers = embedded.servers().to_owned();
                info!(servers, "Embedded mock cluster: for a first look, and gone with this process");
                (servers, Some(embedded))
            }
        };
        let producer = Producer::new(&config.kafka, &servers);
        let shadow = ShadowReaders::new(&config.kafka, &servers, TopicIds::new(&config.kafka, &servers));
        let watermarks = Watermarks::new(&config.kafka, &servers);
        Ok(Self { kafka: config.kafka.clone(), servers, producer, shadow, watermarks, embedded })
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

/// Every topic that the configuration names, once, with its number of partitions.
fn topics(config: &Config) -> BTreeMap<String, i32> {
    let mut topics = BTreeMap::new();
    for pipeline in config.pipelines.values() {
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
