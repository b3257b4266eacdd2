//! The guest of the oracle: the first byte of a payload says what becomes of it, so that a test knows each verdict.
//!
//! `A` accept · `R` reject · `E` emit a copy and accept · `D` defer, reject later · `H` defer, accept later · `Y` retry, accept
//! at the third attempt · `T` retry for ever.
//! Each call of `settle` judges about half of what is deferred, in random order; under pressure it judges everything.

mod bindings;

use std::{
    cell::RefCell,
    collections::BTreeMap,
    hash::{BuildHasher, RandomState},
};

use bindings::{
    deadletter::processor::{
        output::{self, Outgoing},
        types::{Backoff, Context, OffsetRange, Outcome, Rejection, Verdict},
    },
    exports::deadletter::processor::{
        handler::{Guest as Handler, Message},
        lifecycle::Guest as Lifecycle,
        settling::{Guest as Settling, Occasion},
    },
};

thread_local! {
    static DEFERRED: RefCell<BTreeMap<i64, u8>> = const { RefCell::new(BTreeMap::new()) };
}

struct Oracle;

impl Handler for Oracle {
    fn process(_: Context, messages: Vec<Message>) -> Result<Vec<Verdict>, String> {
        let mut verdicts = Vec::new();
        let mut copies = Vec::new();
        for Message { offset, payload, key, attempt, .. } in messages {
            let class = payload.as_deref().and_then(|payload| payload.first()).copied();
            match class {
                Some(b'R') => verdicts.push(on(offset, rejected("now"))),
                Some(class @ (b'D' | b'H')) => {
                    DEFERRED.with_borrow_mut(|deferred| deferred.insert(offset, class));
                    verdicts.push(on(offset, Outcome::Defer));
                }
                Some(b'T') => verdicts.push(on(offset, Outcome::Retry(backoff()))),
                Some(b'Y') if attempt < 3 => verdicts.push(on(offset, Outcome::Retry(backoff()))),
                Some(b'E') => copies.push(Outgoing { key, payload, headers: vec![], timestamp: None, partition: None }),
                _ => {}
            }
        }
        if !copies.is_empty() {
            output::emit("copies", &copies)?;
        }
        Ok(verdicts)
    }
}

impl Lifecycle for Oracle {
    fn configure(_: Vec<(String, String)>) -> Result<(), String> {
        Ok(())
    }
}

impl Settling for Oracle {
    fn settle(_: Context, occasion: Occasion) -> Result<Vec<Verdict>, String> {
        let random = RandomState::new();
        let all = matches!(occasion, Occasion::Pressure);
        let mut judged: Vec<_> = DEFERRED.with_borrow_mut(|deferred| {
            deferred.extract_if(.., |offset, _| all || random.hash_one(*offset).is_multiple_of(2)).collect()
        });
        judged.sort_by_key(|(offset, _)| random.hash_one(offset ^ 1));
        let verdict = |(offset, class)| on(offset, if class == b'D' { rejected("late") } else { Outcome::Accept });
        Ok(judged.into_iter().map(verdict).collect())
    }
}

fn on(offset: i64, outcome: Outcome) -> Verdict {
    Verdict { offsets: vec![OffsetRange { first: offset, last: offset }], outcome }
}

fn rejected(code: &str) -> Outcome {
    Outcome::Reject(Rejection { route: None, code: code.to_owned(), reason: "as its first byte says".to_owned() })
}

fn backoff() -> Backoff {
    Backoff { delay: 20, code: "busy".to_owned(), reason: "as its first byte says".to_owned() }
}
