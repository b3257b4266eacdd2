//! The main consumer of a pipeline: a group member on a thread of its own. It copies each message once, into the
//! batch of its lane, commits what the lanes say may be committed, and runs every rebalance.

mod commit;
mod context;
mod drain;
mod errors;
mod rebalance;
mod slot;
mod start;
mod thread;

use std::{
    convert::Infallible,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering},
        mpsc as std_mpsc,
    },
    time::{Duration, Instant},
};

use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use super::topic_ids::TopicId;
use crate::{
    message::{Batch, TopicPartition},
    offset::NextOffset,
    operator::Ask,
};

pub use thread::{Source, SpawnLane, Stopped};

/// A partition that was just assigned.
pub struct Assigned {
    /// Which.
    pub source: TopicPartition,
    /// From where it is read.
    pub start: NextOffset,
    /// The id of its topic; `None` where the broker cannot say.
    pub topic_id: Option<TopicId>,
}

/// The source's end of a lane. Dropping `batches` tells the lane that no more come.
pub struct Outlet {
    /// Batches that wait; the lane's inbox.
    pub batches: mpsc::Sender<Delivery>,
    /// Orders to end, and what an operator asks.
    pub orders: mpsc::UnboundedSender<Order>,
    /// What the lane has got to.
    pub progress: Arc<Progress>,
}

/// A batch, and its share of the bytes that a pipeline may have in hand. Cheap to clone.
#[derive(Clone, Debug)]
pub struct InHand {
    /// The messages.
    pub batch: Arc<Batch>,
    /// Given back when the last clone is dropped; `None` for messages that a shadow reader read again.
    pub share: Option<Arc<OwnedSemaphorePermit>>,
}

/// A batch on its way to a lane.
pub struct Delivery {
    /// The batch.
    pub in_hand: InHand,
    /// How often the partition had been restarted when it was sent: one from before is not wanted.
    pub restarts: u32,
}

/// How a lane ends, and what else it is told.
pub enum Order {
    /// The process stops: judge what is in the inbox, settle, get every dead letter acknowledged; by then at the latest.
    Drain(Ending),
    /// The partition goes to another member: judge nothing more, settle, have what was sent acknowledged.
    Revoke(Ending),
    /// The partition is another member's already: drop everything.
    Lost(Ending),
    /// An operator asks something.
    Asked(Ask),
}

/// By when a lane ends, and how it says that it has.
pub struct Ending {
    /// The end is then, finished or not.
    pub by: Instant,
    /// Dropped at the end of the lane; nothing is sent.
    pub done: std_mpsc::Sender<Infallible>,
}

/// What a lane tells the source while it works.
#[derive(Debug)]
pub struct Progress {
    committable: AtomicI64,
    committed: AtomicI64,
    halted: AtomicBool,
    restart_at: AtomicI64,
    restarts: AtomicU32,
    failure: OnceLock<String>,
}

impl Progress {
    /// Nothing yet: committable is where the partition starts.
    pub fn new(start: NextOffset) -> Self {
        let at_start = || AtomicI64::new(start.get());
        Self {
            committable: at_start(),
            committed: at_start(),
            halted: AtomicBool::new(false),
            restart_at: at_start(),
            restarts: AtomicU32::new(0),
            failure: OnceLock::new(),
        }
    }

    /// Says up to where everything is settled.
    pub fn publish(&self, committable: NextOffset) {
        self.committable.store(committable.get(), Ordering::Release);
    }

    /// Says that the lane judges nothing more: it is sent no more batches.
    pub fn halt(&self) {
        self.halted.store(true, Ordering::Release);
    }

    /// Says that the whole pipeline is to end, and why: it drains first.
    pub fn fail(&self, why: String) {
        // The first reason is as good as any.
        drop(self.failure.set(why));
    }

    /// Why the pipeline is to end, if it is.
    pub fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }

    /// Says that the lane goes on after a pause, for the `restarts`th time: all from this position on is sent again.
    pub fn restart(&self, restarts: u32, position: NextOffset) {
        self.restart_at.store(position.get(), Ordering::Relaxed);
        self.restarts.store(restarts, Ordering::Release);
        self.halted.store(false, Ordering::Release);
    }

    /// How often the lane went on, and where it did so last.
    pub fn restarted(&self) -> (u32, NextOffset) {
        let restarts = self.restarts.load(Ordering::Acquire);
        (restarts, NextOffset::new(self.restart_at.load(Ordering::Relaxed)).unwrap_or_default())
    }

    /// Says what the group has as committed.
    pub fn have_committed(&self, position: NextOffset) {
        self.committed.store(position.get(), Ordering::Release);
    }

    /// Where whoever is next would begin.
    pub fn committed(&self) -> NextOffset {
        NextOffset::new(self.committed.load(Ordering::Acquire)).unwrap_or_default()
    }

    /// Whether the lane judges nothing more.
    pub fn is_halted(&self) -> bool {
        self.halted.load(Ordering::Acquire)
    }

    /// Up to where everything is settled.
    pub fn committable(&self) -> NextOffset {
        NextOffset::new(self.committable.load(Ordering::Acquire)).unwrap_or_default()
    }
}

/// Counts of what the source did.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct SourceCounts {
    /// Rebalances: assignments and revocations.
    pub rebalances: u64,
    /// The longest time that one of them stopped the consumer.
    #[serde(serialize_with = "humantime_serde::serialize")]
    pub longest_rebalance: Duration,
    /// Times a partition was paused because its lane was full.
    pub pauses: u64,
    /// Commits that the group took.
    pub commits: u64,
    /// Commits that failed; they are tried again.
    pub failed_commits: u64,
}
