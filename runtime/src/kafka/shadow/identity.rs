//! What tells a message from another one at the same coordinates.

use crate::{
    kafka::topic_ids::TopicId,
    offset::{NextOffset, Offset},
};

/// The identity of what was delivered of one partition since it was assigned: the topic's id, and each offset's leader
/// epoch, kept as runs (it changes only with the leader).
#[derive(Clone, Debug, Default)]
pub struct Identity {
    topic_id: Option<TopicId>,
    runs: Vec<(Offset, Option<i32>)>,
}

impl Identity {
    /// Nothing delivered yet. `None` where the brokers know no topic ids.
    pub const fn new(topic_id: Option<TopicId>) -> Self {
        Self { topic_id, runs: Vec::new() }
    }

    /// The topic's id at the assignment.
    pub const fn topic_id(&self) -> Option<TopicId> {
        self.topic_id
    }

    /// Whether [`Identity::deliver`] would change anything: most messages are of the epoch of the one before.
    pub fn changes_with(&self, leader_epoch: Option<i32>) -> bool {
        self.runs.last().is_none_or(|(_, epoch)| *epoch != leader_epoch)
    }

    /// Notes a delivered message. Offsets ascend.
    pub fn deliver(&mut self, offset: Offset, leader_epoch: Option<i32>) {
        if self.changes_with(leader_epoch) {
            self.runs.push((offset, leader_epoch));
        }
    }

    /// Forgets what lies below a position: those messages are settled.
    pub fn forget_below(&mut self, position: NextOffset) {
        let settled = self.runs.partition_point(|(first, _)| NextOffset::from(*first) <= position);
        // The run that the position is in began before it.
        self.runs.drain(..settled.saturating_sub(1));
    }

    /// The leader epoch with which an offset was delivered; `None` where it is not known.
    pub fn leader_epoch(&self, offset: Offset) -> Option<i32> {
        let run = self.runs.partition_point(|(first, _)| *first <= offset).checked_sub(1)?;
        self.runs.get(run)?.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(raw: i64) -> Offset {
        Offset::new(raw).unwrap()
    }

    #[test]
    fn each_offset_has_the_epoch_it_was_delivered_with() {
        let mut identity = Identity::new(None);
        for (offset, epoch) in [(10, Some(3)), (11, Some(3)), (12, Some(5)), (20, None), (21, Some(6))] {
            identity.deliver(at(offset), epoch);
        }
        assert_eq!(identity.runs.len(), 4, "runs, not offsets");
        let epochs: Vec<_> = [9, 10, 11, 12, 19, 20, 21, 99].map(|offset| identity.leader_epoch(at(offset))).into();
        assert_eq!(epochs, [None, Some(3), Some(3), Some(5), Some(5), None, Some(6), Some(6)]);
    }

    #[test]
    fn forgetting_keeps_the_run_that_the_position_is_in() {
        let mut identity = Identity::new(None);
        identity.deliver(at(10), Some(3));
        identity.deliver(at(20), Some(4));
        identity.forget_below(at(10).into());
        identity.forget_below(at(15).into());
        assert_eq!(identity.leader_epoch(at(15)), Some(3));
        identity.forget_below(at(20).into());
        assert_eq!(identity.runs, [(at(20), Some(4))]);
    }
}
