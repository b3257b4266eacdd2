//! The oracle: what must hold of input, dead letters, emitted records and committed offsets, whatever happened between.
//!
//! The guest `testing-oracle` judges by the first byte of a payload, so the verdict on each message is known here.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use rand::{Rng as _, SeedableRng as _, rngs::StdRng};

use super::{Broker, Record, SOON, Stored, eventually, guest};

/// A topic of messages with known verdicts, and where their consequences are to be found.
pub(crate) struct Oracle<'b> {
    broker: &'b Broker,
    /// Also the name of the group; the other topics are named after it.
    pub(crate) topic: String,
    inputs: BTreeMap<(i32, i64), Stored>,
    /// The highest commit seen of each partition.
    committed: BTreeMap<i32, i64>,
}

/// What the oracle counted at the end.
#[derive(Debug, Default)]
pub(crate) struct Verdicts {
    /// Rejected messages.
    pub(crate) rejected: usize,
    /// Dead letters beyond one for each of those.
    pub(crate) duplicates: usize,
}

impl<'b> Oracle<'b> {
    /// Makes the topics.
    pub(crate) fn new(broker: &'b Broker, topic: &str, partitions: i32) -> Self {
        for name in [topic, &dead_letters(topic), &copies(topic)] {
            broker.create_topic(name, partitions, &[]);
        }
        Self { broker, topic: topic.to_owned(), inputs: BTreeMap::new(), committed: BTreeMap::new() }
    }

    /// Produces messages of every kind: each class by chance, with and without keys, headers, sizes from 20 bytes to 2 KiB.
    pub(crate) fn produce(&mut self, count: usize, seed: u64) {
        let mut random = StdRng::seed_from_u64(seed);
        let partitions = i32::try_from(self.broker.ends(&self.topic).len()).unwrap();
        let records: Vec<_> = (0..count).map(|number| record(&mut random, number, partitions)).collect();
        let positions = self.broker.produce(&self.topic, &records);
        for (record, (partition, offset)) in records.into_iter().zip(positions) {
            let headers = record.headers.into_iter().map(|(name, value)| (name.into_bytes(), value)).collect();
            let Record { key, payload, timestamp, .. } = record;
            self.inputs.insert((partition, offset), Stored { partition, offset, timestamp, key, payload, headers });
        }
    }

    /// The configuration of a pipeline that judges the topic; `more` is appended to the pipeline, `kafka` to the file.
    pub(crate) fn config(&self, more: &str, kafka: &str) -> String {
        let (servers, module, topic) = (&self.broker.servers, guest("testing-oracle"), &self.topic);
        format!(
            r#"
            [kafka]
            brokers = "{servers}"
            {kafka}
            [pipelines.oracle]
            topics = ["{topic}"]
            group = "{topic}"
            start = "earliest"
            guest = {{ module = "{}" }}
            batch = {{ messages = 100, wait = "5ms" }}
            commit = "50ms"
            settle = "50ms"
            {more}
            outputs.copies.topic = "{}"
            [pipelines.oracle.routes.dead-letter]
            topic = "{}"
            "#,
            module.display(),
            copies(topic),
            dead_letters(topic),
        )
    }

    /// What must hold at any moment: everything below a committed offset has come to its end (I1), commits do not go back
    /// (I4), there is no dead letter without a verdict and none of another message (I2, I3).
    pub(crate) fn check(&mut self) -> Verdicts {
        // In this order: what is committed now has its dead letters in the topic already.
        let committed = self.broker.committed(&self.topic, &self.topic);
        let letters = self.letters();
        let copies = self.copies();
        for (partition, next) in &committed {
            let before = self.committed.insert(*partition, *next).unwrap_or_default();
            assert!(before <= *next, "I4: the commit of partition {partition} went back from {before} to {next}");
            for (position, input) in self.inputs.range((*partition, 0)..(*partition, *next)) {
                match class(input) {
                    b'R' | b'D' => {
                        assert!(letters.contains_key(position), "I1: {position:?} is committed without its dead letter")
                    }
                    b'E' => assert!(
                        copies.contains(&input.payload),
                        "I1: {position:?} is committed without its emitted record"
                    ),
                    _ => {}
                }
            }
        }
        Verdicts { rejected: letters.len(), duplicates: letters.values().sum::<usize>() - letters.len() }
    }

