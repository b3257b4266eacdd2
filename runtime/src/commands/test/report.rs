//! What a guest answered, for people, for machines and for comparison.

use std::{collections::HashMap, fmt, sync::Arc, time::Duration};

use bytesize::ByteSize;
use serde::{Serialize, Serializer};

use super::{
    input::{Bytes, Header},
    logs::Log,
};
use crate::{
    config::DEAD_LETTER,
    offset::{Offset, OffsetSet},
    verdict::{Backoff, Emit, Rejection},
};

/// When a verdict came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum When {
    /// With the batch.
    Process,
    /// At a tick, from 1.
    Tick(u32),
    /// At the end.
    Last,
}

/// What became of some offsets.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Judged {
    /// Accepted.
    Accept,
    /// Rejected.
    Reject(Arc<Rejection>),
    /// To be delivered again.
    Retry(Backoff),
    /// To be delivered again, and everything behind it.
    Hold(Backoff),
    /// Not settled at the end.
    Open,
}

/// What came of a run.
#[derive(Default)]
pub(super) struct Report {
    /// Messages handed to the guest.
    pub(super) messages: u64,
    /// Calls.
    pub(super) calls: u64,
    /// What became of what.
    pub(super) verdicts: HashMap<(Judged, When), OffsetSet>,
    /// In order.
    pub(super) emits: Vec<Emitted>,
    /// What the guest logged.
    pub(super) logs: Vec<Log>,
    /// Why the run ended early.
    pub(super) failure: Option<String>,
    /// Spent in calls.
    pub(super) time: Duration,
    /// The most that the guest's memories took.
    pub(super) memory: usize,
}

/// Consecutive offsets with the same verdict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Row {
    pub(super) first: i64,
    pub(super) last: i64,
    pub(super) outcome: &'static str,
    pub(super) route: Option<String>,
    pub(super) code: Option<String>,
    pub(super) reason: Option<String>,
    pub(super) delay: Option<String>,
    pub(super) when: When,
}

/// An emitted record as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Emitted {
    pub(super) output: String,
    key: Option<Bytes>,
    payload: Option<Bytes>,
    headers: Vec<Header>,
    timestamp: Option<i64>,
    partition: Option<i32>,
}

/// One JSON document.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Document<'a> {
    messages: u64,
    calls: u64,
    verdicts: Vec<Row>,
    emits: &'a [Emitted],
    logs: &'a [Log],
    failure: Option<&'a str>,
    time_ms: f64,
    peak_memory: usize,
}

impl From<Emit> for Emitted {
    fn from(emit: Emit) -> Self {
        let header = |(name, value): (String, Option<Vec<u8>>)| Header { name, value: value.map(Bytes::new) };
        Self {
            output: emit.output,
            key: emit.key.map(Bytes::new),
            payload: emit.payload.map(Bytes::new),
            headers: emit.headers.into_iter().map(header).collect(),
            timestamp: emit.timestamp,
            partition: emit.partition,
        }
    }
}

impl Emitted {
    /// Without the output's name.
    pub(super) fn text(&self) -> String {
        let Self { key, payload, headers, timestamp, partition, .. } = self;
        json(&serde_json::json!({
            "key": key, "payload": payload, "headers": headers, "timestamp": timestamp, "partition": partition,
        }))
    }
}

impl fmt::Display for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process => f.write_str("process"),
            Self::Tick(tick) => write!(f, "tick {tick}"),
            Self::Last => f.write_str("last"),
        }
    }
}

impl Serialize for When {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Judged {
    fn word(&self) -> &'static str {
        match self {
            Self::Accept => "accept",
            Self::Reject(_) => "reject",
            Self::Retry(_) => "retry",
            Self::Hold(_) => "hold",
            Self::Open => "open",
        }
    }
}

impl Row {
    fn new((first, last): (Offset, Offset), judged: &Judged, when: When) -> Self {
        let mut row = Self {
            first: first.get(),
            last: last.get(),
            outcome: judged.word(),
            route: None,
            code: None,
            reason: None,
            delay: None,
            when,
        };
        match judged {
            Judged::Accept | Judged::Open => {}
            Judged::Reject(rejection) => {
                row.route = Some(rejection.route.as_deref().unwrap_or(DEAD_LETTER).to_owned());
                (row.code, row.reason) = (Some(rejection.code.clone()), Some(rejection.reason.clone()));
            }
            Judged::Retry(backoff) | Judged::Hold(backoff) => {
                (row.code, row.reason) = (Some(backoff.code.clone()), Some(backoff.reason.clone()));
                row.delay = Some(humantime::format_duration(backoff.delay).to_string());
            }
        }
        row
    }

    /// `7`, or `7-9`.
    pub(super) fn offsets(&self) -> String {
        if self.first == self.last { self.first.to_string() } else { format!("{}-{}", self.first, self.last) }
    }
}

impl fmt::Display for Row {
    /// `5-7 reject dead-letter bad-json "why" (tick 1)`: what is not there is left out, and so is the usual time.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.offsets(), self.outcome)?;
        for word in [&self.route, &self.code].into_iter().flatten() {
            write!(f, " {word}")?;
        }
        if let Some(reason) = &self.reason {
            write!(f, " {}", json(reason))?;
        }
        if let Some(delay) = &self.delay {
            write!(f, " after {delay}")?;
        }
        if self.when != When::Process {
            write!(f, " ({})", self.when)?;
        }
        Ok(())
    }
}

impl Report {
    /// All verdicts, by offset.
    pub(super) fn rows(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        for ((judged, when), offsets) in &self.verdicts {
            rows.extend(runs(offsets).into_iter().map(|run| Row::new(run, judged, *when)));
        }
        rows.sort_by_key(|row| row.first);
        rows
    }

    /// What does not change from one run to the next, a line for each thing: `--expect` compares it.
    pub(super) fn lines(&self) -> String {
        let verdicts = self.rows().into_iter().map(|row| row.to_string());
        let emits = self.emits.iter().map(|emit| format!("emit {} {}", emit.output, emit.text()));
        let failure = self.failure.iter().map(|failure| format!("failure {failure}"));
        verdicts.chain(emits).chain(failure).map(|line| line + "\n").collect()
    }

    /// Everything as one JSON document.
    pub(super) fn document(&self) -> String {
        let document = Document {
            messages: self.messages,
            calls: self.calls,
            verdicts: self.rows(),
            emits: &self.emits,
            logs: &self.logs,
            failure: self.failure.as_deref(),
            time_ms: self.time.as_secs_f64() * 1e3,
            peak_memory: self.memory,
        };
        json(&document) + "\n"
    }

    /// What it took.
    pub(super) fn summary(&self) -> String {
        let Self { messages, calls, time, memory, .. } = self;
        let memory = ByteSize(u64::try_from(*memory).unwrap_or(u64::MAX));
        format!("{messages} messages in {calls} calls took {time:.1?}; the guest's memory reached {memory}")
    }
}

/// None of what is shown can fail to be JSON.
fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// The runs of consecutive offsets.
fn runs(offsets: &OffsetSet) -> Vec<(Offset, Offset)> {
    let mut runs: Vec<(Offset, Offset)> = Vec::new();
    for offset in offsets.iter() {
        match runs.last_mut() {
            Some((_, last)) if last.get() + 1 == offset.get() => *last = offset,
            _ => runs.push((offset, offset)),
        }
    }
    runs
}
