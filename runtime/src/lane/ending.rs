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
    lost: bool,
    told_last: bool,
}

impl Ending {
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
        if revoked {
            self.inbox.close();
            self.inbox_is_open = false;
            self.next = None;
            self.again = None;
            self.reads.drop_lost();
        }
        self.ending = Some(Ending {
            _done: ending.done,
            by: ending.by,
            cut_at: revoked.then(|| Instant::now() + CALL_ON_REVOKE),
            lost,
            told_last: self.ending.as_ref().is_some_and(|ending| ending.told_last),
        });
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
        let judging = self.calling.is_some() || self.next.is_some() || self.again.is_some() || self.inbox_is_open;
        let redelivering = !self.is_revoked() && !self.ledger.lost().is_empty();
        let owing = !self.ledger.letters().is_empty() || self.ledger.held_count() > 0 && !self.emit_refused;
        let settling = !self.halted && self.owes_last(ending);
        (!owing && !settling && (self.halted || !judging && !redelivering)).then_some(Ended::Done)
    }

    fn owes_last(&self, ending: &Ending) -> bool {
        let lost_for_good = self.is_revoked() && !self.ledger.lost().is_empty();
        !ending.told_last && !lost_for_good && self.shared.instances.are_owned() && self.ledger.open_count() > 0
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
            self.again = None;
            if let Some(ending) = &mut self.ending {
                ending.told_last = true;
            }
        }
    }

    /// Whether the partition is being taken away, so that nothing new is judged.
    pub(super) fn is_revoked(&self) -> bool {
        self.ending.as_ref().is_some_and(|ending| ending.cut_at.is_some())
    }
}
