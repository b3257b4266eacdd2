//! A guest that asked to hold: nothing is handed to it for a while, and then everything in order.

use std::time::{Duration, Instant};

use tracing::{info, warn};

use super::{Lane, outbox::now_millis, tally::Held};
use crate::ledger::Hold;

/// A hold that lasts for this long is an alarm; and so again each time that much more has passed.
const ALARM: Duration = Duration::from_secs(10);
const ALARM_AGAIN: Duration = Duration::from_mins(1);

/// From the first answer that held to the first that did not.
pub(super) struct Holding {
    /// Nothing is handed out until then.
    until: Instant,
    since: Instant,
    alarm_at: Instant,
    last: Hold,
}

impl Lane {
    /// Whether nothing may be handed to the guest.
    pub(super) fn is_holding(&self) -> bool {
        self.holding.as_ref().is_some_and(|holding| Instant::now() < holding.until)
    }

    /// When a hold has to be looked at again.
    pub(super) fn hold_wakes(&self) -> impl Iterator<Item = Instant> {
        let now = Instant::now();
        let holding = self.holding.as_ref().filter(|_| !self.halted);
        let times = holding.map(|holding| [holding.until, holding.alarm_at]);
        times.into_iter().flatten().filter(move |at| *at > now)
    }

    pub(super) fn hold(&mut self, hold: Hold) {
        let now = Instant::now();
        let Hold { from, backoff } = &hold;
        let until = now + backoff.delay;
        if let Some(holding) = &mut self.holding {
            (holding.until, holding.last) = (until, hold);
        } else {
            info!(partition = %self.source, offset = %from, code = backoff.code, "The guest holds: nothing from here on is handed to it until its delay is over: {}", backoff.reason);
            let told = Held {
                offset: from.get(),
                code: backoff.code.clone(),
                reason: backoff.reason.clone(),
                since: now_millis(),
            };
            self.shared.tally.add(|tally| _ = tally.holding.insert(self.source.clone(), told));
            self.holding = Some(Holding { until, since: now, alarm_at: now + ALARM, last: hold });
        }
        if self.ending.is_some() {
            // Whoever has the partition next goes on from here.
            self.close();
        }
    }

    /// The guest judged what it was handed.
    pub(super) fn hold_is_over(&mut self) {
        if let Some(holding) = self.holding.take() {
            self.forget_hold();
            info!(partition = %self.source, after = ?holding.since.elapsed(), "The guest holds no longer");
        }
    }

    /// Nobody is told of a hold any more.
    pub(super) fn forget_hold(&self) {
        self.shared.tally.add(|tally| _ = tally.holding.remove(&self.source));
    }

    pub(super) fn watch_hold(&mut self) {
        let now = Instant::now();
        if let Some(holding) = self.holding.as_mut().filter(|holding| now >= holding.alarm_at)
            && !self.halted
        {
            let Hold { from, backoff } = &holding.last;
            warn!(partition = %self.source, offset = %from, code = backoff.code, since = ?holding.since.elapsed(), "The guest still holds, and the partition waits: {}", backoff.reason);
            holding.alarm_at = now + ALARM_AGAIN;
        }
    }
}
