//! Rules that hold between the values of a configuration.

use std::collections::{BTreeMap, BTreeSet};

use humantime::format_duration;

use super::{
    Brokers, Config, DEAD_LETTER, DEFAULT_CLUSTER, Kafka, Pipeline, Route, error::Broken, key::Key, value::human_size,
};
use crate::kafka::{
    client,
    pattern::{self, Sources},
};

/// Everything that breaks a rule: a key and a sentence.
pub(super) fn rules(config: &Config) -> Broken {
    let mut broken = Broken::new();
    for (name, cluster) in &config.clusters {
        broken.extend(kafka(name, cluster, config.memory.is_some()));
    }
    if config.clusters.is_empty() {
        broken.push((Key::of([DEFAULT_CLUSTER]), "missing: where the cluster is, and how it is reached".to_owned()));
    }
    if config.pipelines.is_empty() {
        broken.push((Key::of(["pipelines"]), "needs at least one pipeline, such as [pipelines.orders]".to_owned()));
    }
    for pipeline in config.pipelines.values() {
        let key = Key::of(["pipelines", &pipeline.name]);
        broken.extend(names(&key, pipeline));
        broken.extend(cluster(&key, pipeline, &config.clusters));
        broken.extend(sources(&key, pipeline));
        broken.extend(limits(&key, pipeline));
        broken.extend(routes(&key, pipeline));
        broken.extend(loops(&key, pipeline, &config.pipelines));
    }
    broken.extend(groups(&config.pipelines));
    broken
}

fn kafka(name: &str, kafka: &Kafka, has_budget: bool) -> Broken {
    let key = if name == DEFAULT_CLUSTER { Key::of(["kafka"]) } else { Key::of(["clusters", name]) };
    let mut broken = Broken::new();
    if !is_name(name) {
        broken.push((key.clone(), BAD_NAME.to_owned()));
    }
    if let Brokers::Servers(servers) = &kafka.brokers
        && !servers.split(',').all(|server| is_server(server.trim()))
    {
        broken.push((key.at("brokers"), "must be \"host:port\", comma-separated, or \"embedded\"".to_owned()));
    }
    for (table, properties) in [("common", &kafka.common), ("consumer", &kafka.consumer)] {
        if has_budget && properties.0.contains_key(client::PREFETCH) {
            let what = "memory divides what is read ahead, too: leave one of the two out";
            broken.push((key.at(table).at(client::PREFETCH), what.to_owned()));
        }
    }
    for (part, properties) in [("common", &kafka.common), ("consumer", &kafka.consumer), ("producer", &kafka.producer)]
    {
        if client::lacks_mechanism(&kafka.common, properties) {
            let what = "needs \"sasl.mechanism\" beside it: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512";
            broken.push((key.at(part).at(client::SECURITY_PROTOCOL), what.to_owned()));
        }
    }
    if kafka.shadow.group_id.is_empty() {
        broken.push((key.at("shadow").at("group-id"), "must not be empty".to_owned()));
    }
    broken.extend(membership(kafka));
    broken
}

/// Properties of the members of a group, where they are nothing or contradict the protocol.
fn membership(kafka: &Kafka) -> Broken {
    let key = Key::of(["kafka"]);
    let mut broken = Broken::new();
    for name in client::GROUP_ONLY.iter().filter(|name| kafka.producer.0.contains_key(**name)) {
        let what = "is of members of a group, and a producer is none: set it in [kafka.consumer]";
        broken.push((key.at("producer").at(name), what.to_owned()));
    }
    for (table, properties) in [("common", &kafka.common), ("consumer", &kafka.consumer)] {
        let key = key.at(table);
        let is_set = |(name, _): &&(&str, &str)| properties.0.contains_key(*name);
        if client::uses_consumer_protocol(kafka) {
            for (name, instead) in client::CLASSIC_ONLY.iter().filter(is_set) {
                let what = format!("is not the client's to decide under group.protocol=consumer: {instead}");
                broken.push((key.at(name), what));
            }
        }
        if properties.0.get("group.instance.id").is_some_and(String::is_empty) {
            broken.push((key.at("group.instance.id"), "must not be empty".to_owned()));
        }
    }
    broken
}

