//! What a lane asks of its guest.

use std::sync::Arc;

use super::outbox::now_millis;
use crate::{
    guest::{Call, Failure, Instance, Occasion},
    kafka::source::InHand,
    verdict::Answer,
};

/// One piece of work for the guest. Kept until it is answered, and given again if the first instance fails at it.
#[derive(Clone)]
pub(super) enum Work {
    /// Messages that the main consumer delivered.
    Batch(InHand),
    /// Messages that a lost instance had open, read again.
    Redelivery(InHand),
    /// Open offsets to be judged.
    Settle(Occasion),
}

impl Work {
    /// The batch in hand, if there is one.
    pub(super) fn in_hand(&self) -> Option<&InHand> {
        match self {
            Self::Batch(in_hand) | Self::Redelivery(in_hand) => Some(in_hand),
            Self::Settle(_) => None,
        }
    }

    /// For logs.
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Settle(occasion) => format!("settle({occasion})"),
            Self::Batch(in_hand) | Self::Redelivery(in_hand) => match in_hand.batch.offsets() {
                [first, .., last] => format!("process(offsets {first} to {last})"),
                [only] => format!("process(offset {only})"),
                [] => "process(nothing)".to_owned(),
            },
        }
    }
}

/// Work that is to be done now.
#[derive(Clone)]
pub(super) struct Due {
    pub(super) work: Work,
    /// When it was first given, in milliseconds since the epoch: the guest's clock, also when it is given again.
    pub(super) now: i64,
    /// An instance was lost at it before.
    pub(super) repeated: bool,
}

impl Due {
    pub(super) fn new(work: Work) -> Self {
        Self { work, now: now_millis(), repeated: false }
    }
}

/// A call to be made: everything that the future needs, owned.
pub(super) struct Request {
    pub(super) call: Call,
    pub(super) work: Work,
}

impl Request {
    pub(super) async fn run(&self, instance: &mut Instance) -> Result<Answer, Failure> {
        match &self.work {
            Work::Settle(occasion) => instance.settle(&self.call, *occasion).await,
            Work::Batch(in_hand) | Work::Redelivery(in_hand) => {
                instance.process(&self.call, Arc::clone(&in_hand.batch)).await
            }
        }
    }
}
