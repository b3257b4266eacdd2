//! Records on their way out: dead letters and what the guest emitted.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use tokio::sync::mpsc;
use tracing::error;

use crate::{
    config::{DEAD_LETTER, Route},
    kafka::{DeliveryError, Producer, source::InHand},
    ledger::CallId,
    message::TopicPartition,
    offset::Offset,
    record::{Content, DeadLetter, Headers, Origin, Record, RecordHeader, Stub},
    verdict::{Emit, Rejection},
};

/// How long a payload may wait for the producer.
const PATIENCE: Duration = Duration::from_secs(3);

/// Where the records of a pipeline go, and what its dead letters say of it.
pub struct Destinations {
    /// The cluster's producer.
    pub producer: Producer,
    /// Routes by name, with the number of partitions of the topic.
    pub routes: BTreeMap<String, (Route, Option<i32>)>,
    /// Topics by the name of the output.
    pub outputs: BTreeMap<String, String>,
    /// Group, pipeline and guest.
    pub origin: Origin,
}

/// A rejected message, and where its bytes are.
pub(super) struct Letter {
    pub(super) offset: Offset,
    pub(super) rejection: Arc<Rejection>,
    pub(super) attempts: u32,
    pub(super) headers: Headers,
    pub(super) body: Body,
}

/// What a dead letter carries.
pub(super) enum Body {
    /// The message, from a batch that holds it.
    Full(InHand),
    /// Nothing but its coordinates.
    Stub(Stub),
}

enum Outgoing {
    Letter(Letter),
    Emit(CallId, Arc<Emit>),
}

/// The client's word on one record. Failures carry what is needed to try again.
pub(super) enum Ack {
    Letter(Offset, Arc<Rejection>, Result<(), DeliveryError>),
    /// There is nothing smaller to send.
    StubTooLarge(Offset),
    Emit(CallId, Arc<Emit>, Result<(), DeliveryError>),
}

pub(super) struct Outbox {
    to: Arc<Destinations>,
    source: TopicPartition,
    queue: VecDeque<Outgoing>,
    /// Since when its front is the same, or its payloads were taken out.
    since: Instant,
    acks: mpsc::UnboundedSender<Ack>,
}

impl Outbox {
    /// The receiver gets one [`Ack`] for each record that was sent; at most what the producer holds without one.
    pub(super) fn new(to: Arc<Destinations>, source: TopicPartition) -> (Self, mpsc::UnboundedReceiver<Ack>) {
        let (acks, receiver) = mpsc::unbounded_channel();
        (Self { to, source, queue: VecDeque::new(), since: Instant::now(), acks }, receiver)
    }

    pub(super) fn push_letter(&mut self, letter: Letter) {
        self.push(Outgoing::Letter(letter));
    }

    pub(super) fn push_emit(&mut self, call: CallId, emit: Arc<Emit>) {
        self.push(Outgoing::Emit(call, emit));
    }

    fn push(&mut self, outgoing: Outgoing) {
        if self.queue.is_empty() {
            self.since = Instant::now();
        }
        self.queue.push_back(outgoing);
    }

    /// Until when payloads may wait; `None` if nothing does.
    pub(super) fn waits_until(&self) -> Option<Instant> {
        (!self.queue.is_empty()).then(|| self.since + PATIENCE)
    }

    /// Takes out the dead letters that have a payload.
    pub(super) fn take_payloads(&mut self) -> Vec<Letter> {
        let (mut taken, mut kept) = (Vec::new(), VecDeque::new());
        for outgoing in self.queue.drain(..) {
            match outgoing {
                Outgoing::Letter(letter @ Letter { body: Body::Full(_), .. }) => taken.push(letter),
                other => kept.push_back(other),
            }
        }
        self.queue = kept;
        self.since = Instant::now();
        taken
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Sends all; waits where the producer holds its limit of unacknowledged bytes. Dropped midway, what was not sent
    /// stays queued.
    pub(super) async fn send_all(&mut self) {
        while let Some(outgoing) = self.queue.front() {
            match outgoing {
                Outgoing::Letter(letter) => self.send_letter(letter).await,
                Outgoing::Emit(call, emit) => self.send_emit(*call, emit).await,
            }
            self.queue.pop_front();
            self.since = Instant::now();
        }
    }

    async fn send_letter(&self, letter: &Letter) {
        let content = match &letter.body {
            Body::Full(in_hand) => in_hand.batch.find(letter.offset).map(Content::Full),
            Body::Stub(stub) => Some(Content::Stub(*stub, None)),
        };
        let name = letter.rejection.route.as_deref().unwrap_or(DEAD_LETTER);
        let (Some(content), Some((route, partitions))) = (content, self.to.routes.get(name)) else {
            error!(partition = %self.source, offset = %letter.offset, "A dead letter without a message or a route: a defect; it is not committed");
            return;
        };
        let dead_letter = DeadLetter {
            source: &self.source,
            offset: letter.offset,
            content,
            rejection: &letter.rejection,
            attempts: letter.attempts,
            failed_at: now_millis(),
            headers: letter.headers,
        };
        let record = dead_letter.to_record(&self.to.origin, route, *partitions);
        let (acks, offset, rejection) = (self.acks.clone(), letter.offset, Arc::clone(&letter.rejection));
        let is_stub = matches!(letter.body, Body::Stub(_));
        self.to
            .producer
            .send(&record, move |result| {
                // A lane that has ended wants no acks: whoever has the partition now judges anew.
                drop(acks.send(match result {
                    Err(DeliveryError::TooLarge) if is_stub => Ack::StubTooLarge(offset),
                    result => Ack::Letter(offset, rejection, result),
                }));
            })
            .await;
    }

    async fn send_emit(&self, call: CallId, emit: &Arc<Emit>) {
        let Some(topic) = self.to.outputs.get(&emit.output) else { return }; // the guest's host refused unknown ones
        let headers = emit.headers.iter().map(|(name, value)| RecordHeader {
            name: name.as_bytes().into(),
            value: value.as_deref().map(Into::into),
        });
        let record = Record {
            topic: topic.into(),
            partition: emit.partition,
            timestamp: emit.timestamp,
            key: emit.key.as_deref().map(Into::into),
            payload: emit.payload.as_deref().map(Into::into),
            headers: headers.collect(),
        };
        let (acks, kept) = (self.acks.clone(), Arc::clone(emit));
        self.to.producer.send(&record, move |result| drop(acks.send(Ack::Emit(call, kept, result)))).await;
    }
}

/// Milliseconds since the epoch.
pub(super) fn now_millis() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
