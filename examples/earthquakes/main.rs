//! A week of earthquakes through a guest that rejects some of them at once and others late; see `README.md`.
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing,
        clippy::string_slice,
        reason = "what goes wrong is an error with context, not a panic"
    )
)]

mod report;
mod topics;

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use deadletter::{
    config::{Config, DEAD_LETTER, Pipeline},
    control::Control,
    guest::Compiler,
    kafka::Cluster,
    pipeline,
};
use report::Report;
use serde_json::Value;
use tokio::time::{Instant, sleep};
use topics::{Event, Topic};

/// Plenty: the run takes seconds.
const DEADLINE: Duration = Duration::from_mins(2);

#[derive(Parser)]
#[command(about = "Runs a week of earthquakes through a guest and shows what became of them")]
struct Args {
    /// The configuration
    #[arg(default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/earthquakes/earthquakes.toml"))]
    config: PathBuf,
    /// The events, one JSON document a line
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/earthquakes/earthquakes.jsonl"))]
    events: PathBuf,
    /// Print one JSON document instead of tables
    #[arg(long)]
    json: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "warn".into());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    match run(Args::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: Args) -> Result<()> {
    let config = Config::load(&args.config)?;
    let pipeline = config.pipelines.values().next().context("the configuration has no pipeline")?.clone();
    let guests = pipeline::load_guests(&config, &Compiler::in_process()?).await?;
    let clusters = Cluster::open_all(&config)?;
    let cluster = clusters.get(&pipeline.cluster).context("the pipeline's cluster is not configured")?;
    let source = Topic::open(cluster.servers(), source(&pipeline)?, &pipeline.group).await?;
    let dead_letters = Topic::open(cluster.servers(), route(&pipeline)?, &pipeline.group).await?;

    let events = source.produce(events(&args.events)?).await?;
    let summary = pipeline::run_on(&clusters, config, guests, &Control::default(), until_committed(&source)).await?;
    let report = Report::new(&events, &dead_letters.read()?, source.positions()?, summary)?;
    if args.json {
        println!("{}", serde_json::to_string(&report)?);
    } else {
        print!("{report}");
    }
    ensure!(report.is_settled(), "not every message was settled within {DEADLINE:?}");
    ensure!(report.is_identical(), "not every dead letter is byte for byte what was produced");
    Ok(())
}

fn source(pipeline: &Pipeline) -> Result<&str> {
    pipeline.topics.first().map(String::as_str).context("the pipeline has no topic")
}

fn route(pipeline: &Pipeline) -> Result<&str> {
    Ok(&pipeline.routes.get(DEAD_LETTER).context("the pipeline has no dead-letter route")?.topic)
}

/// The lines of a file, keyed by event code.
fn events(file: &Path) -> Result<Vec<Event>> {
    let lines = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    let lines = lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    Ok(lines.map(|line| Event { key: code(line).unwrap_or_default(), payload: line.to_vec() }).collect())
}

fn code(event: &[u8]) -> Option<String> {
    let event: Value = serde_json::from_slice(event).ok()?;
    Some(event.pointer("/properties/code")?.as_str()?.to_owned())
}

/// Until the group has committed the end of every partition, or the deadline passed: then the report says so.
async fn until_committed(source: &Topic) {
    let deadline = Instant::now() + DEADLINE;
    while Instant::now() < deadline {
        match source.positions() {
            Ok(positions) if positions.iter().all(topics::Position::is_settled) => return,
            Ok(_) => {}
            Err(error) => tracing::warn!("cannot read the committed offsets: {error:#}"),
        }
        sleep(Duration::from_millis(100)).await;
    }
}
