//! `deadletter test`.

mod input;
mod logs;
mod report;
mod session;
mod show;

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{self, BufReader},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, anyhow};
use bytesize::ByteSize;
use clap::{Args, value_parser};
use tracing::instrument::WithSubscriber;

use self::{
    input::{Format, Messages},
    logs::Logs,
    report::Report,
    session::{Plan, Session},
};
use super::{Failure, block_on, compiler, print};
use crate::{
    guest::{Guest, Limits, Setup},
    message::TopicPartition,
};

/// As a configuration has it, unless it says otherwise.
const BATCH_BYTES: usize = 1 << 20;

/// Runs a module on some messages.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Test {
    /// The module: a component, or a core module with the contract's metadata in it.
    module: PathBuf,
    /// The messages, one a line; stdin if it is left out.
    file: Option<PathBuf>,
    /// What a line is.
    #[arg(long, value_enum, default_value = "lines")]
    input: Format,
    /// A setting for `configure`; may be repeated.
    #[arg(long = "settings", value_name = "NAME=VALUE", value_parser = setting)]
    settings: Vec<(String, String)>,
    /// An output that the guest may emit to; may be repeated.
    #[arg(long = "output", value_name = "NAME")]
    outputs: Vec<String>,
    /// The most messages of a batch.
    #[arg(long, value_name = "MESSAGES", default_value = "1000", value_parser = value_parser!(u32).range(1..=1_000_000))]
    batch: u32,
    /// Limit on the guest's memory.
    #[arg(long, value_name = "SIZE", default_value = "64MiB")]
    memory: ByteSize,
    /// Limit on the time of one call.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = humantime::parse_duration)]
    deadline: Duration,
    /// The topic that the guest is told.
    #[arg(long, default_value = "test")]
    topic: String,
    /// The partition that the guest is told.
    #[arg(long, default_value = "0", value_parser = value_parser!(i32).range(0..))]
    partition: i32,
    /// How many times to call `settle` with a tick after the messages, while offsets are open; then it is called for the
    /// last time.
    #[arg(long, value_name = "NUMBER", default_value = "1")]
    ticks: u32,
    /// Compare verdicts, emitted records and failure with this file, and show the difference.
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    expect: Option<PathBuf>,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

pub(super) const ABOUT: &str = "\
Runs a module on some messages, without Kafka, with the engine, the limits and the checks of production.

Offsets are counted from 0. The guest's clock shows the latest timestamp so far, and a second more at each tick, so that \
a run can be repeated. What is to be retried is not delivered again, and nothing is delivered behind a hold. What a pipe gets on stdout is what `--expect` compares; logs, time and memory go to stderr then.";

const EXAMPLES: &str = "\
Examples:
  deadletter test orders.wasm sample.jsonl
  deadletter test orders.wasm --input json --settings schema=v2 --output enriched messages.jsonl
  deadletter test orders.wasm sample.jsonl > expected.txt
  deadletter test orders.wasm sample.jsonl --expect expected.txt

A line of `--input json` (only `payload` is required; `{\"base64\": \"…\"}` stands for bytes that are no text):
  {\"key\": \"a\", \"payload\": \"…\", \"headers\": [{\"name\": \"trace\", \"value\": \"7\"}], \"timestamp\": 1750000000000}

Exit codes:
  0   the guest judged everything, or did as expected
  1   it failed, or did not as expected
  64  arguments, module or input cannot be used";

fn setting(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("a setting is NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

impl Test {
    pub(super) fn execute(self) -> Result<(), Failure> {
        let expected = self.expect.as_deref().map(|file| read(file).map(|text| (file, text))).transpose()?;
        let report = block_on(self.run())??;
        if self.json {
            print(&report.document())?;
        } else if let Some((file, expected)) = expected {
            return compare(file, &expected, &report);
        } else {
            show::report(&report)?;
        }
        match report.failure {
            Some(_) => Err(Failure::Work(anyhow!("the guest failed"))),
            None => Ok(()),
        }
    }

    async fn run(&self) -> Result<Report, Failure> {
        let guest = Guest::load(self.setup()?, &compiler()?).await?;
        let mut messages = self.messages()?;
        let plan = Plan {
            source: TopicPartition::new(self.topic.as_str(), self.partition),
            messages: usize::try_from(self.batch).unwrap_or(usize::MAX),
            bytes: BATCH_BYTES,
            ticks: self.ticks,
        };
        let logs = Logs::default();
        let report = Session::run(&guest, &mut messages, plan).with_subscriber(logs.dispatch()).await;
        Ok(Report { logs: logs.take(), ..report.map_err(Failure::Input)? })
    }

    fn setup(&self) -> Result<Setup, Failure> {
        if self.deadline.is_zero() {
            return Err(Failure::Input(anyhow!("--deadline: must not be zero")));
        }
        Ok(Setup {
            module: self.module.clone(),
            limits: Limits {
                memory: usize::try_from(self.memory.as_u64()).unwrap_or(usize::MAX),
                deadline: self.deadline,
                batch_bytes: BATCH_BYTES,
            },
            settings: self.settings.clone(),
            outputs: self.outputs.iter().cloned().collect::<BTreeSet<_>>(),
        })
    }

    fn messages(&self) -> Result<Messages, Failure> {
        let Some(file) = &self.file else {
            return Ok(Messages::new(Box::new(io::stdin().lock()), "stdin".to_owned(), self.input));
        };
        let name = file.display().to_string();
        let opened = File::open(file).with_context(|| name.clone()).map_err(Failure::Input)?;
        Ok(Messages::new(Box::new(BufReader::new(opened)), name, self.input))
    }
}

fn read(file: &Path) -> Result<String, Failure> {
    fs::read_to_string(file).with_context(|| file.display().to_string()).map_err(Failure::Input)
}

fn compare(file: &Path, expected: &str, report: &Report) -> Result<(), Failure> {
    let got = report.lines();
    if got == expected {
        return print(&format!("as {} expects: {}\n", file.display(), report.summary()));
    }
    show::difference(expected, &got)?;
    Err(Failure::Work(anyhow!("{}: not as expected", file.display())))
}
