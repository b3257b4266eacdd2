//! What an operator asks of a lane.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::mpsc;
use tracing::{error, warn};

use super::{Lane, route_limits::RouteLimits};
use crate::{
    kafka::source::{Order, Progress},
    message::TopicPartition,
    offset::Offset,
    operator::{Ask, LaneReport, Paused, PausedBy, Reason, Refusal},
    record::Stub,
    verdict::Rejection,
};

/// The code of a message that an operator skipped.
const SKIPPED: &str = "skipped";

/// The lanes of a pipeline, as long as each lives.
#[derive(Debug, Default)]
pub struct LaneBook(Mutex<BTreeMap<TopicPartition, Line>>);

/// A line to a lane. It does not keep the lane alive: a lane without a source gives up.
#[derive(Clone, Debug)]
pub struct Line {
    orders: mpsc::WeakUnboundedSender<Order>,
    /// What it has got to.
    pub progress: Arc<Progress>,
}

impl Line {
    /// Asks the lane something; one that is gone drops it.
    pub fn ask(&self, ask: Ask) {
        if let Some(orders) = self.orders.upgrade() {
            drop(orders.send(Order::Asked(ask)));
        }
    }
}

impl LaneBook {
    pub(super) fn add(&self, source: TopicPartition, orders: &mpsc::UnboundedSender<Order>, progress: &Arc<Progress>) {
        let line = Line { orders: orders.downgrade(), progress: Arc::clone(progress) };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(source, line);
    }

    /// The lanes that live.
    pub fn lines(&self) -> BTreeMap<TopicPartition, Line> {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.retain(|_, line| line.orders.upgrade().is_some_and(|orders| !orders.is_closed()));
        lines.clone()
    }
}

impl Lane {
    /// Whoever asked may have given up waiting for the answer.
    pub(super) fn asked(&mut self, ask: Ask) {
        match ask {
            Ask::Report(to) => drop(to.send(self.report())),
            Ask::Pause(reason, to) => drop(to.send(self.pause(&reason))),
            Ask::Resume(reason, to) => drop(to.send(self.resume(&reason))),
            Ask::Skip(offset, reason, to) => drop(to.send(self.skip(offset, &reason))),
        }
    }

    fn report(&self) -> LaneReport {
        let open = self.ledger.open_count();
        let in_hand = self.calling.as_ref().and_then(|calling| calling.due.work.in_hand());
        LaneReport {
            position: self.ledger.position(),
            open,
            deferred: open
                .saturating_sub(self.ledger.retrying_count())
                .saturating_sub(in_hand.map_or(0, |in_hand| in_hand.batch.len() as u64)),
            oldest_open: self.ledger.oldest_age(self.now()),
            unacknowledged: self.ledger.letters().len(),
            paused: self.paused.clone(),
        }
    }

    /// The host cannot go on: no more is asked of the guest until an operator says so, or the partition is assigned
    /// anew. What is settled is still committed.
    pub(super) fn halt(&mut self, why: &str) {
        if self.stop(Paused { by: PausedBy::Host, why: why.to_owned() }) {
            error!(partition = %self.source, committable = %self.ledger.committable(), "Paused: {why}");
        }
    }

    fn pause(&mut self, reason: &Reason) -> Result<(), Refusal> {
        if let Some(paused) = &self.paused {
            return Err(Refusal::Paused(paused.why.clone()));
        }
        if self.ending.is_some() {
            return Err(Refusal::Ending);
        }
        self.stop(Paused { by: PausedBy::Operator, why: reason.to_string() });
        warn!(partition = %self.source, committable = %self.ledger.committable(), "Paused by an operator, {reason}");
        Ok(())
    }

    /// Goes on with what comes behind the last message delivered. What was open is handed to a fresh instance.
    fn resume(&mut self, reason: &Reason) -> Result<(), Refusal> {
        if !self.halted {
            return Err(Refusal::NotPaused);
        }
        if self.ending.is_some() {
            return Err(Refusal::Ending);
        }
        if self.emit_refused || self.stub_refused.is_some() {
            return Err(Refusal::Undeliverable);
        }
        self.lose_call();
        self.halted = false;
        self.paused = None;
        self.settling_works();
        self.route_limits = RouteLimits::new(&self.shared.pipeline.routes);
        self.restarts += 1;
        self.progress.restart(self.restarts, self.ledger.position());
        self.shared.tally.add(|tally| _ = tally.halted.remove(&self.source));
        warn!(partition = %self.source, position = %self.ledger.position(), "Resumed by an operator, {reason}");
        Ok(())
    }

    /// Settles a message that no guest gets past.
    fn skip(&mut self, offset: Offset, reason: &Reason) -> Result<(), Refusal> {
        if !self.halted {
            return Err(Refusal::Judging);
        }
        self.lose_call();
        if !self.ledger.give_up(offset) {
            let (committable, position) = (self.ledger.committable(), self.ledger.position());
            return Err(Refusal::NotOpen { offset, committable, position });
        }
        warn!(partition = %self.source, %offset, "Skipped by an operator, {reason}");
        self.shared.tally.add(|tally| tally.reject(SKIPPED, 1));
        let rejection = Rejection { route: None, code: SKIPPED.to_owned(), reason: reason.to_string() };
        self.push_stub(offset, Arc::new(rejection), Stub::Skipped);
        Ok(())
    }

    /// Whether it was not stopped already.
    fn stop(&mut self, paused: Paused) -> bool {
        if self.halted {
            return false;
        }
        self.halted = true;
        self.progress.halt();
        self.drop_redelivery();
        self.instance = None;
        self.case = None;
        self.next = None;
        self.holding = None;
        self.forget_hold();
        self.shared.tally.add(|tally| _ = tally.halted.insert(self.source.clone(), paused.why.clone()));
        self.paused = Some(paused);
        true
    }

    /// A call that still runs, or an instance that came back from one, must not name again what is taken from it.
    fn lose_call(&mut self) {
        self.calling = None;
        self.instance = None;
        self.case = None;
        self.ledger.lose_instance();
    }
}
