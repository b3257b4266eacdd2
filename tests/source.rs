//! The main consumer by itself, on a mock cluster that answers as it is told.

mod support;

use std::{
    fs,
    sync::{Arc, Mutex},
    time::Duration,
};

use deadletter::{
    config::{Config, DEFAULT_CLUSTER},
    kafka::{
        Cluster,
        source::{Outlet, Progress, Source},
    },
    offset::NextOffset,
};
use rdkafka::{
    ClientConfig, TopicPartitionList,
    consumer::{BaseConsumer, Consumer as _},
    mocking::MockCluster,
    types::{RDKafkaApiKey, RDKafkaRespErr},
};
use support::{SOON, eventually, guest};
use tokio::sync::mpsc;

fn config(servers: &str) -> Config {
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
        commit = "50ms"
        routes.dead-letter.topic = "source.dlq"
        routes.dead-letter.limit = "off"
        "#,
        guest("testing-plain").display()
    );
    fs::write(&file, toml).unwrap();
    Config::load(&file).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_fails_is_made_again_though_nothing_else_is_settled() {
    let mock = MockCluster::new(1).unwrap();
    let servers = mock.bootstrap_servers();
    mock.create_topic("source", 1, 1).unwrap();
    mock.request_errors(
        RDKafkaApiKey::OffsetCommit,
        &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_INVALID_COMMIT_OFFSET_SIZE; 2],
    );
    let config = config(&servers);
    let cluster = Cluster::open(&config, DEFAULT_CLUSTER).unwrap();
    let lanes = Arc::new(Mutex::new(Vec::new()));
    let ours = Arc::clone(&lanes);
    let spawn = Box::new(move |_| {
        let (batches, inbox) = mpsc::channel(1);
        let (orders, received) = mpsc::unbounded_channel();
        ours.lock().unwrap().push((inbox, received));
        let progress = Arc::new(Progress::new(NextOffset::new(7).unwrap()));
        Outlet { batches, orders, progress }
    });
    let (_source, _stopped) = Source::start(&cluster, &config.pipelines["source"], spawn).unwrap();
    let consumer: BaseConsumer =
        ClientConfig::new().set("bootstrap.servers", &servers).set("group.id", "source").create().unwrap();
    let mut wanted = TopicPartitionList::new();
    wanted.add_partition("source", 0);
    eventually(SOON, "the position is committed", || {
        let committed = consumer.committed_offsets(wanted.clone(), Duration::from_secs(5)).ok()?;
        (committed.elements().first()?.offset().to_raw() == Some(7)).then_some(())
    });
}
