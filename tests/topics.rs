//! The start-up checks of topics, on a real broker: each sentence as a person reads it.

use std::{collections::BTreeMap, time::Duration};

use crate::support::{broker, kafka};
use deadletter::{
    config::{
        BatchLimits, Brokers, Config, CreateTopic, DEAD_LETTER, DEFAULT_CLUSTER, Dialect, Guest, Kafka, KeyChoice,
        OnGone, OnOutOfRange, OpenLimits, OpenThen, Output, PartitionChoice, Pipeline, RetryLimits, Route, Start,
        TimestampChoice,
    },
    kafka::{
        Cluster, Embedded,
        topics::{self, Topic},
    },
};

/// What a broker takes unless told otherwise.
const DEFAULT_LIMIT: u64 = 1_048_588;

/// A source and a route's topic that no other test has.
fn names(test: &str) -> (String, String) {
    (format!("{test}-source"), format!("{test}-dlq"))
}

fn pipeline(source: &str, dlq: &str) -> Pipeline {
    let route = Route {
        topic: dlq.to_owned(),
        partition: PartitionChoice::Same,
        timestamp: TimestampChoice::Now,
        key: KeyChoice::Original,
        create: None,
        limit: None,
        dialects: vec![Dialect::Deadletter],
    };
    Pipeline {
        name: "orders".into(),
        cluster: DEFAULT_CLUSTER.into(),
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
        prefetch: 16 << 20,
        recent: 0,
        open: OpenLimits {
            messages: 1000,
            age: Duration::from_mins(10),
            grace: Duration::from_secs(30),
            then: OpenThen::Reject,
        },
        settle: Duration::from_secs(1),
        retry: RetryLimits { attempts: 5 },
        on_gone: OnGone::Stub,
        on_out_of_range: OnOutOfRange::Stop,
        shutdown: Duration::from_secs(30),
        outputs: BTreeMap::new(),
        routes: BTreeMap::from([(DEAD_LETTER.to_owned(), route)]),
    }
}

/// The embedded one has the topics of these pipelines.
fn cluster(kafka: Kafka, pipelines: impl IntoIterator<Item = Pipeline>) -> Cluster {
    let pipelines = pipelines.into_iter().map(|pipeline| (pipeline.name.clone(), pipeline)).collect();
    let clusters = [(DEFAULT_CLUSTER.to_owned(), kafka)].into();
    Cluster::open(&Config { memory: None, admin: None, clusters, pipelines }, DEFAULT_CLUSTER).unwrap()
}

async fn check(pipeline: &Pipeline) -> Result<BTreeMap<String, Topic>, String> {
    let checked = topics::prepare(&cluster(kafka(&broker().servers), []), pipeline).await;
    checked.map(|checked| checked.topics).map_err(|error| format!("{error:#}"))
}

#[tokio::test]
async fn a_missing_source_is_an_error_and_nothing_is_made() {
    let (source, dlq) = names("no-source");
    let mut pipeline = pipeline(&source, &dlq);
    pipeline.routes.get_mut(DEAD_LETTER).unwrap().create = Some(CreateTopic { partitions: 1, replicas: 1 });
    assert_eq!(
        check(&pipeline).await.unwrap_err(),
        format!(
            "topic {source:?} of pipeline \"orders\" does not exist: create it, or correct pipelines.orders.topics"
        )
    );
    assert!(!broker().has_topic(&source) && !broker().has_topic(&dlq));
}

#[tokio::test]
async fn a_missing_route_topic_is_an_error_unless_it_may_be_made() {
    let (source, dlq) = names("no-route");
    broker().create_topic(&source, 2, &[]);
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
    assert_eq!(broker().topic_config(&dlq, "cleanup.policy"), "delete");
    assert_eq!(check(&pipeline).await.unwrap().len(), 2, "a topic that exists is left as it is");
}

#[tokio::test]
async fn a_topic_is_made_with_room_for_the_largest_message_of_the_source() {
    let (source, dlq) = names("large");
    broker().create_topic(&source, 1, &[("max.message.bytes", "5000000")]);
    let mut pipeline = pipeline(&source, &dlq);
    pipeline.routes.get_mut(DEAD_LETTER).unwrap().create = Some(CreateTopic { partitions: 1, replicas: 1 });
    let checked = check(&pipeline).await.unwrap();
    assert_eq!(checked[&dlq].max_message_bytes, Some(5_000_000));
    assert_eq!(broker().topic_config(&dlq, "max.message.bytes"), "5000000");
}

#[tokio::test]
async fn a_topic_that_cannot_be_made_says_what_the_broker_said() {
    let (source, dlq) = names("unmakable");
    broker().create_topic(&source, 1, &[]);
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
        let (source, dlq) = names(&policy.replace(',', "-"));
        broker().create_topic(&source, 1, &[]);
        broker().create_topic(&dlq, 1, &[("cleanup.policy", policy)]);
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
    let (source, dlq) = names("no-output");
    broker().create_topic(&source, 1, &[]);
    broker().create_topic(&dlq, 1, &[]);
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
    let (source, dlq) = names("unreachable");
    let unreachable = cluster(kafka("127.0.0.1:1"), []);
    let error = topics::prepare(&unreachable, &pipeline(&source, &dlq)).await.unwrap_err();
    let error = format!("{error:#}");
    assert!(error.starts_with("cannot ask the brokers at \"127.0.0.1:1\" about topics: "), "{error}");
}

#[tokio::test]
async fn on_the_embedded_broker_existence_is_checked_and_partitions_are_known() {
    let mut known = pipeline("source", "dlq");
    known.routes.get_mut(DEAD_LETTER).unwrap().create = Some(CreateTopic { partitions: 2, replicas: 1 });
    let embedded = cluster(Kafka { brokers: Brokers::Embedded, ..kafka("") }, [known.clone()]);
    let checked = topics::prepare(&embedded, &known).await.unwrap();
    let topic = |partitions| Topic { partitions, max_message_bytes: None };
    let expected = [("source".to_owned(), topic(Embedded::PARTITIONS)), ("dlq".to_owned(), topic(2))];
    assert_eq!(checked.topics, BTreeMap::from(expected));
    let error = topics::prepare(&embedded, &pipeline("missing", "dlq")).await.unwrap_err();
    assert!(error.to_string().starts_with("topic \"missing\" of pipeline \"orders\" does not exist"), "{error:#}");
}
