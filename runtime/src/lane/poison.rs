//! A guest that fails: the instance is lost, and what it failed at is looked into until the message at fault is found, or
//! the guest itself is.

use std::{sync::Arc, time::Instant};

use tracing::{error, info, warn};

use super::{
    Lane,
    isolation::{Culprit, Isolation, Step},
    outbox::Body,
    work::{Due, Work},
};
use crate::{
    guest::{Failure, Occasion},
    kafka::source::InHand,
    offset::{Offset, OffsetSet},
    verdict::Rejection,
};

/// Failures of `settle` in a row, none of which settled anything, until the partition pauses.
const SETTLE_FAILURES: u32 = 3;

/// What is being looked into.
pub(super) struct Case {
    isolation: Isolation,
    /// The batches that it is about.
    hands: Vec<InHand>,
    last: Failure,
    /// The guest's clock, which stands still meanwhile.
    now: i64,
    /// Lost, and behind what is being looked into: it keeps its place.
    later: OffsetSet,
}

/// What is known of the guest from the batches before.
#[derive(Default)]
pub(super) struct Reputation {
    /// It judged a batch well, and no message that came alone was rejected on the strength of that yet.
    works: bool,
    /// Failed alone, twice, before the guest judged anything well. Letters in the ledger, and sent once it does.
    suspects: Vec<(Offset, Arc<Rejection>)>,
    settle_failures: u32,
}

impl Reputation {
    /// How many dead letters wait for the guest to show that it works.
    pub(super) fn suspects(&self) -> usize {
        self.suspects.len()
    }
}

impl Case {
    /// What is not to be redelivered while this lasts.
    pub(super) fn apart(&self) -> OffsetSet {
        let mut apart = self.isolation.undecided().clone();
        apart.extend(&self.later);
        apart
    }

    /// The messages to be tried next.
    fn part(&self) -> Option<Due> {
        let Step::Try { offsets, deadlines } = self.isolation.next() else { return None };
        let first = offsets.first()?;
        let hand = self.hands.iter().rfind(|hand| hand.batch.find(*first).is_some())?;
        let in_hand = if hand.batch.len() == offsets.len() {
            hand.clone()
        } else {
            let wanted: OffsetSet = offsets.iter().copied().collect();
            let indices = hand.batch.iter().enumerate().filter(|(_, message)| wanted.contains(message.offset));
            let part = hand.batch.part(indices.map(|(index, _)| index));
            InHand { batch: Arc::new(part), share: hand.share.clone() }
        };
        Some(Due { now: self.now, deadlines, ..Due::new(Work::Part(in_hand)) })
    }
}

impl Lane {
    /// What the guest is to be tried with next.
    pub(super) fn take_part(&self) -> Option<Due> {
        self.case.as_ref()?.part()
    }

    /// The instance is lost.
    pub(super) fn failed(&mut self, due: &Due, failure: &Failure) {
        let call = due.work.describe();
        let lost_before = self.ledger.lost().clone();
        self.instance = None;
        self.ledger.lose_instance();
        self.shared.tally.add(|tally| *tally.failures.entry(failure.kind.to_string()).or_default() += 1);
        warn!(partition = %self.source, call, %failure, "The guest failed");
        if self.is_closed() || self.halted {
            return;
        }
        match &due.work {
            Work::Settle(occasion) => return self.settle_failed(*occasion, failure),
            Work::Part(_) => {
                if let Some(case) = &mut self.case {
                    case.isolation.failed(failure, due.took);
                    case.last = failure.clone();
                }
            }
            Work::Batch(in_hand) | Work::Redelivery(in_hand) | Work::Retry(in_hand) => {
                self.suspect(in_hand.clone(), due, failure, lost_before);
            }
        }
        self.follow_case();
    }

    fn suspect(&mut self, in_hand: InHand, due: &Due, failure: &Failure, mut lost_before: OffsetSet) {
        // What is behind it is read again when its turn comes.
        self.reads.lost.clear();
        let offsets: Vec<_> = in_hand.batch.iter().map(|message| message.offset).collect();
        let later = offsets.last().map(|last| lost_before.split_off(*last)).unwrap_or_default();
        let (deadline, works) = (self.shared.pipeline.guest.deadline, self.reputation.works);
        if self.case.is_none() {
            self.shared.tally.add(|tally| tally.isolations += 1);
        }
        let case = self.case.get_or_insert_with(|| Case {
            isolation: Isolation::new(deadline, works),
            hands: Vec::new(),
            last: failure.clone(),
            now: due.now,
            later: OffsetSet::new(),
        });
        case.later.extend(&later);
        case.isolation.suspect(offsets, failure, due.took);
        case.hands.push(in_hand);
    }

