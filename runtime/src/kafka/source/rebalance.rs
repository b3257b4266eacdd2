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
    kafka::{
        list,
        topic_ids::{self, Existence, TopicId, TopicIdError},
    },
    message::TopicPartition,
    offset::NextOffset,
};

/// What the lanes get of a revocation; the rest of its two seconds is for the commit.
const LANES_END: Duration = Duration::from_millis(1500);

/// How long a question may take whose answer changes nothing.
const ASK_IN_PASSING: Duration = Duration::from_millis(500);

impl Thread {
    /// Carries out what the last poll announced.
    pub(super) fn carry_out_rebalances(&mut self) -> Result<()> {
        loop {
            let announced =
                self.consumer.context().announced.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            let Some((kind, partitions)) = announced else { return Ok(()) };
            let began = Instant::now();
            match kind {
                RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS => self.assign(&partitions)?,
                _ => self.revoke(&partitions)?,
            }
            let took = began.elapsed();
            debug!(took_ms = took.as_millis(), "Rebalanced");
            self.count(|counts| {
                counts.rebalances += 1;
                counts.longest_rebalance = counts.longest_rebalance.max(took);
            });
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
        .context("cannot give up the revoked partitions")?;
        if self.knows_topic_ids {
            self.note_deleted(&revoked);
        }
        Ok(())
    }

    /// Says which topics are given up because they are no more: the client tells only of those that were named one by one,
    /// and not their name.
    fn note_deleted(&self, revoked: &[TopicPartition]) {
        let topics = revoked.iter().map(|source| Arc::clone(&source.topic)).collect();
        for (topic, existence) in topic_ids::describe(self.consumer.client(), &topics, None, ASK_IN_PASSING) {
            if matches!(existence, Ok(Existence::Gone)) {
                warn!(%topic, pipeline = self.pipeline.name, "The topic was deleted; one that is made anew is read from its start");
            }
        }
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
        let (mut ending, staying): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.slots).into_iter().partition(|slot| ending.contains(&slot.source));
        self.slots = staying;
        // The client keeps a pause beyond the assignment.
        let paused: Vec<_> = ending.iter().filter(|slot| slot.is_paused()).map(|slot| &slot.source).collect();
        if let Err(error) = self.consumer.resume(&list::of(paused)) {
            warn!(%error, "Cannot resume what is given up");
        }
        for slot in &mut ending {
            slot.end(order(Ending { by, done: done.clone() }));
        }
        drop(done);
        // The slots live until every lane has dropped its sender: a lane without a source gives up.
        let _all_dropped = finished.recv_timeout(by.saturating_duration_since(Instant::now()) + OVERTIME);
        ending
            .into_iter()
            .map(|slot| {
                let committable = slot.progress.committable();
                (slot.source, committable)
            })
            .collect()
    }

    /// Goes on somewhere else in the log. Forwards, the lane stays: what is open in it stays open. Backwards, offsets come
    /// again that its ledger has behind it, which takes a new one.
    pub(super) fn move_to(&mut self, source: &TopicPartition, position: NextOffset) -> Result<()> {
        let stays = self.slots.iter_mut().find(|slot| slot.source == *source && slot.next <= position);
        let stays = stays.map(|slot| slot.next = position).is_some();
        if !stays {
            let ended = self.end_lanes(std::slice::from_ref(source), Order::Revoke, LANES_END);
            self.commit_positions(&ended, CommitMode::Sync);
        }
        if matches!(self.consumer.rebalance_protocol(), RebalanceProtocol::Cooperative) {
            self.consumer.incremental_unassign(&list::of([source])).with_context(|| format!("cannot stop {source}"))?;
            self.tell_client_to_read(&[(source.clone(), position)])?;
        } else {
            let others = self.slots.iter().filter(|slot| slot.source != *source);
            let others: Vec<_> = others.map(|slot| (slot.source.clone(), slot.next)).collect();
            self.tell_client_to_read(&[others, vec![(source.clone(), position)]].concat())?;
        }
        if !stays {
            let topic_id = self.topic_ids(&BTreeSet::from([Arc::clone(&source.topic)])).remove(&source.topic);
            self.spawn_lane(source.clone(), position, topic_id);
        }
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
