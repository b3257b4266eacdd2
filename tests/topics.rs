//! The start-up checks of topics, on a real broker: each sentence as a person reads it.
//!
//! `DEADLETTER_BROKER` is the broker's address.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "it is test code")]

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use deadletter::{
    config::{
        BatchLimits, Brokers, CreateTopic, DEAD_LETTER, Dialect, Guest, Kafka, KeyChoice, OnGone, OnOutOfRange,
        OpenLimits, OpenThen, Output, PartitionChoice, Pipeline, Properties, Route, SeekThreshold, Shadow, Start,
        TimestampChoice,
    },
    kafka::{
        Embedded,
        topics::{self, Topic},
    },
};
use rdkafka::{
    ClientConfig,
    admin::{AdminClient, AdminOptions, NewTopic, ResourceSpecifier, TopicReplication},
    client::DefaultClientContext,
};

/// What a broker takes unless told otherwise.
const DEFAULT_LIMIT: u64 = 1_048_588;

fn broker() -> String {
    std::env::var("DEADLETTER_BROKER").expect("DEADLETTER_BROKER must hold the address of a broker, host:port")
}

fn kafka(servers: &str) -> Kafka {
    Kafka {
        brokers: Brokers::Servers(servers.to_owned()),
        common: Properties::default(),
        consumer: Properties::default(),
        producer: Properties::default(),
        shadow: Shadow {
            readers: 1,
            seek_threshold: SeekThreshold::Auto,
            deadline: Duration::from_secs(10),
            group_id: "shadow".into(),
        },
    }
}

