//! The broker behind `brokers = "embedded"`: librdkafka's mock cluster, in this process, in memory.

use std::fmt;

use anyhow::Context as _;
use rdkafka::producer::{BaseProducer, Producer as _};

use super::client;

/// A cluster of one broker, which is gone when this is dropped. Each partition keeps its last 5 MiB.
pub struct Embedded {
    servers: String,
    /// rdkafka's own `MockCluster` cannot move to another thread; a client that has the cluster can.
    _owner: BaseProducer,
}

impl Embedded {
    /// How many partitions a topic has unless told otherwise.
    pub const PARTITIONS: i32 = 4;

    /// Starts the broker, with topics by name and number of partitions. No topic may come twice. Other topics are made
    /// when they are first asked for.
    pub fn start(topics: impl IntoIterator<Item = (String, i32)>) -> anyhow::Result<Self> {
        const CONTEXT: &str = "cannot start the embedded broker";
        let owner: BaseProducer = client::embedded().create().context(CONTEXT)?;
        let cluster = owner.client().mock_cluster().context(CONTEXT)?;
        for (topic, partitions) in topics {
            cluster
                .create_topic(&topic, partitions, 1)
                .with_context(|| format!("cannot make the topic {topic:?} on the embedded broker"))?;
        }
        let servers = cluster.bootstrap_servers();
        drop(cluster);
        Ok(Self { servers, _owner: owner })
    }

    /// Its addresses, as for `brokers`.
    pub fn servers(&self) -> &str {
        &self.servers
    }
}

impl fmt::Debug for Embedded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Embedded").field("servers", &self.servers).finish_non_exhaustive()
    }
}
