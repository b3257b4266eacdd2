//! Configuration, usable: every value checked, every default filled in. `file` holds the TOML as typed.

mod admin;
mod check;
mod environment;
mod error;
mod file;
mod key;
mod load;
mod memory;
#[cfg(test)]
mod tests;
mod value;

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use serde::Deserialize;

pub use admin::{Admin, Secret};
pub use error::ConfigError;

/// One process: clusters and the pipelines that read from them.
#[derive(Clone, Debug)]
pub struct Config {
    /// What the process may take without its guests, in bytes. It is divided already; `None` if nothing was said.
    pub memory: Option<u64>,
    /// At least one, by name: [`DEFAULT_CLUSTER`] is `[kafka]`, the others are `[clusters.<name>]`.
    pub clusters: BTreeMap<String, Kafka>,
    /// The listener for operators; nobody listens without.
    pub admin: Option<Admin>,
    /// At least one, by name.
    pub pipelines: BTreeMap<String, Pipeline>,
}

/// The name of the cluster of `[kafka]`.
pub const DEFAULT_CLUSTER: &str = "kafka";

/// How a cluster is reached.
#[derive(Clone, Debug)]
pub struct Kafka {
    /// Where it is.
    pub brokers: Brokers,
    /// librdkafka properties of every client. Values may be secrets: never print them.
    pub common: Properties,
    /// Properties of the main consumers and the shadow readers, over `common`.
    pub consumer: Properties,
    /// Properties of the producer, over `common`.
    pub producer: Properties,
    /// The shadow readers.
    pub shadow: Shadow,
    /// Bytes that the producer may hold without an acknowledgement. Stops a dead-letter topic that is slow or away from
    /// taking the memory of the process.
    pub unacknowledged: usize,
}

/// librdkafka properties by name. Its `Debug` shows names only, since values may be secrets.
#[derive(Clone, Default)]
pub struct Properties(pub BTreeMap<String, String>);

impl std::fmt::Debug for Properties {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// Where the brokers are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Brokers {
    /// librdkafka's mock cluster, started in this process: for a first look and for tests.
    Embedded,
    /// `host:port`, comma-separated.
    Servers(String),
}

/// The shadow readers of a cluster.
#[derive(Clone, Debug)]
pub struct Shadow {
    /// How many threads read. At least one.
    pub readers: usize,
    /// Up to which gap to read through instead of seeking.
    pub seek_threshold: SeekThreshold,
    /// After how long a read is given up for now (it is tried again; only its commit waits).
    pub deadline: Duration,
    /// The `group.id` of the readers. They join no group and commit nothing; ACLs want one.
    pub group_id: String,
}

/// The largest gap between two wanted offsets that is read through rather than skipped with a seek.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeekThreshold {
    /// From what seeks and reads were measured to cost.
    Auto,
    /// A number of offsets; 0 seeks to every offset that does not follow the one before.
    Offsets(u64),
    /// A number of bytes, by the mean size of what was read of the partition.
    Bytes(u64),
}

/// One group reading some topics through one guest.
#[derive(Clone, Debug)]
pub struct Pipeline {
    /// Its key in the configuration.
    pub name: String,
    /// The cluster of all of its topics.
    pub cluster: String,
    /// The topics by name. At least one.
    pub topics: Vec<String>,
    /// The consumer group.
    pub group: String,
    /// Where to begin a partition that has no committed offset.
    pub start: Start,
    /// Who judges.
    pub guest: Guest,
    /// When a batch is closed.
    pub batch: BatchLimits,
    /// How often offsets are committed.
    pub commit: Duration,
    /// The size of the pool for a guest that does not settle.
    pub instances: usize,
    /// Bytes of batches in hand, all lanes of the pipeline.
    pub in_hand: usize,
    /// Bytes that the main consumer's client reads ahead.
    pub prefetch: usize,
    /// Limits on the open offsets of one partition.
    pub open: OpenLimits,
    /// The tick of `settle` while offsets are open.
    pub settle: Duration,
    /// Bytes of what is open that are kept in memory, in front of the shadow readers, all lanes of the pipeline.
    pub recent: usize,
    /// Limits on retries.
    pub retry: RetryLimits,
    /// What becomes of a message whose payload is gone when it is wanted again.
    pub on_gone: OnGone,
    /// What to do when a position is outside of the log.
    pub on_out_of_range: OnOutOfRange,
    /// Grace for a shutdown.
    pub shutdown: Duration,
    /// Topics that the guest may emit to, by the name it uses.
    pub outputs: BTreeMap<String, Output>,
    /// Where rejected messages go, by name; always has [`DEAD_LETTER`].
    pub routes: BTreeMap<String, Route>,
}

