//! The log: to stderr, for people or for machines.

use std::{env, io::IsTerminal};

use clap::ValueEnum;
use tracing_subscriber::EnvFilter;

use super::Failure;

/// How lines of the log are written.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub enum Format {
    /// For people; coloured on a terminal.
    #[default]
    Pretty,
    /// One JSON object a line.
    Json,
}

/// Starts the log. What is in it comes from `RUST_LOG`, whose syntax is that of `tracing_subscriber::EnvFilter`.
pub fn start(format: Format) -> Result<(), Failure> {
    let filter = match env::var("RUST_LOG") {
        Ok(directives) if !directives.is_empty() => EnvFilter::try_new(&directives)
            .map_err(|error| Failure::Input(anyhow::anyhow!("RUST_LOG: {directives:?} is not a filter: {error}")))?,
        _ => EnvFilter::new("info"),
    };
    // A line that cannot be written is lost. To say so where it could not be written would be a panic.
    let log = tracing_subscriber::fmt().log_internal_errors(false);
    let log = log.with_env_filter(filter).with_writer(std::io::stderr);
    match format {
        Format::Pretty => log.with_ansi(std::io::stderr().is_terminal()).init(),
        Format::Json => log.json().flatten_event(true).init(),
    }
    Ok(())
}
