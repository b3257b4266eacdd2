//! Sends messages that have become too old to the route `backlog`, and what is not JSON to the dead letters.

mod bindings;
mod rules;

use std::cell::Cell;

use bindings::{
    deadletter::processor::types::{Context, Message, OffsetRange, Outcome, Rejection, Verdict},
    exports::deadletter::processor::{handler, lifecycle},
};
use rules::{judge, max_age};

/// The route of what is stale. Where it is not configured, that goes to the dead letters, too.
const BACKLOG: &str = "backlog";

thread_local! {
    /// In milliseconds. An instance is configured before it judges anything.
    static MAX_AGE: Cell<i64> = const { Cell::new(0) };
}

struct Stale;

impl lifecycle::Guest for Stale {
    fn configure(settings: Vec<(String, String)>) -> Result<(), String> {
        MAX_AGE.set(max_age(&settings)?);
        Ok(())
    }
}

impl handler::Guest for Stale {
    fn process(context: Context, messages: Vec<Message>) -> Result<Vec<Verdict>, String> {
        let (now, max_age) = (context.now, MAX_AGE.get());
        let verdict = |message: Message| {
            let age = message.timestamp.map(|timestamp| now.saturating_sub(timestamp));
            let fault = judge(age, max_age, message.payload.as_deref())?;
            let route = fault.is_stale().then(|| BACKLOG.to_owned());
            let rejection = Rejection { route, code: fault.code().to_owned(), reason: fault.to_string() };
            let offsets = vec![OffsetRange { first: message.offset, last: message.offset }];
            Some(Verdict { offsets, outcome: Outcome::Reject(rejection) })
        };
        Ok(messages.into_iter().filter_map(verdict).collect())
    }
}