/// Names that no other test and no earlier run has.
fn names() -> (String, String) {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis();
    let name = format!("{now}-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    (format!("source-{name}"), format!("dlq-{name}"))
}

fn pipeline(source: &str, dlq: &str) -> Pipeline {
    let route = Route {
        topic: dlq.to_owned(),
        partition: PartitionChoice::Same,
        timestamp: TimestampChoice::Now,
        key: KeyChoice::Original,
        create: None,
        dialects: vec![Dialect::Deadletter],
    };
    Pipeline {
        name: "orders".into(),
        topics: vec![source.to_owned()],
        group: "orders".into(),
        start: Start::Earliest,
        guest: Guest {
            module: "orders.wasm".into(),
            memory: 64 << 20,
            deadline: Duration::from_secs(10),
            settings: Vec::new(),
        },
        batch: BatchLimits { messages: 1000, bytes: 1 << 20, wait: Duration::from_millis(20) },
        commit: Duration::from_secs(1),
        instances: 1,
        in_hand: 16 << 20,
        open: OpenLimits {
            messages: 1000,
            age: Duration::from_mins(10),
            grace: Duration::from_secs(30),
            then: OpenThen::Reject,
        },
        settle: Duration::from_secs(1),
        on_gone: OnGone::Stub,
        on_out_of_range: OnOutOfRange::Stop,
        shutdown: Duration::from_secs(30),
        outputs: BTreeMap::new(),
        routes: BTreeMap::from([(DEAD_LETTER.to_owned(), route)]),
    }
}

fn admin() -> AdminClient<DefaultClientContext> {
    ClientConfig::new().set("bootstrap.servers", broker()).create().unwrap()
}

async fn create(topic: &str, partitions: i32, properties: &[(&str, &str)]) {
    let mut new = NewTopic::new(topic, partitions, TopicReplication::Fixed(1));
    for (key, value) in properties {
        new = new.set(key, value);
    }
    admin().create_topics([&new], &AdminOptions::new()).await.unwrap().pop().unwrap().unwrap();
}

async fn property(topic: &str, name: &str) -> String {
    let resource = [ResourceSpecifier::Topic(topic)];
    let resource = admin().describe_configs(&resource, &AdminOptions::new()).await.unwrap().pop().unwrap().unwrap();
    resource.get(name).unwrap().value.clone().unwrap()
}

fn exists(topic: &str) -> bool {
    let metadata = admin().inner().fetch_metadata(None, Duration::from_secs(10)).unwrap();
    metadata.topics().iter().any(|existing| existing.name() == topic)
}

async fn check(pipeline: &Pipeline) -> Result<BTreeMap<String, Topic>, String> {
    let checked = topics::prepare(&kafka(&broker()), &broker(), pipeline, false).await;
    checked.map(|checked| checked.topics).map_err(|error| format!("{error:#}"))
}

#[tokio::test]
async fn a_missing_source_is_an_error_and_nothing_is_made() {
    let (source, dlq) = names();
    let mut pipeline = pipeline(&source, &dlq);
    pipeline.routes.get_mut(DEAD_LETTER).unwrap().create = Some(CreateTopic { partitions: 1, replicas: 1 });
    assert_eq!(
        check(&pipeline).await.unwrap_err(),
        format!(
            "topic {source:?} of pipeline \"orders\" does not exist: create it, or correct pipelines.orders.topics"
        )
    );
    assert!(!exists(&source) && !exists(&dlq));
}

#[tokio::test]
async fn a_missing_route_topic_is_an_error_unless_it_may_be_made() {
    let (source, dlq) = names();
    create(&source, 2, &[]).await;
    let mut pipeline = pipeline(&source, &dlq);
    assert_eq!(
        check(&pipeline).await.unwrap_err(),
        format!(
            "topic {dlq:?} of route \"dead-letter\" of pipeline \"orders\" does not exist: create it, or say how in \
             pipelines.orders.routes.dead-letter.create"
        )
    );
    pipeline.routes.get_mut(DEAD_LETTER).unwrap().create = Some(CreateTopic { partitions: 3, replicas: 1 });
    let made = Topic { partitions: 3, max_message_bytes: Some(DEFAULT_LIMIT) };
    let expected = [(source, Topic { partitions: 2, max_message_bytes: Some(DEFAULT_LIMIT) }), (dlq.clone(), made)];
    assert_eq!(check(&pipeline).await.unwrap(), BTreeMap::from(expected));
    assert_eq!(property(&dlq, "cleanup.policy").await, "delete");
    assert_eq!(check(&pipeline).await.unwrap().len(), 2, "a topic that exists is left as it is");
}

#[tokio::test]
async fn a_topic_is_made_with_room_for_the_largest_message_of_the_source() {
    let (source, dlq) = names();
    create(&source, 1, &[("max.message.bytes", "5000000")]).await;
    let mut pipeline = pipeline(&source, &dlq);
    pipeline.routes.get_mut(DEAD_LETTER).unwrap().create = Some(CreateTopic { partitions: 1, replicas: 1 });
    let checked = check(&pipeline).await.unwrap();
    assert_eq!(checked[&dlq].max_message_bytes, Some(5_000_000));
    assert_eq!(property(&dlq, "max.message.bytes").await, "5000000");
}

#[tokio::test]
async fn a_topic_that_cannot_be_made_says_what_the_broker_said() {
    let (source, dlq) = names();
    create(&source, 1, &[]).await;
    let mut pipeline = pipeline(&source, &dlq);
    pipeline.routes.get_mut(DEAD_LETTER).unwrap().create = Some(CreateTopic { partitions: 1, replicas: 9 });
    let error = check(&pipeline).await.unwrap_err();
    let start = format!(
        "cannot create topic {dlq:?} of route \"dead-letter\" of pipeline \"orders\" with 1 partitions and 9 replicas: \
         InvalidReplicationFactor"
    );
    assert!(error.starts_with(&start), "{error}");
    assert!(error.ends_with("; create it by hand, or correct the route's create"), "{error}");
}

#[tokio::test]
async fn a_compacted_route_topic_is_refused_unless_its_keys_are_coordinates() {
    for policy in ["compact", "compact,delete"] {
        let (source, dlq) = names();
        create(&source, 1, &[]).await;
        create(&dlq, 1, &[("cleanup.policy", policy)]).await;
        let mut pipeline = pipeline(&source, &dlq);
        assert_eq!(
            check(&pipeline).await.unwrap_err(),
            format!(
                "topic {dlq:?} of route \"dead-letter\" of pipeline \"orders\" is compacted, so dead letters of the \
                 same key would replace each other: set its cleanup.policy to \"delete\", or the route's key to \
                 \"coordinates\""
            )
        );
        pipeline.routes.get_mut(DEAD_LETTER).unwrap().key = KeyChoice::Coordinates;
        assert_eq!(check(&pipeline).await.unwrap().len(), 2);
    }
}

#[tokio::test]
async fn a_missing_output_topic_is_an_error() {
    let (source, dlq) = names();
    create(&source, 1, &[]).await;
    create(&dlq, 1, &[]).await;
    let mut pipeline = pipeline(&source, &dlq);
    pipeline.outputs.insert("enriched".into(), Output { topic: format!("{source}-enriched") });
    assert_eq!(
        check(&pipeline).await.unwrap_err(),
        format!(
            "topic \"{source}-enriched\" of output \"enriched\" of pipeline \"orders\" does not exist: create it, or \
             correct pipelines.orders.outputs.enriched.topic"
        )
    );
}

#[tokio::test]
async fn brokers_that_cannot_be_reached_are_named() {
    let (source, dlq) = names();
    let servers = "127.0.0.1:1";
    let error = topics::prepare(&kafka(servers), servers, &pipeline(&source, &dlq), false).await.unwrap_err();
    let error = format!("{error:#}");
    assert!(error.starts_with("cannot ask the brokers at \"127.0.0.1:1\" about topics: "), "{error}");
}

#[tokio::test]
async fn on_the_embedded_broker_existence_is_checked_and_partitions_are_known() {
    let embedded = Embedded::start([("source".to_owned(), Embedded::PARTITIONS), ("dlq".to_owned(), 2)]).unwrap();
    let servers = embedded.servers();
    let checked = topics::prepare(&kafka(servers), servers, &pipeline("source", "dlq"), true).await.unwrap();
    let topic = |partitions| Topic { partitions, max_message_bytes: None };
    let expected = [("source".to_owned(), topic(Embedded::PARTITIONS)), ("dlq".to_owned(), topic(2))];
    assert_eq!(checked.topics, BTreeMap::from(expected));
    let error = topics::prepare(&kafka(servers), servers, &pipeline("missing", "dlq"), true).await.unwrap_err();
    assert!(error.to_string().starts_with("topic \"missing\" of pipeline \"orders\" does not exist"), "{error:#}");
}
