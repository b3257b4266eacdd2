//! What became of the events: one document, or tables for people.

use std::{collections::BTreeMap, fmt, fs};

use anyhow::{Context, Result};
use bytesize::ByteSize;
use comfy_table::{Table, presets};
use deadletter::{kafka::shadow::Counts, pipeline::Summary};
use serde::Serialize;

use crate::topics::{Coordinates, Event, Position, Stored};

/// How many dead letters of each code are shown.
const SHOWN: usize = 2;
/// How much of each is shown.
const FIRST_BYTES: usize = 56;

/// All that is shown.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Report {
    produced: usize,
    /// By the host's count; rejected ones by code.
    accepted: u64,
    deferred: u64,
    rejected: BTreeMap<String, u64>,
    /// As read back from their topic.
    dead_letters: DeadLetters,
    shadow_reads: Counts,
    positions: Vec<Position>,
    /// In bytes; the broker's and the compiler's are in it.
    peak_memory: u64,
}

#[derive(Default, Serialize)]
#[serde(rename_all = "kebab-case")]
struct DeadLetters {
    total: usize,
    /// How many have the key and the payload of the event at their coordinates, byte for byte.
    identical: usize,
    by_code: BTreeMap<String, usize>,
    examples: Vec<Example>,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Example {
    code: String,
    reason: String,
    partition: i32,
    offset: i64,
    first_bytes: String,
}

impl Report {
    /// Compares the dead letters with the events.
    pub(crate) fn new(
        events: &BTreeMap<Coordinates, Event>,
        dead_letters: &[Stored],
        positions: Vec<Position>,
        summary: Summary,
    ) -> Result<Self> {
        let shadow_reads = summary.shadow_reads.into_values().next().context("no cluster was read again")?;
        let tally = summary.pipelines.into_values().next().context("no pipeline has run")?.tally;
        Ok(Self {
            produced: events.len(),
            accepted: tally.accepted,
            deferred: tally.deferred,
            rejected: tally.rejected,
            dead_letters: DeadLetters::new(events, dead_letters)?,
            shadow_reads,
            positions,
            peak_memory: peak_memory()?,
        })
    }

    /// Whether the committed offset of every partition is its end.
    pub(crate) fn is_settled(&self) -> bool {
        self.positions.iter().all(Position::is_settled)
    }

    /// Whether every dead letter is byte for byte what was produced.
    pub(crate) fn is_identical(&self) -> bool {
        self.dead_letters.identical == self.dead_letters.total
    }
}

impl DeadLetters {
    fn new(events: &BTreeMap<Coordinates, Event>, dead_letters: &[Stored]) -> Result<Self> {
        let mut all = Self { total: dead_letters.len(), ..Self::default() };
        for dead_letter in dead_letters {
            let example = Example::new(dead_letter)?;
            let event = events.get(&(example.partition, example.offset));
            let (key, payload) = (dead_letter.key.as_deref(), dead_letter.payload.as_deref());
            let is_same = |event: &Event| key == Some(event.key.as_bytes()) && payload == Some(&event.payload);
            all.identical += usize::from(event.is_some_and(is_same));
            let count = all.by_code.entry(example.code.clone()).or_default();
            *count += 1;
            if *count <= SHOWN {
                all.examples.push(example);
            }
        }
        all.examples.sort_by(|one, other| one.code.cmp(&other.code));
        Ok(all)
    }
}

impl Example {
    fn new(dead_letter: &Stored) -> Result<Self> {
        let header = |name: &str| {
            let name = format!("deadletter.{name}");
            dead_letter.headers.get(&name).cloned().with_context(|| format!("a dead letter has no header {name}"))
        };
        let payload = dead_letter.payload.as_deref().unwrap_or_default();
        let first = payload.get(..FIRST_BYTES).unwrap_or(payload);
        Ok(Self {
            code: header("code")?,
            reason: header("reason")?,
            partition: header("partition")?.parse()?,
            offset: header("offset")?.parse()?,
            first_bytes: first.escape_ascii().to_string().replace("\\\"", "\""),
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut verdicts = table(["verdict", "messages", "dead letters read back"]);
        verdicts.add_row(["accepted", &self.accepted.to_string(), ""]);
        for (code, count) in &self.rejected {
            let dead_letters = self.dead_letters.by_code.get(code).copied().unwrap_or_default();
            verdicts.add_row([format!("rejected: {code}"), count.to_string(), dead_letters.to_string()]);
        }
        writeln!(
            f,
            "{} events, {} of them deferred before they were rejected\n{verdicts}\n",
            self.produced, self.deferred
        )?;

        let mut examples = table(["dead letter", "code", "reason", "first bytes"]);
        for Example { code, reason, partition, offset, first_bytes } in &self.dead_letters.examples {
            examples.add_row([&format!("{partition}/{offset}"), code, reason, first_bytes]);
        }
        let DeadLetters { total, identical, .. } = self.dead_letters;
        writeln!(
            f,
            "{identical} of {total} dead letters are byte for byte what was produced; some of them\n{examples}\n"
        )?;

        let Counts { found, expired, absent, replaced, deadline, positionings, read_through, bytes } =
            self.shadow_reads;
        let mut reads = table(["shadow reads", ""]);
        let answers = [("found", found), ("expired", expired), ("absent", absent), ("replaced", replaced)];
        let costs = [("deadline", deadline), ("positionings", positionings), ("read through", read_through)];
        for (what, count) in answers.into_iter().chain(costs) {
            reads.add_row([what, &count.to_string()]);
        }
        reads.add_row(["read", &ByteSize(bytes).to_string()]);
        writeln!(f, "{reads}\n")?;

        let mut partitions = table(["partition", "committed", "end"]);
        partitions.add_rows(self.positions.iter().map(Position::cells));
        writeln!(
            f,
            "{partitions}\n\npeak memory: {}, the embedded broker and the compiler included",
            ByteSize(self.peak_memory)
        )
    }
}

/// With borders on a terminal, columns alone in a pipe.
fn table<const N: usize>(header: [&str; N]) -> Table {
    let mut table = Table::new();
    let is_terminal = std::io::IsTerminal::is_terminal(&std::io::stdout());
    table.load_style(if is_terminal { presets::UTF8_FULL_CONDENSED } else { presets::NOTHING }).set_header(header);
    table
}

/// The most memory that this process has had resident, in bytes.
fn peak_memory() -> Result<u64> {
    let status = fs::read_to_string("/proc/self/status").context("cannot read /proc/self/status")?;
    let kilobytes = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB"));
    Ok(kilobytes.context("/proc/self/status has no VmHWM")?.parse::<u64>()? << 10)
}
