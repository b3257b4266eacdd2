//! The benchmarks, their figures in one table.
//!
//! A benchmark prints a JSON object a line for each figure: `name`, `value`, `unit`, and where the figure has a target
//! `at-least` or `at-most`. More members are welcome: `--json` passes them on.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::{
    guests, prerequisites,
    shell::{cargo, output, run_lines},
};

/// Runs all benchmarks and prints their figures; an error if one misses its target.
pub(crate) fn run(json: bool) -> Result<()> {
    prerequisites::all()?;
    guests::build()?;
    let mut figures = Vec::new();
    for name in benches()? {
        let mut bench = cargo(&["bench", "--package", "deadletter", "--profile", "dev", "--features", "failpoints"]);
        let succeeded = run_lines(bench.args(["--bench", &name]), |line| match serde_json::from_str(line) {
            Ok(figure @ Value::Object(_)) => figures.push(figure),
            _ => eprintln!("{line}"),
        })?;
        ensure!(succeeded, "the benchmark {name} failed");
    }
    if json {
        println!("{}", json!({ "figures": figures }));
    } else {
        print!("{}", table(&figures));
    }
    let missed = figures.iter().filter(|figure| !Target::of(figure).is_none_or(|target| target.is_met)).count();
    ensure!(missed == 0, "{missed} of {} figures miss their target", figures.len());
    Ok(())
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
    let mut table = format!("{:<44} {:>12} {:<16} {:<10}\n", "figure", "value", "unit", "target");
    for figure in figures {
        let value = figure.pointer("/value").and_then(Value::as_f64).unwrap_or(f64::NAN);
        let target = Target::of(figure).map_or_else(String::new, |target| {
            format!("{:<10} {}", target.text, if target.is_met { "met" } else { "MISSED" })
        });
        let (name, unit) = (text(figure, "/name"), text(figure, "/unit"));
        table.push_str(format!("{name:<44} {value:>12.3} {unit:<16} {target}").trim_end());
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
