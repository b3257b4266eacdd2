//! A guest of the plain contract with everything that is optional.

mod bindings;

use bindings::exports::deadletter::processor::{
    handler::{Context, Guest as Handler, Message, Verdict},
    lifecycle::Guest as Lifecycle,
    settling::{Guest as Settling, Occasion},
};
use testing_shared::Batch;

struct Plain;

struct Messages(Vec<Message>);

impl Batch for Messages {
    fn offsets(&self) -> Vec<i64> {
        self.0.iter().map(|message| message.offset).collect()
    }

    fn checksum(&self) -> u64 {
        let payloads = self.0.iter().filter_map(|message| message.payload.as_deref());
        payloads.fold(0, |sum, payload| sum.wrapping_add(testing_shared::sum(payload)))
    }

    fn describe(&self) -> Vec<String> {
        let line = |m: &Message| {
            let headers: Vec<_> = m.headers.iter().map(|header| (&header.name, &header.value)).collect();
            format!("{} {:?} {} {:?} {:?} {headers:?}", m.offset, m.timestamp, m.attempt, m.key, m.payload)
        };
        self.0.iter().map(line).collect()
    }
}

impl Handler for Plain {
    fn process(context: Context, messages: Vec<Message>) -> Result<Vec<Verdict>, String> {
        testing_shared::judge(&context, &Messages(messages))
    }
}

impl Lifecycle for Plain {
    fn configure(settings: Vec<(String, String)>) -> Result<(), String> {
        testing_shared::configure(settings)
    }
}

impl Settling for Plain {
    fn settle(_context: Context, _occasion: Occasion) -> Result<Vec<Verdict>, String> {
        testing_shared::settle(None)
    }
}
