//! The end in good order: the lanes drain while the member stays in its group, then it commits and leaves.

use std::{
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use rdkafka::consumer::Consumer;
use tracing::{debug, info};

use super::{
    Ending, Order,
    thread::{BUSY_POLL, Thread},
};
use crate::kafka::list;

/// How long leaving the group may take, once everything is committed.
pub(super) const LEAVE: Duration = Duration::from_secs(5);

impl Thread {
    /// Drains the lanes while staying in the group, commits and leaves.
    pub(super) fn finish(&mut self) -> Result<()> {
        let by = Instant::now() + self.pipeline.shutdown;
        info!(pipeline = %self.pipeline.name, grace = ?self.pipeline.shutdown, "Draining");
        let consumer = Arc::clone(&self.consumer);
        let everything = self.everything();
        consumer.pause(&list::of(&everything)).context("cannot pause while draining")?;
        let (done, finished) = mpsc::channel();
        for slot in &mut self.slots {
            slot.end(Order::Drain(Ending { by, done: done.clone() }));
        }
        drop(done);
        let mut next_commit = Instant::now() + self.pipeline.commit;
        // Until each lane has dropped its sender: a lane ends at `by` at the latest.
        while !matches!(finished.try_recv(), Err(mpsc::TryRecvError::Disconnected)) && Instant::now() < by + LEAVE {
            if let Some(Err(error)) = consumer.poll(BUSY_POLL) {
                self.heard(error)?;
            }
            self.carry_out_rebalances()?;
            self.note_commits();
            if Instant::now() >= next_commit {
                self.commit()?;
                next_commit = Instant::now() + self.pipeline.commit;
            }
        }
        self.commit_for_good();
        self.leave()
    }

    /// A static member does not: its group keeps its partitions for it until its session ends, unless it unsubscribes.
    fn leave(&mut self) -> Result<()> {
        if self.is_static_member {
            return Ok(());
        }
        let consumer = Arc::clone(&self.consumer);
        consumer.unsubscribe();
        let by = Instant::now() + LEAVE;
        while consumer.assignment().is_ok_and(|assigned| assigned.count() > 0) && Instant::now() < by {
            if let Some(Err(error)) = consumer.poll(BUSY_POLL) {
                debug!(%error, "While leaving");
            }
            self.carry_out_rebalances()?;
        }
        Ok(())
    }
}
