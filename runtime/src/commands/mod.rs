//! What the binary does: one module for each command.

mod check;
mod completions;
pub mod logging;
mod operate;
mod run;
pub mod style;
mod table;
mod test;

use std::{
    env,
    io::{self, Write},
    path::PathBuf,
};

use anyhow::Context;
use clap::{Parser, Subcommand};

use crate::{
    config::ConfigError,
    guest::{self, Compiler, LoadError},
};

/// The command line.
#[derive(Debug, Parser)]
#[command(version, about, long_about = ABOUT, after_help = EXAMPLES, propagate_version = true)]
pub struct Arguments {
    /// How to write the log, which goes to stderr. `RUST_LOG` says what is in it (default: info).
    #[arg(long, value_enum, global = true, default_value_t, value_name = "FORMAT")]
    pub log_format: logging::Format,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const ABOUT: &str = "\
Runs Kafka consumers whose logic is a sandboxed WebAssembly component.

The component answers with verdicts by offset. A message that it rejects, at once or long after it was delivered, goes \
to the dead-letter topic with its original bytes; offsets are committed only when they may be.";

const EXAMPLES: &str = "\
Examples:
  deadletter check --offline orders.toml     is the configuration right, and the module?
  deadletter run orders.toml                 until SIGTERM or SIGINT
  deadletter test orders.wasm sample.jsonl   what does the module say of these messages?
  deadletter status --config orders.toml     how does the running process stand?

Exit codes:
  0   done
  64  arguments, configuration or module cannot be used
  1   everything else, such as a topic that is missing";

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the pipelines of a configuration until SIGTERM or SIGINT.
    Run(run::Run),
    /// Check a configuration, its modules and its topics.
    Check(check::Check),
    /// Run a module on some messages, without Kafka.
    #[command(long_about = test::ABOUT)]
    Test(test::Test),
    /// Show how a running process and its partitions stand.
    Status(operate::Status),
    /// Pause a partition of a running process.
    Pause(operate::Pause),
    /// Go on with a partition that is paused.
    Resume(operate::Resume),
    /// Settle a message that no guest gets past.
    Skip(operate::Skip),
    /// Let a running process finish and end.
    Drain(operate::Drain),
    /// Print the completions of a shell.
    Completions(completions::Completions),
    /// Compile a module into the cache: what a host has its child do.
    #[command(hide = true)]
    Compile {
        /// The module's file.
        module: PathBuf,
    },
}

impl Command {
    /// Does it.
    pub fn execute(self) -> Result<(), Failure> {
        match self {
            Self::Run(run) => run.execute(),
            Self::Check(check) => check.execute(),
            Self::Test(test) => test.execute(),
            Self::Status(status) => status.execute(),
            Self::Pause(pause) => pause.execute(),
            Self::Resume(resume) => resume.execute(),
            Self::Skip(skip) => skip.execute(),
            Self::Drain(drain) => drain.execute(),
            Self::Completions(completions) => completions.execute(),
            Self::Compile { module } => guest::child_main(&module).map_err(Failure::Input),
        }
    }
}

/// Why a command did not do what was asked, by the exit code that it asks for.
#[derive(Debug)]
pub enum Failure {
    /// What was given cannot be used: arguments, configuration, module.
    Input(anyhow::Error),
    /// The rest.
    Work(anyhow::Error),
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::Input(error.into())
    }
}

impl From<LoadError> for Failure {
    fn from(error: LoadError) -> Self {
        Self::Input(error.into())
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        if error.is::<LoadError>() { Self::Input(error) } else { Self::Work(error) }
    }
}

/// What compiles and runs the modules of this process.
fn compiler() -> anyhow::Result<Compiler> {
    Compiler::child(env::current_exe().context("finding this program, which compiles modules in a child")?)
}

/// The runtime in which everything that waits runs.
fn block_on<T>(future: impl Future<Output = T>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::Work(anyhow::Error::new(error).context("starting threads")))?;
    let done = runtime.block_on(future);
    // What still runs is of no use to anybody, such as a question to a broker that is away.
    runtime.shutdown_background();
    Ok(done)
}

/// Writes to stdout, without colours where it is no terminal. A reader that has seen enough is no failure.
fn print(text: &str) -> Result<(), Failure> {
    match anstream::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::Work(anyhow::Error::new(error).context("writing to stdout")))
        }
        _ => Ok(()),
    }
}
