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
const ESSENTIAL: [&str; 20] = [
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
    "kafka_dlt-exception-fqcn",
    "kafka_dlt-original-topic",
    "kafka_dlt-original-partition",
    "kafka_dlt-original-offset",
    "kafka_dlt-original-timestamp",
    "kafka_dlt-original-timestamp-type",
];

/// The last millisecond that RFC 3339 can write.
const END_OF_9999: i64 = 253_402_300_799_999;

/// Names and values.
type Facts<'a> = Vec<(&'static str, Cow<'a, [u8]>)>;

/// One block for each dialect; ours comes first, whatever the order in the configuration. What is essential is said
/// once, in the first of them.
pub(super) fn headers<'a>(letter: &DeadLetter<'a>, origin: &'a Origin, dialects: &[Dialect]) -> Vec<RecordHeader<'a>> {
    let mut facts = Facts::with_capacity(35);
    if dialects.contains(&Dialect::Deadletter) {
        deadletter(letter, origin, &mut facts);
    }
    let all = letter.headers == Headers::All;
    if dialects.contains(&Dialect::Connect) && (all || facts.is_empty()) {
        connect(letter, origin, &mut facts);
    }
    if dialects.contains(&Dialect::Spring) && (all || facts.is_empty()) {
        spring(letter, origin, &mut facts);
    }
    facts
        .into_iter()
        .filter(|(name, _)| all || ESSENTIAL.contains(name))
        .map(|(name, value)| RecordHeader { name: name.as_bytes().into(), value: Some(value) })
        .collect()
}

fn deadletter<'a>(letter: &DeadLetter<'a>, origin: &'a Origin, facts: &mut Facts<'a>) {
    facts.extend([
        (VERSION, text("1")),
        ("deadletter.topic", text(&*letter.source.topic)),
        ("deadletter.partition", number(letter.source.partition)),
        ("deadletter.offset", number(letter.offset)),
    ]);
    if let Some(timestamp) = letter.content.timestamp() {
        facts.push(("deadletter.timestamp", number(Timestamp::millis(timestamp))));
        facts.push(("deadletter.timestamp-type", text(timestamp.kind())));
    }
    facts.extend([
        ("deadletter.group", text(origin.group.as_str())),
        ("deadletter.pipeline", text(origin.pipeline.as_str())),
        ("deadletter.route", text(letter.route())),
        ("deadletter.code", text(letter.rejection.code.as_str())),
        ("deadletter.reason", text(letter.rejection.reason.as_str())),
        ("deadletter.attempts", number(letter.attempts)),
        ("deadletter.guest", text(origin.guest.as_str())),
        ("deadletter.failed-at", text(rfc3339(letter.failed_at))),
        ("deadletter.replays", text("0")),
        ("deadletter.payload-status", text(letter.content.status())),
    ]);
}

/// As Kafka Connect's `DeadLetterQueueReporter` writes them: a connector is a pipeline, a task is a partition, a stage
/// is a route, a class is a code and an exception's message is a reason.
fn connect<'a>(letter: &DeadLetter<'a>, origin: &'a Origin, facts: &mut Facts<'a>) {
    let code = letter.rejection.code.as_str();
    facts.extend([
        ("__connect.errors.topic", text(&*letter.source.topic)),
        ("__connect.errors.partition", number(letter.source.partition)),
        ("__connect.errors.offset", number(letter.offset)),
        ("__connect.errors.connector.name", text(origin.pipeline.as_str())),
        ("__connect.errors.task.id", number(letter.source.partition)),
        ("__connect.errors.stage", text(letter.route())),
        ("__connect.errors.class.name", text(code)),
        ("__connect.errors.exception.class.name", text(code)),
        ("__connect.errors.exception.message", text(letter.rejection.reason.as_str())),
    ]);
}

/// As Spring Kafka's `DeadLetterPublishingRecoverer` writes them, numbers in binary and exceptions first: the class of an
/// exception, and of its cause, by which its readers group, is a code, and the message is a reason. There is no stack
/// trace.
fn spring<'a>(letter: &DeadLetter<'a>, origin: &'a Origin, facts: &mut Facts<'a>) {
    let code = letter.rejection.code.as_str();
    // What Kafka's client says of a record without one.
    let (timestamp, kind) =
        letter.content.timestamp().map_or((-1, "NoTimestampType"), |timestamp| (timestamp.millis(), timestamp.kind()));
    facts.extend([
        ("kafka_dlt-exception-fqcn", text(code)),
        ("kafka_dlt-exception-cause-fqcn", text(code)),
        ("kafka_dlt-exception-message", text(letter.rejection.reason.as_str())),
        ("kafka_dlt-original-topic", text(&*letter.source.topic)),
        ("kafka_dlt-original-partition", big_endian(letter.source.partition.to_be_bytes())),
        ("kafka_dlt-original-offset", big_endian(letter.offset.get().to_be_bytes())),
        ("kafka_dlt-original-timestamp", big_endian(timestamp.to_be_bytes())),
        ("kafka_dlt-original-timestamp-type", text(kind)),
        ("kafka_dlt-original-consumer-group", text(origin.group.as_str())),
    ]);
}

fn number(number: impl fmt::Display) -> Cow<'static, [u8]> {
    text(number.to_string())
}

fn big_endian<const N: usize>(bytes: [u8; N]) -> Cow<'static, [u8]> {
    Cow::Owned(bytes.to_vec())
}

fn rfc3339(millis: i64) -> String {
    let since_epoch = Duration::from_millis(millis.clamp(0, END_OF_9999).unsigned_abs());
    humantime::format_rfc3339_millis(UNIX_EPOCH + since_epoch).to_string()
}

fn text<'a>(text: impl Into<Cow<'a, str>>) -> Cow<'a, [u8]> {
    match text.into() {
        Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
        Cow::Owned(text) => Cow::Owned(text.into_bytes()),
    }
}
