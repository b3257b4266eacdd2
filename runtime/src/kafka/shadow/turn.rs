//! One turn of a request: what comes from the client becomes answers.

use std::{
    thread,
    time::{Duration, Instant},
};

use rdkafka::{error::KafkaResult, message::BorrowedMessage};

use super::{
    Missing, Reading, TURN_BYTES, Want,
    answers::Answers,
    cursor::{Cursor, Event, Pause},
    threshold::Stretch,
};
use crate::{
    kafka::{copy, raw},
    message::TopicPartition,
    offset::{NextOffset, Offset},
};

/// What a positioning is charged, in bytes: about what could be read in the same time, so that a turn of scattered
/// offsets is over as soon as one of consecutive ones.
const POSITIONING_BYTES: usize = 128 << 10;
/// What a message is charged on top of its bytes.
const MESSAGE_BYTES: usize = 64;
/// How long a poll waits before it is looked up whether the caller has gone.
const POLL: Duration = Duration::from_millis(20);
/// After how long without a message the partition is assigned anew.
const STALLED: Duration = Duration::from_secs(2);
/// Positionings that may fail in one turn.
const MISPLACED: u32 = 4;

/// A turn in progress.
pub(super) struct Turn<'w> {
    source: &'w TopicPartition,
    answers: Answers<'w>,
    spent: usize,
    misplaced: u32,
    /// The broker that served the messages.
    broker: Option<i32>,
    /// The end of the log as the leader said before the client was last positioned, once the end was met.
    end: Option<NextOffset>,
    /// Since when nothing comes.
    quiet: Option<Instant>,
}

/// Why reading a run stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// It is answered, or the turn's bytes are spent.
    Done,
    /// The client must be positioned anew.
    Misplaced,
    /// Nothing comes, and someone is waiting or the caller has gone.
    Stalled,
}

/// What reading a run brought, for the measurements.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Measured {
    /// From the positioning to the first message, if it came at once.
    pub(super) positioning: Option<Duration>,
    /// Messages that were read through.
    pub(super) unwanted: u64,
    pub(super) stretch: Stretch,
}

impl<'w> Turn<'w> {
    /// `rest` is what is left of the want.
    pub(super) fn new(want: &'w Want, rest: &'w [Offset]) -> Self {
        let answers = Answers::new(want, rest);
        Self { source: &want.source, answers, spent: 0, misplaced: 0, broker: None, end: None, quiet: None }
    }

