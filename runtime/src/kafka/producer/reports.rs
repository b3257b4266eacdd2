//! Who waits for which record, and what the client reports of it.

use std::{
    collections::HashMap,
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rdkafka::{
    ClientContext,
    config::RDKafkaLogLevel,
    error::{KafkaError, RDKafkaErrorCode},
    message::{BorrowedMessage, DeliveryResult},
    producer::ProducerContext,
};
use tokio::sync::OwnedSemaphorePermit;

use super::{
    super::{
        context,
        raw::{self, Refused},
    },
    DeliveryError,
    channel::{Channel, Client},
};

pub(super) type Done = Box<dyn FnOnce(Result<(), DeliveryError>) + Send>;

/// Somebody who waits for a record's acknowledgement, and the record's share of the bound on bytes. Answered exactly
/// once: at the latest, when this is dropped.
pub(super) struct Waiting {
    parts: Option<(OwnedSemaphorePermit, Done)>,
    /// The record's; librdkafka does not tell that of one that it could not deliver.
    timestamp: Option<i64>,
}

impl Waiting {
    pub(super) fn new(timestamp: Option<i64>, permit: OwnedSemaphorePermit, done: Done) -> Self {
        Self { parts: Some((permit, done)), timestamp }
    }

    /// Takes it apart unanswered, of a record that was not sent.
    pub(super) fn into_parts(mut self) -> Option<(OwnedSemaphorePermit, Done)> {
        self.parts.take()
    }

    pub(super) fn refuse(self, refused: Refused) {
        if too_large(refused.code) {
            self.answer(Err(DeliveryError::TooLarge));
        } else {
            self.fail(refused.reason);
        }
    }

    pub(super) fn fail(self, reason: String) {
        self.answer(Err(DeliveryError::Failed(reason)));
    }

    fn answer(mut self, result: Result<(), DeliveryError>) {
        if let Some((_share, done)) = self.parts.take() {
            // The share of the bound is free only after the answer: a flush that has all of it has all answers.
            done(result);
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some((_share, done)) = self.parts.take() {
            done(Err(DeliveryError::Failed("the producer was closed before the broker answered".into())));
        }
    }
}

/// The client's context. A record's opaque is a number, the key in a map, so that nothing depends on librdkafka giving
/// it back, or giving it back once.
pub(in crate::kafka) struct Reports {
    book: Mutex<Book>,
    alone: Option<Arc<Channel>>,
}

#[derive(Default)]
struct Book {
    sent: usize,
    waiting: HashMap<usize, Waiting>,
}

impl Reports {
    pub(super) fn new(alone: Option<Arc<Channel>>) -> Self {
        Self { book: Mutex::default(), alone }
    }

    /// Lets `put` hand a record to the client, and books who waits for it before any report can be looked up.
    pub(super) fn register(
        &self,
        waiting: Waiting,
        put: impl FnOnce(usize) -> Result<(), Refused>,
    ) -> Result<(), (Refused, Waiting)> {
        let mut book = self.book();
        let id = book.sent;
        match put(id) {
            Ok(()) => {
                book.sent = id.wrapping_add(1);
                book.waiting.insert(id, waiting);
                Ok(())
            }
            Err(refused) => Err((refused, waiting)),
        }
    }

    /// How many records were handed to the client.
    pub(super) fn sent(&self) -> usize {
        self.book().sent
    }

    /// Whether nobody waits.
    pub(super) fn is_idle(&self) -> bool {
        self.book().waiting.is_empty()
    }

    /// Answers everybody who still waits.
    pub(super) fn fail_all(&self) {
        // Answered outside of the lock.
        let rest = mem::take(&mut self.book().waiting);
        drop(rest);
    }

    /// A report of a batch says nothing of each record in it: one that fits may have been in a batch that does not.
    fn once_more_alone(&self, waiting: Waiting, message: &BorrowedMessage<'_>) {
        let Some(alone) = &self.alone else {
            return waiting.answer(Err(DeliveryError::TooLarge));
        };
        let timestamp = waiting.timestamp;
        let again = |client: &Client, id| raw::produce_again(client, message, timestamp, id);
        if let Err((refused, waiting)) = alone.enqueue(waiting, again) {
            waiting.refuse(refused);
        }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClientContext for Reports {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        context::log(level, facility, message);
    }

    /// Errors of brokers and connections: news, since the reports tell what becomes of the records.
    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(%error, reason, "Producer");
    }
}

impl ProducerContext for Reports {
    type DeliveryOpaque = usize;

    fn delivery(&self, report: &DeliveryResult<'_>, id: usize) {
        let Some(waiting) = self.book().waiting.remove(&id) else { return };
        match report {
            Ok(_) => {
                kill_point!("producer-acked");
                waiting.answer(Ok(()));
            }
            Err((error, message)) => match error.rdkafka_error_code() {
                Some(code) if too_large(code) => self.once_more_alone(waiting, message),
                Some(code) => waiting.fail(code.to_string()),
                None => waiting.fail(error.to_string()),
            },
        }
    }
}

/// The second is the broker's answer to a batch above its segment size.
const fn too_large(code: RDKafkaErrorCode) -> bool {
    matches!(code, RDKafkaErrorCode::MessageSizeTooLarge | RDKafkaErrorCode::MessageBatchTooLarge)
}