fn is_server(server: &str) -> bool {
    let address = server.split_once("://").map_or(server, |(_, address)| address);
    // An IPv6 address has colons of its own, within brackets.
    let port = address.rsplit_once(':').filter(|(_, port)| !port.ends_with(']')).map(|(_, port)| port.parse::<u16>());
    !address.is_empty()
        && !address.starts_with(':')
        && !address.contains(char::is_whitespace)
        && port.is_none_or(|port| port.is_ok_and(|port| port > 0))
}

fn names(key: &Key, pipeline: &Pipeline) -> Broken {
    let outputs = pipeline.outputs.keys().map(|name| (key.at("outputs").at(name), name));
    let routes = pipeline.routes.keys().map(|name| (key.at("routes").at(name), name));
    let names = [(key.clone(), &pipeline.name)].into_iter().chain(outputs).chain(routes);
    let bad = names.filter(|(_, name)| !is_name(name));
    bad.map(|(key, _)| (key, BAD_NAME.to_owned())).collect()
}

const BAD_NAME: &str = "a name is 1 to 64 of a-z, 0-9 and -";

fn is_name(name: &str) -> bool {
    let allowed = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
    (1..=64).contains(&name.len()) && name.bytes().all(allowed)
}

fn cluster(key: &Key, pipeline: &Pipeline, clusters: &BTreeMap<String, Kafka>) -> Broken {
    let name = &pipeline.cluster;
    if clusters.is_empty() || clusters.contains_key(name) {
        return Broken::new();
    }
    let is = if name == DEFAULT_CLUSTER {
        "there is no [kafka]".to_owned()
    } else {
        format!("there is no [clusters.{name}]")
    };
    let known: Vec<_> = clusters.keys().map(String::as_str).collect();
    vec![(key.at("cluster"), format!("{is} (known clusters: {})", known.join(", ")))]
}

fn sources(key: &Key, pipeline: &Pipeline) -> Broken {
    let mut broken = Broken::new();
    if pipeline.topics.is_empty() {
        broken.push((key.at("topics"), "must name at least one topic".to_owned()));
    }
    let mut seen = BTreeSet::new();
    for (index, topic) in pipeline.topics.iter().enumerate() {
        let key = key.at("topics").index(index);
        let bad = if pattern::is_pattern(topic) {
            pattern::refusal(topic)
        } else {
            (!is_topic(topic)).then(|| BAD_TOPIC.to_owned())
        };
        if let Some(bad) = bad {
            broken.push((key, bad));
        } else if !seen.insert(topic) {
            broken.push((key, format!("names the topic {topic} a second time")));
        }
    }
    if pipeline.group.is_empty() {
        broken.push((key.at("group"), "must not be empty".to_owned()));
    }
    broken
}

/// Kafka's own rule.
const BAD_TOPIC: &str = "is no topic's name (allowed: 1 to 249 of a-z, A-Z, 0-9, ., _ and -)";

fn is_topic(topic: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=249).contains(&topic.len()) && topic.bytes().all(allowed) && topic != "." && topic != ".."
}

fn limits(key: &Key, pipeline: &Pipeline) -> Broken {
    let Pipeline { batch, in_hand, open, settle, .. } = pipeline;
    let human = |bytes: usize| human_size(u64::try_from(bytes).unwrap_or(u64::MAX));
    let mut broken = Broken::new();
    if batch.bytes > *in_hand {
        let (bytes, in_hand) = (human(batch.bytes), human(*in_hand));
        let what = format!("{in_hand} does not hold one batch: batch.bytes is {bytes} (allowed: {bytes} or more)");
        broken.push((key.at("in-hand"), what));
    }
    if u64::try_from(batch.messages).is_ok_and(|messages| messages > open.messages) {
        let (open, messages) = (open.messages, batch.messages);
        let what = format!(
            "one batch could pass this limit: batch.messages is {messages} and open.messages {open} (allowed: {messages} or more)"
        );
        broken.push((key.at("open").at("messages"), what));
    }
    if *settle > open.age {
        let (settle, age) = (format_duration(*settle), format_duration(open.age));
        let what =
            format!("no tick would come before open.age, which is {age}: settle is {settle} (allowed: up to {age})");
        broken.push((key.at("settle"), what));
    }
    broken
}