    /// The guest judged messages.
    pub(super) fn guest_works(&mut self, due: &Due) {
        if due.work.in_hand().is_none_or(|in_hand| in_hand.batch.is_empty()) {
            return;
        }
        self.reputation.works = true;
        for (offset, rejection) in std::mem::take(&mut self.reputation.suspects) {
            self.convict(offset, rejection, None);
        }
        if let (Work::Part(_), Some(case)) = (&due.work, &mut self.case) {
            case.isolation.succeeded(due.took);
            self.follow_case();
        }
    }

    /// Rejects the culprits that were found, and ends what has come to its end.
    fn follow_case(&mut self) {
        let Some(case) = &mut self.case else { return };
        let culprits = case.isolation.take_culprits();
        let hands = case.hands.clone();
        for culprit in culprits {
            self.found(culprit, &hands);
        }
        let Some(case) = &mut self.case else { return };
        match case.isolation.next() {
            Step::Try { .. } => {}
            Step::Done => {
                if let Some(case) = self.case.take() {
                    self.close_case(case);
                }
            }
            Step::Stop(why) => {
                let last = case.hands.last().map(|hand| Work::Part(hand.clone()).describe()).unwrap_or_default();
                let failure = case.last.clone();
                self.halt(&format!("the guest failed at {last}: {why}; at last, {failure}"));
            }
        }
    }

    fn close_case(&mut self, mut case: Case) {
        let suspects = case.isolation.take_suspects();
        if case.isolation.blames_size() {
            self.halve_batches(&case);
        } else if suspects.is_empty() {
            info!(partition = %self.source, "What the guest failed at is judged");
        }
        for (offset, failure) in suspects {
            if !self.gives_up(offset) {
                continue;
            }
            warn!(partition = %self.source, %offset, code = failure.kind.code(), "The guest fails at this message alone, and has judged none well yet: it is rejected once another one is");
            self.reputation.suspects.push((offset, Arc::new(rejection(&failure))));
        }
        if self.reputation.suspects.len() > 1 {
            let failure = &case.last;
            self.halt(&format!(
                "the guest failed at every message that it was handed, and none is rejected; at last, {failure}"
            ));
        }
    }

    fn found(&mut self, (offset, failure): Culprit, hands: &[InHand]) {
        if !self.gives_up(offset) {
            return;
        }
        // A batch of one gave nothing to compare with: the next one like it needs a guest that did well since.
        if matches!(hands, [only] if only.batch.len() == 1) {
            self.reputation.works = false;
        }
        let hand = hands.iter().find(|hand| hand.batch.find(offset).is_some());
        self.convict(offset, Arc::new(rejection(&failure)), hand);
    }

    /// Whether a culprit may go to its route: not if that is full, nor if the host rejected it meanwhile.
    fn gives_up(&mut self, culprit: Offset) -> bool {
        !self.halted
            && self.routes_admit(&OffsetSet::new(), &std::iter::once((culprit, None)))
            && self.ledger.give_up(culprit)
    }

    /// The message is rejected in the place of the guest, which cannot.
    fn convict(&mut self, offset: Offset, rejection: Arc<Rejection>, hand: Option<&InHand>) {
        error!(partition = %self.source, %offset, code = rejection.code, "Rejected: the guest fails at this message, alone and twice: {}", rejection.reason);
        self.shared.tally.add(|tally| tally.reject(&rejection.code, 1));
        match hand {
            Some(hand) => self.push_letter(offset, rejection, Body::Full(hand.clone())),
            None => self.backlog.put_back(offset, rejection),
        }
    }

    /// The guest has too little time for a batch, and enough for each of its messages.
    fn halve_batches(&mut self, case: &Case) {
        let largest = case.hands.iter().map(|hand| hand.batch.len()).max().unwrap_or(1);
        self.most = (largest.min(self.most) / 2).max(1);
        warn!(partition = %self.source, messages = self.most, "The guest needs too much time for a batch, and no message is the cause: this partition gets smaller ones from now on");
    }

    /// No message is known to be the cause.
    fn settle_failed(&mut self, occasion: Occasion, failure: &Failure) {
        self.reputation.settle_failures += 1;
        let failures = self.reputation.settle_failures;
        if failures >= SETTLE_FAILURES {
            return self
                .halt(&format!("settle({occasion}) failed {failures} times, and nothing was settled: {failure}"));
        }
        // Again, as soon as a fresh instance has what the lost one had open.
        self.settle_at = Some(Instant::now());
        if let (Occasion::Last, Some(ending)) = (occasion, &mut self.ending) {
            ending.tell_last_again();
        }
    }

    /// A call of `settle` settled something, or an operator has seen to it.
    pub(super) fn settling_works(&mut self) {
        self.reputation.settle_failures = 0;
    }
}

fn rejection(failure: &Failure) -> Rejection {
    Rejection { route: None, code: failure.kind.code().to_owned(), reason: failure.detail.clone() }
}
