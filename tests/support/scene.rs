//! A pipeline in this process, its topics, and what it logged and counted.

use std::{
    collections::BTreeMap,
    fs, io,
    sync::{LazyLock, Mutex},
    thread::{self, JoinHandle},
};

use deadletter::{
    config::Config,
    control::Control,
    guest::Compiler,
    pipeline::{self, PipelineSummary, Summary},
};
use tempfile::TempDir;
use tokio::sync::oneshot;

use super::{Broker, Record, SOON, Stored, eventually, guest};

/// Topics for the guest `testing-script`; the group is called as the topic is.
pub(crate) struct Scene<'b> {
    pub(crate) broker: &'b Broker,
    pub(crate) topic: String,
}

impl<'b> Scene<'b> {
    /// Makes the topic with some of its configuration, one of dead letters and one for what the guest emits.
    pub(crate) fn new(broker: &'b Broker, topic: &str, partitions: i32, config: &[(&str, &str)]) -> Self {
        let scene = Self { broker, topic: topic.to_owned() };
        broker.create_topic(topic, partitions, config);
        broker.create_topic(&scene.dead_letters(), partitions, &[]);
        broker.create_topic(&scene.copies(), partitions, &[]);
        scene
    }

    pub(crate) fn dead_letters(&self) -> String {
        format!("{}.dlq", self.topic)
    }

    pub(crate) fn copies(&self) -> String {
        format!("{}.copies", self.topic)
    }

    /// A configuration with settings for the guest (as TOML), and `more` of the pipeline.
    pub(crate) fn config(&self, settings: &str, more: &str) -> String {
        let (servers, module, topic) = (&self.broker.servers, guest("testing-script"), &self.topic);
        format!(
            r#"
            [kafka]
            brokers = "{servers}"
            [pipelines.scene]
            topics = ["{topic}"]
            group = "{topic}"
            start = "earliest"
            guest.module = "{}"
            guest.settings = {{ {settings} }}
            commit = "50ms"
            {more}
            outputs.copies.topic = "{}"
            routes.dead-letter.topic = "{}"
            routes.dead-letter.limit = "off"
            "#,
            module.display(),
            self.copies(),
            self.dead_letters(),
        )
    }

    /// Produces one message for each payload to a partition.
    pub(crate) fn produce(&self, partition: i32, payloads: &[&str]) {
        let record = |payload: &&str| {
            let payload = Some(payload.as_bytes().to_vec());
            Record { partition: Some(partition), payload, ..Record::default() }
        };
        self.broker.produce(&self.topic, &payloads.iter().map(record).collect::<Vec<_>>());
    }

    pub(crate) fn letters(&self) -> Vec<Stored> {
        self.broker.read(&self.dead_letters())
    }

    /// The source offsets of the dead letters of a partition with that code, ascending.
    pub(crate) fn rejected(&self, partition: i32, code: &str) -> Vec<i64> {
        let mut offsets = Vec::new();
        for letter in self.letters() {
            let from = letter.header("deadletter.partition").unwrap().parse() == Ok(partition);
            if from && letter.header("deadletter.code") == Some(code) {
                offsets.push(letter.header("deadletter.offset").unwrap().parse().unwrap());
            }
        }
        offsets.sort_unstable();
        offsets
    }

    pub(crate) fn committed(&self, partition: i32) -> Option<i64> {
        self.broker.committed(&self.topic, &self.topic).get(&partition).copied()
    }

    /// Waits until all of a partition is committed up to here.
    pub(crate) fn await_committed(&self, partition: i32, position: i64) {
        let mut seen = None;
        super::poll(SOON, || {
            seen = self.committed(partition);
            (seen >= Some(position)).then_some(())
        });
        assert_eq!(seen, Some(position), "{}/{partition}:\n{}", self.topic, self.log());
    }

    /// Waits for a line of the log that names the topic and has all of these words.
    pub(crate) fn await_log(&self, words: &[&str]) -> String {
        let line = super::poll(SOON, || self.lines(words).pop());
        line.unwrap_or_else(|| panic!("no line with {words:?}:\n{}", self.log()))
    }

    /// The lines of the log that name the topic and have all of these words.
    pub(crate) fn lines(&self, words: &[&str]) -> Vec<String> {
        let log = log();
        let has = |line: &&str| line.contains(&self.topic) && words.iter().all(|word| line.contains(word));
        log.lines().filter(has).map(str::to_owned).collect()
    }

    fn log(&self) -> String {
        self.lines(&[]).join("\n")
    }
}

/// A running pipeline, or several; drained when it is stopped or dropped.
pub(crate) struct Running {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<anyhow::Result<Summary>>>,
}

impl Running {
    pub(crate) fn start(toml: &str) -> Self {
        LazyLock::force(&LOGGING);
        let folder = TempDir::with_prefix("deadletter-scene-").unwrap();
        let file = folder.path().join("deadletter.toml");
        fs::write(&file, toml).unwrap();
        let config = Config::load(&file).unwrap_or_else(|error| panic!("{error}"));
        let (stop, stopped) = oneshot::channel::<()>();
        let run = async move {
            let guests = pipeline::load_guests(&config, &Compiler::in_process()?).await?;
            pipeline::run(config, guests, &Control::default(), async { _ = stopped.await }).await
        };
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        Self { stop: Some(stop), thread: Some(thread::spawn(move || runtime.block_on(run))) }
    }

    /// Drains, and says what was done by the pipeline of a scene.
    pub(crate) fn stop(mut self) -> PipelineSummary {
        let summary = self.end().unwrap();
        summary.pipelines.into_values().next().unwrap()
    }

    fn end(&mut self) -> anyhow::Result<Summary> {
        drop(self.stop.take());
        let thread = self.thread.take().unwrap();
        eventually(SOON, "the pipeline ends", || thread.is_finished().then_some(()));
        thread.join().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A test that fails does not wait.
        if self.thread.is_some() && !thread::panicking() {
            self.end().unwrap();
        }
    }
}

static LOG: Mutex<Vec<u8>> = Mutex::new(Vec::new());

static LOGGING: LazyLock<()> = LazyLock::new(|| {
    tracing_subscriber::fmt().with_ansi(false).with_writer(|| Log).init();
});

struct Log;

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LOG.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn log() -> String {
    String::from_utf8_lossy(&LOG.lock().unwrap()).into_owned()
}

/// Counts by name, for comparison with what a pipeline counted.
pub(crate) fn counts(of: &[(&str, u64)]) -> BTreeMap<String, u64> {
    of.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
}
