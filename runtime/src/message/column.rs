//! A column of a batch.

/// A column of byte strings, any of them null, in one arena.
#[derive(Clone, Debug, Default)]
pub struct Column {
    lengths: Vec<i32>,
    ends: Vec<u32>,
    bytes: Vec<u8>,
}

impl Column {
    pub(super) fn with_room_of(other: &Self) -> Self {
        Self {
            lengths: Vec::with_capacity(other.lengths.len()),
            ends: Vec::with_capacity(other.ends.len()),
            bytes: Vec::with_capacity(other.bytes.len()),
        }
    }

    pub(super) fn push(&mut self, value: Option<&[u8]>) {
        let length = value.map_or(-1, |value| i32::try_from(value.len()).unwrap_or(i32::MAX));
        self.bytes.extend_from_slice(value.unwrap_or_default());
        self.lengths.push(length);
        self.ends.push(u32::try_from(self.bytes.len()).unwrap_or(u32::MAX));
    }

    /// The value at an index; `None` for a null, and past the end.
    pub fn get(&self, index: usize) -> Option<&[u8]> {
        let length = usize::try_from(*self.lengths.get(index)?).ok()?;
        let end = *self.ends.get(index)? as usize;
        self.bytes.get(end.checked_sub(length)?..end)
    }

    /// All values, back to back.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The length of each value, -1 for a null.
    pub fn lengths(&self) -> &[i32] {
        &self.lengths
    }

    /// Consecutive values from `start`: at least one, then as many as `max_bytes` holds. Their lengths and their bytes,
    /// back to back; both are empty past the end.
    pub fn chunk(&self, start: usize, max_bytes: usize) -> (&[i32], &[u8]) {
        let from = start.checked_sub(1).and_then(|before| self.ends.get(before)).map_or(0, |end| *end as usize);
        let rest = self.ends.get(start..).unwrap_or_default();
        let count = rest.partition_point(|end| *end as usize - from <= max_bytes).max(usize::from(!rest.is_empty()));
        let to = count.checked_sub(1).and_then(|last| rest.get(last)).map_or(from, |end| *end as usize);
        (self.lengths.get(start..start + count).unwrap_or_default(), self.bytes.get(from..to).unwrap_or_default())
    }
}
