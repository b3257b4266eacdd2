//! What happens with time: the settle tick, the limits on open offsets, and everything else that has a deadline.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tracing::{info, warn};

use super::{BACK_OFF, Lane};
use crate::{config::OpenThen, offset::OffsetSet, verdict::Rejection};

/// The code of a deferred message that the guest did not settle within the limits.
const DEFERRAL_EXPIRED: &str = "deferral-expired";

/// An instance that a lane has not used for this long, with nothing open, is dropped.
const IDLE: Duration = Duration::from_mins(1);

/// A limit on open offsets is reached.
pub(super) struct Pressure {
    until: Instant,
    told: bool,
}

impl Pressure {
    /// Whether the guest has still to be told; `true` once.
    pub(super) fn is_news(&mut self) -> bool {
        !std::mem::replace(&mut self.told, true)
    }
}

impl Lane {
    /// The next time at which something may be due.
    pub(super) fn wake(&self) -> Instant {
        let now = Instant::now();
        let settle = self.settle_at.filter(|_| self.may_settle() && !self.nothing_comes());
        let grace = self.pressure.as_ref().map(|pressure| pressure.until);
        let grace = grace.filter(|_| !self.halted && self.calling.is_none() && self.case.is_none());
        let back_off =
            self.back_off_until.filter(|until| now < *until && (self.owes_reads() || !self.outbox.is_empty()));
        let idle = self.instance.as_ref().map(|_| self.last_call + IDLE).filter(|_| !self.ledger.has_open());
        let due = [settle, grace, back_off, idle, self.retry_wakes()].into_iter().flatten();
        let due = due.chain([self.room_wakes(), self.outbox.waits_until()].into_iter().flatten());
        let due = due.chain(self.hold_wakes()).chain(self.ending_wakes()).min();
        // Limits by age are looked at once a second while offsets are open; nothing else is due without an event.
        let watch = if self.ledger.open_count() > 0 { Duration::from_secs(1) } else { IDLE };
        due.unwrap_or(now + watch).min(now + watch)
    }

    pub(super) fn look_at_the_clock(&mut self) {
        self.cut_call();
        self.watch_hold();
        self.watch_limits();
        self.let_go_of_what_waits();
        let idle = !self.ledger.has_open() && self.last_call.elapsed() >= IDLE;
        if idle {
            self.instance = None;
        }
    }

    /// Plans the next settle tick, and looks whether the open offsets are within their limits.
    pub(super) fn watch_limits(&mut self) {
        let now = Instant::now();
        let open = self.ledger.open_count();
        if open == 0 {
            self.settle_at = None;
            self.pressure = None;
            self.retention.forget();
            return;
        }
        self.settle_at.get_or_insert(now + self.shared.pipeline.settle);
        // A running call may be judging what would be expired, and what is isolated was never judged.
        if self.halted || self.calling.is_some() || self.case.is_some() {
            return;
        }
        let limits = self.shared.pipeline.open;
        let age = self.ledger.oldest_age(self.now()).unwrap_or_default();
        if open < limits.messages && age < limits.age {
            if self.pressure.take().is_some() {
                info!(partition = %self.source, open, "Open offsets are within their limits again");
            }
        } else if let Some(pressure) = &self.pressure {
            if now >= pressure.until {
                self.expire();
            }
        } else {
            warn!(
                partition = %self.source, open, oldest = ?age, limit = limits.messages, age_limit = ?limits.age, grace = ?limits.grace,
                "Open offsets are at their limit: nothing new is judged until the guest settles some"
            );
            self.pressure = Some(Pressure { until: now + limits.grace, told: false });
        }
    }

    /// The grace is over.
    fn expire(&mut self) {
        let limits = self.shared.pipeline.open;
        if self.ledger.oldest().is_none() {
            // Attempts bound what is retried, and what is held is the guest's own wish.
            let until = Instant::now() + limits.grace.max(BACK_OFF);
            self.pressure = Some(Pressure { until, told: true });
            return;
        }
        if limits.then == OpenThen::Pause {
            self.halt("the guest did not settle the open offsets within the grace, and `open.then` is \"pause\"");
            return;
        }
        let room = self.shared.pipeline.batch.messages as u64;
        let expired = self.ledger.overdue(self.now(), limits.age, limits.messages.saturating_sub(room));
        if !self.routes_admit(&OffsetSet::new(), &expired.iter().map(|offset| (offset, None))) {
            return;
        }
        self.ledger.expire(&expired);
        self.pressure = None;
        warn!(partition = %self.source, offsets = expired.len(), "Rejected with {DEFERRAL_EXPIRED}: the guest did not settle them");
        self.shared.tally.add(|tally| tally.reject(DEFERRAL_EXPIRED, expired.len()));
        let rejection = Rejection {
            route: None,
            code: DEFERRAL_EXPIRED.to_owned(),
            reason: format!(
                "open for more than {} or among more than {} messages",
                humantime::format_duration(limits.age),
                limits.messages
            ),
        };
        self.backlog.add(expired, Arc::new(rejection));
    }
}
