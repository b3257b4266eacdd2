//! What is handed to the guest again: what is lost, and retries that are due.

use std::{sync::Arc, time::Instant};

use super::{
    Lane,
    reads::{Running, Turn, next},
    work::take_within,
};
use crate::{kafka::source::InHand, offset::OffsetSet, verdict::Rejection};

/// The code of a message that cannot be delivered again because its payload is gone.
const PAYLOAD_GONE: &str = "payload-gone";

/// Offsets that are read to be handed out again, a batch at a time.
#[derive(Default)]
pub(super) struct Redelivery {
    reading: Option<Running>,
    ready: Option<InHand>,
}

impl Redelivery {
    /// The next answer; never, while nothing is asked, or while what was read before is not handed out.
    pub(super) async fn next(&mut self) -> Turn {
        if self.ready.is_some() {
            return std::future::pending().await;
        }
        next(&mut self.reading).await
    }

    /// Drops what was read and is being read.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    fn is_idle(&self) -> bool {
        self.reading.is_none() && self.ready.is_none()
    }
}

impl Lane {
    /// Asks for what is to be handed out again.
    pub(super) fn begin_redelivery(&mut self) {
        // What cannot be handed out before the outbox is empty would only take a turn from others.
        if self.halted || self.is_closed() || self.is_holding() || !self.outbox.is_empty() {
            return;
        }
        let most = self.batch_limits().messages;
        if self.calling.is_none() && self.reads.lost.is_idle() {
            let offsets = self.to_redeliver().iter().take(most).collect();
            self.reads.lost.reading = self.read_again(offsets);
        }
        // At the end of the process nothing is retried any more: whoever is next begins with it.
        if self.reads.due.is_idle() && self.ending.is_none() {
            let (due, next) = self.ledger.due_retries(self.born.elapsed());
            let offsets = due.iter().take(most).collect();
            self.retry_at = next.map(|next| self.born + next);
            self.reads.due.reading = self.read_again(offsets);
        }
    }

    /// What is lost, without what is being isolated.
    pub(super) fn to_redeliver(&self) -> OffsetSet {
        let mut lost = self.ledger.lost().clone();
        if let Some(case) = &self.case {
            lost.subtract(&case.apart());
        }
        lost
    }

    /// The next batch of what is lost, once it is read.
    pub(super) fn take_lost(&mut self) -> Option<InHand> {
        let limits = self.batch_limits();
        take_within(&mut self.reads.lost.ready, limits)
    }

    /// The next batch of what is due for a retry, once it is read.
    pub(super) fn take_retry(&mut self) -> Option<InHand> {
        let limits = self.batch_limits();
        take_within(&mut self.reads.due.ready, limits).filter(|_| self.ending.is_none())
    }

    /// Nothing is handed out again.
    pub(super) fn drop_redelivery(&mut self) {
        self.reads.lost.clear();
        self.reads.due.clear();
        self.retry_at = None;
    }

    /// When the next retry will be due.
    pub(super) fn retry_wakes(&self) -> Option<Instant> {
        let now = Instant::now();
        self.retry_at.filter(|at| *at > now && !self.halted && self.ending.is_none())
    }

    pub(super) fn have_reread(&mut self, turn: Turn, which: impl FnOnce(&mut Self) -> &mut Redelivery) {
        let Some(reading) = self.have_turn(turn) else { return };
        for (offset, missing) in reading.missing {
            if !self.ledger.give_up(offset) {
                continue; // the host rejected it meanwhile
            }
            self.shared.tally.add(|tally| tally.reject(PAYLOAD_GONE, 1));
            let reason = format!("to be delivered again, and it cannot be read: {}", missing.status());
            let rejection = Rejection { route: None, code: PAYLOAD_GONE.to_owned(), reason };
            self.payload_is_gone(offset, Arc::new(rejection), missing);
        }
        if !reading.found.is_empty() {
            let found = reading.found.at_attempts(|offset| self.ledger.attempt(offset));
            which(self).ready = Some(InHand { batch: Arc::new(found), share: reading.share });
        }
    }
}
