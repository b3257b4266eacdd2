//! One assigned partition as the source sees it: the batch that grows, and whether the lane has room.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use rdkafka::message::BorrowedMessage;
use tokio::{
    runtime::Handle,
    sync::{
        Semaphore,
        mpsc::{self, error::TrySendError},
    },
};

use super::{Delivery, InHand, Order, Outlet, Progress};
use crate::{
    config::BatchLimits,
    kafka::copy,
    message::{Batch, TopicPartition},
    offset::{NextOffset, Offset},
};

/// How long the whole source waits for one full lane before it pauses that partition. A pause throws the prefetched
/// messages away, so a lane that is only a little behind is better waited for; one that is slow is not, since the
/// others wait with it.
const PATIENCE: Duration = Duration::from_millis(5);

/// After a pause a lane is known to be slow, and gets no patience for this long.
const SLOW_FOR: Duration = Duration::from_secs(1);

/// The inbox of a lane has this much room again before a paused partition is resumed.
const ROOM_TO_RESUME: usize = 1;

pub(super) struct Slot {
    pub(super) source: TopicPartition,
    pub(super) progress: Arc<Progress>,
    orders: mpsc::UnboundedSender<Order>,
    /// `None` once the lane was told that no more come.
    batches: Option<mpsc::Sender<Delivery>>,
    /// The offset of the next message to take; anything lower is stale.
    pub(super) next: NextOffset,
    /// The position in the last commit that was sent.
    pub(super) committed: Option<NextOffset>,
    /// How often the lane had gone on after a pause when `next` was set.
    restarts: u32,
    building: Batch,
    since: Option<Instant>,
    flow: Flow,
    slow_until: Option<Instant>,
}

/// Whether the partition's messages are taken. While they are not, what still comes is dropped, so that only a seek to
/// `next` may end it.
enum Flow {
    Reading,
    /// The batch for which there was no room is dropped: it is read again on resume, as what the client had prefetched is.
    Paused,
    /// The lane has caught up; the client has still to be told.
    Resuming,
}

/// What came of handing over the batch that grows.
#[derive(PartialEq, Eq)]
pub(super) enum Handed {
    /// The lane has it.
    Over,
    /// There is no room: pause the partition.
    Full,
    /// The lane is gone.
    Gone,
}

/// What became of a batch that was sent.
enum Sent {
    Taken,
    NoRoom(Box<Batch>),
    Gone,
}

impl Slot {
    pub(super) fn new(source: TopicPartition, start: NextOffset, outlet: Outlet) -> Self {
        let building = Batch::new(source.clone());
        let Outlet { batches, orders, progress } = outlet;
        Self {
            source,
            progress,
            orders,
            batches: Some(batches),
            next: start,
            committed: None,
            restarts: 0,
            building,
            since: None,
            flow: Flow::Reading,
            slow_until: None,
        }
    }

    /// Tells the lane to end, with no more batches to come. What was not handed over is read again by whoever is next.
    pub(super) fn end(&mut self, order: Order) {
        self.batches = None;
        self.flow = Flow::Reading;
        self.building = Batch::new(self.source.clone());
        self.since = None;
        // A lane that is gone already drops the order, and its sender with it: that is its answer.
        drop(self.orders.send(order));
    }

    pub(super) fn is(&self, message: &BorrowedMessage<'_>) -> bool {
        use rdkafka::Message as _;
        self.source.partition == message.partition() && *self.source.topic == *message.topic()
    }

    /// Copies a message into the growing batch, unless it is not wanted: stale, or of a paused partition (it is read again
    /// on resume).
    pub(super) fn push(&mut self, message: &BorrowedMessage<'_>) {
        use rdkafka::Message as _;
        let Some(offset) = Offset::new(message.offset()) else { return };
        if self.is_paused() || NextOffset::from(offset) < self.next {
            return;
        }
        if self.building.is_empty() {
            self.since = Some(Instant::now());
        }
        copy::push(&mut self.building, offset, message);
        self.next = offset.next();
    }

    /// Whether adding this message would pass the limit on bytes.
    pub(super) fn overflows(&self, message: &BorrowedMessage<'_>, limits: BatchLimits) -> bool {
        !self.building.is_empty() && self.building.bytes() + message.key_len() + message.payload_len() > limits.bytes
    }

    pub(super) fn is_full(&self, limits: BatchLimits) -> bool {
        self.building.len() >= limits.messages || self.building.bytes() >= limits.bytes
    }

    pub(super) fn is_due(&self, limits: BatchLimits, now: Instant) -> bool {
        self.since.is_some_and(|since| now.duration_since(since) >= limits.wait)
    }

    pub(super) fn is_growing(&self) -> bool {
        self.since.is_some()
    }

    pub(super) fn is_paused(&self) -> bool {
        !matches!(self.flow, Flow::Reading)
    }

    /// Whether the client may be told to go on at `next`.
    pub(super) fn is_resuming(&self) -> bool {
        matches!(self.flow, Flow::Resuming)
    }

    /// If the lane goes on after a pause, goes back to where it does: it dropped what it was sent meanwhile.
    pub(super) fn follow_restart(&mut self) {
        let (restarts, position) = self.progress.restarted();
        if restarts == self.restarts || self.batches.is_none() {
            return;
        }
        self.restarts = restarts;
        self.next = position;
        self.building = Batch::new(self.source.clone());
        self.since = None;
        self.flow = Flow::Resuming;
    }

