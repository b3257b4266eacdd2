//! What guests log and print, kept for the report.

use std::{
    fmt::{self, Debug},
    sync::{Arc, Mutex, PoisonError},
};

use serde::Serialize;
use tracing::{
    Dispatch, Event, Metadata,
    field::{Field, Visit},
    subscriber::Interest,
};
use tracing_subscriber::{
    Layer,
    layer::{Context, SubscriberExt},
    registry,
};

/// The target under which the guest's lines reach the log.
const TARGET: &str = "guest";
/// Lines that are kept. Stops a guest that logs without end from taking the memory of the process.
const MAX_LINES: usize = 10_000;

/// One line of a guest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Log {
    /// `error`, `warn`, `info`, `debug` or `trace`.
    pub(super) level: String,
    /// `stdout`, `stderr`, or the interface.
    pub(super) from: String,
    /// The line.
    pub(super) message: String,
}

/// Keeps lines; cheap to clone.
#[derive(Clone, Default)]
pub(super) struct Logs(Arc<Mutex<Vec<Log>>>);

impl Logs {
    /// What takes the lines in, in the place of the process's log.
    pub(super) fn dispatch(&self) -> Dispatch {
        Dispatch::new(registry().with(self.clone()))
    }

    /// The lines so far.
    pub(super) fn take(&self) -> Vec<Log> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<S: tracing::Subscriber> Layer<S> for Logs {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if metadata.target() == TARGET { Interest::always() } else { Interest::never() }
    }

    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        let mut log = Log { level: event.metadata().level().as_str().to_ascii_lowercase(), ..Log::default() };
        event.record(&mut log);
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() < MAX_LINES {
            lines.push(log);
        }
    }
}

impl Visit for Log {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        match field.name() {
            "message" => self.message = fmt::format(format_args!("{value:?}")),
            "from" => self.from = fmt::format(format_args!("{value:?}")),
            _ => {}
        }
    }
}
