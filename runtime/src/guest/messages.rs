//! A batch as the plain list of messages, borrowed from its arenas.

use std::{borrow::Cow, ops::Range};

use super::bindings::deadletter::processor::types::{HeaderParam, Message};
use crate::message::Batch;

/// The names of all headers of a batch; only those that are not UTF-8 are copied.
pub(super) fn header_names(batch: &Batch) -> Vec<Cow<'_, str>> {
    let headers = batch.iter().flat_map(|message| message.headers());
    headers.map(|header| String::from_utf8_lossy(header.name)).collect()
}

/// All headers of a batch, in order, and where those of each message are.
pub(super) fn headers<'a>(batch: &'a Batch, names: &'a [Cow<'a, str>]) -> (Vec<HeaderParam<'a>>, Vec<Range<usize>>) {
    let mut headers = Vec::with_capacity(names.len());
    let mut spans = Vec::with_capacity(batch.len());
    let mut names = names.iter();
    for message in batch.iter() {
        let start = headers.len();
        let pairs = message.headers().zip(names.by_ref());
        headers.extend(pairs.map(|(header, name)| HeaderParam { name, value: header.value }));
        spans.push(start..headers.len());
    }
    (headers, spans)
}

/// The list that the guest is handed.
pub(super) fn messages<'a>(
    batch: &'a Batch,
    headers: &'a [HeaderParam<'a>],
    spans: &[Range<usize>],
) -> Vec<Message<'a>> {
    let message = |(message, span): (crate::message::Message<'a>, &Range<usize>)| Message {
        offset: message.offset.get(),
        timestamp: message.timestamp.map(crate::message::Timestamp::millis),
        attempt: message.attempt,
        key: message.key,
        payload: message.payload,
        headers: headers.get(span.clone()).unwrap_or_default(),
    };
    batch.iter().zip(spans).map(message).collect()
}
