//! Messages that are read again: rejected ones on their way to the dead letters, and what a lost instance had open.

use std::{collections::BTreeMap, future::Future, pin::Pin, sync::Arc, time::Instant};

use tracing::{error, warn};

use super::{
    BACK_OFF, Lane,
    outbox::{Body, Letter},
};
use crate::{
    config::OnGone,
    kafka::{
        ShadowReaders,
        shadow::{Identity, ReadError, Reading, Readings, Want},
        source::InHand,
        topic_ids::TopicId,
    },
    ledger::Ledger,
    message::TopicPartition,
    offset::{Offset, OffsetSet},
    record::{Missing, Stub},
    verdict::Rejection,
};

/// Rejected messages that are asked for at once.
const WINDOW: usize = 4096;

/// No turn is taken while more records than this wait in the outbox. (A reader is at most two turns ahead.)
const WAITING: usize = 1000;

/// The code of a deferred message that cannot be delivered again because its payload is gone.
const PAYLOAD_GONE: &str = "payload-gone";

/// What a lane reads again.
pub(super) struct Reads {
    shadow: ShadowReaders,
    source: TopicPartition,
    topic_id: Option<TopicId>,
    letters: Option<Running>,
    /// What `letters` has not answered yet.
    window: BTreeMap<Offset, Arc<Rejection>>,
    lost: Option<Running>,
    redelivery: Option<InHand>,
}

type Turn = Result<Option<Reading>, ReadError>;

/// A turn that is being read.
type Running = Pin<Box<dyn Future<Output = (Readings, Turn)> + Send>>;

/// What a read brought.
pub(super) enum Read {
    Letters(Turn),
    Lost(Turn),
}

impl Reads {
    pub(super) fn new(shadow: ShadowReaders, source: TopicPartition, topic_id: Option<TopicId>) -> Self {
        Self { shadow, source, topic_id, letters: None, window: BTreeMap::new(), lost: None, redelivery: None }
    }

    /// The next answer; never, while nothing is asked.
    pub(super) async fn next(&mut self) -> Read {
        tokio::select! {
            read = next(&mut self.letters) => Read::Letters(read),
            read = next(&mut self.lost) => Read::Lost(read),
        }
    }

    /// The batch to be delivered again, if it has been read.
    pub(super) fn take_redelivery(&mut self) -> Option<InHand> {
        self.redelivery.take()
    }

    /// Nothing is to be delivered again.
    pub(super) fn drop_lost(&mut self) {
        self.lost = None;
        self.redelivery = None;
    }

    /// `None` if nothing is wanted.
    fn read(&self, offsets: Vec<Offset>, ledger: &Ledger) -> Option<Running> {
        let identity = Identity { topic_id: self.topic_id, leader_epochs: ledger.leader_epochs().clone() };
        Want::new(self.source.clone(), Arc::new(identity), offsets).map(|want| turn_of(self.shadow.read(want)))
    }
}

/// The next turn of what is being read, or its end. After an error the same is asked again. Dropped midway, the turn goes
/// on at the next call: it must not begin anew with each event of a busy lane.
async fn next(running: &mut Option<Running>) -> Turn {
    match running {
        Some(future) => {
            let (readings, turn) = future.await;
            *running = (!matches!(turn, Ok(None))).then(|| turn_of(readings));
            turn
        }
        None => std::future::pending().await,
    }
}

fn turn_of(mut readings: Readings) -> Running {
    Box::pin(async move {
        let turn = readings.next().await;
        (readings, turn)
    })
}

impl Lane {
    /// Asks for what is needed next.
    pub(super) fn begin_reads(&mut self) {
        if self.is_backing_off() {
            return;
        }
        if self.reads.letters.is_none() {
            self.reads.window.extend(self.backlog.take(WINDOW));
            let offsets = self.reads.window.keys().copied().collect();
            self.reads.letters = self.reads.read(offsets, &self.ledger);
        }
        let idle = self.reads.lost.is_none() && self.reads.redelivery.is_none() && self.calling.is_none();
        if idle && !self.halted && !self.is_revoked() {
            let offsets: Vec<_> = self.to_redeliver().iter().take(self.shared.pipeline.batch.messages).collect();
            if !offsets.is_empty() {
                self.reads.lost = self.reads.read(offsets, &self.ledger);
            }
        }
    }

    /// What a lost instance had open, besides the batch in hand at which it failed.
    pub(super) fn to_redeliver(&self) -> OffsetSet {
        let mut lost = self.ledger.lost().clone();
        if let Some(in_hand) = self.again.as_ref().and_then(|due| due.work.in_hand()) {
            lost.subtract(&in_hand.batch.iter().map(|message| message.offset).collect());
        }
        lost
    }

    /// Whether the next turn of a read can be used.
    pub(super) fn may_read(&self) -> bool {
        self.outbox.len() < WAITING && !self.is_backing_off() && self.reads.redelivery.is_none()
    }

    /// Whether rejected messages wait to be read.
    pub(super) fn owes_reads(&self) -> bool {
        !self.backlog.is_empty() || !self.reads.window.is_empty() || !self.ledger.lost().is_empty()
    }

    pub(super) fn have_read(&mut self, read: Read) {
        match read {
            Read::Letters(Ok(Some(reading))) => self.have_letters(reading),
            Read::Lost(Ok(Some(reading))) => self.have_lost(reading),
            Read::Letters(Ok(None)) | Read::Lost(Ok(None)) => {}
            Read::Letters(Err(error)) | Read::Lost(Err(error)) => {
                warn!(partition = %self.source, %error, "A shadow read failed and is tried again; the commit waits");
                self.back_off();
            }
        }
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
        let found = InHand { batch: Arc::new(reading.found), share: None };
        for (offset, rejection) in answered {
            self.outbox.push_letter(Letter { offset, rejection, body: Body::Full(found.clone()) });
        }
    }

    fn have_lost(&mut self, reading: Reading) {
        for (offset, missing) in reading.missing {
            if !self.ledger.give_up(offset) {
                continue; // the host rejected it meanwhile
            }
            self.shared.tally.add(|tally| tally.reject(PAYLOAD_GONE, 1));
            let reason = format!("open when its instance was lost, and cannot be read again: {}", missing.status());
            let rejection = Rejection { route: None, code: PAYLOAD_GONE.to_owned(), reason };
            self.payload_is_gone(offset, Arc::new(rejection), missing);
        }
        if !reading.found.is_empty() {
            self.reads.redelivery = Some(InHand { batch: Arc::new(reading.found), share: None });
        }
    }

    fn payload_is_gone(&mut self, offset: Offset, rejection: Arc<Rejection>, missing: Missing) {
        error!(partition = %self.source, %offset, code = rejection.code, status = missing.status(), "The payload of a message is gone");
        match self.shared.pipeline.on_gone {
            OnGone::Stub => self.push_stub(offset, rejection, Stub::Missing(missing)),
            OnGone::Accept => {
                self.ledger.letter_acked(offset);
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
