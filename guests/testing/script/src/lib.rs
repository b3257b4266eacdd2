//! A guest that a test directs, through its settings and the messages themselves.
//!
//! The first byte of a payload (or the setting `class`) says what becomes of a message: `A` accept · `R` reject · `E` emit
//! a copy and accept · `D` defer, reject later · `H` defer, accept later · `S` take a while, accept · `X` fail · `P` fail if
//! there are two of them · `Y` retry, and reject at the attempt that its second byte says, if it has one · `Z` the same,
//! and accept · `W` hold before the time (in milliseconds) that the setting `back` says, then as `E`.
//!
//! Later is at the occasion that `settle` names: `tick` unless it says otherwise. At its `fail-at`th batch, or its
//! `fail-settle-at`th settle, an instance fails as `fail` says, after everything else. A retry or a hold lasts for `delay`
//! milliseconds.

mod bindings;
mod fail;

use std::{cell::RefCell, collections::BTreeMap};

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
    static STATE: RefCell<State> = RefCell::default();
}

#[derive(Default)]
struct State {
    settings: BTreeMap<String, String>,
    deferred: BTreeMap<i64, u8>,
    batches: u64,
    settles: u64,
}

impl State {
    fn setting(&self, name: &str) -> &str {
        self.settings.get(name).map_or("", String::as_str)
    }

    fn backoff(&self) -> Backoff {
        let delay = self.setting("delay").parse().unwrap_or(100);
        Backoff { delay, code: "busy".to_owned(), reason: "the dependency is away".to_owned() }
    }

    fn failure(&self, at: &str, calls: u64) -> Option<String> {
        (self.setting(at).parse() == Ok(calls)).then(|| self.setting("fail").to_owned())
    }
}

struct Script;

impl Handler for Script {
    fn process(context: Context, messages: Vec<Message>) -> Result<Vec<Verdict>, String> {
        STATE.with_borrow_mut(|state| {
            state.batches += 1;
            let mut verdicts = judge(state, context.now, messages)?;
            if let Some(how) = state.failure("fail-at", state.batches) {
                fail::fail(&how, &mut verdicts)?;
            }
            Ok(verdicts)
        })
    }
}

fn judge(state: &mut State, now: i64, messages: Vec<Message>) -> Result<Vec<Verdict>, String> {
    let always = state.setting("class").as_bytes().first().copied();
    let away = state.setting("back").parse().is_ok_and(|back: i64| now < back);
    let mut verdicts = Vec::new();
    let mut copies = Vec::new();
    let mut pair = 0;
    let mut holds = false;
    for Message { offset, payload, key, attempt, .. } in messages {
        let byte = |index: usize| payload.as_deref().and_then(|payload| payload.get(index)).copied();
        match always.or(byte(0)) {
            Some(b'R') => verdicts.push(on(offset, rejected("now"))),
            Some(class @ (b'D' | b'H')) => {
                state.deferred.insert(offset, class);
                verdicts.push(on(offset, Outcome::Defer));
            }
            Some(b'W') if away => {
                holds = true;
                verdicts.push(on(offset, Outcome::Hold(state.backoff())));
            }
            // It comes again, and nothing would take back what was emitted.
            Some(b'E' | b'W') if holds => {}
            Some(b'E' | b'W') => {
                copies.push(Outgoing { key, payload, headers: vec![], timestamp: None, partition: None })
            }
            Some(b'S') => fail::take_a_while(),
            Some(b'X') => fail::fail(state.setting("fail"), &mut verdicts)?,
            Some(b'P') => {
                pair += 1;
                if pair == 2 {
                    fail::fail(state.setting("fail"), &mut verdicts)?;
                }
            }
            Some(class @ (b'Y' | b'Z')) if byte(1).is_some_and(|last| attempt >= u32::from(last - b'0')) => {
                verdicts.push(on(offset, if class == b'Y' { rejected("now") } else { Outcome::Accept }));
            }
            Some(b'Y' | b'Z') => verdicts.push(on(offset, Outcome::Retry(state.backoff()))),
            _ => {}
        }
    }
    if !copies.is_empty() {
        let to = if state.setting("output").is_empty() { "copies" } else { state.setting("output") };
        output::emit(to, &copies)?;
    }
    Ok(verdicts)
}

impl Lifecycle for Script {
    fn configure(settings: Vec<(String, String)>) -> Result<(), String> {
        STATE.with_borrow_mut(|state| {
            state.settings.extend(settings);
            match state.setting("refuse") {
                "" => Ok(()),
                why => Err(why.to_owned()),
            }
        })
    }
}

impl Settling for Script {
    fn settle(_: Context, occasion: Occasion) -> Result<Vec<Verdict>, String> {
        STATE.with_borrow_mut(|state| {
            state.settles += 1;
            let occasion = match occasion {
                Occasion::Tick => "tick",
                Occasion::Pressure => "pressure",
                Occasion::Last => "last",
            };
            println!("settle({occasion}) with {} deferred", state.deferred.len());
            let due = state.settings.get("settle").is_none_or(|due| due == occasion);
            let judged = if due { std::mem::take(&mut state.deferred) } else { BTreeMap::new() };
            let verdict = |(offset, class)| on(offset, if class == b'D' { rejected("late") } else { Outcome::Accept });
            let mut verdicts = judged.into_iter().map(verdict).collect();
            if let Some(how) = state.failure("fail-settle-at", state.settles) {
                fail::fail(&how, &mut verdicts)?;
            }
            Ok(verdicts)
        })
    }
}

fn on(offset: i64, outcome: Outcome) -> Verdict {
    Verdict { offsets: vec![OffsetRange { first: offset, last: offset }], outcome }
}

fn rejected(code: &str) -> Outcome {
    Outcome::Reject(Rejection { route: None, code: code.to_owned(), reason: "as its class says".to_owned() })
}