    /// The client goes on at `next`.
    pub(super) fn resumed(&mut self) {
        self.flow = Flow::Reading;
    }

    /// Closes the growing batch and hands it over, waiting a little for room unless the lane is known to be slow.
    pub(super) fn hand_over(&mut self, budget: &Budget, runtime: &Handle) -> Handed {
        let Some(first) = self.building.offsets().first().copied() else { return Handed::Over };
        let batch = self.close();
        self.since = None;
        let patience =
            if self.slow_until.is_some_and(|until| Instant::now() < until) { Duration::ZERO } else { PATIENCE };
        match self.send(batch, budget, Some((runtime, patience))) {
            Sent::Taken => Handed::Over,
            Sent::Gone => Handed::Gone,
            Sent::NoRoom(_) => {
                self.next = NextOffset::new(first).unwrap_or(self.next);
                self.flow = Flow::Paused;
                self.slow_until = Some(Instant::now() + SLOW_FOR);
                Handed::Full
            }
        }
    }

    /// Closes the growing batch only if there is room for it at once.
    pub(super) fn hand_over_if_room(&mut self, budget: &Budget) -> Handed {
        if self.room() == 0 {
            return Handed::Full;
        }
        let batch = self.close();
        match self.send(batch, budget, None) {
            Sent::Taken => {
                self.since = None;
                Handed::Over
            }
            Sent::Gone => Handed::Gone,
            Sent::NoRoom(batch) => {
                self.building = *batch;
                Handed::Full
            }
        }
    }

    fn close(&mut self) -> Batch {
        let another = self.building.another();
        std::mem::replace(&mut self.building, another)
    }

    /// Lets a paused partition go on, once its lane has caught up and there is room for a batch.
    pub(super) fn retry(&mut self, budget: &Budget, limits: BatchLimits) -> Handed {
        if self.batches.as_ref().is_none_or(mpsc::Sender::is_closed) {
            return Handed::Gone;
        }
        if self.room() < ROOM_TO_RESUME || !budget.has_room_for(limits.bytes) {
            return Handed::Full;
        }
        self.flow = Flow::Resuming;
        Handed::Over
    }

    /// Bytes of the batch that grows.
    pub(super) fn growing(&self) -> usize {
        self.building.bytes()
    }

    /// How many batches the lane would take at once.
    fn room(&self) -> usize {
        let batches = self.batches.as_ref().filter(|_| !self.progress.is_halted());
        batches.map_or(0, mpsc::Sender::capacity)
    }

    /// Sends it if there is room within the patience.
    fn send(&self, batch: Batch, budget: &Budget, patience: Option<(&Handle, Duration)>) -> Sent {
        let Some(batches) = &self.batches else { return Sent::Gone };
        if self.progress.is_halted() {
            return Sent::NoRoom(Box::new(batch));
        }
        let share = budget.share(batch.bytes());
        let patience = patience.filter(|(_, patience)| !patience.is_zero());
        // A lane that is not waited for may have a second batch waiting only while there is plenty: slow lanes are not to
        // take all there is.
        let is_greedy =
            patience.is_none() && batches.capacity() < batches.max_capacity() && !budget.is_half_free(share);
        let at_once = match (batches.try_reserve(), Arc::clone(&budget.permits).try_acquire_many_owned(share)) {
            (Err(TrySendError::Closed(())), _) => return Sent::Gone,
            (Ok(room), Ok(permit)) if !is_greedy => Some((room, permit)),
            _ => None,
        };
        let in_time = at_once.or_else(|| {
            let (runtime, patience) = patience?;
            let both = async {
                let permit = Arc::clone(&budget.permits).acquire_many_owned(share).await.ok()?;
                Some((batches.reserve().await.ok()?, permit))
            };
            runtime.block_on(async { tokio::time::timeout(patience, both).await }).ok().flatten()
        });
        match in_time {
            Some((room, permit)) => {
                let in_hand = InHand { batch: Arc::new(batch), share: Some(Arc::new(permit)) };
                room.send(Delivery { in_hand, restarts: self.restarts });
                Sent::Taken
            }
            None => Sent::NoRoom(Box::new(batch)),
        }
    }
}

/// The bytes that batches may take, all lanes of a pipeline: those in hand, counted in KiB, and those that grow.
pub(super) struct Budget {
    permits: Arc<Semaphore>,
    total: u32,
    /// Bytes of all batches that grow.
    pub(super) growing: usize,
}

impl Budget {
    pub(super) fn new(bytes: usize) -> Self {
        let total = u32::try_from(bytes / KIB).unwrap_or(u32::MAX).max(1);
        Self { permits: Arc::new(Semaphore::new(total as usize)), total, growing: 0 }
    }

    /// Whether nothing may grow any more before something is handed over.
    pub(super) fn is_spent(&self) -> bool {
        self.growing / KIB >= self.permits.available_permits()
    }

    /// Whether half of it is left when this share is given.
    fn is_half_free(&self, share: u32) -> bool {
        self.permits.available_permits() >= (share + self.total / 2) as usize
    }

    fn has_room_for(&self, bytes: usize) -> bool {
        self.permits.available_permits() >= self.share(self.growing + bytes) as usize
    }

    /// At least one, and never more than there are: a batch larger than the whole budget travels alone.
    fn share(&self, bytes: usize) -> u32 {
        u32::try_from(bytes.div_ceil(KIB)).unwrap_or(u32::MAX).clamp(1, self.total)
    }
}

const KIB: usize = 1024;
