//! Low watermarks: how far retention has come. Asked for from tasks.

use std::{fmt, sync::Arc, time::Duration};

use rdkafka::consumer::{BaseConsumer, Consumer as _};
use tokio::sync::Mutex;

use super::{client, context::Context};
use crate::{config::Kafka, message::TopicPartition, offset::NextOffset};

/// How long one question may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Asks through one client, which is made on first use, one question at a time. Cheap to clone.
#[derive(Clone)]
pub struct Watermarks(Arc<Inner>);

struct Inner {
    kafka: Kafka,
    servers: String,
    client: Arc<Mutex<Option<BaseConsumer<Context>>>>,
}

impl Watermarks {
    /// Connects to nothing yet.
    pub fn new(kafka: &Kafka, servers: &str) -> Self {
        Self(Arc::new(Inner { kafka: kafka.clone(), servers: servers.to_owned(), client: Arc::default() }))
    }

    /// The lowest offset that a partition still has; `None` if the broker does not say so now.
    pub async fn low(&self, source: &TopicPartition) -> Option<NextOffset> {
        let mut client = Arc::clone(&self.0.client).lock_owned().await;
        if client.is_none() {
            let made = client::admin(&self.0.kafka, &self.0.servers).create_with_context(Context);
            *client = made.inspect_err(|error| tracing::warn!(%error, "Cannot make a client for watermarks")).ok();
        }
        let source = source.clone();
        let asked = tokio::task::spawn_blocking(move || {
            let client = client.as_ref()?;
            // Log lines and errors wait in its queue.
            while client.poll(Duration::ZERO).is_some() {}
            let answer = client.fetch_watermarks(&source.topic, source.partition, TIMEOUT);
            let (low, _) = answer.inspect_err(|error| tracing::debug!(%error, %source, "No watermarks")).ok()?;
            NextOffset::new(low)
        });
        asked.await.ok().flatten()
    }
}

impl fmt::Debug for Watermarks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Watermarks").field(&self.0.servers).finish()
    }
}