    /// Waits until everything is committed, and checks that nothing is missing; then that a new message still comes
    /// through (I6).
    pub(crate) fn check_end(&mut self, within: Duration) -> Verdicts {
        let ends = self.broker.ends(&self.topic);
        eventually(within, "everything is committed", || {
            (self.broker.committed(&self.topic, &self.topic) == ends).then_some(())
        });
        let verdicts = self.check();
        let rejected = self.inputs.values().filter(|input| matches!(class(input), b'R' | b'D')).count();
        assert_eq!(verdicts.rejected, rejected, "I2: each rejected message has its dead letter");
        self.produce(1, 0);
        let ends = self.broker.ends(&self.topic);
        eventually(SOON, "I6: a new message is judged and committed", || {
            (self.broker.committed(&self.topic, &self.topic) == ends).then_some(())
        });
        verdicts
    }

    /// How many dead letters there are of each position, all of which are right.
    fn letters(&self) -> BTreeMap<(i32, i64), usize> {
        let mut letters = BTreeMap::new();
        for letter in self.broker.read(&dead_letters(&self.topic)) {
            let number = |name: &str| letter.header(name).unwrap().parse::<i64>().unwrap();
            let partition = i32::try_from(number("deadletter.partition")).unwrap();
            let position = (partition, number("deadletter.offset"));
            let input = self.inputs.get(&position).expect("I3: a dead letter of no message");
            let code = match class(input) {
                b'R' => "now",
                b'D' => "late",
                other => panic!("I3: a dead letter of {position:?}, whose class is {}", char::from(other)),
            };
            assert_eq!(letter.header("deadletter.code"), Some(code), "{position:?}");
            assert_eq!(letter.header("deadletter.topic"), Some(self.topic.as_str()));
            assert_eq!(letter.header("deadletter.payload-status"), Some("full"), "{position:?}");
            assert_eq!(letter.partition, partition, "`same` partition");
            assert_eq!(letter.key, input.key, "I2: the key of {position:?}");
            assert_eq!(letter.payload, input.payload, "I2: the payload of {position:?}");
            let original = letter.headers.get(..input.headers.len());
            assert_eq!(original, Some(input.headers.as_slice()), "I2: the headers of {position:?}");
            if let Some(timestamp) = input.timestamp {
                assert_eq!(number("deadletter.timestamp"), timestamp, "I2: the timestamp of {position:?}");
            }
            *letters.entry(position).or_default() += 1;
        }
        letters
    }

    /// The payloads that were emitted, all of which belong to messages of that class.
    fn copies(&self) -> BTreeSet<Option<Vec<u8>>> {
        let copies: BTreeSet<_> =
            self.broker.read(&copies(&self.topic)).into_iter().map(|record| record.payload).collect();
        let emitted: BTreeSet<_> =
            self.inputs.values().filter(|input| class(input) == b'E').map(|input| input.payload.clone()).collect();
        assert!(copies.is_subset(&emitted), "I3: a record was emitted for no message");
        copies
    }
}

/// The topic of its dead letters.
pub(crate) fn dead_letters(topic: &str) -> String {
    format!("{topic}.dlq")
}

/// The topic of what its guest emits.
pub(crate) fn copies(topic: &str) -> String {
    format!("{topic}.copies")
}

fn class(input: &Stored) -> u8 {
    input.payload.as_deref().and_then(|payload| payload.first()).copied().unwrap_or_default()
}

fn record(random: &mut StdRng, number: usize, partitions: i32) -> Record {
    const CLASSES: &[u8] = b"AAAAARDHE";
    let class = CLASSES[random.random_range(0..CLASSES.len())];
    let mut payload = format!("{}{number:019}", char::from(class)).into_bytes();
    payload.resize(random.random_range(20..2048), b'.');
    let header = |random: &mut StdRng| {
        let value = random.random_bool(0.8).then(|| (0..random.random_range(0..9)).map(|_| random.random()).collect());
        (["trace", "kind", ""][random.random_range(0..3)].to_owned(), value)
    };
    Record {
        partition: Some(random.random_range(0..partitions)),
        timestamp: Some(1_700_000_000_000 + i64::try_from(number).unwrap()),
        key: random.random_bool(0.8).then(|| number.to_string().into_bytes()),
        headers: (0..random.random_range(0..4)).map(|_| header(random)).collect(),
        payload: Some(payload),
    }
}
