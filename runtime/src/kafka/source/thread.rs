//! The thread of the main consumer.

use std::{
    collections::BTreeSet,
    future::Future,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, anyhow};
use rdkafka::{
    config::RDKafkaLogLevel,
    consumer::{BaseConsumer, Consumer},
    error::{KafkaError, KafkaResult},
    message::BorrowedMessage,
};
use tokio::{runtime::Handle, sync::oneshot};
use tracing::{debug, warn};

use super::{
    Assigned, Order, Outlet, SourceCounts,
    context::Rebalances,
    drain::LEAVE,
    slot::{Budget, Handed, Slot},
};
use crate::{
    config::Pipeline,
    kafka::{Cluster, client, list, pattern},
    message::TopicPartition,
};

/// How long a poll waits when nothing else is due. Bounds how late a shutdown is noticed.
const IDLE_POLL: Duration = Duration::from_millis(20);

/// The same while batches grow or partitions are paused: bounds how late they are handed over or resumed.
pub(super) const BUSY_POLL: Duration = Duration::from_millis(2);

/// Messages taken between two looks at the clock, which costs about as much as copying a small one.
const TAKEN_BETWEEN_LOOKS: u32 = 16;

/// How long a question to the broker may take.
pub(super) const ASK: Duration = Duration::from_secs(5);

/// Makes the lane of a partition that was assigned.
pub type SpawnLane = Box<dyn FnMut(Assigned) -> Outlet + Send>;

/// Why a source ended.
#[derive(Debug)]
pub enum Stopped {
    /// It was asked to: drained, committed, left the group.
    Drained,
    /// It cannot go on.
    Failed(anyhow::Error),
}

/// A running main consumer. Cheap to clone.
#[derive(Clone)]
pub struct Source {
    drain: Arc<AtomicBool>,
    counts: Arc<Mutex<SourceCounts>>,
}

impl Source {
    /// Starts the thread and joins the group. `spawn` makes the lane of a partition that was assigned. What is
    /// returned beside the source resolves when it has ended.
    pub fn start(
        cluster: &Cluster,
        pipeline: &Pipeline,
        spawn: SpawnLane,
    ) -> Result<(Self, impl Future<Output = Stopped> + Send + use<>)> {
        let consumer: BaseConsumer<Rebalances> = client::source(cluster.kafka(), cluster.servers(), pipeline)
            .set_log_level(RDKafkaLogLevel::Warning)
            .create_with_context(Rebalances::default())
            .context("cannot make the main consumer")?;
        let drain = Arc::new(AtomicBool::new(false));
        let counts = Arc::new(Mutex::new(SourceCounts::default()));
        let (ended, stopped) = oneshot::channel();
        let (closed, closing) = oneshot::channel::<()>();
        let mut thread = Thread {
            consumer: Arc::new(consumer),
            budget: Budget::new(pipeline.in_hand),
            pipeline: pipeline.clone(),
            runtime: Handle::current(),
            spawn,
            knows_topic_ids: !cluster.is_embedded(),
            is_static_member: client::is_static_member(cluster.kafka()),
            slots: Vec::new(),
            old: BTreeSet::new(),
            drain: Arc::clone(&drain),
            counts: Arc::clone(&counts),
            poll_for: IDLE_POLL,
            failed: None,
            news: Vec::new(),
        };
        thread::Builder::new().name(format!("source-{}", pipeline.name)).spawn(move || {
            let runtime = thread.runtime.clone();
            let _spawns_lanes_on = runtime.enter();
            // Nobody listens only when the process ends.
            drop(ended.send(thread.run()));
            drop(thread);
            drop(closed);
        })?;
        let stopped = async {
            let outcome = stopped.await.unwrap_or_else(|_| Stopped::Failed(anyhow!("the main consumer's thread died")));
            // The group is left when the client is dropped: a process that ends before would leave its partitions to
            // nobody until its session ends. With the brokers away, it does not end.
            drop(tokio::time::timeout(LEAVE, closing).await);
            outcome
        };
        Ok((Self { drain, counts }, stopped))
    }

    /// Asks it to drain, within the pipeline's `shutdown` grace.
    pub fn drain(&self) {
        self.drain.store(true, Ordering::Release);
    }

