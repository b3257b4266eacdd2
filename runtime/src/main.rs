//! The binary: arguments → configuration → run → exit code.
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

use std::process::ExitCode;

use clap::Parser;
use deadletter::{
    commands::{self, Arguments, Failure, logging},
    kafka,
};

/// `EX_USAGE`: wrong in a way that is known without the network (arguments, configuration, module).
const USAGE: u8 = 64;

fn main() -> ExitCode {
    kafka::share_memory_between_threads();
    #[cfg(feature = "failpoints")]
    let _points = fail::FailScenario::setup();
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        // `--help` and `--version` come this way, too.
        Err(answer) => {
            let printed = answer.print();
            let code = if answer.use_stderr() || printed.is_err() { USAGE } else { 0 };
            return ExitCode::from(code);
        }
    };
    let outcome = logging::start(arguments.log_format).and_then(|()| arguments.command.execute());
    let (code, error) = match outcome {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Failure::Input(error)) => (ExitCode::from(USAGE), error),
        Err(Failure::Work(error)) => (ExitCode::FAILURE, error),
    };
    let label = commands::style::BAD;
    // One label for each line: a configuration may have several problems.
    for line in format!("{error:#}").lines() {
        anstream::eprintln!("{label}error{label:#}: {line}");
    }
    code
}
