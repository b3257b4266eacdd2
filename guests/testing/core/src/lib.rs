//! The least of guests, built as a core module without WASI: it does what the first byte of a payload says.

mod bindings;

use bindings::{
    deadletter::processor::types::{OffsetRange, Outcome, Rejection},
    exports::deadletter::processor::handler::{Context, Guest, Message, Verdict},
};

struct Core;

impl Guest for Core {
    fn process(_context: Context, messages: Vec<Message>) -> Result<Vec<Verdict>, String> {
        let judge = |message: Message| {
            let outcome = match message.payload.as_deref().and_then(<[u8]>::first)? {
                b'd' => Outcome::Defer,
                b'r' => {
                    Outcome::Reject(Rejection { route: None, code: "r".to_owned(), reason: "it says r".to_owned() })
                }
                _ => return None,
            };
            let offsets = vec![OffsetRange { first: message.offset, last: message.offset }];
            Some(Verdict { offsets, outcome })
        };
        Ok(messages.into_iter().filter_map(judge).collect())
    }
}
