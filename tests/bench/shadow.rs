//! Shadow reads against a bare loop of rdkafka over the same topic, in one run on a real broker. Prints a JSON line for
//! each measurement; those with a name are the figures, medians of the rounds.
#![allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "its figures are no exact ones"
)]

#[path = "../support/mod.rs"]
mod support;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use deadletter::{
    config::{Brokers, Kafka, Properties, SeekThreshold, Shadow},
    kafka::{
        ShadowReaders, TopicIds,
        client::{self, Width},
        shadow::{Identity, Want},
        topic_ids::Existence,
    },
    message::TopicPartition,
    offset::Offset,
};
use rand::{Rng as _, RngCore as _, SeedableRng as _, rngs::StdRng};
use rdkafka::{
    ClientConfig, Message as _, Offset as Position, TopicPartitionList,
    admin::{AdminClient, AdminOptions, NewTopic, TopicReplication},
    client::DefaultClientContext,
    consumer::{BaseConsumer, Consumer as _},
    producer::{BaseProducer, BaseRecord, Producer as _},
};
use serde_json::{Value, json};
use support::bare::{Summed, median, sum_messages, sum_words};

const MESSAGES: i64 = 200_000;
const BYTES: usize = 1_024;
const SINGLES: usize = 2_000;
const ROUNDS: usize = 5;
const SECOND: Duration = Duration::from_secs(1);

struct Bench {
    servers: String,
    topic: String,
    identity: Arc<Identity>,
}

#[tokio::main]
async fn main() {
    let servers = support::broker().servers.clone();
    let topic = "bench-shadow".to_owned();
    produce(&servers, &topic).await;
    let topic_ids = TopicIds::new(&kafka(&servers, SeekThreshold::Auto), &servers);
    let Existence::Is(id) = topic_ids.get(&topic.as_str().into(), None).await.unwrap() else {
        panic!("this broker knows no topic ids")
    };
    let bench = Bench { servers, topic, identity: Arc::new(Identity::new(Some(id))) };
    // The first loop warms the page cache.
    bench.bare();
    let (mut consecutive, mut every_second) = (vec![], vec![]);
    for _ in 0..ROUNDS {
        let bare = bench.bare();
        consecutive.push(bench.throughput("consecutive", 1).await / bare);
        every_second.push(bench.throughput("every-second", 2).await / bare);
    }
    figure("consecutive offsets to bare loop", median(consecutive), "×", &json!({"at-least": 0.6}));
    figure("every second offset to bare loop", median(every_second), "×", &json!({"at-least": 0.3}));
    bench.singles_to_seeks().await;
    bench.topic_id(&topic_ids).await;
    figure("single read beside 100,000 runs, p99", bench.fairness().await, "ms", &json!({"at-most": 50}));
}

fn figure(name: &str, value: f64, unit: &str, target: &Value) {
    let mut figure = json!({"name": format!("shadow: {name}"), "value": (value * 1e3).round() / 1e3, "unit": unit});
    figure.as_object_mut().unwrap().extend(target.as_object().unwrap().clone());
    println!("{figure}");
}

fn kafka(servers: &str, seek_threshold: SeekThreshold) -> Kafka {
    let deadline = Duration::from_secs(30);
    let shadow = Shadow { readers: 2, seek_threshold, deadline, group_id: "deadletter-shadow".into() };
    let [common, consumer, producer] = [Properties::default(), Properties::default(), Properties::default()];
    Kafka { brokers: Brokers::Servers(servers.into()), common, consumer, producer, shadow, unacknowledged: 32 << 20 }
}

async fn produce(servers: &str, topic: &str) {
    let admin: AdminClient<DefaultClientContext> =
        ClientConfig::new().set("bootstrap.servers", servers).create().unwrap();
    let new = NewTopic::new(topic, 2, TopicReplication::Fixed(1));
    admin.create_topics([&new], &AdminOptions::new()).await.unwrap().remove(0).unwrap();
    let mut client = ClientConfig::new();
    client.set("bootstrap.servers", servers).set("linger.ms", "5").set("batch.size", "16384").set("acks", "all");
    let producer: BaseProducer = client.set("queue.buffering.max.messages", "300000").create().unwrap();
    let mut payload = vec![0; BYTES];
    StdRng::seed_from_u64(1).fill_bytes(&mut payload);
    for number in 0..=MESSAGES {
        payload[..8].copy_from_slice(&number.to_le_bytes());
        // The last one goes to a partition of its own.
        let mut record = BaseRecord::<(), _>::to(topic).partition(i32::from(number == MESSAGES)).payload(&payload);
        while let Err((_, back)) = producer.send(record) {
            producer.poll(Duration::from_millis(5));
            record = back;
        }
    }
    producer.flush(60 * SECOND).unwrap();
}

