//! Messages that are read again: rejected ones on their way to the dead letters, and what is handed out once more.

use std::{
    collections::BTreeMap,
    future::Future,
    pin::Pin,
    sync::Arc,
    time::{Duration, Instant},
};

use tracing::{debug, error, warn};

use super::{BACK_OFF, Lane, outbox::Body, recent::Recent, redelivery::Redelivery};
use crate::{
    config::OnGone,
    kafka::{
        ShadowReaders,
        shadow::{Identity, ReadError, Reading, Readings, TURN_BYTES, Want},
        source::InHand,
        topic_ids::TopicId,
    },
    offset::Offset,
    record::{Missing, Stub},
    verdict::Rejection,
};

/// Rejected messages that are asked for at once.
const WINDOW: usize = 4096;

/// No turn is taken while more records than this wait in the outbox. (A reader is at most two turns ahead.)
const WAITING: usize = 1000;

/// How long until it is seen again whether the producer has room.
const LOOK_FOR_ROOM: Duration = Duration::from_millis(20);

/// What a lane reads again.
pub(super) struct Reads {
    shadow: ShadowReaders,
    topic_id: Option<TopicId>,
    letters: Option<Running>,
    /// What `letters` has not answered yet.
    window: BTreeMap<Offset, Arc<Rejection>>,
    pub(super) lost: Redelivery,
    pub(super) due: Redelivery,
    pub(super) recent: Recent,
}

pub(super) type Turn = Result<Option<Reading>, ReadError>;

/// A turn that is being read, and what goes on after it.
pub(super) type Running = Pin<Box<dyn Future<Output = (Option<Readings>, Turn)> + Send>>;

/// What a read brought.
pub(super) enum Read {
    Letters(Turn),
    Lost(Turn),
    Due(Turn),
}

impl Reads {
    pub(super) fn new(shadow: ShadowReaders, topic_id: Option<TopicId>, recent: Recent) -> Self {
        let (lost, due) = (Redelivery::default(), Redelivery::default());
        Self { shadow, topic_id, letters: None, window: BTreeMap::new(), lost, due, recent }
    }

    /// The next answer; never, while nothing is asked.
    pub(super) async fn next(&mut self) -> Read {
        tokio::select! {
            read = next(&mut self.letters) => Read::Letters(read),
            read = self.lost.next() => Read::Lost(read),
            read = self.due.next() => Read::Due(read),
        }
    }
}

/// The next turn of what is being read, or its end. After an error the same is asked again. Dropped midway, the turn goes
/// on at the next call: it must not begin anew with each event of a busy lane.
pub(super) async fn next(running: &mut Option<Running>) -> Turn {
    match running {
        Some(future) => {
            let (readings, turn) = future.await;
            *running = readings.filter(|_| !matches!(turn, Ok(None))).map(turn_of);
            turn
        }
        None => std::future::pending().await,
    }
}

fn turn_of(mut readings: Readings) -> Running {
    Box::pin(async move {
        let turn = readings.next().await;
        (Some(readings), turn)
    })
}

impl Lane {
    /// `None` if nothing is wanted. Only the first of it are asked for, where some are kept in memory and some are not.
    pub(super) fn read_again(&self, mut offsets: Vec<Offset>) -> Option<Running> {
        let reads = &self.reads;
        if let Some(reading) = reads.recent.read(&offsets) {
            self.shared.tally.add(|tally| tally.recent += reading.found.len() as u64);
            return Some(Box::pin(std::future::ready((None, Ok(Some(reading))))));
        }
        offsets.truncate(reads.recent.missing(&offsets));
        let identity = Identity { topic_id: reads.topic_id, leader_epochs: self.ledger.leader_epochs().clone() };
        Want::new(self.source.clone(), Arc::new(identity), offsets).map(|want| turn_of(reads.shadow.read(want)))
    }