    /// What it did so far.
    pub fn counts(&self) -> SourceCounts {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

pub(super) struct Thread {
    pub(super) consumer: Arc<BaseConsumer<Rebalances>>,
    pub(super) pipeline: Pipeline,
    pub(super) spawn: SpawnLane,
    /// The embedded broker does not answer the question.
    pub(super) knows_topic_ids: bool,
    /// Whether its group waits for it to come back.
    pub(super) is_static_member: bool,
    pub(super) slots: Vec<Slot>,
    /// Partitions to which `start = "latest"` applies, until something of them is committed.
    pub(super) old: BTreeSet<TopicPartition>,
    pub(super) counts: Arc<Mutex<SourceCounts>>,
    budget: Budget,
    runtime: Handle,
    drain: Arc<AtomicBool>,
    poll_for: Duration,
    /// Why a lane wants everything to end.
    failed: Option<String>,
    /// What was logged lately.
    pub(super) news: Vec<(KafkaError, Instant)>,
}

impl Thread {
    fn run(&mut self) -> Stopped {
        let outcome = self.join().and_then(|()| self.consume()).and_then(|()| self.finish());
        let outcome = outcome.and_then(|()| self.failed.take().map_or(Ok(()), |why| Err(anyhow!(why))));
        self.consumer.context().closing.store(true, Ordering::Release);
        match outcome {
            Ok(()) => Stopped::Drained,
            Err(error) => {
                self.end_lanes(&self.everything(), Order::Lost, Duration::from_millis(100));
                Stopped::Failed(error)
            }
        }
    }

    fn join(&mut self) -> Result<()> {
        self.note_what_is_old()?;
        let topics: Vec<_> = self.pipeline.topics.iter().map(|topic| pattern::subscription(topic)).collect();
        let topics: Vec<_> = topics.iter().map(String::as_str).collect();
        self.consumer.subscribe(&topics).with_context(|| format!("cannot subscribe to {topics:?}"))
    }

    /// Until a drain is asked for, or a lane wants the end.
    fn consume(&mut self) -> Result<()> {
        let consumer = Arc::clone(&self.consumer);
        let mut next_commit = Instant::now() + self.pipeline.commit;
        // The slot of the message before: messages come in runs of one partition.
        let mut current = 0;
        let mut taken = 0_u32;
        let mut looked = Instant::now();
        while !self.drain.load(Ordering::Acquire) {
            match consumer.poll(self.poll_for) {
                Some(Ok(message)) => {
                    self.take(&message, &mut current)?;
                    taken += 1;
                    let busy = !taken.is_multiple_of(TAKEN_BETWEEN_LOOKS) || looked.elapsed() < BUSY_POLL;
                    if busy {
                        continue;
                    }
                }
                Some(Err(error)) => self.heard(error)?,
                None => {}
            }
            looked = Instant::now();
            self.carry_out_rebalances()?;
            self.note_commits();
            self.look_after_slots()?;
            self.failed = self.slots.iter().find_map(|slot| slot.progress.failure()).map(str::to_owned);
            if self.failed.is_some() {
                break;
            }
            if Instant::now() >= next_commit {
                self.commit()?;
                next_commit = Instant::now() + self.pipeline.commit;
            }
        }
        Ok(())
    }

    fn take(&mut self, message: &BorrowedMessage<'_>, current: &mut usize) -> Result<()> {
        if !self.slots.get(*current).is_some_and(|slot| slot.is(message)) {
            // A message of a partition that was just revoked has no slot.
            let Some(found) = self.slots.iter().position(|slot| slot.is(message)) else { return Ok(()) };
            *current = found;
        }
        let Some(slot) = self.slots.get_mut(*current) else { return Ok(()) };
        let limits = self.pipeline.batch;
        let others = self.budget.growing.saturating_sub(slot.growing());
        let mut handed = Handed::Over;
        if slot.overflows(message, limits) {
            handed = slot.hand_over(&self.budget, &self.runtime);
        }
        slot.push(message);
        self.budget.growing = others + slot.growing();
        if slot.is_growing() && (slot.is_full(limits) || self.budget.is_spent()) {
            handed = slot.hand_over(&self.budget, &self.runtime);
            self.budget.growing = others + slot.growing();
        }
        self.poll_for = BUSY_POLL;
        match handed {
            Handed::Over => Ok(()),
            Handed::Gone => Err(lane_gone(&slot.source)),
            Handed::Full => {
                let source = slot.source.clone();
                self.pause(&source)
            }
        }
    }

    fn pause(&self, source: &TopicPartition) -> Result<()> {
        debug!(partition = %source, "The lane is full: paused");
        self.count(|counts| counts.pauses += 1);
        self.consumer.pause(&list::of([source])).with_context(|| format!("cannot pause {source}"))
    }

    /// Hands over batches that have grown for long enough, and resumes partitions whose lane has caught up.
    fn look_after_slots(&mut self) -> Result<()> {
        let now = Instant::now();
        self.poll_for = IDLE_POLL;
        for slot in &mut self.slots {
            slot.follow_restart();
            let handed = if slot.is_paused() {
                slot.retry(&self.budget, self.pipeline.batch)
            } else if slot.is_due(self.pipeline.batch, now) {
                slot.hand_over_if_room(&self.budget)
            } else {
                Handed::Over
            };
            if handed == Handed::Gone {
                return Err(lane_gone(&slot.source));
            }
            if slot.is_resuming() {
                match resume(&self.consumer, slot) {
                    Ok(()) => slot.resumed(),
                    Err(error) => warn!(partition = %slot.source, %error, "Cannot resume yet; it is tried again"),
                }
            }
            if slot.is_paused() || slot.is_growing() {
                self.poll_for = BUSY_POLL;
            }
        }
        self.budget.growing = self.slots.iter().map(Slot::growing).sum();
        Ok(())
    }

    pub(super) fn everything(&self) -> Vec<TopicPartition> {
        self.slots.iter().map(|slot| slot.source.clone()).collect()
    }

    pub(super) fn count(&self, change: impl FnOnce(&mut SourceCounts)) {
        change(&mut self.counts.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// `resume` alone may wait out a second of the client's; the seek wakes it (and sets the position that the pause lost).
fn resume(consumer: &BaseConsumer<Rebalances>, slot: &Slot) -> KafkaResult<()> {
    debug!(partition = %slot.source, position = %slot.next, "The lane caught up: resumed");
    consumer.resume(&list::of([&slot.source]))?;
    let position = rdkafka::Offset::Offset(slot.next.get());
    consumer.seek(&slot.source.topic, slot.source.partition, position, ASK)
}

fn lane_gone(source: &TopicPartition) -> anyhow::Error {
    anyhow!("the lane of {source} died; nothing of it is committed that was not settled")
}
