use std::{borrow::Cow, collections::BTreeMap, sync::mpsc};

use rdkafka::{
    ClientConfig,
    mocking::MockCluster,
    types::{RDKafkaApiKey, RDKafkaRespErr},
};

use super::*;
use crate::config::{Brokers, Properties, SeekThreshold, Shadow};

const UNACKNOWLEDGED: usize = 32 << 20;

/// Every wait of these tests ends with this.
const DEADLINE: Duration = Duration::from_secs(30);

fn producer(servers: &str, properties: &[(&str, &str)]) -> Producer {
    let own = properties.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    let shadow =
        Shadow { readers: 1, seek_threshold: SeekThreshold::Auto, deadline: DEADLINE, group_id: "shadow".into() };
    let kafka = config::Kafka {
        brokers: Brokers::Servers(servers.to_owned()),
        common: Properties::default(),
        consumer: Properties::default(),
        producer: Properties(own.collect::<BTreeMap<_, _>>()),
        shadow,
        unacknowledged: UNACKNOWLEDGED,
    };
    Producer::new(&kafka, servers)
}

fn record(bytes: usize) -> Record<'static> {
    Record { topic: Cow::Borrowed("t"), payload: Some(vec![b'x'; bytes].into()), ..Record::default() }
}

type Done = Box<dyn FnOnce(Result<(), DeliveryError>) + Send>;
type Answers = mpsc::Receiver<Result<(), DeliveryError>>;

/// A sender for `done`, and where its answers arrive.
fn answers() -> (impl Fn() -> Done, Answers) {
    let (sender, receiver) = mpsc::channel();
    let done = move || -> Done {
        let sender = sender.clone();
        Box::new(move |result| sender.send(result).unwrap())
    };
    (done, receiver)
}

#[tokio::test]
async fn a_record_is_acknowledged_and_its_bytes_are_free_again() {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic("t", 1, 1).unwrap();
    let producer = producer(&cluster.bootstrap_servers(), &[]);
    let (done, answers) = answers();
    for _ in 0..100 {
        producer.send(&record(100), done()).await;
    }
    assert!(producer.flush(DEADLINE).await);
    assert_eq!(answers.try_iter().collect::<Vec<_>>(), vec![Ok(()); 100]);
    assert_eq!(producer.unacknowledged(), 0);
}

#[tokio::test]
async fn a_fatal_error_fails_what_had_no_answer_and_the_next_record_goes_to_a_new_client() {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic("t", 1, 1).unwrap();
    // The first request alone at the broker and the others behind it, in the client.
    let producer = producer(&cluster.bootstrap_servers(), &[("max.in.flight.requests.per.connection", "1")]);
    let (done, answers) = answers();
    producer.send(&record(100), done()).await;
    assert_eq!(answers.recv_timeout(DEADLINE).unwrap(), Ok(()));

    cluster.request_errors(RDKafkaApiKey::Produce, &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER]);
    for _ in 0..1000 {
        producer.send(&record(1000), done()).await;
    }
    assert!(producer.flush(DEADLINE).await);
    let all: Vec<_> = answers.try_iter().collect();
    assert_eq!(all.len(), 1000);
    let purged = all.iter().filter(|answer| format!("{answer:?}").contains("PurgeQueue"));
    assert!(purged.count() > 0, "the client was retired: {all:?}");

    producer.send(&record(100), done()).await;
    assert_eq!(answers.recv_timeout(DEADLINE).unwrap(), Ok(()));
}

#[tokio::test]
async fn dropping_the_producer_answers_everybody() {
    let cluster = MockCluster::new(1).unwrap();
    let servers = cluster.bootstrap_servers();
    cluster.broker_down(1).unwrap();
    let producer = producer(&servers, &[]);
    let (done, answers) = answers();
    for _ in 0..10 {
        producer.send(&record(100), done()).await;
    }
    drop(producer);
    for _ in 0..10 {
        assert!(matches!(answers.recv_timeout(DEADLINE).unwrap(), Err(DeliveryError::Failed(_))));
    }
}

#[tokio::test]
async fn the_bound_on_bytes_holds_senders_back_and_a_record_above_it_waits_until_it_is_alone() {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic("t", 1, 1).unwrap();
    let servers = cluster.bootstrap_servers();
    cluster.broker_down(1).unwrap();
    let producer = producer(&servers, &[]);
    let (done, answers) = answers();
    let mut sent = 0;
    while tokio::time::timeout(Duration::from_millis(200), producer.send(&record(1 << 20), done())).await.is_ok() {
        sent += 1;
    }
    assert_eq!(sent, 31);
    assert!(answers.try_recv().is_err(), "a send that is cut short has sent nothing, and has no answer");

    let huge = tokio::spawn({
        let (producer, done) = (producer.clone(), done());
        async move { producer.send(&record(UNACKNOWLEDGED + 1), done).await }
    });
    cluster.broker_up(1).unwrap();
    huge.await.unwrap();
    assert!(answers.try_iter().count() >= 31);
}

#[tokio::test]
async fn a_full_queue_is_waited_for() {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic("t", 1, 1).unwrap();
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", cluster.bootstrap_servers()).set("queue.buffering.max.messages", "1");
    let producer =
        Producer { bytes: Arc::new(Semaphore::new(1 << 20)), most: 1 << 20, channel: Channel::new(config, None) };
    let (done, answers) = answers();
    for _ in 0..20 {
        producer.send(&record(100), done()).await;
    }
    assert!(producer.flush(DEADLINE).await);
    assert_eq!(answers.try_iter().collect::<Vec<_>>(), vec![Ok(()); 20]);
}
