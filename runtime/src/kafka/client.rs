//! The properties of every client: the only place with librdkafka's property strings.

use rdkafka::{ClientConfig, error::KafkaError, types::RDKafkaConfRes};

use crate::config::{Kafka, Pipeline, Properties};

/// Properties that decide what is committed, lost or repeated, or that would load foreign code: the host sets them.
pub const HOST_OWNED: &[&str] = &[
    "bootstrap.servers",
    "metadata.broker.list",
    "group.id",
    "client.id",
    "enable.auto.commit",
    "auto.commit.enable",
    "auto.commit.interval.ms",
    "enable.auto.offset.store",
    "auto.offset.reset",
    "enable.partition.eof",
    "allow.auto.create.topics",
    "enable.idempotence",
    "acks",
    "request.required.acks",
    "max.in.flight",
    "max.in.flight.requests.per.connection",
    "retries",
    "message.send.max.retries",
    "transactional.id",
    "message.timeout.ms",
    "message.max.bytes",
    "queue.buffering.max.messages",
    "queue.buffering.max.kbytes",
    "queue.buffering.backpressure.threshold",
    "delivery.report.only.error",
    "offset.store.method",
    "plugin.library.paths",
    "ssl.engine.location",
    "ssl.providers",
    "test.mock.num.brokers",
];

/// What a client can log in with. librdkafka is built without what Kerberos (GSSAPI) needs and without what fetches the
/// tokens of OAUTHBEARER; tokens that it makes itself it never renews under rdkafka, so they work for an hour.
const MECHANISMS: &[&str] = &["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"];

/// Properties of a group's members alone: of the main consumers. In any other client some would do harm (with the id of a
/// main consumer it would fence that one), and some contradict what is left, and then there is no client at all.
pub const GROUP_ONLY: &[&str] = &[
    "group.protocol",
    "group.protocol.type",
    "group.instance.id",
    "group.remote.assignor",
    "session.timeout.ms",
    "heartbeat.interval.ms",
    "max.poll.interval.ms",
    "partition.assignment.strategy",
];

/// Properties that librdkafka refuses under `group.protocol=consumer`, where the brokers decide, and by what they do.
pub const CLASSIC_ONLY: &[(&str, &str)] = &[
    ("session.timeout.ms", "set group.consumer.session.timeout.ms of the brokers"),
    ("heartbeat.interval.ms", "set group.consumer.heartbeat.interval.ms of the brokers"),
    ("partition.assignment.strategy", "name an assignor of the brokers in group.remote.assignor"),
    ("group.protocol.type", "leave it out"),
];

/// Why a property may not be set to a value, without the value, which may be a secret. What only fails once a client is
/// made (files that are missing, properties that contradict each other) is not found here.
pub fn refusal(name: &str, value: &str) -> Option<&'static str> {
    if HOST_OWNED.contains(&name) {
        return Some("the host owns this property: it decides what is committed, lost or repeated");
    }
    if is_mechanism(name) && !MECHANISMS.contains(&value) {
        return Some("only PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512 are built in");
    }
    match ClientConfig::new().set(name, value).create_native_config() {
        Ok(_) => None,
        Err(KafkaError::ClientConfig(RDKafkaConfRes::RD_KAFKA_CONF_UNKNOWN, ..)) => {
            Some("librdkafka has no such property")
        }
        Err(KafkaError::Nul(_)) => Some("a NUL cannot be in a property"),
        Err(_) => Some("librdkafka does not allow this value"),
    }
}

/// Whether properties ask to log in (SASL) without a word on how: librdkafka would then take GSSAPI.
pub fn lacks_mechanism(common: &Properties, properties: &Properties) -> bool {
    let names = || common.0.keys().chain(properties.0.keys());
    let protocol = properties.0.get(SECURITY_PROTOCOL);
    protocol.is_some_and(|protocol| protocol.to_ascii_lowercase().starts_with("sasl_"))
        && !names().any(|name| is_mechanism(name))
}

/// How brokers are talked to.
pub const SECURITY_PROTOCOL: &str = "security.protocol";

fn is_mechanism(name: &str) -> bool {
    ["sasl.mechanism", "sasl.mechanisms"].contains(&name)
}

/// A client that joins no group and produces nothing: metadata, watermarks, administration.
pub fn admin(kafka: &Kafka, servers: &str) -> ClientConfig {
    let mut client = outside_of_groups(ClientConfig::new(), kafka, servers, "admin", &[]);
    // Asking for a topic must not make it.
    client.set("allow.auto.create.topics", "false");
    client
}

/// A client that brings its own cluster: librdkafka's mock cluster of one broker.
pub fn embedded() -> ClientConfig {
    let mut client = ClientConfig::new();
    client.set("client.id", "deadletter-embedded").set("test.mock.num.brokers", "1");
    client
}

/// KiB that a client reads ahead.
pub const PREFETCH: &str = "queued.max.messages.kbytes";