/// The default route's name.
pub const DEAD_LETTER: &str = "dead-letter";

/// Where to begin a partition that has no committed offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Start {
    /// At the oldest message.
    Earliest,
    /// Behind the newest message.
    Latest,
}

/// A module, what it is told and what it may use.
#[derive(Clone, Debug)]
pub struct Guest {
    /// The module's file, relative paths resolved against the configuration's folder.
    pub module: PathBuf,
    /// Limit on the guest's linear memories, summed, in bytes.
    pub memory: usize,
    /// Limit on the time of one call.
    pub deadline: Duration,
    /// For `configure`, in the order of the file: TOML strings as they are, other values as JSON text.
    pub settings: Vec<(String, String)>,
}

/// When a batch is closed: whichever comes first.
#[derive(Clone, Copy, Debug)]
pub struct BatchLimits {
    /// Messages.
    pub messages: usize,
    /// Bytes; a single larger message makes a batch of its own.
    pub bytes: usize,
    /// Time since its first message.
    pub wait: Duration,
}

/// Limits on the open offsets of one partition.
#[derive(Clone, Copy, Debug)]
pub struct OpenLimits {
    /// How many.
    pub messages: u64,
    /// How old the oldest.
    pub age: Duration,
    /// Time for the guest to settle, once told of the pressure.
    pub grace: Duration,
    /// What then.
    pub then: OpenThen,
}

/// Limits on the retries of one message.
#[derive(Clone, Copy, Debug)]
pub struct RetryLimits {
    /// How often it is handed out at most, the first time included.
    pub attempts: u32,
}

/// What happens when a guest does not settle within the grace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OpenThen {
    /// Reject the oldest with the code `deferral-expired`.
    Reject,
    /// Pause the partition.
    Pause,
}

/// What becomes of a deferred or retried message whose payload is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnGone {
    /// A stub is produced to the route.
    Stub,
    /// It is accepted, with a warning.
    Accept,
}

/// What to do when a position is outside of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnOutOfRange {
    /// Stop the partition and say so.
    Stop,
    /// Go on at the oldest message.
    Earliest,
    /// Go on behind the newest message.
    Latest,
}

/// A topic that the guest may emit to.
#[derive(Clone, Debug)]
pub struct Output {
    /// The topic's name.
    pub topic: String,
}

/// Where rejected messages go.
#[derive(Clone, Debug)]
pub struct Route {
    /// The topic's name.
    pub topic: String,
    /// Which partition of it.
    pub partition: PartitionChoice,
    /// Which timestamp.
    pub timestamp: TimestampChoice,
    /// Which key.
    pub key: KeyChoice,
    /// Create the topic if it does not exist.
    pub create: Option<CreateTopic>,
    /// How much of what is settled may go there; `None` is any.
    pub limit: Option<RouteLimit>,
    /// Which families of headers to write; at least one.
    pub dialects: Vec<Dialect>,
}

/// How much of what is settled of a partition may go to a route.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RouteLimit {
    /// Of the last 1,000 settled messages, from 0 to 1.
    pub ratio: f64,
    /// Messages in a row.
    pub consecutive: u64,
    /// What happens instead of passing it.
    pub then: LimitThen,
}

/// What happens when a route would pass its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LimitThen {
    /// The partition pauses, and stays with its owner.
    Pause,
    /// The process ends with an error.
    Stop,
}

/// The partition of a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PartitionChoice {
    /// The source partition modulo the number of the route's partitions.
    Same,
    /// By the record's key, as the producer does.
    Key,
}

/// The timestamp of a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TimestampChoice {
    /// When it is produced.
    Now,
    /// The message's own.
    Original,
}

/// The key of a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeyChoice {
    /// The message's own.
    Original,
    /// `topic/partition/offset`: unique, for a compacted topic.
    Coordinates,
}

/// How to create a route's topic.
#[derive(Clone, Copy, Debug)]
pub struct CreateTopic {
    /// Number of partitions.
    pub partitions: i32,
    /// Replication factor.
    pub replicas: i32,
}

/// A family of dead-letter headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Dialect {
    /// `deadletter.*`.
    Deadletter,
    /// `__connect.errors.*`, as Kafka Connect writes them.
    Connect,
    /// `kafka_dlt-*`, as Spring Kafka writes them.
    Spring,
}
