//! The faults, and what must find them.

/// A fault: one text of a source file in the place of another, which is there once.
pub(super) struct Mutant {
    pub(super) name: &'static str,
    pub(super) file: &'static str,
    pub(super) old: &'static str,
    pub(super) new: &'static str,
    /// An integration test.
    pub(super) test: &'static str,
    /// The invariants that the fault breaks: the test must fail with a message that names one, as in `I1: …`.
    pub(super) breaks: &'static [&'static str],
}

const CRASH: &str = "crash::nothing_is_lost_or_made_up_when_the_process_is_killed";

const REBALANCE: &str = "rebalance::eager_members_join_and_leave_under_load";

/// All tests that some mutant names.
pub(super) const TESTS: &[&str] = &[CRASH, REBALANCE];

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "commit-on-enqueue",
        file: "runtime/src/lane/outbox.rs",
        old: "        let record = dead_letter.to_record(",
        new: "        drop(self.acks.send(Ack::Letter(letter.offset, Arc::clone(&letter.rejection), Ok(()))));
        let record = dead_letter.to_record(",
        test: CRASH,
        breaks: &["I1"],
    },
    Mutant {
        name: "commit-off-by-one",
        file: "runtime/src/ledger/mod.rs",
        old: ".map_or(self.position, NextOffset::from)",
        new: ".map_or(self.position, Offset::next)",
        test: CRASH,
        breaks: &["I1"],
    },
    Mutant {
        name: "letter-of-another-offset",
        file: "runtime/src/lane/outbox.rs",
        old: "in_hand.batch.find(letter.offset).map(",
        new: "in_hand.batch.get(0).map(",
        test: CRASH,
        breaks: &["I2"],
    },
    Mutant {
        name: "dropped-late-verdict",
        file: "runtime/src/lane/answer.rs",
        old: "self.backlog.add(offsets, rejection);",
        new: "offsets.iter().for_each(|offset| self.ledger.letter_acked(offset));",
        test: CRASH,
        breaks: &["I1"],
    },
    Mutant {
        name: "emit-without-ack",
        file: "runtime/src/ledger/mod.rs",
        old: "self.await_emits(first, emits)",
        new: "self.await_emits(first.filter(|_| false), emits)",
        test: CRASH,
        breaks: &["I1"],
    },
    Mutant {
        name: "commit-over-retries",
        file: "runtime/src/ledger/mod.rs",
        old: "self.lost.first(), self.retries.all().first(), ",
        new: "self.lost.first(), ",
        test: CRASH,
        breaks: &["I1"],
    },
    Mutant {
        name: "answer-after-assignment",
        file: "runtime/src/kafka/source/rebalance.rs",
        old: "        if !lost {
            self.commit_positions(&positions, CommitMode::Sync);
        }",
        new: "        let (consumer, late) = (Arc::clone(&self.consumer), list::at(&positions));
        thread::spawn(move || {
            thread::sleep(Duration::from_secs(2));
            drop(consumer.commit(&late, CommitMode::Sync));
        });",
        test: REBALANCE,
        breaks: &["I4"],
    },
];
