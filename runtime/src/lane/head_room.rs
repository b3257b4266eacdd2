//! Whether retention comes close to messages that are still open: their payload would be gone when they are rejected.

use std::{future::Future, pin::Pin, time::Duration};

use tokio::time::{Instant, sleep_until};
use tracing::warn;

use super::Lane;
use crate::{kafka::Watermarks, message::TopicPartition, offset::NextOffset};

/// How often the low watermark is asked for while offsets are open.
const EVERY: Duration = Duration::from_secs(30);

/// The offsets between the low watermark and the committable position.
#[derive(Debug, Default)]
pub(super) struct HeadRoom {
    /// At its largest while offsets were open without a break.
    largest: u64,
    is_small: bool,
}

impl HeadRoom {
    /// Takes what was read with offsets open; `true` the first time that half of it, or all, is gone.
    fn shrinks(&mut self, low: NextOffset, committable: NextOffset) -> bool {
        let left = u64::try_from(committable.get().saturating_sub(low.get())).unwrap_or_default();
        self.largest = self.largest.max(left);
        // Whoever began at the low watermark never had any, and has lost nothing yet.
        let is_small = committable < low || self.largest > 0 && left <= self.largest / 2;
        let was_small = std::mem::replace(&mut self.is_small, is_small);
        is_small && !was_small
    }
}

/// Asks for the low watermark from time to time.
pub(super) struct Retention {
    /// `None` on the embedded broker, which has no retention.
    watermarks: Option<Watermarks>,
    source: TopicPartition,
    due: Instant,
    asked: Option<Pin<Box<dyn Future<Output = Option<NextOffset>> + Send>>>,
    head_room: HeadRoom,
}

impl Retention {
    pub(super) fn new(watermarks: Option<Watermarks>, source: TopicPartition) -> Self {
        Self { watermarks, source, due: Instant::now(), asked: None, head_room: HeadRoom::default() }
    }

    /// The next answer; never, where nobody can be asked.
    pub(super) async fn next(&mut self) -> Option<NextOffset> {
        let Some(watermarks) = &self.watermarks else { return std::future::pending().await };
        if self.asked.is_none() {
            sleep_until(self.due).await;
            let (watermarks, source) = (watermarks.clone(), self.source.clone());
            self.due = Instant::now() + EVERY;
            self.asked = Some(Box::pin(async move { watermarks.low(&source).await }));
        }
        let low = self.asked.as_mut()?.await;
        self.asked = None;
        low
    }

    /// Nothing is open any more.
    pub(super) fn forget(&mut self) {
        self.head_room = HeadRoom::default();
    }
}

impl Lane {
    pub(super) fn watch_retention(&mut self, low: Option<NextOffset>) {
        let committable = self.ledger.committable();
        let Some(low) = low.filter(|_| self.ledger.open_count() > 0) else { return };
        if self.retention.head_room.shrinks(low, committable) {
            let oldest = self.ledger.oldest_age(self.now()).unwrap_or_default();
            warn!(
                partition = %self.source, %low, %committable, ?oldest,
                "Retention comes close: half of the room between the log's start and the open messages is gone. Keep the \
                 topic longer, or lower open.age, or their dead letters will have no payload"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shrinks(head_room: &mut HeadRoom, low: i64, committable: i64) -> bool {
        head_room.shrinks(NextOffset::new(low).unwrap(), NextOffset::new(committable).unwrap())
    }

    #[test]
    fn a_warning_comes_once_when_half_is_gone() {
        let mut head_room = HeadRoom::default();
        let seen = [0, 10, 49, 50, 60, 99, 100].map(|low| shrinks(&mut head_room, low, 100));
        assert_eq!(seen, [false, false, false, true, false, false, false]);
    }

    #[test]
    fn a_warning_comes_again_after_there_was_room_again() {
        let mut head_room = HeadRoom::default();
        let seen = [(0, 100), (50, 100), (50, 200), (150, 200), (150, 200)];
        let seen = seen.map(|(low, committable)| shrinks(&mut head_room, low, committable));
        assert_eq!(seen, [false, true, false, true, false]);
    }

    #[test]
    fn the_room_is_measured_from_its_largest() {
        let mut head_room = HeadRoom::default();
        let seen = [(0, 10), (0, 1_000), (500, 1_000)];
        let seen = seen.map(|(low, committable)| shrinks(&mut head_room, low, committable));
        assert_eq!(seen, [false, false, true]);
    }

    #[test]
    fn whoever_begins_at_the_low_watermark_is_warned_when_something_is_gone() {
        let mut head_room = HeadRoom::default();
        let seen = [7, 7, 8, 9].map(|low| shrinks(&mut head_room, low, 7));
        assert_eq!(seen, [false, false, true, false]);
    }
}
