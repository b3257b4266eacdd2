//! Offsets. A message's offset and the position to commit are two types: the client's own calls disagree on which of
//! the two they take, and one mistaken for the other is an off-by-one that loses or repeats a message.

use std::{fmt, ops::RangeInclusive};

use roaring::RoaringTreemap;

#[cfg(test)]
mod tests;

/// The offset of one message in its partition: `0 ..= i64::MAX - 1`, so that [`Offset::next`] cannot overflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Offset(i64);

impl Offset {
    /// `None` for what no message can have: a negative offset, or `i64::MAX`.
    pub const fn new(raw: i64) -> Option<Self> {
        if 0 <= raw && raw < i64::MAX { Some(Self(raw)) } else { None }
    }

    /// The number as Kafka writes it.
    pub const fn get(self) -> i64 {
        self.0
    }

    /// The position just behind this message: what is committed once it is settled.
    pub const fn next(self) -> NextOffset {
        NextOffset(self.0 + 1)
    }

    const fn bits(self) -> u64 {
        self.0.cast_unsigned()
    }

    const fn from_bits(bits: u64) -> Self {
        Self(bits.cast_signed())
    }
}

/// A position: the offset of the next message to read, which is what Kafka keeps as "committed". Never negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NextOffset(i64);

impl NextOffset {
    /// The position before the first message that a partition ever had.
    pub const START: Self = Self(0);

    /// `None` for a negative number (librdkafka's logical offsets are negative).
    pub const fn new(raw: i64) -> Option<Self> {
        if 0 <= raw { Some(Self(raw)) } else { None }
    }

    /// The number as Kafka writes it.
    pub const fn get(self) -> i64 {
        self.0
    }
}

impl From<Offset> for NextOffset {
    /// The position *at* a message, from which that message is read (and not the one behind it, [`Offset::next`]).
    fn from(offset: Offset) -> Self {
        Self(offset.0)
    }
}

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for NextOffset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A set of offsets as a compressed bitmap: about a bit a message where they are dense, two bytes where they are sparse.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OffsetSet(RoaringTreemap);

impl OffsetSet {
    /// The empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether it was added (and not there before).
    pub fn insert(&mut self, offset: Offset) -> bool {
        self.0.insert(offset.bits())
    }

    /// Adds every offset of a range. Costs its width.
    pub fn insert_range(&mut self, range: RangeInclusive<Offset>) {
        // A range that starts a container or fills it would make roaring keep runs there, and it stays with runs: each
        // offset taken out of the middle later would cost four bytes and a move of all behind it. With its two ends
        // inserted one by one, a container is always an array or a bitmap.
        let (mut first, last) = (range.start().bits(), range.end().bits());
        while first <= last {
            let end = last.min(first | u64::from(u16::MAX));
            self.0.insert(first);
            if first < end {
                self.0.insert_range(first..end);
                self.0.insert(end);
            }
            first = end + 1;
        }
    }

    /// Adds a batch's column of offsets, which ascend. Costs its runs.
    pub fn insert_column(&mut self, column: &[i64]) {
        for run in column.chunk_by(|before, after| before.checked_add(1) == Some(*after)) {
            if let (Some(first), Some(last)) = (run.first(), run.last())
                && let (Some(first), Some(last)) = (Offset::new(*first), Offset::new(*last))
            {
                self.insert_range(first..=last);
            }
        }
    }

    /// Whether it was there.
    pub fn remove(&mut self, offset: Offset) -> bool {
        self.0.remove(offset.bits())
    }

    /// Takes a range out; says how many were there.
    pub fn remove_range(&mut self, range: RangeInclusive<Offset>) -> u64 {
        if range.start() == range.end() {
            return u64::from(self.remove(*range.start()));
        }
        self.0.remove_range(range.start().bits()..=range.end().bits())
    }

    /// Takes out all from an offset on.
    pub fn truncate(&mut self, from: Offset) {
        self.0.remove_range(from.bits()..);
    }

    /// Takes out the lowest.
    pub fn pop_first(&mut self) -> Option<Offset> {
        let first = self.first()?;
        self.remove(first);
        if self.is_empty() {
            // An emptied map would keep its node.
            *self = Self::new();
        }
        Some(first)
    }

    /// Whether it is in the set.
    pub fn contains(&self, offset: Offset) -> bool {
        self.0.contains(offset.bits())
    }

    /// The lowest.
    pub fn first(&self) -> Option<Offset> {
        self.0.min().map(Offset::from_bits)
    }

    /// The highest.
    pub fn last(&self) -> Option<Offset> {
        self.0.max().map(Offset::from_bits)
    }

    /// The one that has `index` others below it.
    pub fn select(&self, index: u64) -> Option<Offset> {
        self.0.select(index).map(Offset::from_bits)
    }

    /// How many.
    pub fn len(&self) -> u64 {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them, ascending.
    pub fn iter(&self) -> impl Iterator<Item = Offset> + Clone + '_ {
        self.0.iter().map(Offset::from_bits)
    }

    /// Those within a range, ascending. Costs what the set holds there, not `last - first`.
    pub fn range(&self, range: RangeInclusive<Offset>) -> impl Iterator<Item = Offset> + '_ {
        let mut iter = self.0.iter();
        iter.advance_to(range.start().bits());
        iter.map(Offset::from_bits).take_while(move |offset| offset <= range.end())
    }

    /// How many are within a range.
    pub fn count(&self, range: RangeInclusive<Offset>) -> u64 {
        if range.is_empty() {
            return 0;
        }
        let bits = range.start().bits()..=range.end().bits();
        if self.0.contains_range(bits.clone()) {
            // Roaring's own count adds up the whole container.
            return bits.end() - bits.start() + 1;
        }
        self.0.range_cardinality(bits)
    }

    /// Adds what `other` has within a range.
    pub fn extend_within(&mut self, other: &Self, range: RangeInclusive<Offset>) {
        if other.0.contains_range(range.start().bits()..=range.end().bits()) {
            self.insert_range(range);
        } else {
            self.0.extend(other.range(range).map(Offset::bits));
        }
    }

    /// Adds all of `other`.
    pub fn extend(&mut self, other: &Self) {
        self.0 |= &other.0;
    }

    /// Takes all of `other` out.
    pub fn subtract(&mut self, other: &Self) {
        self.0 -= &other.0;
    }

    /// Takes out what `other` has, too, and returns it.
    #[must_use]
    pub fn take(&mut self, other: &Self) -> Self {
        let taken = Self(&self.0 & &other.0);
        self.0 -= &taken.0;
        taken
    }

    /// Takes out all from an offset on, and returns it.
    #[must_use]
    pub fn split_off(&mut self, from: Offset) -> Self {
        let mut behind = self.clone();
        behind.0.remove_range(..from.bits());
        self.truncate(from);
        behind
    }

    /// The highest that is within a range.
    pub fn last_within(&self, range: RangeInclusive<Offset>) -> Option<Offset> {
        let below = self.0.rank(range.end().bits());
        self.select(below.checked_sub(1)?).filter(|last| last >= range.start())
    }

    /// Keeps only what `other` has, too.
    pub fn intersect(&mut self, other: &Self) {
        self.0 &= &other.0;
    }

    /// Bytes that the bitmap takes, near enough for a figure.
    #[cfg(test)]
    pub(crate) fn serialized_size(&self) -> usize {
        self.0.serialized_size()
    }
}

impl FromIterator<Offset> for OffsetSet {
    fn from_iter<I: IntoIterator<Item = Offset>>(offsets: I) -> Self {
        Self(offsets.into_iter().map(Offset::bits).collect())
    }
}
