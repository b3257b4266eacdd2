//! Low watermarks: how far retention has come. Asked for from tasks.

use std::{fmt, sync::Arc, time::Duration};

use rdkafka::consumer::{BaseConsumer, Consumer as _};
use tokio::{sync::Mutex, task::AbortHandle};

use super::{client, context::Context};
use crate::{config::Kafka, message::TopicPartition, offset::NextOffset};

/// Bounds on one question, and on a client without questions.
const TIMEOUT: Duration = Duration::from_secs(5);
const IDLE: Duration = Duration::from_mins(1);

/// Asks through one client, one question at a time. The client is made on first use and closed when idle. Cheap to clone.
#[derive(Clone)]
pub struct Watermarks(Arc<Inner>);

struct Inner {
    kafka: Kafka,
    servers: String,
    asking: Arc<Mutex<Asking>>,
}

#[derive(Default)]
struct Asking {
    client: Option<BaseConsumer<Context>>,
    /// Closes the client, unless there is a question first.
    closing: Option<AbortHandle>,
}

impl Watermarks {
    /// Connects to nothing yet.
    pub fn new(kafka: &Kafka, servers: &str) -> Self {
        Self(Arc::new(Inner { kafka: kafka.clone(), servers: servers.to_owned(), asking: Arc::default() }))
    }

    /// The lowest offset that a partition still has; `None` if the broker does not say so now.
    pub async fn low(&self, source: &TopicPartition) -> Option<NextOffset> {
        let mut asking = Arc::clone(&self.0.asking).lock_owned().await;
        if let Some(closing) = asking.closing.replace(self.close_when_idle()) {
            closing.abort();
        }
        if asking.client.is_none() {
            let made = client::admin(&self.0.kafka, &self.0.servers).create_with_context(Context);
            asking.client =
                made.inspect_err(|error| tracing::warn!(%error, "Cannot make a client for watermarks")).ok();
        }
        let source = source.clone();
        let asked = tokio::task::spawn_blocking(move || {
            let client = asking.client.as_ref()?;
            // Log lines and errors wait in its queue.
            while client.poll(Duration::ZERO).is_some() {}
            let answer = client.fetch_watermarks(&source.topic, source.partition, TIMEOUT);
            let (low, _) = answer.inspect_err(|error| tracing::debug!(%error, %source, "No watermarks")).ok()?;
            NextOffset::new(low)
        });
        asked.await.ok().flatten()
    }

    fn close_when_idle(&self) -> AbortHandle {
        let asking = Arc::clone(&self.0.asking);
        let closing = tokio::spawn(async move {
            tokio::time::sleep(IDLE).await;
            let client = asking.lock().await.client.take();
            tokio::task::spawn_blocking(move || drop(client));
        });
        closing.abort_handle()
    }
}

impl fmt::Debug for Watermarks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Watermarks").field(&self.0.servers).finish()
    }
}
