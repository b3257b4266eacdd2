//! Topics by pattern, and topics and partitions that come and go while they are read.

use crate::support::{Record, Running, SOON, Scene, broker, eventually, poll};

/// A scene whose pipeline reads every topic that is called as the scene, with a dash and more behind it.
struct Family(Scene<'static>);

impl Family {
    fn new(name: &str) -> Self {
        Self(Scene::new(broker(), name, 2, &[]))
    }

    fn member(&self, name: &str) -> String {
        format!("{}-{name}", self.0.topic)
    }

    fn create(&self, name: &str, partitions: i32) {
        self.0.broker.create_topic(&self.member(name), partitions, &[]);
    }

    fn produce(&self, name: &str, partition: i32, count: usize) {
        let record = Record { partition: Some(partition), payload: Some(b"R".to_vec()), ..Record::default() };
        self.0.broker.produce(&self.member(name), &vec![record; count]);
    }

    /// All that match: `'^name-[a-z]+'`.
    fn all(&self) -> String {
        format!("'^{}-[a-z]+'", self.0.topic)
    }

    fn start(&self, topics: &str, start: &str, protocol: &str) -> Running {
        let topic = &self.0.topic;
        let config = self.0.config("", "");
        let config = config.replace(&format!("topics = [\"{topic}\"]"), &format!("topics = [{topics}]"));
        let config = config.replace("start = \"earliest\"", &format!("start = \"{start}\""));
        let refresh = "\"topic.metadata.refresh.interval.ms\" = \"300\"";
        Running::start(&format!("{config}\n[kafka.consumer]\n\"group.protocol\" = \"{protocol}\"\n{refresh}\n"))
    }

    fn await_assigned(&self, name: &str, partition: i32) {
        self.0.await_log(&[" Assigned ", &format!("{}[{partition}]@", self.member(name))]);
    }

    /// Waits until exactly these were rejected: the name, the partition, and how many from which offset on.
    fn await_rejected(&self, expected: &[(&str, i32, std::ops::Range<i64>)]) {
        let of_one = |(name, partition, offsets): &(&str, i32, std::ops::Range<i64>)| {
            offsets.clone().map(|offset| (self.member(name), *partition, offset)).collect::<Vec<_>>()
        };
        let mut expected: Vec<_> = expected.iter().flat_map(of_one).collect();
        expected.sort();
        let mut seen = Vec::new();
        poll(SOON, || {
            seen = self.rejected();
            (seen.len() >= expected.len()).then_some(())
        });
        assert_eq!(seen, expected, "{}", self.0.lines(&[]).join("\n"));
    }

    fn rejected(&self) -> Vec<(String, i32, i64)> {
        let mut rejected = Vec::new();
        for letter in self.0.letters() {
            let header = |name: &str| letter.header(name).unwrap();
            let partition = header("deadletter.partition").parse().unwrap();
            let offset = header("deadletter.offset").parse().unwrap();
            rejected.push((header("deadletter.topic").to_owned(), partition, offset));
        }
        rejected.sort();
        rejected
    }
}

#[test]
fn a_topic_that_appears_is_read_from_its_first_message_in_a_classic_group() {
    appears("appears-classic", "classic");
}

#[test]
fn a_topic_that_appears_is_read_from_its_first_message_under_the_consumer_protocol() {
    appears("appears-consumer", "consumer");
}

/// Though `start = "latest"` passes over what was there before.
fn appears(name: &str, protocol: &str) {
    let family = Family::new(name);
    family.create("a", 1);
    family.produce("a", 0, 3);
    let running = family.start(&family.all(), "latest", protocol);
    family.await_assigned("a", 0);
    family.create("b", 1);
    family.create("b2", 1);
    family.produce("b", 0, 2);
    family.produce("b2", 0, 2);
    family.produce("a", 0, 1);
    family.await_rejected(&[("a", 0, 3..4), ("b", 0, 0..2)]);
    drop(running);
}

#[test]
fn a_partition_that_appears_is_read_from_its_first_message() {
    let family = Family::new("widened");
    family.create("a", 1);
    family.produce("a", 0, 3);
    let running = family.start(&family.all(), "latest", "classic");
    family.await_assigned("a", 0);
    broker().add_partitions(&family.member("a"), 2);
    family.produce("a", 1, 2);
    family.await_rejected(&[("a", 1, 0..2)]);
    drop(running);
    // While nobody is there, too.
    broker().add_partitions(&family.member("a"), 3);
    family.produce("a", 2, 2);
    let running = family.start(&family.all(), "latest", "classic");
    family.await_rejected(&[("a", 1, 0..2), ("a", 2, 0..2)]);
    drop(running);
}

#[test]
fn a_pattern_without_a_topic_waits_for_one() {
    let family = Family::new("nobody");
    let running = family.start(&family.all(), "latest", "classic");
    family.0.await_log(&["WARN", "no topic matches \"^nobody-[a-z]+\" of pipelines.scene.topics yet"]);
    family.create("a", 1);
    family.await_assigned("a", 0);
    family.produce("a", 0, 2);
    family.await_rejected(&[("a", 0, 0..2)]);
    drop(running);
}

#[test]
fn a_topic_that_is_deleted_holds_up_no_other_in_a_classic_group() {
    let family = Family::new("deleted-classic");
    deleted(&family, &family.all(), "classic");
}

#[test]
fn a_topic_that_is_deleted_holds_up_no_other_under_the_consumer_protocol() {
    let family = Family::new("deleted-consumer");
    deleted(&family, &family.all(), "consumer");
}

#[test]
fn a_topic_that_is_deleted_holds_up_no_other_where_each_is_named() {
    let family = Family::new("deleted-named");
    let both = format!("'{}', '{}'", family.member("a"), family.member("b"));
    deleted(&family, &both, "classic");
}

/// And is read again, from its first message, once it is back.
fn deleted(family: &Family, topics: &str, protocol: &str) {
    for topic in ["a", "b"] {
        family.create(topic, 1);
        family.produce(topic, 0, 5);
    }
    let running = family.start(topics, "earliest", protocol);
    family.await_rejected(&[("a", 0, 0..5), ("b", 0, 0..5)]);
    broker().delete_topic(&family.member("b"));
    let deleted = ["WARN", "The topic was deleted", &family.member("b")];
    family.0.await_log(&deleted);
    family.produce("a", 0, 5);
    family.await_rejected(&[("a", 0, 0..10), ("b", 0, 0..5)]);
    family.create("b", 1);
    family.produce("b", 0, 7);
    let is_read = || (family.rejected().len() >= 22).then(|| family.rejected());
    let rejected = eventually(SOON, "the new topic is read", is_read);
    assert_eq!(rejected.iter().filter(|(topic, ..)| *topic == family.member("b")).count(), 12);
    assert_eq!(family.0.lines(&deleted).len(), 1);
    drop(running);
}
