//! One client of librdkafka and its thread: made when a record needs it, left behind once idle or failed for good.

use std::{
    sync::{Arc, Mutex, PoisonError, Weak},
    thread,
    time::{Duration, Instant},
};

use rdkafka::{
    ClientConfig,
    error::RDKafkaErrorCode,
    producer::{BaseProducer, Producer as _, PurgeConfig},
};

use super::{
    super::raw::Refused,
    reports::{Reports, Waiting},
};

/// A client with its own thread that serves its reports.
pub(super) type Client = BaseProducer<Reports>;

/// How soon the thread sees that its client is idle or no longer wanted; reports wake it at once.
const POLL: Duration = Duration::from_millis(100);

/// After how long without a record a client is closed: it costs a thread and a connection per broker.
const IDLE: Duration = Duration::from_mins(5);

/// How long the reports of purged records may take; they need no broker.
const PURGE: Duration = Duration::from_secs(10);

/// At most one client at a time. A lock is held only for calls that do not block.
pub(super) struct Channel {
    config: ClientConfig,
    client: Mutex<Option<Arc<Client>>>,
    alone: Option<Arc<Channel>>,
}

impl Channel {
    /// `alone` is where records go that are too large in the company of others.
    pub(super) fn new(config: ClientConfig, alone: Option<Arc<Self>>) -> Arc<Self> {
        Arc::new(Self { config, client: Mutex::new(None), alone })
    }

    /// Lets `put` hand a record to the client under an id, and keeps what waits for it. On an error it comes back.
    pub(super) fn enqueue(
        self: &Arc<Self>,
        waiting: Waiting,
        put: impl FnOnce(&Client, usize) -> Result<(), Refused>,
    ) -> Result<(), (Refused, Waiting)> {
        let mut slot = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        // Dropped by its thread, not here.
        slot.take_if(|client| client.client().fatal_error().is_some());
        let client = match slot.as_ref() {
            Some(client) => client,
            None => match self.connect() {
                Ok(client) => slot.insert(client),
                Err(reason) => return Err((Refused { code: RDKafkaErrorCode::Fail, reason }, waiting)),
            },
        };
        client.context().register(waiting, |id| put(client, id))
    }

    fn connect(self: &Arc<Self>) -> Result<Arc<Client>, String> {
        let reports = Reports::new(self.alone.clone());
        let client: Client = self.config.create_with_context(reports).map_err(|error| error.to_string())?;
        let client = Arc::new(client);
        let (served, channel) = (Arc::clone(&client), Arc::downgrade(self));
        let spawned = thread::Builder::new().name("producer".into()).spawn(move || serve(&served, &channel));
        spawned.map(|_| client).map_err(|error| format!("cannot start the producer's thread: {error}"))
    }

    /// Takes a client out of use that has failed for good, or that had nothing to do since `idle`.
    fn retire(&self, client: &Arc<Client>, idle: Instant) -> bool {
        let mut slot = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        let fatal = client.client().fatal_error();
        if let Some((code, reason)) = &fatal {
            tracing::error!(%code, reason, "Producer failed for good; the next record makes a new one");
        }
        let retired = fatal.is_some() || (idle.elapsed() >= IDLE && client.context().is_idle());
        if retired {
            slot.take_if(|current| Arc::ptr_eq(current, client));
        }
        retired
    }
}

/// Serves the reports of a client until it is retired or its channel is gone; then fails what it still has.
fn serve(client: &Arc<Client>, channel: &Weak<Channel>) {
    let (mut sent, mut idle) = (0, Instant::now());
    loop {
        client.poll(POLL);
        let now = client.context().sent();
        if now != sent || !client.context().is_idle() {
            (sent, idle) = (now, Instant::now());
        }
        if channel.upgrade().is_none_or(|channel| channel.retire(client, idle)) {
            break;
        }
    }
    // Nobody can reach the client from here on.
    client.purge(PurgeConfig::default().queue().inflight());
    if let Err(error) = client.flush(PURGE) {
        tracing::warn!(%error, "Some records of a closed producer had no report");
    }
    client.context().fail_all();
}