fn percentiles(mut millis: Vec<f64>) -> (f64, f64, f64) {
    millis.sort_by(f64::total_cmp);
    let at = |share: f64| millis[((millis.len() - 1) as f64 * share) as usize];
    (at(0.5), at(0.99), at(1.0))
}

fn report(what: &str, millis: Vec<f64>) -> (f64, f64) {
    let count = millis.len();
    let (p50, p99, max) = percentiles(millis);
    println!("{}", json!({"what": what, "count": count, "p50_ms": p50, "p99_ms": p99, "max_ms": max}));
    (p50, p99)
}

impl Bench {
    fn source(&self, partition: i32) -> TopicPartition {
        TopicPartition::new(self.topic.as_str(), partition)
    }

    fn shadow(&self, threshold: SeekThreshold) -> ShadowReaders {
        let kafka = kafka(&self.servers, threshold);
        ShadowReaders::new(&kafka, &self.servers, TopicIds::new(&kafka, &self.servers))
    }

    fn random(seed: u64) -> impl Iterator<Item = i64> {
        let mut random = StdRng::seed_from_u64(seed);
        std::iter::repeat_with(move || random.random_range(0..MESSAGES))
    }

    fn assigned(&self, client: &ClientConfig) -> BaseConsumer {
        let consumer: BaseConsumer = client.create().unwrap();
        let mut assignment = TopicPartitionList::new();
        assignment.add_partition_offset(&self.topic, 0, Position::Offset(0)).unwrap();
        consumer.assign(&assignment).unwrap();
        consumer
    }

    /// Messages a second of a plain consumer that sums the payloads' words.
    fn bare(&self) -> f64 {
        let mut client = ClientConfig::new();
        client.set("bootstrap.servers", &self.servers).set("group.id", "bare").set("enable.auto.commit", "false");
        let consumer = self.assigned(&client);
        let Summed { rate, sum } = sum_messages(&consumer, u32::try_from(MESSAGES).unwrap());
        println!("{}", json!({"what": "bare loop", "per_second": rate, "sum": sum}));
        rate
    }

    /// Wanted messages a second through the shadow readers.
    async fn throughput(&self, what: &str, stride: usize) -> f64 {
        let shadow = self.shadow(SeekThreshold::Auto);
        let wanted = || (0..MESSAGES).step_by(stride);
        // Positioned and connected.
        shadow.read(self.want([0], &self.identity)).next().await.unwrap();
        let (since, mut count, mut sum) = (Instant::now(), 0, 0u64);
        let mut readings = shadow.read(self.want(wanted(), &self.identity));
        while let Some(reading) = readings.next().await.unwrap() {
            count += reading.found.len();
            for message in reading.found.iter() {
                sum = sum.wrapping_add(sum_words(message.payload.unwrap()));
            }
        }
        assert_eq!(count, wanted().count());
        let rate = count as f64 / since.elapsed().as_secs_f64();
        let counts = format!("{:?}", shadow.counts());
        println!("{}", json!({"what": what, "per_second": rate, "sum": sum, "counts": counts}));
        rate
    }

    fn want(&self, offsets: impl IntoIterator<Item = i64>, identity: &Arc<Identity>) -> Want {
        Want::new(self.source(0), Arc::clone(identity), offsets.into_iter().filter_map(Offset::new).collect()).unwrap()
    }

    /// What the client can do: seek, then poll, with the lean settings.
    fn plain_seeks(&self) -> (f64, f64) {
        let kafka = kafka(&self.servers, SeekThreshold::Auto);
        let consumer = self.assigned(&client::shadow(&kafka, &self.servers, Width::Lean));
        while consumer.poll(SECOND).is_none() {}
        let mut millis = Vec::new();
        for offset in Self::random(7).take(SINGLES) {
            let since = Instant::now();
            consumer.seek(&self.topic, 0, Position::Offset(offset), SECOND).unwrap();
            while !matches!(consumer.poll(SECOND), Some(Ok(message)) if message.offset() == offset) {}
            millis.push(since.elapsed().as_secs_f64() * 1e3);
        }
        report("plain seek", millis)
    }

    /// Reads of single offsets against what the client can do. A bare seek does not look whether the topic is still the
    /// same; a shadow read asks for the topic's id when it has read, once a turn, so that a single read is two round trips.
    async fn singles_to_seeks(&self) {
        let [mut p50, mut p99, mut checked_p50, mut checked_p99, mut bytes] = [const { vec![] }; 5];
        for _ in 0..ROUNDS {
            let plain = self.plain_seeks();
            let (read, per_read) = self.singles("single, no topic id", &Arc::default(), 1).await;
            let (checked, _) = self.singles("single, topic id checked", &self.identity, 1).await;
            self.singles("single, two lanes", &self.identity, 2).await;
            self.scattered().await;
            p50.push(read.0 / plain.0);
            p99.push(read.1 / plain.1);
            checked_p50.push(checked.0 / plain.0);
            checked_p99.push(checked.1 / plain.1);
            bytes.push(per_read);
        }
        figure("random single offset to bare seek, p50", median(p50), "×", &json!({"at-most": 1.5}));
        figure("random single offset to bare seek, p99", median(p99), "×", &json!({"at-most": 2}));
        figure("the same with the topic's id checked, p50", median(checked_p50), "×", &json!({}));
        figure("the same with the topic's id checked, p99", median(checked_p99), "×", &json!({}));
        figure("random single offset, fetched", median(bytes), "bytes/read", &json!({}));
    }

