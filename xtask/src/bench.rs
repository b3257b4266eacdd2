//! The benchmarks, their figures in one table.
//!
//! A benchmark prints a JSON object a line for each figure: `name`, `value`, `unit`, and where the figure has a target
//! `at-least` or `at-most`. More members are welcome: `--json` passes them on. Its other lines are progress.

use std::{fs, thread};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::{
    guests, prerequisites,
    shell::{cargo, command, output, root, run_lines},
};

/// Where the figures are kept.
const PAGE: &str = "docs/BENCHMARKS.md";

/// Runs the benchmarks whose names contain one of `names`, or all if there is none, and prints their figures, with `write`
/// into the documentation, too; an error if one misses its target.
pub(crate) fn run(names: &[String], json: bool, write: bool) -> Result<()> {
    let commit = commit()?;
    prerequisites::all()?;
    guests::build()?;
    let is_named = |bench: &String| names.is_empty() || names.iter().any(|name| bench.contains(name.as_str()));
    let (benches, others): (Vec<_>, Vec<_>) = benches()?.into_iter().partition(is_named);
    ensure!(!benches.is_empty(), "no benchmark is named like that; there are {}", others.join(", "));
    let mut figures = Vec::new();
    for name in benches {
        let mut bench = cargo(&["bench", "--package", "deadletter", "--profile", "dev", "--features", "failpoints"]);
        let succeeded = run_lines(bench.args(["--bench", &name]), |line| match serde_json::from_str(line) {
            Ok(figure @ Value::Object(_)) if figure.pointer("/name").is_some() => figures.push(figure),
            _ => eprintln!("{line}"),
        })?;
        ensure!(succeeded, "the benchmark {name} failed");
    }
    if json {
        println!("{}", json!({ "figures": figures }));
    } else {
        print!("{}", table(&figures));
    }
    if write {
        fs::create_dir_all(root().join("docs"))?;
        fs::write(root().join(PAGE), page(&commit, &table(&figures)))
            .with_context(|| format!("cannot write {PAGE}"))?;
    }
    let missed = figures.iter().filter(|figure| !Target::of(figure).is_none_or(|target| target.is_met)).count();
    ensure!(missed == 0, "{missed} of {} figures miss their target", figures.len());
    Ok(())
}

/// The commit that is measured, and whether it is that alone.
fn commit() -> Result<String> {
    let commit =
        output(&mut command("git", &["rev-parse", "--short=12", "HEAD"])).context("cannot ask git for the commit")?;
    let changes =
        output(&mut command("git", &["status", "--porcelain", "--untracked-files=no"])).context("git status failed")?;
    Ok(commit.trim().to_owned() + if changes.is_empty() { "" } else { ", with changes that are not committed" })
}

fn page(commit: &str, table: &str) -> String {
    let cores = thread::available_parallelism().map_or_else(|_| "?".to_owned(), |cores| cores.to_string());
    let information = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = information.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let model = model.map_or("processor unknown", |(_, model)| model);
    format!(
        "# Benchmarks\n\n\
         Written by `cargo xtask bench --write`; a target is what the benchmark itself demands. Broker, benchmark and\n\
         runtime share the machine, and a ratio compares runs that took turns on it.\n\n\
         - Commit: {commit}\n\
         - Machine: {cores} cores ({model})\n\
         - Build: the `dev` profile of `Cargo.toml` (optimised, with overflow checks and debug assertions)\n\n\
         ```text\n{table}```\n"
    )
}

fn benches() -> Result<Vec<String>> {
    let metadata =
        output(&mut cargo(&["metadata", "--no-deps", "--format-version", "1"])).context("cargo metadata failed")?;
    let metadata: Value = serde_json::from_str(&metadata).context("cargo's metadata is not JSON")?;
    let packages = metadata.pointer("/packages").and_then(Value::as_array).into_iter().flatten();
    let targets = packages.filter_map(|package| package.pointer("/targets")?.as_array()).flatten();
    let benches = targets.filter(|target| target.pointer("/kind/0").is_some_and(|kind| kind == "bench"));
    Ok(benches.filter_map(|target| Some(target.pointer("/name")?.as_str()?.to_owned())).collect())
}

struct Target {
    text: String,
    is_met: bool,
}

impl Target {
    fn of(figure: &Value) -> Option<Self> {
        // A figure without a number meets no target.
        let value = figure.pointer("/value").and_then(Value::as_f64).unwrap_or(f64::NAN);
        let limit = |key| figure.pointer(key).and_then(Value::as_f64);
        if let Some(least) = limit("/at-least") {
            return Some(Self { text: format!("≥ {least}"), is_met: value >= least });
        }
        limit("/at-most").map(|most| Self { text: format!("≤ {most}"), is_met: value <= most })
    }
}

fn table(figures: &[Value]) -> String {
    let text = |figure: &Value, key| figure.pointer(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut table = format!("{:<52} {:>12} {:<16} {:<10}\n", "figure", "value", "unit", "target");
    for figure in figures {
        let value = figure.pointer("/value").and_then(Value::as_f64).unwrap_or(f64::NAN);
        let target = Target::of(figure).map_or_else(String::new, |target| {
            format!("{:<10} {}", target.text, if target.is_met { "met" } else { "MISSED" })
        });
        let (name, unit) = (text(figure, "/name"), text(figure, "/unit"));
        table.push_str(format!("{name:<52} {value:>12.3} {unit:<16} {target}").trim_end());
        table.push('\n');
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_met(figure: &Value) -> Option<bool> {
        Target::of(figure).map(|target| target.is_met)
    }

    #[test]
    fn a_figure_is_held_against_its_own_target() {
        assert_eq!(is_met(&json!({ "name": "lazy", "value": 0.8, "at-least": 0.75 })), Some(true));
        assert_eq!(is_met(&json!({ "name": "lazy", "value": 0.7, "at-least": 0.75 })), Some(false));
        assert_eq!(is_met(&json!({ "name": "boundary", "value": 181, "at-most": 180 })), Some(false));
        assert_eq!(is_met(&json!({ "name": "rate", "value": 306_000 })), None);
    }

    #[test]
    fn a_figure_without_a_number_meets_no_target() {
        assert_eq!(is_met(&json!({ "name": "lazy", "value": null, "at-least": 0.75 })), Some(false));
        assert_eq!(is_met(&json!({ "name": "boundary", "at-most": 180 })), Some(false));
    }
}
