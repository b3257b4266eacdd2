//! Defers a pseudo-random half of all offsets and rejects a hundredth of those late, in random order. What is deferred
//! follows from a hash of the offset, so that the guest keeps two numbers and the host's memory is all there is to see.
//!
//! Settings: `defer` = "false" accepts everything instead; `until` = the offset behind the last one of a partition: only
//! when everything below has been delivered does it settle: first it rejects, and then it accepts the rest.

mod bindings;

use std::cell::RefCell;

use bindings::{
    deadletter::processor::{
        batch,
        types::{Context, OffsetRange, Outcome, Rejection, Verdict},
    },
    exports::deadletter::processor::{
        lazy_handler::Guest as Handler,
        lifecycle::Guest as Lifecycle,
        settling::{Guest as Settling, Occasion},
    },
};

#[derive(Default)]
struct State {
    defers: bool,
    until: i64,
    first: Option<i64>,
    next: i64,
    rejected: bool,
    settled: bool,
}

thread_local! {
    static STATE: RefCell<State> = RefCell::default();
}

struct Sampling;

impl Handler for Sampling {
    fn process(_: Context) -> Result<Vec<Verdict>, String> {
        let offsets = batch::offsets();
        let defers = STATE.with_borrow_mut(|state| {
            state.first = state.first.or(offsets.first().copied());
            state.next = offsets.last().map_or(state.next, |last| last + 1);
            state.defers
        });
        let deferred: Vec<_> = offsets.into_iter().filter(|offset| defers && is_deferred(*offset)).map(only).collect();
        Ok(if deferred.is_empty() { vec![] } else { vec![Verdict { offsets: deferred, outcome: Outcome::Defer }] })
    }
}

impl Lifecycle for Sampling {
    fn configure(settings: Vec<(String, String)>) -> Result<(), String> {
        let setting = |name: &str| settings.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
        STATE.with_borrow_mut(|state| {
            state.defers = setting("defer") != Some("false");
            state.until = setting("until").and_then(|until| until.parse().ok()).unwrap_or_default();
        });
        Ok(())
    }
}

impl Settling for Sampling {
    fn settle(_: Context, _: Occasion) -> Result<Vec<Verdict>, String> {
        STATE.with_borrow_mut(|state| {
            let Some(first) = state.first.filter(|_| state.next >= state.until && !state.settled) else {
                return Ok(vec![]);
            };
            let mut deferred = (first..state.next).filter(|offset| is_deferred(*offset));
            if !std::mem::replace(&mut state.rejected, true) {
                let mut rejected: Vec<_> = deferred.filter(|offset| is_rejected(*offset)).collect();
                rejected.sort_by_key(|offset| mix(*offset ^ 0x5bd1));
                return Ok(rejected.into_iter().map(reject).collect());
            }
            state.settled = true;
            let mut open = deferred.by_ref().filter(|offset| !is_rejected(*offset));
            let Some(first) = open.next() else { return Ok(vec![]) };
            let last = open.last().unwrap_or(first);
            Ok(vec![Verdict { offsets: vec![OffsetRange { first, last }], outcome: Outcome::Accept }])
        })
    }
}

fn reject(offset: i64) -> Verdict {
    let rejection = Rejection { route: None, code: "sampled".to_owned(), reason: offset.to_string() };
    Verdict { offsets: vec![only(offset)], outcome: Outcome::Reject(rejection) }
}

fn only(offset: i64) -> OffsetRange {
    OffsetRange { first: offset, last: offset }
}

fn is_deferred(offset: i64) -> bool {
    mix(offset).is_multiple_of(2)
}

fn is_rejected(offset: i64) -> bool {
    mix(offset).is_multiple_of(200)
}

/// The finaliser of SplitMix64.
fn mix(offset: i64) -> u64 {
    let mut bits = offset.cast_unsigned().wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}
