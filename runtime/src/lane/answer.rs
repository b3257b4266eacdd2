//! What comes back to a lane: answers of its guest, words of the producer, messages that were read again.

use std::{sync::Arc, time::Instant};

use tracing::{error, warn};

use super::{
    Lane,
    instances::Called,
    outbox::{Ack, Body, Letter},
    work::{Due, Work},
};
use crate::{
    config::LimitThen,
    guest::Failure,
    kafka::DeliveryError,
    ledger::Applied,
    offset::{Offset, OffsetSet},
    record::{Headers, Stub},
    verdict::{Answer, Emit, Outcome, Rejection, Verdict},
};

impl Lane {
    pub(super) fn answered(&mut self, (due, called): (Due, Called)) {
        self.last_call = Instant::now();
        if matches!(due.work, Work::Settle(_)) {
            self.settle_at = None;
        }
        match called.result {
            Ok(answer) => {
                self.instance = called.instance;
                self.accept_answer(&due, answer);
            }
            Err(failure) => self.failed(&due, &failure),
        }
        self.watch_limits();
    }

    fn accept_answer(&mut self, due: &Due, mut answer: Answer) {
        let work = &due.work;
        self.name_known_routes(&mut answer.verdicts);
        let batch = work.in_hand().map(|in_hand| in_hand.batch.offsets());
        let checked = match self.ledger.check(&answer.verdicts, batch) {
            Ok(checked) => checked,
            Err(violation) => return self.failed(due, &Failure::contract(&violation.to_string())),
        };
        let rejections = self.ledger.rejections(&checked);
        if !self.routes_admit(checked.accepted(), &rejections.iter().copied()) {
            return;
        }
        kill_point!("before-apply");
        let mut applied = self.ledger.apply(checked, answer.emits.len(), self.now());
        self.count(&applied);
        let comes_back = applied.deferred + applied.retried > 0 || applied.hold.is_some();
        match (applied.hold.take(), work) {
            (Some(hold), _) => self.hold(hold),
            (None, Work::Settle(_)) if applied.settled() > 0 => self.settling_works(),
            (None, Work::Settle(_)) => {}
            (None, _) => self.hold_is_over(),
        }
        self.dispatch(work, applied, answer.emits);
        self.reads.recent.forget_below(self.ledger.committable());
        if let (Work::Batch(in_hand), true) = (work, comes_back) {
            self.reads.recent.keep(&in_hand.batch);
        }
        if matches!(work, Work::Settle(_)) {
            kill_point!("after-settle");
        }
        self.guest_works(due);
        if !self.shared.instances.are_owned() {
            self.shared.instances.give_back(self.instance.take());
        } else if !self.ledger.has_open() {
            self.instance.take_if(|instance| self.shared.instances.is_worn(instance));
        }
    }