    /// The offsets that are to be read in this turn: none once its bytes are spent, but not before there is an answer.
    pub(super) fn rest(&self) -> &'w [Offset] {
        if self.is_spent() || self.misplaced >= MISPLACED { &[] } else { self.answers.rest() }
    }

    /// The answers and the broker that served them, if there are any.
    pub(super) fn finish(self) -> Option<(Reading, Option<i32>)> {
        Some((self.answers.finish()?, self.broker))
    }

    /// Makes the client stand at an offset.
    pub(super) fn place(&mut self, cursor: &mut Cursor, offset: Offset) -> KafkaResult<()> {
        self.spent += POSITIONING_BYTES;
        cursor.place(self.source, offset)
    }

    /// Reads from where the client stands until all up to `last` is answered or the turn's bytes are spent. `placed` is
    /// when it was positioned for this; `give_up` says whether a silence has lasted too long.
    pub(super) fn read(
        &mut self,
        cursor: &mut Cursor,
        last: Offset,
        placed: Option<Instant>,
        give_up: &mut dyn FnMut(Duration) -> bool,
    ) -> (Stop, Measured) {
        let mut measured = Measured::default();
        let mut first = None;
        let mut reached = None;
        let mut smooth = true;
        let stop = loop {
            if self.answers.next().is_none_or(|next| next > last) || self.is_spent() {
                break Stop::Done;
            }
            let pause = match cursor.next(POLL) {
                Event::Message(offset, message) => {
                    if first.is_none() {
                        let now = Instant::now();
                        measured.positioning = placed.filter(|_| smooth).map(|placed| now - placed);
                        first = Some((offset, now));
                    }
                    reached = Some(offset);
                    measured.unwanted += u64::from(!self.take(offset, &message));
                    measured.stretch.bytes += message.payload_len() + message.key_len();
                    continue;
                }
                Event::Pause(pause) => pause,
            };
            smooth = false;
            if let Some(stop) = self.pause(pause, cursor, give_up) {
                break stop;
            }
        };
        if let (Some((first, since)), Some(reached)) = (first, reached) {
            measured.stretch.offsets = first.get().abs_diff(reached.get()) + 1;
            measured.stretch.took = smooth.then(|| since.elapsed());
        }
        (stop, measured)
    }

    fn is_spent(&self) -> bool {
        self.spent >= TURN_BYTES && !self.answers.is_empty()
    }

    /// Whether it was wanted.
    fn take(&mut self, offset: Offset, message: &BorrowedMessage<'_>) -> bool {
        self.quiet = None;
        self.end = None;
        self.broker = raw::serving_broker(message);
        self.spent += message.payload_len() + message.key_len() + MESSAGE_BYTES;
        let leader_epoch = raw::leader_epoch(message);
        let Some(batch) = self.answers.arrived(offset, leader_epoch) else { return false };
        copy::push(batch, offset, message);
        true
    }

    /// What to do when there is no message: wait on (`None`), or stop.
    fn pause(&mut self, pause: Pause, cursor: &mut Cursor, give_up: &mut dyn FnMut(Duration) -> bool) -> Option<Stop> {
        let misplaced = match pause {
            Pause::Nothing => false,
            Pause::News(error) => {
                tracing::debug!("while reading {}: {error}", self.source);
                false
            }
            Pause::End => {
                self.at_end(cursor);
                true
            }
            Pause::OutOfRange => {
                self.out_of_range(cursor);
                true
            }
        };
        let quiet = self.quiet.get_or_insert_with(Instant::now).elapsed();
        if give_up(quiet) {
            cursor.mistrust();
            return Some(Stop::Stalled);
        }
        if misplaced || quiet >= STALLED {
            cursor.mistrust();
            self.misplaced += 1;
            return Some(Stop::Misplaced);
        }
        None
    }

    /// The end of the log was met before what is wanted. Believed only when met again after the leader named an end that
    /// lies behind what is wanted: right after an election, the end may lie lower than it did, for a moment.
    fn at_end(&mut self, cursor: &Cursor) {
        if let Some(end) = self.end.take() {
            self.answers.miss_below(end, Missing::Absent);
            return;
        }
        let Some((_, high)) = self.watermarks(cursor) else { return };
        match self.answers.next() {
            Some(wanted) if high <= wanted.into() => self.truncated(wanted, high),
            _ => self.end = Some(high),
        }
    }

    /// The position was not in the log; or an earlier position was not, whose error came late.
    fn out_of_range(&mut self, cursor: &Cursor) {
        let Some((low, high)) = self.watermarks(cursor) else { return };
        self.answers.miss_below(low, Missing::Expired);
        match self.answers.next() {
            Some(wanted) if high <= wanted.into() => self.truncated(wanted, high),
            _ => {}
        }
    }

    /// Something that was delivered lies behind the end of the log: an unclean election, or another topic of that name.
    fn truncated(&mut self, wanted: Offset, high: NextOffset) {
        tracing::warn!("{}@{wanted} was delivered, but the log now ends at {high}", self.source);
        self.answers.miss_rest(Missing::Absent);
    }

    fn watermarks(&self, cursor: &Cursor) -> Option<(NextOffset, NextOffset)> {
        match cursor.watermarks(self.source) {
            Ok((low, high)) => NextOffset::new(low).zip(NextOffset::new(high)),
            Err(error) => {
                tracing::debug!("cannot ask for the watermarks of {}: {error}", self.source);
                // It may have failed at once, and will be asked again at once.
                thread::sleep(POLL);
                None
            }
        }
    }
}
