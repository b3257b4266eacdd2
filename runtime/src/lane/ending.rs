//! How a lane ends.

use std::{
    convert::Infallible,
    sync::mpsc as std_mpsc,
    time::{Duration, Instant},
};

use tracing::warn;

use super::Lane;
use crate::kafka::source::Order;

/// On a revocation, the running call gets this long before it is cut, and then `settle(last)` as long again.
const CALL_ON_REVOKE: Duration = Duration::from_millis(500);

/// Why a lane ended.
#[derive(Debug)]
pub(super) enum Ended {
    /// Nothing is left to do.
    Done,
    /// The deadline came first; what is not settled is not committed.
    OutOfTime,
    /// The partition is another member's already.
    Lost,
    /// Nobody is there to give orders.
    Abandoned,
}

/// An order that is being carried out.
pub(super) struct Ending {
    /// Held until the lane ends.
    _done: std_mpsc::Sender<Infallible>,
    by: Instant,
    /// By when the running call is cut, on a revocation.
    cut_at: Option<Instant>,
    /// Nothing new is judged.
    closed: bool,
    lost: bool,
    told_last: bool,
}

impl Ending {
    /// `settle(last)` failed, and is to be called once more.
    pub(super) fn tell_last_again(&mut self) {
        self.told_last = false;
    }

    /// Whether `settle(last)` is due; `true` once.
    pub(super) fn tell_last(&mut self) -> bool {
        let due = !std::mem::replace(&mut self.told_last, true);
        if due {
            self.cut_at = self.cut_at.map(|_| Instant::now() + CALL_ON_REVOKE);
        }
        due
    }
}

impl Lane {
    pub(super) fn obey(&mut self, order: Order) {
        let (ending, revoked, lost) = match order {
            Order::Drain(ending) => (ending, false, false),
            Order::Revoke(ending) => (ending, true, false),
            Order::Lost(ending) => (ending, true, true),
            Order::Asked(ask) => return self.asked(ask),
        };
        self.ending = Some(Ending {
            _done: ending.done,
            by: ending.by,
            cut_at: revoked.then(|| Instant::now() + CALL_ON_REVOKE),
            closed: false,
            lost,
            told_last: self.ending.as_ref().is_some_and(|ending| ending.told_last),
        });
        if revoked || self.is_holding() {
            self.close();
        }
    }

    /// Nothing new is judged, and nothing is handed out again.
    pub(super) fn close(&mut self) {
        self.inbox.close();
        self.inbox_is_open = false;
        self.next = None;
        self.case = None;
        self.drop_redelivery();
        if let Some(ending) = &mut self.ending {
            ending.closed = true;
        }
    }

    /// Whether nothing new is judged, because the partition is being taken away, or the guest holds at the end.
    pub(super) fn is_closed(&self) -> bool {
        self.ending.as_ref().is_some_and(|ending| ending.closed)
    }

    /// Whether the process stops, or the partition goes, and no more messages come.
    pub(super) fn nothing_comes(&self) -> bool {
        self.ending.is_some() && !self.inbox_is_open && self.next.is_none()
    }

    /// Why it is over, if it is.
    pub(super) fn ended(&self) -> Option<Ended> {
        let ending = self.ending.as_ref()?;
        if ending.lost {
            return Some(Ended::Lost);
        }
        if Instant::now() >= ending.by {
            return Some(Ended::OutOfTime);
        }
        let judging = self.calling.is_some() || self.next.is_some() || self.case.is_some() || self.inbox_is_open;
        let redelivering = !self.is_closed() && !self.ledger.lost().is_empty();
        let letters = self.ledger.letters().len() > self.reputation.suspects() as u64;
        let owing = letters || self.ledger.emitting_count() > 0 && !self.emit_refused;
        let settling = !self.halted && self.owes_last(ending);
        (!owing && !settling && (self.halted || !judging && !redelivering)).then_some(Ended::Done)
    }

    fn owes_last(&self, ending: &Ending) -> bool {
        !ending.told_last && self.shared.instances.are_owned() && self.ledger.has_open()
    }

    /// When the ending has to be looked at again.
    pub(super) fn ending_wakes(&self) -> impl Iterator<Item = Instant> {
        let ending = self.ending.as_ref();
        let cut = ending.and_then(|ending| ending.cut_at).filter(|_| self.calling.is_some());
        ending.map(|ending| ending.by).into_iter().chain(cut)
    }

    /// Cuts a call that runs for too long while the partition is being taken away: its instance goes with it, and
    /// nothing that it did counts.
    pub(super) fn cut_call(&mut self) {
        let due = self.ending.as_ref().and_then(|ending| ending.cut_at).is_some_and(|at| at <= Instant::now());
        if due && let Some(calling) = self.calling.take() {
            warn!(partition = %self.source, call = calling.due.work.describe(), "Cut the call: the partition is revoked");
            self.ledger.lose_instance();
            if let Some(ending) = &mut self.ending {
                ending.told_last = true;
            }
        }
    }
}