    /// The time of a read of one offset; with `lanes`, of as many reads under way at a time. And
    /// the bytes that each took.
    async fn singles(&self, what: &str, identity: &Arc<Identity>, lanes: usize) -> ((f64, f64), f64) {
        let shadow = self.shadow(SeekThreshold::Auto);
        shadow.read(self.want([0], identity)).next().await.unwrap();
        let offsets: Vec<_> = Self::random(7).take(SINGLES).collect();
        let lanes = offsets.chunks(SINGLES / lanes).map(|offsets| {
            let wants: Vec<_> = offsets.iter().map(|offset| self.want([*offset], identity)).collect();
            let shadow = shadow.clone();
            tokio::spawn(async move {
                let mut millis = Vec::new();
                for want in wants {
                    let since = Instant::now();
                    assert_eq!(shadow.read(want).next().await.unwrap().unwrap().found.len(), 1);
                    millis.push(since.elapsed().as_secs_f64() * 1e3);
                }
                millis
            })
        });
        let (since, mut millis) = (Instant::now(), Vec::new());
        for lane in lanes.collect::<Vec<_>>() {
            millis.extend(lane.await.unwrap());
        }
        let mean = since.elapsed().as_secs_f64() * 1e3 / SINGLES as f64;
        let counts = shadow.counts();
        let per_read = counts.bytes as f64 / counts.found as f64;
        let counts = format!("{counts:?}");
        println!("{}", json!({"what": what, "bytes_per_read": per_read, "ms_between_answers": mean, "counts": counts}));
        (report(what, millis), per_read)
    }

    /// Random offsets as a lane wants them, many at a time: the time of a turn by its offsets.
    async fn scattered(&self) {
        let shadow = self.shadow(SeekThreshold::Offsets(0));
        shadow.read(self.want([0], &self.identity)).next().await.unwrap();
        let mut offsets: Vec<_> = Self::random(7).take(SINGLES).collect();
        offsets.sort_unstable();
        offsets.dedup();
        let mut readings = shadow.read(self.want(offsets, &self.identity));
        let (mut millis, mut since) = (Vec::new(), Instant::now());
        while let Some(reading) = readings.next().await.unwrap() {
            let each = since.elapsed().as_secs_f64() * 1e3 / reading.found.len() as f64;
            millis.extend(std::iter::repeat_n(each, reading.found.len()));
            since = Instant::now();
        }
        report("random offsets, one want", millis);
    }

    /// What asking for a topic id costs by itself.
    async fn topic_id(&self, topic_ids: &TopicIds) {
        let topic = self.topic.as_str().into();
        let mut millis = Vec::new();
        for _ in 0..SINGLES {
            let since = Instant::now();
            topic_ids.get(&topic, Some(1)).await.unwrap();
            millis.push(since.elapsed().as_secs_f64() * 1e3);
        }
        report("topic id", millis);
    }

    /// 100,000 runs of one lane against single reads of another on the same reader thread; their p99 in milliseconds.
    async fn fairness(&self) -> f64 {
        let mut kafka = kafka(&self.servers, SeekThreshold::Offsets(0));
        kafka.shadow.readers = 1;
        let shadow = ShadowReaders::new(&kafka, &self.servers, TopicIds::new(&kafka, &self.servers));
        let single = Want::new(self.source(1), Arc::clone(&self.identity), vec![Offset::new(0).unwrap()]).unwrap();
        shadow.read(single.clone()).next().await.unwrap();
        let mut runs = shadow.read(self.want((0..MESSAGES).step_by(2), &self.identity));
        let runs = tokio::spawn(async move { while runs.next().await.unwrap().is_some() {} });
        let (since, mut millis) = (Instant::now(), Vec::new());
        while !runs.is_finished() {
            let since = Instant::now();
            shadow.read(single.clone()).next().await.unwrap();
            millis.push(since.elapsed().as_secs_f64() * 1e3);
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let seconds = since.elapsed().as_secs_f64();
        let positionings = shadow.counts().positionings;
        println!("{}", json!({"what": "100,000 runs", "seconds": seconds, "positionings": positionings}));
        report("single read beside 100,000 runs", millis).1
    }
}
