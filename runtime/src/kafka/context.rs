//! What librdkafka says on the side.

use rdkafka::{ClientContext, config::RDKafkaLogLevel, consumer::ConsumerContext, error::KafkaError};

/// The context of a client that has no other.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Context;

impl ClientContext for Context {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        log(level, facility, message);
    }

    /// The same error is also handed to whoever polls, who decides what it means.
    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!("{error}: {reason}");
    }
}

impl ConsumerContext for Context {}

/// Passes a client's log line on to `tracing`.
pub(super) fn log(level: RDKafkaLogLevel, facility: &str, message: &str) {
    match level {
        RDKafkaLogLevel::Emerg
        | RDKafkaLogLevel::Alert
        | RDKafkaLogLevel::Critical
        | RDKafkaLogLevel::Error
        | RDKafkaLogLevel::Warning => tracing::warn!(facility, "{message}"),
        RDKafkaLogLevel::Notice | RDKafkaLogLevel::Info => tracing::info!(facility, "{message}"),
        RDKafkaLogLevel::Debug => tracing::debug!(facility, "{message}"),
    }
}