    /// Whether the routes take this (see [`RouteLimits::admit`]). If one does not, nothing of it is rejected, and an answer
    /// is void as a whole: whoever judges next gets these messages, too.
    ///
    /// [`RouteLimits::admit`]: super::route_limits::RouteLimits::admit
    pub(super) fn routes_admit<'r>(
        &mut self,
        accepted: &OffsetSet,
        rejected: &(impl Iterator<Item = (Offset, Option<&'r str>)> + Clone),
    ) -> bool {
        let Err(passed) = self.route_limits.admit(accepted, rejected) else { return true };
        self.instance = None;
        self.ledger.lose_instance();
        self.halt(&format!(
            "{passed}: the guest is more likely wrong than the messages, and none of these is rejected; mend the guest or raise the limit, and restart; `deadletter resume` lets as many through again"
        ));
        if passed.then == LimitThen::Stop {
            self.progress.fail(format!("{}: {passed}, and its limit says \"stop\"", self.source));
        }
        false
    }

    /// A route that is not configured is the dead-letter route.
    fn name_known_routes(&self, verdicts: &mut [Verdict]) {
        for verdict in verdicts {
            if let Outcome::Reject(rejection) = &mut verdict.outcome
                && rejection.route.as_ref().is_some_and(|route| !self.shared.destinations.routes.contains_key(route))
            {
                Arc::make_mut(rejection).route = None;
            }
        }
    }

    fn count(&self, applied: &Applied) {
        self.shared.tally.add(|tally| {
            tally.accepted += applied.accepted;
            tally.deferred += applied.deferred;
            for (offsets, rejection) in &applied.rejected {
                tally.reject(&rejection.code, offsets.len());
            }
        });
    }

    /// Sends what the batch in hand has, and notes what must be read again.
    fn dispatch(&mut self, work: &Work, applied: Applied, emits: Vec<Emit>) {
        for (mut offsets, rejection) in applied.rejected {
            if let Some(in_hand) = work.in_hand() {
                let held: OffsetSet = offsets.iter().filter(|offset| in_hand.batch.find(*offset).is_some()).collect();
                for offset in held.iter() {
                    self.push_letter(offset, Arc::clone(&rejection), Body::Full(in_hand.clone()));
                }
                offsets.subtract(&held);
            }
            if !offsets.is_empty() {
                self.backlog.add(offsets, rejection);
            }
        }
        if let Some(call) = applied.call {
            for emit in emits {
                self.emitted_bytes += emit.bytes();
                self.outbox.push_emit(call, Arc::new(emit));
            }
        }
    }

    pub(super) fn heard(&mut self, ack: Ack) {
        match ack {
            Ack::Letter(offset, _, Ok(())) => {
                self.letter_is_settled(offset);
                self.shared.tally.add(|tally| tally.dead_letters += 1);
            }
            Ack::Letter(offset, rejection, Err(DeliveryError::TooLarge)) => self.letter_is_too_large(offset, rejection),
            Ack::StubTooLarge(offset) => {
                self.stub_refused = Some(offset);
                self.halt(&format!("the topic of a route does not even take offset {offset} without its payload"));
            }
            Ack::Letter(offset, rejection, Err(DeliveryError::Failed(why))) => {
                self.delivery_failed(&why);
                self.backlog.put_back(offset, rejection);
            }
            Ack::Emit(call, emit, Ok(())) => {
                self.emitted_bytes -= emit.bytes();
                self.ledger.emit_acked(call);
                self.shared.tally.add(|tally| tally.emitted += 1);
            }
            Ack::Emit(_, emit, Err(DeliveryError::TooLarge)) => {
                let why =
                    format!("the topic of output `{}` does not take a record of {} bytes", emit.output, emit.bytes());
                self.emit_refused = true;
                self.halt(&why);
            }
            Ack::Emit(call, emit, Err(DeliveryError::Failed(why))) => {
                self.delivery_failed(&why);
                self.outbox.push_emit(call, emit);
            }
        }
    }

    /// It is made smaller twice: first without the headers that can be spared, and then without the payload.
    fn letter_is_too_large(&mut self, offset: Offset, rejection: Arc<Rejection>) {
        if self.lean.insert(offset) {
            warn!(partition = %self.source, %offset, code = rejection.code, "The route's topic does not take a record of this size: it goes once more, without the headers that can be spared");
            self.backlog.put_back(offset, rejection);
        } else {
            error!(partition = %self.source, %offset, code = rejection.code, "The route's topic does not take the payload of a message, not even with few headers: a stub goes in its place");
            self.push_stub(offset, rejection, Stub::TooLarge);
        }
    }

    /// Nothing more is sent of it.
    pub(super) fn letter_is_settled(&mut self, offset: Offset) {
        self.lean.remove(offset);
        self.ledger.letter_acked(offset);
    }

    fn delivery_failed(&mut self, why: &str) {
        self.shared.tally.add(|tally| tally.delivery_failures += 1);
        let said = self.is_backing_off();
        self.back_off();
        if said {
            return;
        }
        error!(partition = %self.source, committable = %self.ledger.committable(), "A record was not delivered, and is tried again; the commit waits: {why}");
    }

    /// A dead letter without the payload, which is gone or too large.
    pub(super) fn push_stub(&mut self, offset: Offset, rejection: Arc<Rejection>, stub: Stub) {
        self.shared.tally.add(|tally| *tally.stubs.entry(stub.status().to_owned()).or_default() += 1);
        self.push_letter(offset, rejection, Body::Stub(stub));
    }

    pub(super) fn push_letter(&mut self, offset: Offset, rejection: Arc<Rejection>, body: Body) {
        let attempts = self.ledger.attempt(offset);
        let headers = match body {
            Body::Full(_) if self.lean.contains(offset) => Headers::Essential,
            Body::Full(_) | Body::Stub(_) => Headers::All,
        };
        self.outbox.push_letter(Letter { offset, rejection, attempts, headers, body });
    }
}
