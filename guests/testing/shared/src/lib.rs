//! What the guests of the tests have in common: one behaviour for each value of the setting `mode`.

pub mod bindings;
mod misbehave;
mod mode;

pub use mode::{configure, judge, settle};

/// The batch in hand, however the guest came by it.
pub trait Batch {
    /// The offsets of its messages.
    fn offsets(&self) -> Vec<i64>;
    /// The sum of all words of all payloads.
    fn checksum(&self) -> u64;
    /// A line about each message that has all of its fields.
    fn describe(&self) -> Vec<String>;
}

/// The sum of a payload's little-endian words, the last one filled up with zeros.
pub fn sum(payload: &[u8]) -> u64 {
    let (words, rest) = payload.as_chunks::<8>();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    words.iter().fold(u64::from_le_bytes(last), |sum, word| sum.wrapping_add(u64::from_le_bytes(*word)))
}
