//! The dead letter as a record: headers, payload or stub.

mod dead_letter;
mod dialect;

use std::borrow::Cow;

pub use dead_letter::{Content, DeadLetter, Headers, Missing, Origin, Stub};

/// A record to be produced.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record<'a> {
    /// The topic's name.
    pub topic: Cow<'a, str>,
    /// `None` lets the producer choose by key.
    pub partition: Option<i32>,
    /// Milliseconds since the epoch; `None` is the time of producing.
    pub timestamp: Option<i64>,
    /// `None` is a null key.
    pub key: Option<Cow<'a, [u8]>>,
    /// `None` is a tombstone.
    pub payload: Option<Cow<'a, [u8]>>,
    /// In order; names may be any bytes without NUL, and may repeat.
    pub headers: Vec<RecordHeader<'a>>,
}

/// One header of a record to be produced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordHeader<'a> {
    /// Mostly UTF-8, but nothing in Kafka demands it.
    pub name: Cow<'a, [u8]>,
    /// `None` is a null.
    pub value: Option<Cow<'a, [u8]>>,
}
