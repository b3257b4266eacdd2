use std::{cell::RefCell, collections::BTreeMap, io::Write};

use crate::{
    Batch,
    bindings::deadletter::processor::{
        logging::{self, Level},
        output::{self, Outgoing},
        types::{Backoff, Context, OffsetRange, Outcome, Rejection, Verdict},
    },
    misbehave,
};

thread_local! {
    static SETTINGS: RefCell<BTreeMap<String, String>> = const { RefCell::new(BTreeMap::new()) };
    static DEFERRED: RefCell<Vec<i64>> = const { RefCell::new(Vec::new()) };
}

pub(crate) fn setting(name: &str) -> String {
    SETTINGS.with_borrow(|settings| settings.get(name).cloned().unwrap_or_default())
}

/// Keeps the settings; refuses them if one is called `refuse`.
pub fn configure(settings: Vec<(String, String)>) -> Result<(), String> {
    SETTINGS.with_borrow_mut(|kept| kept.extend(settings));
    match setting("refuse") {
        reason if reason.is_empty() => Ok(()),
        reason => Err(reason),
    }
}

fn range(first: i64, last: i64) -> Vec<OffsetRange> {
    vec![OffsetRange { first, last }]
}

pub(crate) fn reject(offset: i64, code: &str, reason: String) -> Verdict {
    let rejection = Rejection { route: None, code: code.to_owned(), reason };
    Verdict { offsets: range(offset, offset), outcome: Outcome::Reject(rejection) }
}

fn all(offsets: &[i64], outcome: Outcome) -> Vec<Verdict> {
    match (offsets.first(), offsets.last()) {
        (Some(&first), Some(&last)) => vec![Verdict { offsets: range(first, last), outcome }],
        _ => vec![],
    }
}

fn backoff() -> Backoff {
    Backoff { delay: 1500, code: "busy".to_owned(), reason: "the dependency is away".to_owned() }
}

/// Does what the setting `mode` says; without one, accepts.
pub fn judge(context: &Context, batch: &dyn Batch) -> Result<Vec<Verdict>, String> {
    let offsets = batch.offsets();
    match setting("mode").as_str() {
        "" | "accept" => Ok(vec![]),
        "accept-all" => Ok(all(&offsets, Outcome::Accept)),
        "checksum" => Ok(checksum(&offsets, batch.checksum())),
        "sum" => {
            Ok(offsets.first().map(|first| reject(*first, "sum", batch.checksum().to_string())).into_iter().collect())
        }
        "echo" => Ok(batch.describe().into_iter().zip(&offsets).map(|(line, at)| reject(*at, "echo", line)).collect()),
        "reject-all" => {
            let rejection =
                Rejection { route: Some("other".to_owned()), code: "no".to_owned(), reason: "all".to_owned() };
            Ok(all(&offsets, Outcome::Reject(rejection)))
        }
        "retry" => Ok(all(&offsets, Outcome::Retry(backoff()))),
        "hold" => Ok(all(&offsets, Outcome::Hold(backoff()))),
        "defer" => {
            DEFERRED.with_borrow_mut(|deferred| deferred.extend(&offsets));
            Ok(all(&offsets, Outcome::Defer))
        }
        "emit" => emit(&offsets, "out").map(|()| vec![]),
        "emit-and-trap" => {
            emit(&offsets, "out")?;
            misbehave::act("panic", context, &offsets)
        }
        "emit-to" => emit(&offsets, &setting("output")).map(|()| vec![]),
        "log" => {
            logging::log(Level::Warn, "a line\nwith \u{1b}[31mcolour");
            println!("said on stdout");
            print!("and without an end");
            std::io::stdout().flush().map_err(|error| error.to_string())?;
            Ok(vec![])
        }
        mode => misbehave::act(mode, context, &offsets),
    }
}

/// Rejects what was deferred, the latest first; with the setting `settle` = `batch`, tells whether a batch is to be had.
pub fn settle(batch: Option<&dyn Batch>) -> Result<Vec<Verdict>, String> {
    if let Some(batch) = batch.filter(|_| setting("settle") == "batch") {
        return Err(format!("{} offsets, checksum {}", batch.offsets().len(), batch.checksum()));
    }
    let deferred = DEFERRED.take();
    Ok(deferred.into_iter().rev().map(|offset| reject(offset, "late", "settled".to_owned())).collect())
}

/// Rejects every hundredth offset; the first one says the checksum.
fn checksum(offsets: &[i64], sum: u64) -> Vec<Verdict> {
    let hundredths = offsets.iter().filter(|offset| **offset % 100 == 0).enumerate();
    hundredths.map(|(i, at)| reject(*at, "hundredth", if i == 0 { sum.to_string() } else { String::new() })).collect()
}

fn emit(offsets: &[i64], to: &str) -> Result<(), String> {
    let size = setting("size").parse().unwrap_or(4);
    let records: Vec<_> = offsets
        .iter()
        .map(|offset| Outgoing {
            key: Some(offset.to_string().into_bytes()),
            payload: Some(vec![b'x'; size]),
            headers: vec![],
            timestamp: None,
            partition: None,
        })
        .collect();
    output::emit(to, &records)
}
