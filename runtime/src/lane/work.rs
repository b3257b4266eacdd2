//! What a lane asks of its guest.

use std::{sync::Arc, time::Duration};

use super::outbox::now_millis;
use crate::{
    config::BatchLimits,
    guest::{Call, Failure, Instance, Occasion},
    kafka::source::InHand,
    message::TopicPartition,
    verdict::Answer,
};

/// One piece of work for the guest.
#[derive(Clone)]
pub(super) enum Work {
    /// Messages that the main consumer delivered.
    Batch(InHand),
    /// Messages that are lost, read again.
    Redelivery(InHand),
    /// Messages whose retry is due, read again.
    Retry(InHand),
    /// Messages of a batch at which the guest failed.
    Part(InHand),
    /// Open offsets to be judged.
    Settle(Occasion),
}

impl Work {
    /// The batch in hand, if there is one.
    pub(super) fn in_hand(&self) -> Option<&InHand> {
        match self {
            Self::Batch(in_hand) | Self::Redelivery(in_hand) | Self::Retry(in_hand) | Self::Part(in_hand) => {
                Some(in_hand)
            }
            Self::Settle(_) => None,
        }
    }

    /// For logs.
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Settle(occasion) => format!("settle({occasion})"),
            Self::Batch(in_hand) | Self::Redelivery(in_hand) | Self::Retry(in_hand) | Self::Part(in_hand) => {
                match in_hand.batch.offsets() {
                    [first, .., last] => format!("process(offsets {first} to {last})"),
                    [only] => format!("process(offset {only})"),
                    [] => "process(nothing)".to_owned(),
                }
            }
        }
    }
}

/// Work that is to be done now.
#[derive(Clone)]
pub(super) struct Due {
    pub(super) work: Work,
    /// The guest's clock, in milliseconds since the epoch.
    pub(super) now: i64,
    /// How many times its deadline the guest may take.
    pub(super) deadlines: u32,
    /// How long it took the guest, once it is done.
    pub(super) took: Duration,
}

impl Due {
    pub(super) fn new(work: Work) -> Self {
        Self { work, now: now_millis(), deadlines: 1, took: Duration::ZERO }
    }

    /// Everything that the call's future needs, owned.
    pub(super) fn request(&self, source: TopicPartition) -> Request {
        Request { call: Call { source, now: self.now, deadlines: self.deadlines }, work: self.work.clone() }
    }
}

/// A call to be made.
pub(super) struct Request {
    pub(super) call: Call,
    pub(super) work: Work,
}

impl Request {
    pub(super) async fn run(&self, instance: &mut Instance) -> Result<Answer, Failure> {
        match &self.work {
            Work::Settle(occasion) => instance.settle(&self.call, *occasion).await,
            Work::Batch(in_hand) | Work::Redelivery(in_hand) | Work::Retry(in_hand) | Work::Part(in_hand) => {
                instance.process(&self.call, Arc::clone(&in_hand.batch)).await
            }
        }
    }

    /// What a guest failed at is given to an instance that has done nothing else.
    pub(super) fn needs_fresh(&self) -> bool {
        matches!(self.work, Work::Part(_))
    }
}

/// As much of a waiting batch as the limits allow; the rest goes on waiting.
pub(super) fn take_within(waiting: &mut Option<InHand>, limits: BatchLimits) -> Option<InHand> {
    let InHand { batch, share } = waiting.take()?;
    let count = batch.within(0, limits.messages, limits.bytes);
    if count == batch.len() {
        return Some(InHand { batch, share });
    }
    *waiting = Some(InHand { batch: Arc::new(batch.part(count..batch.len())), share: share.clone() });
    Some(InHand { batch: Arc::new(batch.part(0..count)), share })
}
