//! Judges events of a seismic feed. An event that nobody has reviewed yet is deferred: only its offset is kept, and
//! when the host next asks it is rejected, long after its payload has left this instance.

mod bindings;
mod rules;

use std::cell::RefCell;

use bindings::{
    deadletter::processor::{
        logging::{Level, log},
        types::{Context, Message, OffsetRange, Outcome, Rejection, Verdict},
    },
    exports::deadletter::processor::{
        handler,
        settling::{self, Occasion},
    },
};
use rules::{Judgement, UNREVIEWED, judge};

thread_local! {
    /// The offsets that wait for a review, as they came.
    static DEFERRED: RefCell<Vec<i64>> = const { RefCell::new(Vec::new()) };
}

struct Earthquakes;

impl handler::Guest for Earthquakes {
    fn process(_: Context, messages: Vec<Message>) -> Result<Vec<Verdict>, String> {
        Ok(messages.iter().filter_map(verdict).collect())
    }
}

impl settling::Guest for Earthquakes {
    fn settle(context: Context, _: Occasion) -> Result<Vec<Verdict>, String> {
        let deferred = DEFERRED.take();
        if deferred.is_empty() {
            return Ok(Vec::new());
        }
        let (topic, partition) = (context.topic, context.partition);
        log(Level::Debug, &format!("{} events of {topic}[{partition}] were not reviewed", deferred.len()));
        let outcome = reject(UNREVIEWED, "no one has reviewed the automatic solution".to_owned());
        Ok(vec![Verdict { offsets: ranges(&deferred), outcome }])
    }
}

/// `None` accepts, as the contract has it.
fn verdict(message: &Message) -> Option<Verdict> {
    let outcome = match judge(message.payload.as_deref()) {
        Judgement::Accept => return None,
        Judgement::Reject { code, reason } => reject(code, reason),
        Judgement::Defer => {
            DEFERRED.with_borrow_mut(|deferred| deferred.push(message.offset));
            Outcome::Defer
        }
    };
    Some(Verdict { offsets: ranges(&[message.offset]), outcome })
}

fn reject(code: &str, reason: String) -> Outcome {
    Outcome::Reject(Rejection { route: None, code: code.to_owned(), reason })
}

/// Offsets as ranges, of which each names nothing but them.
fn ranges(offsets: &[i64]) -> Vec<OffsetRange> {
    let chunks = offsets.chunk_by(|one, next| one + 1 == *next);
    chunks.filter_map(|chunk| Some(OffsetRange { first: *chunk.first()?, last: *chunk.last()? })).collect()
}
