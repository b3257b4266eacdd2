//! All tests, with everything they need.

use std::process::Command;

use anyhow::{Result, ensure};

use crate::{
    guests, prerequisites,
    shell::{cargo, run_lines},
};

/// Runs the tests of the runtime (with `args` for `cargo test`), then, unless `args` select some, those of the guests
/// and of this program.
pub(crate) fn run(args: &[String]) -> Result<()> {
    prerequisites::all()?;
    guests::build()?;
    let mut total = Total::default();
    total.add(cargo(&["test", "--package", "deadletter", "--features", "failpoints", "--no-fail-fast"]).args(args))?;
    if args.is_empty() {
        total.add(&mut guests::test_command())?;
        total.add(&mut cargo(&["test", "--package", "xtask"]))?;
    }
    println!("\n{} tests passed, {} failed, {} ignored", total.passed, total.failed, total.ignored);
    ensure!(total.succeeded, "some tests failed or were not built");
    Ok(())
}

#[derive(Debug, PartialEq)]
struct Total {
    passed: u64,
    failed: u64,
    ignored: u64,
    succeeded: bool,
}

impl Default for Total {
    fn default() -> Self {
        Self { passed: 0, failed: 0, ignored: 0, succeeded: true }
    }
}

impl Total {
    fn add(&mut self, command: &mut Command) -> Result<()> {
        self.succeeded &= run_lines(command, |line| {
            println!("{line}");
            self.count(line);
        })?;
        Ok(())
    }

    /// Counts in libtest's summary of one binary: `test result: ok. 3 passed; 0 failed; 0 ignored; …`.
    fn count(&mut self, line: &str) {
        let Some((_, counts)) = line.strip_prefix("test result: ").and_then(|result| result.split_once(". ")) else {
            return;
        };
        for (number, what) in counts.split("; ").filter_map(|count| count.split_once(' ')) {
            let number = number.parse().unwrap_or(0);
            match what {
                "passed" => self.passed += number,
                "failed" => self.failed += number,
                "ignored" => self.ignored += number,
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summaries_of_all_binaries_are_added_up() {
        let mut total = Total::default();
        total.count("running 5 tests");
        total.count("test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s");
        total
            .count("test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 7 filtered out; finished in 2.10s");
        assert_eq!(total, Total { passed: 4, failed: 1, ignored: 1, succeeded: true });
    }
}
