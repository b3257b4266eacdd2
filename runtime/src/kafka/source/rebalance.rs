//! Rebalances, and every other change of who reads from where. While one is carried out, the client delivers nothing
//! of any partition: each step has a deadline.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, PoisonError, mpsc as std_mpsc},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use rdkafka::{
    TopicPartitionList,
    consumer::{CommitMode, Consumer, RebalanceProtocol},
    types::RDKafkaRespErr,
};
use tracing::{debug, info, warn};

use super::{
    Assigned, Ending, Order,
    slot::Slot,
    thread::{ASK, Thread},
};
use crate::{
    config::Start,
    kafka::{
        list,
        topic_ids::{self, Existence, TopicId, TopicIdError},
    },
    message::TopicPartition,
    offset::NextOffset,
};

/// What the lanes get of a revocation; the rest of its two seconds is for the commit.
const LANES_END: Duration = Duration::from_millis(1500);

/// How often the committed offsets are asked for before the pipeline gives up.
const ASK_TIMES: usize = 6;

impl Thread {
    /// Carries out what the last poll announced.
    pub(super) fn carry_out_rebalances(&mut self) -> Result<()> {
        loop {
            let announced =
                self.consumer.context().announced.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            let Some((kind, partitions)) = announced else { return Ok(()) };
            self.count(|counts| counts.rebalances += 1);
            let began = Instant::now();
            match kind {
                RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS => self.assign(&partitions)?,
                _ => self.revoke(&partitions)?,
            }
            let took = began.elapsed();
            debug!(took_ms = took.as_millis(), "Rebalanced");
            self.count(|counts| counts.longest_rebalance = counts.longest_rebalance.max(took));
        }
    }

    fn assign(&mut self, partitions: &TopicPartitionList) -> Result<()> {
        let starts = self.positions(partitions)?;
        info!(partitions = %list::show(&starts), "Assigned");
        self.tell_client_to_read(&starts)?;
        let topic_ids = self.topic_ids(&starts.iter().map(|(source, _)| Arc::clone(&source.topic)).collect());
        for (source, start) in starts {
            let topic_id = topic_ids.get(&source.topic).copied();
            self.spawn_lane(source, start, topic_id);
        }
        Ok(())
    }

    fn spawn_lane(&mut self, source: TopicPartition, start: NextOffset, topic_id: Option<TopicId>) {
        let outlet = (self.spawn)(Assigned { source: source.clone(), start, topic_id });
        self.slots.push(Slot::new(source, start, outlet));
    }

    /// The ids of topics, where they are to be had. Without one a shadow reader cannot tell a topic from one that was
    /// made anew under its name; it still tells leader epochs apart.
    fn topic_ids(&self, topics: &BTreeSet<Arc<str>>) -> BTreeMap<Arc<str>, TopicId> {
        if !self.knows_topic_ids {
            return BTreeMap::new();
        }
        let described = topic_ids::describe(self.consumer.client(), topics, None, ASK);
        let id = |(topic, existence)| match existence {
            Ok(Existence::Is(id)) => Some((topic, id)),
            Ok(Existence::Unidentified | Existence::Gone) => None,
            Err(error) => {
                let error: TopicIdError = error;
                warn!(%error, "The topic's id stays unknown");
                None
            }
        };
        described.into_iter().filter_map(id).collect()
    }

    /// The committed offsets, and the configured start where there is none.
    fn positions(&self, partitions: &TopicPartitionList) -> Result<Vec<(TopicPartition, NextOffset)>> {
        let committed = (1..=ASK_TIMES)
            .find_map(|time| match self.consumer.committed_offsets(partitions.clone(), ASK) {
                Ok(committed) => Some(committed),
                Err(error) => {
                    warn!(%error, time, of = ASK_TIMES, "Cannot read the committed offsets");
                    None
                }
            })
            .with_context(|| format!("cannot read the committed offsets of group {}", self.pipeline.group))?;
        let mut positions = Vec::with_capacity(committed.count());
        for element in committed.elements() {
            let source = TopicPartition::new(element.topic(), element.partition());
            let position = match element.offset() {
                rdkafka::Offset::Offset(offset) => NextOffset::new(offset),
                _ => None,
            };
            let position = match position {
                Some(position) => position,
                None => self.configured_start(&source)?,
            };
            positions.push((source, position));
        }
        Ok(positions)
    }

