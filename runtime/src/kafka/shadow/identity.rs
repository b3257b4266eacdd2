//! What tells a message from another one at the same coordinates.

use crate::{kafka::topic_ids::TopicId, ledger::Runs, offset::Offset};

/// The identity of what was delivered of one partition since it was assigned.
#[derive(Clone, Debug, Default)]
pub struct Identity {
    /// The topic's id at the assignment; `None` where the brokers know no topic ids.
    pub topic_id: Option<TopicId>,
    /// The leader epoch with which each offset was delivered.
    pub leader_epochs: Runs<Option<i32>>,
}

impl Identity {
    /// Nothing delivered yet.
    pub fn new(topic_id: Option<TopicId>) -> Self {
        Self { topic_id, leader_epochs: Runs::default() }
    }

    /// The leader epoch with which an offset was delivered; `None` where it is not known.
    pub(super) fn leader_epoch(&self, offset: Offset) -> Option<i32> {
        self.leader_epochs.get(offset).flatten()
    }
}
