//! The families of headers that say where a dead letter came from, and why.

use std::{
    borrow::Cow,
    fmt,
    time::{Duration, UNIX_EPOCH},
};

use super::{DeadLetter, Headers, Origin, RecordHeader};
use crate::{config::Dialect, message::Timestamp};

/// Opens our block. Whoever strips it strips from the last of these on, so that a dead letter of a dead letter keeps
/// its first block.
const VERSION: &str = "deadletter.version";

/// What stays of a dialect's block where there is no room for all of it: which message it is, with the timestamp, which
/// is the message's and not ours, why it is here in one word, and what a replay goes by.
const ESSENTIAL: [&str; 14] = [
    VERSION,
    "deadletter.topic",
    "deadletter.partition",
    "deadletter.offset",
    "deadletter.timestamp",
    "deadletter.timestamp-type",
    "deadletter.route",
    "deadletter.code",
    "deadletter.replays",
    "deadletter.payload-status",
    "__connect.errors.topic",
    "__connect.errors.partition",
    "__connect.errors.offset",
    "__connect.errors.exception.class.name",
];

/// The last millisecond that RFC 3339 can write.
const END_OF_9999: i64 = 253_402_300_799_999;

/// One block for each dialect; ours comes first, whatever the order in the configuration. What is essential is said
/// once, in the first of them.
pub(super) fn headers<'a>(letter: &DeadLetter<'a>, origin: &'a Origin, dialects: &[Dialect]) -> Vec<RecordHeader<'a>> {
    let mut facts: Vec<(&'static str, Cow<'a, str>)> = Vec::with_capacity(26);
    if dialects.contains(&Dialect::Deadletter) {
        deadletter(letter, origin, &mut facts);
    }
    let all = letter.headers == Headers::All;
    if dialects.contains(&Dialect::Connect) && (all || facts.is_empty()) {
        connect(letter, origin, &mut facts);
    }
    facts
        .into_iter()
        .filter(|(name, _)| all || ESSENTIAL.contains(name))
        .map(|(name, value)| RecordHeader { name: name.as_bytes().into(), value: Some(bytes(value)) })
        .collect()
}

fn deadletter<'a>(letter: &DeadLetter<'a>, origin: &'a Origin, facts: &mut Vec<(&'static str, Cow<'a, str>)>) {
    facts.extend([
        (VERSION, "1".into()),
        ("deadletter.topic", (*letter.source.topic).into()),
        ("deadletter.partition", number(letter.source.partition)),
        ("deadletter.offset", number(letter.offset)),
    ]);
    if let Some(timestamp) = letter.content.timestamp() {
        facts.push(("deadletter.timestamp", number(Timestamp::millis(timestamp))));
        facts.push(("deadletter.timestamp-type", timestamp.kind().into()));
    }
    facts.extend([
        ("deadletter.group", origin.group.as_str().into()),
        ("deadletter.pipeline", origin.pipeline.as_str().into()),
        ("deadletter.route", letter.route().into()),
        ("deadletter.code", letter.rejection.code.as_str().into()),
        ("deadletter.reason", letter.rejection.reason.as_str().into()),
        ("deadletter.attempts", number(letter.attempts)),
        ("deadletter.guest", origin.guest.as_str().into()),
        ("deadletter.failed-at", rfc3339(letter.failed_at).into()),
        ("deadletter.replays", "0".into()),
        ("deadletter.payload-status", letter.content.status().into()),
    ]);
}

/// As Kafka Connect's `DeadLetterQueueReporter` writes them: a connector is a pipeline, a task is a partition, a stage
/// is a route, a class is a code and an exception's message is a reason.
fn connect<'a>(letter: &DeadLetter<'a>, origin: &'a Origin, facts: &mut Vec<(&'static str, Cow<'a, str>)>) {
    let code = letter.rejection.code.as_str();
    facts.extend([
        ("__connect.errors.topic", (*letter.source.topic).into()),
        ("__connect.errors.partition", number(letter.source.partition)),
        ("__connect.errors.offset", number(letter.offset)),
        ("__connect.errors.connector.name", origin.pipeline.as_str().into()),
        ("__connect.errors.task.id", number(letter.source.partition)),
        ("__connect.errors.stage", letter.route().into()),
        ("__connect.errors.class.name", code.into()),
        ("__connect.errors.exception.class.name", code.into()),
        ("__connect.errors.exception.message", letter.rejection.reason.as_str().into()),
    ]);
}

fn number(number: impl fmt::Display) -> Cow<'static, str> {
    format!("{number}").into()
}

fn rfc3339(millis: i64) -> String {
    let since_epoch = Duration::from_millis(millis.clamp(0, END_OF_9999).unsigned_abs());
    humantime::format_rfc3339_millis(UNIX_EPOCH + since_epoch).to_string()
}

fn bytes(text: Cow<'_, str>) -> Cow<'_, [u8]> {
    match text {
        Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
        Cow::Owned(text) => Cow::Owned(text.into_bytes()),
    }
}
