//! From the guest's verdicts to ours; what breaks the contract is a sentence that says which verdict and why.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use super::{
    bindings::deadletter::processor::types,
    limits::{CODES, DELAY, TEXT},
    text,
};
use crate::{
    offset::Offset,
    verdict::{Backoff, OffsetRange, Outcome, Rejection, Verdict},
};

/// What the verdicts of one guest are held to.
pub(super) struct Rules {
    settles: bool,
    codes: Mutex<BTreeSet<String>>,
}

impl Rules {
    pub(super) fn new(settles: bool) -> Self {
        Self { settles, codes: Mutex::default() }
    }

    pub(super) fn settles(&self) -> bool {
        self.settles
    }

    /// All verdicts of an answer, or why it breaks the contract. A broken answer leaves no codes behind.
    pub(super) fn lift(&self, verdicts: Vec<types::Verdict>) -> Result<Vec<Verdict>, String> {
        let mut known = self.codes.lock().unwrap_or_else(PoisonError::into_inner);
        let mut codes = Codes { known: &known, fresh: BTreeSet::new() };
        let mut lifted = Vec::with_capacity(verdicts.len());
        for (index, verdict) in verdicts.into_iter().enumerate() {
            let verdict = self.verdict(verdict, &mut codes);
            lifted.push(verdict.map_err(|problem| format!("verdict {}: {problem}", index + 1))?);
        }
        let fresh = codes.fresh;
        known.extend(fresh);
        Ok(lifted)
    }

    fn verdict(&self, verdict: types::Verdict, codes: &mut Codes<'_>) -> Result<Verdict, String> {
        if verdict.offsets.is_empty() {
            return Err("it has no range of offsets".to_owned());
        }
        let offsets = verdict.offsets.iter().map(range).collect::<Result<_, _>>()?;
        let outcome = match verdict.outcome {
            types::Outcome::Accept => Outcome::Accept,
            types::Outcome::Reject(rejection) => Outcome::Reject(Arc::new(Rejection {
                route: rejection.route.map(|route| text::cut(route, TEXT)),
                code: codes.check(rejection.code)?,
                reason: text::cut(rejection.reason, TEXT),
            })),
            types::Outcome::Retry(wait) => Outcome::Retry(backoff(wait, codes)?),
            types::Outcome::Hold(wait) => Outcome::Hold(backoff(wait, codes)?),
            types::Outcome::Defer if self.settles => Outcome::Defer,
            types::Outcome::Defer => {
                return Err("it defers, but the guest does not export `settling` and could never settle".to_owned());
            }
        };
        Ok(Verdict { offsets, outcome })
    }
}

fn backoff(wait: types::Backoff, codes: &mut Codes<'_>) -> Result<Backoff, String> {
    Ok(Backoff {
        delay: Duration::from_millis(wait.delay.into()).min(DELAY),
        code: codes.check(wait.code)?,
        reason: text::cut(wait.reason, TEXT),
    })
}

fn range(range: &types::OffsetRange) -> Result<OffsetRange, String> {
    let end = |raw| Offset::new(raw).ok_or_else(|| format!("{raw} is not an offset"));
    let (first, last) = (end(range.first)?, end(range.last)?);
    if first > last {
        return Err(format!("the range {first}..{last} ends before it begins"));
    }
    Ok(OffsetRange { first, last })
}

struct Codes<'a> {
    known: &'a BTreeSet<String>,
    fresh: BTreeSet<String>,
}

impl Codes<'_> {
    fn check(&mut self, code: String) -> Result<String, String> {
        let fits = |byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
        if !(1..=64).contains(&code.len()) || !code.bytes().all(fits) {
            let shown = text::cut(code, 80);
            return Err(format!("the code `{shown}` is not 1 to 64 of the characters a-z, 0-9 and `-`"));
        }
        if !self.known.contains(&code) && !self.fresh.contains(&code) {
            if self.known.len() + self.fresh.len() >= CODES {
                return Err(format!("the code `{code}` is one more than the {CODES} different ones a guest may use"));
            }
            self.fresh.insert(code.clone());
        }
        Ok(code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reject(code: &str) -> types::Verdict {
        let rejection = types::Rejection { route: None, code: code.to_owned(), reason: "é".repeat(1_000) };
        verdict(0, 9, types::Outcome::Reject(rejection))
    }

    fn verdict(first: i64, last: i64, outcome: types::Outcome) -> types::Verdict {
        types::Verdict { offsets: vec![types::OffsetRange { first, last }], outcome }
    }

    fn problem(verdict: types::Verdict) -> String {
        Rules::new(false).lift(vec![verdict]).unwrap_err()
    }

    #[test]
    fn a_broken_verdict_is_named_with_what_is_wrong() {
        let accept = || types::Outcome::Accept;
        assert_eq!(problem(verdict(-1, 3, accept())), "verdict 1: -1 is not an offset");
        assert_eq!(problem(verdict(0, i64::MAX, accept())), format!("verdict 1: {} is not an offset", i64::MAX));
        assert_eq!(problem(verdict(4, 3, accept())), "verdict 1: the range 4..3 ends before it begins");
        assert!(problem(types::Verdict { offsets: vec![], outcome: accept() }).contains("no range"));
        assert!(problem(verdict(0, 1, types::Outcome::Defer)).contains("settling"));
        for code in ["", "Bad", "a b", "é", &"x".repeat(65)] {
            assert!(problem(reject(code)).contains("is not 1 to 64"), "{code}");
        }
    }

    #[test]
    fn a_reason_is_cut_between_characters() {
        let lifted = Rules::new(false).lift(vec![reject("ok")]).unwrap();
        let Outcome::Reject(rejection) = &lifted[0].outcome else { panic!("{lifted:?}") };
        assert_eq!(rejection.reason, "é".repeat(TEXT / 2));
    }

    #[test]
    fn a_delay_is_five_minutes_at_most() {
        let wait = types::Backoff { delay: u32::MAX, code: "busy".to_owned(), reason: String::new() };
        let lifted = Rules::new(false).lift(vec![verdict(0, 1, types::Outcome::Retry(wait))]).unwrap();
        let Outcome::Retry(backoff) = &lifted[0].outcome else { panic!("{lifted:?}") };
        assert_eq!(backoff.delay, Duration::from_mins(5));
    }

    #[test]
    fn one_code_more_than_allowed_is_refused_and_leaves_nothing_behind() {
        let rules = Rules::new(true);
        let codes = |range: std::ops::Range<usize>| range.map(|n| reject(&format!("c-{n}"))).collect::<Vec<_>>();
        assert!(rules.lift(codes(0..CODES + 1)).unwrap_err().contains("one more"));
        rules.lift(codes(0..CODES - 1)).unwrap();
        rules.lift(codes(0..CODES)).unwrap();
        assert!(rules.lift(vec![reject("another")]).is_err());
        rules.lift(codes(0..CODES)).unwrap();
    }
}