    /// Asks for what is needed next.
    pub(super) fn begin_reads(&mut self) {
        if self.is_backing_off() {
            return;
        }
        if self.reads.letters.is_none() && self.shared.destinations.producer.has_room_for(TURN_BYTES) {
            self.reads.window.extend(self.backlog.take(WINDOW));
            let offsets = self.reads.window.keys().copied().collect();
            self.reads.letters = self.read_again(offsets);
        }
        self.begin_redelivery();
    }

    /// When to see again whether the producer has room for what is to be read.
    pub(super) fn room_wakes(&self) -> Option<Instant> {
        let waits = self.reads.letters.is_none() && self.owes_letters() && !self.is_backing_off();
        waits.then(|| Instant::now() + LOOK_FOR_ROOM)
    }

    /// What has waited for the producer for too long is forgotten but for its offset, and read again: others need the
    /// memory that it takes.
    pub(super) fn let_go_of_what_waits(&mut self) {
        if self.outbox.waits_until().is_none_or(|until| until > Instant::now()) {
            return;
        }
        self.drop_redelivery();
        let letters = self.outbox.take_payloads();
        if letters.is_empty() {
            return;
        }
        debug!(partition = %self.source, count = letters.len(), "The producer is full: dead letters are read again later");
        for letter in letters {
            self.backlog.put_back(letter.offset, letter.rejection);
        }
    }

    /// Whether the next turn of a read can be used.
    pub(super) fn may_read(&self) -> bool {
        self.outbox.len() < WAITING && !self.is_backing_off()
    }

    /// Whether anything is to be read as soon as possible.
    pub(super) fn owes_reads(&self) -> bool {
        let again = !self.ledger.lost().is_empty() || self.ledger.retrying_count() > 0;
        again || self.owes_letters()
    }

    fn owes_letters(&self) -> bool {
        !self.backlog.is_empty() || !self.reads.window.is_empty()
    }

    pub(super) fn have_read(&mut self, read: Read) {
        match read {
            Read::Letters(turn) => {
                if let Some(reading) = self.have_turn(turn) {
                    self.have_letters(reading);
                }
            }
            Read::Lost(turn) => self.have_reread(turn, |lane| &mut lane.reads.lost),
            Read::Due(turn) => self.have_reread(turn, |lane| &mut lane.reads.due),
        }
    }

    pub(super) fn have_turn(&mut self, turn: Turn) -> Option<Reading> {
        turn.unwrap_or_else(|error| {
            warn!(partition = %self.source, %error, "A shadow read failed and is tried again; the commit waits");
            self.back_off();
            None
        })
    }

    fn have_letters(&mut self, reading: Reading) {
        let rest = self.reads.window.split_off(&reading.through);
        let mut answered = std::mem::replace(&mut self.reads.window, rest);
        answered.extend(self.reads.window.remove_entry(&reading.through));
        for (offset, missing) in reading.missing {
            if let Some(rejection) = answered.remove(&offset) {
                self.payload_is_gone(offset, rejection, missing);
            }
        }
        let found = InHand { batch: Arc::new(reading.found), share: reading.share };
        for (offset, rejection) in answered {
            self.push_letter(offset, rejection, Body::Full(found.clone()));
        }
    }

    pub(super) fn payload_is_gone(&mut self, offset: Offset, rejection: Arc<Rejection>, missing: Missing) {
        error!(partition = %self.source, %offset, code = rejection.code, status = missing.status(), "The payload of a message is gone");
        match self.shared.pipeline.on_gone {
            OnGone::Stub => self.push_stub(offset, rejection, Stub::Missing(missing)),
            OnGone::Accept => {
                self.letter_is_settled(offset);
                self.shared.tally.add(|tally| tally.gone += 1);
            }
        }
    }

    /// After a failed read or delivery nothing is read or sent for a moment.
    pub(super) fn back_off(&mut self) {
        self.back_off_until = Some(Instant::now() + BACK_OFF);
    }

    pub(super) fn is_backing_off(&self) -> bool {
        self.back_off_until.is_some_and(|until| Instant::now() < until)
    }
}
