//! Topic ids: a topic that is deleted and created again keeps its name, and not its id.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, OnceLock},
    thread,
    time::Duration,
};

use rdkafka::{
    client::{Client, ClientContext},
    consumer::{BaseConsumer, Consumer as _},
    types::RDKafkaErrorCode,
};
use tokio::sync::oneshot;

use super::{
    client,
    context::Context,
    inbox::{self, Queued},
    raw::{self, Question},
};
use crate::config::Kafka;

/// Bounds on one question, and on a client without questions.
const TIMEOUT: Duration = Duration::from_secs(5);
const IDLE: Duration = Duration::from_mins(1);
const QUEUE: usize = 256;

/// The id that a cluster gave to a topic at its creation, never to be given again.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TopicId([i64; 2]);

impl fmt::Debug for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self([high, low]) = self;
        write!(f, "TopicId({high:016x}{low:016x})")
    }
}

/// What the cluster says of a topic's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existence {
    /// The topic of this id.
    Is(TopicId),
    /// A topic, and the broker knows no ids (before Kafka 2.8).
    Unidentified,
    /// No topic. A broker that has only just started or whose metadata lag may say so of a topic that exists.
    Gone,
}

/// The question could not be answered now.
#[derive(Clone, Debug, thiserror::Error)]
#[error("cannot ask for the id of topic {topic:?}: {code}")]
pub struct TopicIdError {
    topic: Arc<str>,
    code: RDKafkaErrorCode,
}

/// Asks about topics through a client at hand; blocks for up to `timeout`. `broker` is whom to ask; `None` is any.
pub fn describe<C: ClientContext>(
    client: &Client<C>,
    topics: &BTreeSet<Arc<str>>,
    broker: Option<i32>,
    timeout: Duration,
) -> BTreeMap<Arc<str>, Result<Existence, TopicIdError>> {
    let names: Vec<_> = topics.iter().map(|topic| &**topic).collect();
    let described = raw::describe(client, &names, Question { broker, permissions: false }, timeout);
    let answer = |index: usize| match &described {
        Ok(described) => match described.get(index) {
            Some(Ok(raw::Description { id: Some(id), .. })) => Ok(Existence::Is(TopicId(*id))),
            Some(Ok(raw::Description { id: None, .. })) => Ok(Existence::Unidentified),
            Some(Err(RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::UnknownTopic)) => {
                Ok(Existence::Gone)
            }
            Some(Err(code)) => Err(*code),
            None => Err(RDKafkaErrorCode::BadMessage),
        },
        Err(code) => Err(*code),
    };
    topics
        .iter()
        .enumerate()
        .map(|(index, topic)| {
            let answer = answer(index).map_err(|code| TopicIdError { topic: Arc::clone(topic), code });
            (Arc::clone(topic), answer)
        })
        .collect()
}

/// Asks for topic ids from tasks. One request is in flight at a time, and whoever asks meanwhile shares the next one. The
/// thread and its client start on first use; the client is closed when idle. Cheap to clone.
#[derive(Clone, Debug)]
pub struct TopicIds(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    kafka: Kafka,
    servers: String,
    thread: OnceLock<inbox::Sender<Asked>>,
}

#[derive(Debug)]
struct Asked {
    topic: Arc<str>,
    broker: Option<i32>,
    answer: oneshot::Sender<Result<Existence, TopicIdError>>,
}

impl TopicIds {
    /// Connects to nothing yet.
    pub fn new(kafka: &Kafka, servers: &str) -> Self {
        let (kafka, servers) = (kafka.clone(), servers.to_owned());
        Self(Arc::new(Inner { kafka, servers, thread: OnceLock::new() }))
    }

    /// What the cluster says of a topic; the request is sent after this call, never before. `broker` is whom to ask: the
    /// one that served a record also knows by then which topic it was of. `None` is any.
    pub async fn get(&self, topic: &Arc<str>, broker: Option<i32>) -> Result<Existence, TopicIdError> {
        let failed = |code| TopicIdError { topic: Arc::clone(topic), code };
        let (answer, answered) = oneshot::channel();
        let question = Asked { topic: Arc::clone(topic), broker, answer };
        self.thread().send(question).await.map_err(|_| failed(RDKafkaErrorCode::BrokerDestroy))?;
        answered.await.map_err(|_| failed(RDKafkaErrorCode::BrokerDestroy))?
    }

    fn thread(&self) -> &inbox::Sender<Asked> {
        self.0.thread.get_or_init(|| {
            let (sender, receiver) = inbox::channel(QUEUE);
            let (kafka, servers) = (self.0.kafka.clone(), self.0.servers.clone());
            let serve = move || serve(&kafka, &servers, &receiver);
            if let Err(error) = thread::Builder::new().name("topic-ids".into()).spawn(serve) {
                tracing::error!("cannot start the thread that asks for topic ids: {error}");
            }
            sender
        })
    }
}

/// Answers questions until nobody can ask any more.
fn serve(kafka: &Kafka, servers: &str, inbox: &inbox::Receiver<Asked>) {
    let mut client = None;
    while let Ok(first) = inbox::receive(inbox, IDLE) {
        let Some(first) = first else {
            client = None;
            continue;
        };
        let mut by_broker: BTreeMap<_, Vec<Queued<Asked>>> = BTreeMap::new();
        for question in std::iter::once(first).chain(inbox.try_iter()) {
            by_broker.entry(question.item.broker).or_default().push(question);
        }
        for (broker, questions) in by_broker {
            let topics = questions.iter().map(|question| Arc::clone(&question.item.topic)).collect();
            let answers = ask(&mut client, kafka, servers, |client| describe(client, &topics, broker, TIMEOUT));
            for Queued { item: Asked { topic, answer, .. }, .. } in questions {
                let failed = || Err(TopicIdError { topic: Arc::clone(&topic), code: RDKafkaErrorCode::Fail });
                let answered = answers.as_ref().and_then(|answers| answers.get(&topic).cloned());
                // Whoever asked may have given up.
                drop(answer.send(answered.unwrap_or_else(failed)));
            }
        }
    }
}

/// Uses the client, made on first use. `None` if it cannot be made.
fn ask<T>(
    client: &mut Option<BaseConsumer<Context>>,
    kafka: &Kafka,
    servers: &str,
    ask: impl FnOnce(&Client<Context>) -> T,
) -> Option<T> {
    if client.is_none() {
        match client::admin(kafka, servers).create_with_context(Context) {
            Ok(made) => *client = Some(made),
            Err(error) => tracing::error!("cannot make the client that asks for topic ids: {error}"),
        }
    }
    let client = client.as_ref()?;
    let answer = ask(client.client());
    // Log lines and errors wait in its queue.
    while client.poll(Duration::ZERO).is_some() {}
    Some(answer)
}