    fn configured_start(&self, source: &TopicPartition) -> Result<NextOffset> {
        let (low, high) = self
            .consumer
            .fetch_watermarks(&source.topic, source.partition, ASK)
            .with_context(|| format!("cannot read the watermarks of {source}"))?;
        let start = match self.pipeline.start {
            Start::Earliest => low,
            Start::Latest => high,
        };
        NextOffset::new(start).with_context(|| format!("{source} has a negative watermark"))
    }

    fn revoke(&mut self, partitions: &TopicPartitionList) -> Result<()> {
        let revoked = list::sources(partitions);
        let lost = self.consumer.assignment_lost();
        info!(partitions = %list::show(&revoked), lost, "Revoked");
        let order = if lost { Order::Lost } else { Order::Revoke };
        let positions = self.end_lanes(&revoked, order, LANES_END);
        if !lost {
            self.commit_positions(&positions, CommitMode::Sync);
        }
        match self.consumer.rebalance_protocol() {
            RebalanceProtocol::Cooperative => self.consumer.incremental_unassign(partitions),
            _ => self.consumer.unassign(),
        }
        .context("cannot give up the revoked partitions")
    }

    /// Ends some lanes and says what may be committed of them.
    pub(super) fn end_lanes(
        &mut self,
        ending: &[TopicPartition],
        order: fn(Ending) -> Order,
        within: Duration,
    ) -> Vec<(TopicPartition, NextOffset)> {
        let by = Instant::now() + within;
        let (done, finished) = std_mpsc::channel();
        let (ending, staying) =
            std::mem::take(&mut self.slots).into_iter().partition(|slot| ending.contains(&slot.source));
        self.slots = staying;
        let ending: Vec<Slot> = ending;
        for mut slot in ending {
            slot.end(order(Ending { by, done: done.clone() }));
        }
        drop(done);
        let mut positions = Vec::new();
        while let Ok(position) = finished.recv_timeout(by.saturating_duration_since(Instant::now()) + OVERTIME) {
            positions.push(position);
        }
        positions
    }

    /// Ends a lane and begins anew somewhere else in the log.
    pub(super) fn restart_at(&mut self, source: &TopicPartition, position: NextOffset) -> Result<()> {
        let ended = self.end_lanes(std::slice::from_ref(source), Order::Revoke, LANES_END);
        self.commit_positions(&ended, CommitMode::Sync);
        if matches!(self.consumer.rebalance_protocol(), RebalanceProtocol::Cooperative) {
            self.consumer.incremental_unassign(&list::of([source])).with_context(|| format!("cannot stop {source}"))?;
            self.tell_client_to_read(&[(source.clone(), position)])?;
        } else {
            let all: Vec<_> = self.slots.iter().map(|slot| (slot.source.clone(), slot.next)).collect();
            self.tell_client_to_read(&[all, vec![(source.clone(), position)]].concat())?;
        }
        let topic_id = self.topic_ids(&BTreeSet::from([Arc::clone(&source.topic)])).remove(&source.topic);
        self.spawn_lane(source.clone(), position, topic_id);
        Ok(())
    }

    fn tell_client_to_read(&self, positions: &[(TopicPartition, NextOffset)]) -> Result<()> {
        let partitions = list::at(positions);
        match self.consumer.rebalance_protocol() {
            RebalanceProtocol::Cooperative => self.consumer.incremental_assign(&partitions),
            RebalanceProtocol::Eager => self.consumer.assign(&partitions),
            RebalanceProtocol::None => bail!("the group has no rebalance protocol yet"),
        }
        .with_context(|| format!("cannot begin to read {}", list::show(positions)))
    }
}

/// A lane that ends at its deadline needs a moment to say so.
const OVERTIME: Duration = Duration::from_millis(200);
