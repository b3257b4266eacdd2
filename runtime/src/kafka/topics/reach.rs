//! The first question of a process: are the brokers there, and do they let it in?

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::{Context as _, bail};
use rdkafka::{
    ClientContext,
    config::RDKafkaLogLevel,
    consumer::{BaseConsumer, Consumer as _, ConsumerContext},
    error::{KafkaError, RDKafkaErrorCode},
};

use super::super::{Cluster, client};
use crate::config::Kafka;

/// How long the first question waits for its answer, and then each one twice as long as the one before, up to a bound:
/// whoever is refused learns it soon, and a cluster that is slow gets its time.
const FIRST: Duration = Duration::from_secs(2);
const LONGEST: Duration = Duration::from_secs(16);
const ASK_AGAIN: Duration = Duration::from_millis(500);
const LISTEN: Duration = Duration::from_millis(10);

/// A client that knows of the brokers no more than where they should be.
pub(super) struct Reach {
    client: Arc<BaseConsumer<Heard>>,
    servers: String,
    identity: String,
}

impl Reach {
    pub(super) fn new(cluster: &Cluster) -> anyhow::Result<Self> {
        let client = client::admin(cluster.kafka(), cluster.servers())
            .create_with_context(Heard::default())
            .context("cannot make a client of the properties in [kafka.common]")?;
        let (servers, identity) = (cluster.servers().to_owned(), identity(cluster.kafka()));
        Ok(Self { client: Arc::new(client), servers, identity })
    }

    /// Waits until a broker answers, and says in the log that it does. A question goes on for its time when this is
    /// dropped.
    pub(super) async fn await_answer(&self) -> anyhow::Result<()> {
        let mut patience = FIRST;
        while let Some(reason) = self.ask(patience).await? {
            tracing::warn!(reason, brokers = self.servers, "The brokers do not answer; asking again");
            tokio::time::sleep(ASK_AGAIN).await;
            patience = LONGEST.min(2 * patience);
        }
        Ok(())
    }

    /// Asks once, for a short time, only to hear of a refusal.
    pub(super) async fn knock(&self) -> anyhow::Result<()> {
        self.ask(FIRST).await.map(drop)
    }

    /// Why no broker answered in time, if none did. It is an error if one refused this client meanwhile: that does not
    /// pass.
    async fn ask(&self, patience: Duration) -> anyhow::Result<Option<String>> {
        let client = Arc::clone(&self.client);
        let asked = tokio::task::spawn_blocking(move || {
            let answer = client.fetch_metadata(None, patience);
            // What the client has to say waits in its queue. A poll without a wait ends at the first line of the log.
            while client.poll(LISTEN).is_some() {}
            answer.map(drop)
        });
        let Err(error) = asked.await? else { return Ok(None) };
        let news = self.client.context().news();
        match &news.refusal {
            None => Ok(Some(news.last.clone().unwrap_or_else(|| error.to_string()))),
            Some(Refusal::Client(reason)) => bail!(
                "the brokers at {:?} refused this client ({}): {reason}; check \"sasl.mechanism\", \"sasl.username\" and \
                 \"sasl.password\" in [kafka.common]",
                self.servers,
                self.identity
            ),
            Some(Refusal::Tls(reason)) => bail!(
                "no TLS connection to the brokers at {:?} can be made: {reason}; check \"security.protocol\" and \
                 \"ssl.ca.location\" in [kafka.common], and \"ssl.certificate.location\" and \"ssl.key.location\" if the \
                 brokers want a certificate of the client",
                self.servers
            ),
        }
    }
}

/// Who the client says that it is.
fn identity(kafka: &Kafka) -> String {
    let value = |names: &[&str]| names.iter().find_map(|name| kafka.common.0.get(*name));
    let user = value(&["sasl.username"]).map_or_else(|| "no user".to_owned(), |user| format!("user {user:?}"));
    let mechanism = value(&["sasl.mechanism", "sasl.mechanisms"]).map_or("no mechanism", String::as_str);
    format!("{user}, {mechanism}")
}

/// What the client said on the side of its questions.
#[derive(Default)]
struct Heard(Mutex<News>);

#[derive(Default)]
struct News {
    /// The first one. The client tells the same error only every 30 s, and others between.
    refusal: Option<Refusal>,
    /// Why a connection was not made or was lost.
    last: Option<String>,
}

/// What is the same after any wait, with the client's reason.
enum Refusal {
    /// A broker did not accept who the client is.
    Client(String),
    /// A TLS handshake went wrong otherwise than by a lost connection.
    Tls(String),
}

impl Heard {
    fn news(&self) -> MutexGuard<'_, News> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClientContext for Heard {
    fn log(&self, _: RDKafkaLogLevel, facility: &str, message: &str) {
        tracing::debug!(facility, "{message}");
        // Of a connection. A broker that hangs up is told here alone, not as an error.
        if facility == "FAIL" {
            self.news().last = Some(message.to_owned());
        }
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!("{error}: {reason}");
        let refusal = match error.rdkafka_error_code() {
            Some(RDKafkaErrorCode::Authentication) => Refusal::Client(reason.to_owned()),
            Some(RDKafkaErrorCode::SSL) => Refusal::Tls(reason.to_owned()),
            _ => return,
        };
        self.news().refusal.get_or_insert(refusal);
    }
}

impl ConsumerContext for Heard {}