fn routes(key: &Key, pipeline: &Pipeline) -> Broken {
    let mut broken = Broken::new();
    if !pipeline.routes.contains_key(DEAD_LETTER) {
        let what = "missing: the route of every rejection that names no other";
        broken.push((key.at("routes").at(DEAD_LETTER), what.to_owned()));
    }
    for (name, Route { dialects, .. }) in &pipeline.routes {
        let key = key.at("routes").at(name).at("dialects");
        if dialects.is_empty() {
            broken.push((key, "must name at least one dialect".to_owned()));
        } else if dialects.iter().enumerate().any(|(index, dialect)| dialects.iter().take(index).any(|d| d == dialect))
        {
            broken.push((key, "names a dialect a second time".to_owned()));
        }
    }
    broken
}

/// The topics that a pipeline sends to, by their keys.
fn sinks<'a>(key: &Key, pipeline: &'a Pipeline) -> impl Iterator<Item = (Key, &'a str)> {
    let (routes, outputs) = (key.at("routes"), key.at("outputs"));
    let route_topics = pipeline.routes.iter().map(move |(name, to)| (routes.at(name).at("topic"), to.topic.as_str()));
    let output_topics =
        pipeline.outputs.iter().map(move |(name, to)| (outputs.at(name).at("topic"), to.topic.as_str()));
    route_topics.chain(output_topics)
}

/// Nothing that a pipeline sends may come back to it, neither at once nor through other pipelines.
fn loops(key: &Key, pipeline: &Pipeline, all: &BTreeMap<String, Pipeline>) -> Broken {
    let mut broken = Broken::new();
    let sources = Sources::of(&pipeline.topics);
    for (sink, topic) in sinks(key, pipeline) {
        if !is_topic(topic) {
            broken.push((sink, BAD_TOPIC.to_owned()));
        } else if let Some(source) = sources.find(topic) {
            let how = if source == topic { "is also".to_owned() } else { format!("matches {source:?}, which is") };
            broken.push((sink, format!("{topic} {how} in {key}.topics: what is sent there would come back")));
        } else if let Some(last) = way_back(topic, pipeline, all) {
            let what = format!("what is sent to {topic} would come back through the pipeline {last}");
            broken.push((sink, what));
        }
    }
    broken
}

/// The pipeline that sends on to `home` what was sent to `topic`.
fn way_back<'a>(topic: &'a str, home: &Pipeline, all: &'a BTreeMap<String, Pipeline>) -> Option<&'a str> {
    let takes = |pipeline: &Pipeline, topic: &str| Sources::of(&pipeline.topics).find(topic).is_some();
    let mut topics = vec![topic];
    let mut seen = BTreeSet::from([topic]);
    while let Some(topic) = topics.pop() {
        let reads = |pipeline: &&Pipeline| pipeline.cluster == home.cluster && takes(pipeline, topic);
        for pipeline in all.values().filter(reads) {
            for (_, sink) in sinks(&Key::default(), pipeline) {
                if takes(home, sink) {
                    return Some(&pipeline.name);
                }
                if seen.insert(sink) {
                    topics.push(sink);
                }
            }
        }
    }
    None
}

/// Two pipelines in one group of a cluster would take each other's partitions and commits.
fn groups(pipelines: &BTreeMap<String, Pipeline>) -> Broken {
    let mut owners = BTreeMap::new();
    let mut broken = Broken::new();
    for pipeline in pipelines.values().filter(|pipeline| !pipeline.group.is_empty()) {
        if let Some(other) = owners.insert((&pipeline.cluster, &pipeline.group), &pipeline.name) {
            let what = format!("is also pipelines.{other}.group: each pipeline needs a group of its own");
            broken.push((Key::of(["pipelines", &pipeline.name, "group"]), what));
        }
    }
    broken
}
