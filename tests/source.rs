//! The main consumer by itself, on a mock cluster that answers as it is told.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use crate::support::{SOON, eventually, guest};
use deadletter::{
    config::{Config, DEFAULT_CLUSTER},
    kafka::{
        Cluster,
        source::{Outlet, Progress, Source, SpawnLane, Stopped},
    },
    offset::NextOffset,
};
use rdkafka::{
    ClientConfig, TopicPartitionList,
    consumer::{BaseConsumer, Consumer as _},
    mocking::MockCluster,
    producer::DefaultProducerContext,
    types::{RDKafkaApiKey, RDKafkaRespErr},
};
use tokio::sync::mpsc;

fn config(servers: &str, commit: &str) -> Config {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("deadletter.toml");
    let toml = format!(
        r#"
        [kafka]
        brokers = "{servers}"
        [pipelines.source]
        topics = ["source"]
        group = "source"
        start = "earliest"
        guest.module = "{}"
        commit = "{commit}"
        routes.dead-letter.topic = "source.dlq"
        routes.dead-letter.limit = "off"
        "#,
        guest("testing-plain").display()
    );
    fs::write(&file, toml).unwrap();
    Config::load(&file).unwrap()
}

/// A cluster that answers the first commits with errors.
fn mock(errors: &[RDKafkaRespErr]) -> MockCluster<'static, DefaultProducerContext> {
    let mock = MockCluster::new(1).unwrap();
    mock.create_topic("source", 1, 1).unwrap();
    mock.request_errors(RDKafkaApiKey::OffsetCommit, errors);
    mock
}

/// Lanes that have settled everything below 7, and end as soon as they are told to.
fn lanes(assigned: &Arc<AtomicBool>) -> SpawnLane {
    let assigned = Arc::clone(assigned);
    Box::new(move |_| {
        let (batches, inbox) = mpsc::channel(1);
        let (orders, mut received) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            let _inbox = inbox;
            drop(received.recv().await);
        });
        assigned.store(true, Ordering::Release);
        Outlet { batches, orders, progress: Arc::new(Progress::new(NextOffset::new(7).unwrap())) }
    })
}

fn committed(servers: &str) -> impl Fn() -> Option<i64> {
    let consumer: BaseConsumer =
        ClientConfig::new().set("bootstrap.servers", servers).set("group.id", "source").create().unwrap();
    let mut wanted = TopicPartitionList::new();
    wanted.add_partition("source", 0);
    move || {
        let committed = consumer.committed_offsets(wanted.clone(), Duration::from_secs(5)).ok()?;
        committed.elements().first()?.offset().to_raw()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_fails_is_made_again_though_nothing_else_is_settled() {
    let mock = mock(&[RDKafkaRespErr::RD_KAFKA_RESP_ERR_INVALID_COMMIT_OFFSET_SIZE; 2]);
    let servers = mock.bootstrap_servers();
    let config = config(&servers, "50ms");
    let cluster = Cluster::open(&config, DEFAULT_CLUSTER).unwrap();
    let (_source, _stopped) = Source::start(&cluster, &config.pipelines["source"], lanes(&Arc::default())).unwrap();
    let committed = committed(&servers);
    eventually(SOON, "the position is committed", || (committed() == Some(7)).then_some(()));
}

/// Under `group.protocol=consumer` the group may be at another epoch than the client has heard of.
#[tokio::test(flavor = "multi_thread")]
async fn the_last_commit_is_made_again_if_its_epoch_is_stale() {
    let mock = mock(&[RDKafkaRespErr::RD_KAFKA_RESP_ERR_STALE_MEMBER_EPOCH; 3]);
    let servers = mock.bootstrap_servers();
    let config = config(&servers, "10m");
    let cluster = Cluster::open(&config, DEFAULT_CLUSTER).unwrap();
    let assigned = Arc::default();
    let (source, stopped) = Source::start(&cluster, &config.pipelines["source"], lanes(&assigned)).unwrap();
    eventually(SOON, "it has a partition", || assigned.load(Ordering::Acquire).then_some(()));
    source.drain();
    assert!(matches!(stopped.await, Stopped::Drained));
    assert_eq!(committed(&servers)(), Some(7));
}

/// Its topic may be deleted while it is assigned.
#[tokio::test(flavor = "multi_thread")]
async fn a_partition_that_is_gone_when_it_is_assigned_ends_nothing() {
    let mock = mock(&[]);
    mock.request_errors(RDKafkaApiKey::ListOffsets, &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART; 100]);
    let servers = mock.bootstrap_servers();
    let config = config(&servers, "50ms");
    let cluster = Cluster::open(&config, DEFAULT_CLUSTER).unwrap();
    let assigned = Arc::default();
    let (source, stopped) = Source::start(&cluster, &config.pipelines["source"], lanes(&assigned)).unwrap();
    eventually(SOON, "it has the partition", || assigned.load(Ordering::Acquire).then_some(()));
    source.drain();
    assert!(matches!(stopped.await, Stopped::Drained));
}
