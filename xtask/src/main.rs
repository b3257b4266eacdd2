//! What this repository does to itself: `cargo xtask <command>`.
//!
//! Each command first fetches or installs what it needs and says so; what it runs is echoed. Progress goes to stderr,
//! so that stdout is the result alone.
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

mod bench;
mod demo;
mod guests;
mod kafka;
mod mutants;
mod prerequisites;
mod promtool;
mod shell;
mod soak;
mod test;

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Builds, tests, demonstrates and measures deadletter")]
enum Command {
    /// Install or fetch everything that a build or a test needs
    Prerequisites,
    /// Build the guests into target/guests
    Guests,
    /// Run every test: unit, property, mock cluster, real broker
    Test {
        /// Filters and options for `cargo test`, such as `shadow` or `harness:: -- --nocapture`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Run the earthquakes example on the embedded broker
    Demo {
        /// Print one JSON document instead of tables
        #[arg(long)]
        json: bool,
    },
    /// Run the benchmarks on a real broker
    Bench {
        /// Only benchmarks whose names contain one of these
        names: Vec<String>,
        /// Print one JSON document instead of a table
        #[arg(long)]
        json: bool,
        /// Keep the table in docs/BENCHMARKS.md, with the commit and the machine
        #[arg(long, conflicts_with = "names")]
        write: bool,
    },
    /// Prove that the oracle bites: put known faults into a copy of the sources, and expect its tests to fail
    Mutants {
        /// Only mutants whose names contain one of these
        names: Vec<String>,
    },
    /// Run the tests of crashes, rebalances and memory at full length, and note their figures in docs/SOAK.md
    Soak {
        /// As many repetitions as in a test run, and the figures to stdout only: to try the command
        #[arg(long)]
        short: bool,
    },
}

fn main() -> ExitCode {
    match run(Command::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<()> {
    match command {
        Command::Prerequisites => prerequisites::all(),
        Command::Guests => guests::build(),
        Command::Test { args } => test::run(&args),
        Command::Demo { json } => demo::run(json),
        Command::Bench { names, json, write } => bench::run(&names, json, write),
        Command::Mutants { names } => mutants::run_named(&names),
        Command::Soak { short } => soak::run(short),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_of_cargo_test_are_passed_on_untouched() {
        let passed = |args: &[&str]| match Command::try_parse_from([&["xtask", "test"], args].concat()).unwrap() {
            Command::Test { args } => args,
            _ => panic!("another command"),
        };
        for args in [&[][..], &["shadow"], &["harness::", "--", "--nocapture"], &["late", "--", "--exact"]] {
            assert_eq!(passed(args), args);
        }
    }
}
