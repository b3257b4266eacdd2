//! The oracle: what must hold of input, dead letters, emitted records and committed offsets, whatever happened between.
//!
//! The guest `testing-oracle` judges by the first byte of a payload, so the verdict on each message is known here.

use std::{collections::BTreeMap, fs, sync::Arc, time::Duration};

use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
use tempfile::TempDir;

use super::{Broker, Position, Process, Record, SOON, Stored, eventually, guest};

/// A topic of messages with known verdicts, and where their consequences are to be found.
pub(crate) struct Oracle<'b> {
    broker: &'b Broker,
    /// Also the name of the group; the other topics are named after it.
    pub(crate) topic: String,
    inputs: BTreeMap<Position, Stored>,
    /// The commit of each partition as it was seen last.
    committed: BTreeMap<i32, i64>,
    /// The folder of each process that was started, and how many of its assignments are in `assigned`.
    processes: Vec<(Arc<TempDir>, usize)>,
    /// Where a process began to judge each partition, one entry for each assignment.
    assigned: BTreeMap<i32, Vec<i64>>,
    /// Dead letters of a topic that was deleted since.
    deleted: BTreeMap<Position, usize>,
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
        for name in [topic, &dead_letters(topic), &copies_of(topic)] {
            broker.create_topic(name, partitions, &[]);
        }
        Self {
            broker,
            topic: topic.to_owned(),
            inputs: BTreeMap::new(),
            committed: BTreeMap::new(),
            processes: Vec::new(),
            assigned: BTreeMap::new(),
            deleted: BTreeMap::new(),
        }
    }

    /// Starts a process that judges the topic; what it is assigned counts from now on.
    pub(crate) fn start(&mut self, config: &str, environment: &[(&str, &str)]) -> Process {
        let process = Process::start_with(config, environment);
        self.processes.push((Arc::clone(process.folder()), 0));
        process
    }

    /// Whether dead letters of deferred messages are there whose commit is not.
    pub(crate) fn has_late_letters(&self) -> bool {
        let committed = self.broker.committed(&self.topic, &self.topic);
        let is_behind = |(partition, offset): &Position| committed.get(partition).is_none_or(|next| next <= offset);
        self.letters().keys().any(|position| is_behind(position) && class(&self.inputs[position]) == b'D')
    }

    /// Deletes the topic of dead letters; those that are in it are remembered.
    pub(crate) fn delete_dead_letters(&mut self) {
        self.deleted = self.letters();
        self.broker.delete_topic(&dead_letters(&self.topic));
    }

    /// Makes the topic of dead letters anew.
    pub(crate) fn create_dead_letters(&self) {
        let partitions = i32::try_from(self.broker.ends(&self.topic).len()).unwrap();
        self.broker.create_topic(&dead_letters(&self.topic), partitions, &[]);
    }

    /// Produces messages of every kind: each class by chance, with and without keys, headers, sizes from 20 bytes to 2 KiB.
    pub(crate) fn produce(&mut self, count: usize, seed: u64) {
        let mut random = StdRng::seed_from_u64(seed);
        let partitions = i32::try_from(self.broker.ends(&self.topic).len()).unwrap();
        // No two payloads are the same: one message in the place of another is always seen.
        let numbers = self.inputs.len()..self.inputs.len() + count;
        self.send(numbers.map(|number| record(&mut random, number, partitions)).collect());
    }

    /// Produces a message of each of these classes, over the partitions in turn.
    pub(crate) fn produce_of(&mut self, classes: &[u8]) {
        let partitions = self.broker.ends(&self.topic).len();
        let message = |(number, class): (usize, &u8)| Record {
            partition: Some(i32::try_from(number % partitions).unwrap()),
            payload: Some(format!("{}{number:019}", char::from(*class)).into_bytes()),
            ..Record::default()
        };
        self.send((self.inputs.len()..).zip(classes).map(message).collect());
    }

    fn send(&mut self, records: Vec<Record>) {
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
            limit = "off"
            "#,
            module.display(),
            copies_of(topic),
            dead_letters(topic),
        )
    }

    /// What must hold at any moment: everything below a committed offset has come to its end (I1), commits do not go back
    /// (I4), there is no dead letter without a verdict and none of another message (I2, I3), and nothing is judged again
    /// but what was not committed when a partition changed hands.
    pub(crate) fn check(&mut self) -> Verdicts {
        // In this order: what is committed now has its dead letters in the topic already, and what is in the topic was
        // assigned already.
        let committed = self.broker.committed(&self.topic, &self.topic);
        let letters = self.letters();
        let copies = self.copies();
        self.follow(&committed);
        let ends = self.broker.ends(&self.topic);
        for (partition, next) in &committed {
            assert!(*next <= ends[partition], "I1: {next} of partition {partition} is committed, which ends before");
            for (position, input) in self.inputs.range((*partition, 0)..(*partition, *next)) {
                let (found, what) = match class(input) {
                    b'R' | b'D' | b'T' => (&letters, "dead letter"),
                    b'E' => (&copies, "emitted record"),
                    _ => continue,
                };
                assert!(found.contains_key(position), "I1: {position:?} is committed without its {what}");
            }
        }
        self.check_repeats("dead letters", &letters);
        self.check_repeats("emitted records", &copies);
        Verdicts { rejected: letters.len(), duplicates: letters.values().sum::<usize>() - letters.len() }
    }

    /// The part of [`Oracle::check`] that is quick: commits and assignments do not go back.
    pub(crate) fn check_commits(&mut self) {
        let committed = self.broker.committed(&self.topic, &self.topic);
        self.follow(&committed);
    }

    fn follow(&mut self, committed: &BTreeMap<i32, i64>) {
        // What was assigned since the last look came after the commits of then.
        self.hear_of_assignments();
        for (partition, next) in committed {
            let before = self.committed.insert(*partition, *next).unwrap_or_default();
            assert!(before <= *next, "I4: the commit of partition {partition} went back from {before} to {next}");
        }
    }

    /// A partition is judged from its committed offset on, once for each time that it was assigned. So a message has at
    /// most as many records as there were assignments that began at it or before: in sum, what was settled or sent
    /// since the last commit before each fault.
    fn check_repeats(&self, what: &str, found: &BTreeMap<Position, usize>) {
        for ((partition, offset), count) in found {
            let starts = self.assigned.get(partition).map_or(&[][..], Vec::as_slice);
            let judged = starts.iter().filter(|start| *start <= offset).count();
            assert!(
                *count <= judged,
                "{count} {what} of ({partition}, {offset}), which was judged {judged} times at most"
            );
        }
    }

    /// Reads in the logs what was assigned since the last look, which must begin at what was committed then or behind.
    fn hear_of_assignments(&mut self) {
        for (folder, heard) in &mut self.processes {
            let log = fs::read_to_string(folder.path().join("stderr")).unwrap();
            let assignments: Vec<_> = log.lines().filter_map(|line| line.split_once(" Assigned partitions=")).collect();
            for (_, partitions) in &assignments[*heard..] {
                for (partition, start) in
                    partitions.split_whitespace().map(|partition| assigned(&self.topic, partition))
                {
                    let committed = self.committed.get(&partition).copied().unwrap_or_default();
                    assert!(
                        committed <= start,
                        "I4: partition {partition} is judged from {start} on, after a commit of {committed}"
                    );
                    self.assigned.entry(partition).or_default().push(start);
                }
            }
            *heard = assignments.len();
        }
    }

    /// How many messages are committed.
    pub(crate) fn commits(&self) -> i64 {
        self.broker.committed(&self.topic, &self.topic).values().sum()
    }

    /// Waits until everything is committed.
    pub(crate) fn await_committed(&self, within: Duration) {
        let ends = self.broker.ends(&self.topic);
        eventually(within, "everything is committed", || {
            let committed = self.broker.committed(&self.topic, &self.topic);
            ends.iter()
                .all(|(partition, end)| committed.get(partition).copied().unwrap_or_default() >= *end)
                .then_some(())
        });
    }

    /// Waits until everything is committed, and checks that nothing is missing; then that a new message still comes
    /// through (I6).
    pub(crate) fn check_end(&mut self, within: Duration) -> Verdicts {
        self.await_committed(within);
        let verdicts = self.check();
        let rejected = self.inputs.values().filter(|input| matches!(class(input), b'R' | b'D' | b'T')).count();
        assert_eq!(verdicts.rejected, rejected, "I2: each rejected message has its dead letter");
        self.produce(1, 0);
        self.await_committed(SOON);
        self.check();
        verdicts
    }

    /// How many dead letters there are of each position, all of which are right.
    fn letters(&self) -> BTreeMap<Position, usize> {
        let mut letters = self.deleted.clone();
        for letter in self.broker.read(&dead_letters(&self.topic)) {
            let number = |name: &str| letter.header(name).unwrap().parse::<i64>().unwrap();
            let partition = i32::try_from(number("deadletter.partition")).unwrap();
            let position = (partition, number("deadletter.offset"));
            let input = self.inputs.get(&position).expect("I3: a dead letter of no message");
            let (code, attempts) = match class(input) {
                b'R' => ("now", 1),
                b'D' => ("late", 1),
                b'T' => ("retries-exhausted", 5),
                other => panic!("I3: a dead letter of {position:?}, whose class is {}", char::from(other)),
            };
            assert_eq!(letter.header("deadletter.code"), Some(code), "{position:?}");
            assert_eq!(number("deadletter.attempts"), attempts, "the attempts of {position:?}");
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

    /// How many emitted records there are of each position, all of which are right.
    fn copies(&self) -> BTreeMap<Position, usize> {
        let emitting = self.inputs.iter().filter(|(_, input)| class(input) == b'E');
        let emitting: BTreeMap<_, _> = emitting.map(|(position, input)| (&input.payload, (position, input))).collect();
        let mut copies = BTreeMap::new();
        for copy in self.broker.read(&copies_of(&self.topic)) {
            let (position, input) = emitting.get(&copy.payload).expect("I3: a record was emitted for no message");
            assert_eq!(copy.key, input.key, "I2: the key of the record emitted for {position:?}");
            *copies.entry(**position).or_default() += 1;
        }
        copies
    }
}

/// Partition and start of `topic[3]@17`, as the log has it.
fn assigned(topic: &str, logged: &str) -> (i32, i64) {
    let parsed = || {
        let (partition, start) = logged.strip_prefix(topic)?.strip_prefix('[')?.split_once("]@")?;
        Some((partition.parse().ok()?, start.parse().ok()?))
    };
    parsed().unwrap_or_else(|| panic!("{logged} is no assignment of {topic}"))
}

/// The topic of its dead letters.
pub(crate) fn dead_letters(topic: &str) -> String {
    format!("{topic}.dlq")
}

/// The topic of what its guest emits.
pub(crate) fn copies_of(topic: &str) -> String {
    format!("{topic}.copies")
}

fn class(input: &Stored) -> u8 {
    input.payload.as_deref().and_then(|payload| payload.first()).copied().unwrap_or_default()
}

fn record(random: &mut StdRng, number: usize, partitions: i32) -> Record {
    const CLASSES: &[u8] = b"AAAAARDHEYT";
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
