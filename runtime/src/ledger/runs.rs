//! Values of ascending offsets, run-length coded.

use std::collections::VecDeque;

use crate::offset::{NextOffset, Offset};

/// Each value once, at the first offset that has it: it counts until the next one.
#[derive(Clone, Debug)]
pub struct Runs<T>(VecDeque<(Offset, T)>);

impl<T> Default for Runs<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T: Copy + PartialEq> Runs<T> {
    /// The value from `first` on, which is above all that was pushed before.
    pub fn push(&mut self, first: Offset, value: T) {
        if self.last() != Some(value) {
            self.0.push_back((first, value));
        }
    }

    /// The value of an offset; `None` below the first that is kept.
    pub fn get(&self, offset: Offset) -> Option<T> {
        let behind = self.0.partition_point(|(first, _)| *first <= offset);
        self.0.get(behind.checked_sub(1)?).map(|(_, value)| *value)
    }

    /// The value that counts at the beginning.
    pub fn first(&self) -> Option<T> {
        self.0.front().map(|(_, value)| *value)
    }

    /// The value that counts at the end.
    pub fn last(&self) -> Option<T> {
        self.0.back().map(|(_, value)| *value)
    }

    /// Where the first value begins that is as asked for.
    pub fn find(&self, is: impl Fn(T) -> bool) -> Option<Offset> {
        self.0.iter().find(|(_, value)| is(*value)).map(|(first, _)| *first)
    }

    /// How many runs.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether nothing was pushed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Forgets what only offsets below a position had.
    pub fn prune(&mut self, below: NextOffset) {
        while self.0.get(1).is_some_and(|(first, _)| NextOffset::from(*first) <= below) {
            self.0.pop_front();
        }
    }
}