/// The main consumer of a pipeline: explicit positions, explicit commits.
pub fn source(kafka: &Kafka, servers: &str, pipeline: &Pipeline) -> ClientConfig {
    let mut client = ClientConfig::new();
    client
        // librdkafka overshoots this by up to a fetch (librdkafka#5140), which could be 50 MiB. A buffer of 2 MiB is kept by
        // the allocator.
        .set(PREFETCH, (pipeline.prefetch >> 10).to_string())
        .set("fetch.max.bytes", "2097152")
        .set("fetch.wait.max.ms", "50")
        // The default of 1 s stalls a consumer each time that its queue was full.
        .set("fetch.queue.backoff.ms", "10")
        .set("topic.metadata.refresh.interval.ms", "30000");
    if !uses_consumer_protocol(kafka) {
        client.set("partition.assignment.strategy", "cooperative-sticky");
    }
    client = base(client, kafka, servers, &pipeline.name, &[&kafka.consumer]);
    client
        .set("group.id", &pipeline.group)
        .set("enable.auto.commit", "false")
        .set("enable.auto.offset.store", "false")
        .set("auto.offset.reset", "error")
        .set("allow.auto.create.topics", "false");
    client
}

/// Whether the main consumers are members as of KIP-848: the brokers assign partitions, one by one.
pub fn uses_consumer_protocol(kafka: &Kafka) -> bool {
    of_members(kafka, "group.protocol").is_some_and(|protocol| protocol.eq_ignore_ascii_case("consumer"))
}

/// Whether the main consumers are static members: their group keeps their partitions for them while they are away.
pub fn is_static_member(kafka: &Kafka) -> bool {
    of_members(kafka, "group.instance.id").is_some()
}

/// A property as the main consumers get it.
fn of_members<'k>(kafka: &'k Kafka, name: &str) -> Option<&'k str> {
    kafka.consumer.0.get(name).or_else(|| kafka.common.0.get(name)).map(String::as_str)
}

/// How much a shadow reader's client fetches at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Width {
    /// For single messages: one record batch a fetch, nothing read ahead.
    Lean,
    /// For runs: reads ahead.
    Wide,
}

/// A client of a shadow reader: finds exactly what the main consumer was handed, waits for nothing, commits nothing.
pub fn shadow(kafka: &Kafka, servers: &str, width: Width) -> ClientConfig {
    // With its queue full, a client waits `fetch.queue.backoff.ms` before it looks again. For the lean one, whose queue is
    // full after each fetch, any wait would delay the next seek; but without one it spins, so it must be unassigned as soon
    // as it is idle.
    let (fetch_bytes, queued_messages, backoff) = match width {
        Width::Lean => ("65536", "1", "0"),
        // Two turns ahead: with less, the reader waits for each fetch.
        Width::Wide => ("1048576", "2000", "1"),
    };
    let mut client = outside_of_groups(ClientConfig::new(), kafka, servers, "shadow", &[&kafka.consumer]);
    // The leader has every record first.
    client.remove("client.rack");
    client
        .set("group.id", &kafka.shadow.group_id)
        .set("enable.auto.commit", "false")
        .set("enable.auto.offset.store", "false")
        // Never another message in the place of one that is gone.
        .set("auto.offset.reset", "error")
        .set("enable.partition.eof", "true")
        .set("allow.auto.create.topics", "false")
        // Sees whatever the main consumer saw, at either of its isolation levels, and waits for no open transaction.
        .set("isolation.level", "read_uncommitted")
        .set("fetch.wait.max.ms", "10")
        .set("fetch.message.max.bytes", fetch_bytes)
        .set("queued.min.messages", queued_messages)
        .set("queued.max.messages.kbytes", "2048")
        .set("fetch.queue.backoff.ms", backoff);
    client
}

/// The producer of dead letters and emitted records: idempotent, so in order and acknowledged by all replicas.
pub fn producer(kafka: &Kafka, servers: &str) -> ClientConfig {
    let mut client = ClientConfig::new();
    client.set("linger.ms", "5").set("delivery.timeout.ms", "60000");
    client = outside_of_groups(client, kafka, servers, "producer", &[&kafka.producer]);
    client
        .set("enable.idempotence", "true")
        .set("allow.auto.create.topics", "false")
        // The broker's limit decides (it answers "too large" and we make a stub), not a client's lower guess.
        .set("message.max.bytes", "1000000000")
        // Our own bound on bytes is met first.
        .set("queue.buffering.max.messages", "1000000")
        .set("queue.buffering.max.kbytes", "1048576");
    client
}

/// Sets what is configured over defaults, for a client that is no member of a group.
fn outside_of_groups(
    client: ClientConfig,
    kafka: &Kafka,
    servers: &str,
    role: &str,
    more: &[&Properties],
) -> ClientConfig {
    let mut client = base(client, kafka, servers, role, more);
    for name in GROUP_ONLY {
        client.remove(name);
    }
    client
}

/// Sets what is configured, over defaults.
fn base(mut client: ClientConfig, kafka: &Kafka, servers: &str, role: &str, more: &[&Properties]) -> ClientConfig {
    for (key, value) in std::iter::once(&kafka.common).chain(more.iter().copied()).flat_map(|properties| &properties.0)
    {
        client.set(key, value);
    }
    client.set("bootstrap.servers", servers).set("client.id", format!("deadletter-{role}"));
    client
}

#[cfg(test)]
mod tests;
