//! Watermarks: how far retention has come, and where logs end. Asked for from tasks.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use rdkafka::consumer::{BaseConsumer, Consumer as _};
use tokio::{sync::Mutex, task::AbortHandle};

use super::{client, context::Context, list};
use crate::{config::Kafka, message::TopicPartition, offset::NextOffset};

/// Bounds on one question, and on a client without questions.
const TIMEOUT: Duration = Duration::from_secs(5);
const IDLE: Duration = Duration::from_mins(1);

/// The same where somebody waits who can do without.
const ENDS_TIMEOUT: Duration = Duration::from_secs(2);

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
        let source = source.clone();
        self.ask(move |client| {
            let answer = client.fetch_watermarks(&source.topic, source.partition, TIMEOUT);
            let (low, _) = answer.inspect_err(|error| tracing::debug!(%error, %source, "No watermarks")).ok()?;
            NextOffset::new(low)
        })
        .await
    }

    /// Where the logs of some partitions end, with one question to each broker; those of which no broker says so within
    /// two seconds are left out.
    pub async fn ends(&self, sources: Vec<TopicPartition>) -> BTreeMap<TopicPartition, NextOffset> {
        if sources.is_empty() {
            return BTreeMap::new();
        }
        let asked = self.ask(move |client| {
            let mut wanted = list::of(sources);
            wanted.set_all_offsets(rdkafka::Offset::End).ok()?;
            let ends = client.offsets_for_times(wanted, ENDS_TIMEOUT);
            let ends = ends.inspect_err(|error| tracing::debug!(%error, "No ends of logs")).ok()?;
            Some(list::positions(&ends).into_iter().collect())
        });
        asked.await.unwrap_or_default()
    }

    /// In a task of its own: whoever asks may look away while it waits, and once it were its turn nobody else would have one.
    async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&BaseConsumer<Context>) -> Option<T> + Send + 'static,
    ) -> Option<T> {
        let watermarks = self.clone();
        tokio::spawn(async move { watermarks.answer(question).await }).await.ok().flatten()
    }

    async fn answer<T: Send + 'static>(
        &self,
        question: impl FnOnce(&BaseConsumer<Context>) -> Option<T> + Send + 'static,
    ) -> Option<T> {
        let mut asking = Arc::clone(&self.0.asking).lock_owned().await;
        if let Some(closing) = asking.closing.replace(self.close_when_idle()) {
            closing.abort();
        }
        if asking.client.is_none() {
            let made = client::admin(&self.0.kafka, &self.0.servers).create_with_context(Context);
            asking.client =
                made.inspect_err(|error| tracing::warn!(%error, "Cannot make a client for watermarks")).ok();
        }
        let asked = tokio::task::spawn_blocking(move || {
            let client = asking.client.as_ref()?;
            // Log lines and errors wait in its queue.
            while client.poll(Duration::ZERO).is_some() {}
            question(client)
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

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, pin::pin, task::Poll};

    use super::*;
    use crate::config::{Brokers, Properties, SeekThreshold, Shadow};

    fn watermarks() -> Watermarks {
        let shadow =
            Shadow { readers: 1, seek_threshold: SeekThreshold::Auto, deadline: TIMEOUT, group_id: "shadow".into() };
        let kafka = Kafka {
            brokers: Brokers::Servers("localhost:1".to_owned()),
            common: Properties::default(),
            consumer: Properties::default(),
            producer: Properties::default(),
            shadow,
            unacknowledged: 1,
        };
        Watermarks::new(&kafka, "localhost:1")
    }

    #[tokio::test]
    async fn whoever_looks_away_while_it_waits_keeps_nobody_waiting() {
        let watermarks = watermarks();
        let busy = Arc::clone(&watermarks.0.asking).lock_owned().await;
        let mut first = pin!(watermarks.ask(|_| Some(1)));
        let is_waiting = poll_fn(|context| Poll::Ready(first.as_mut().poll(context).is_pending())).await;
        assert!(is_waiting);
        tokio::task::yield_now().await;
        drop(busy);
        let second = tokio::time::timeout(TIMEOUT, watermarks.ask(|_| Some(2))).await;
        assert_eq!(second, Ok(Some(2)), "the first one is not looked at meanwhile");
        assert_eq!(first.await, Some(1));
    }
}
