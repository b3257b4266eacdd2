//! The long versions of the tests whose faults are rare, and a record of what they showed.

use std::{fs, process::Command};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::{
    guests, prerequisites,
    shell::{cargo, command, output, root, run_lines},
};

/// The tests that have a long version.
const TESTS: [&str; 3] = ["crash", "rebalance", "memory"];

/// Runs them. Their figures go to docs/SOAK.md, or only to stdout where they come from a short run.
pub(crate) fn run(short: bool) -> Result<()> {
    prerequisites::all()?;
    guests::build()?;
    let mut figures = Vec::new();
    for test in TESTS {
        let mut soak = soak(test);
        if !short {
            soak.env("DEADLETTER_SOAK", "1");
        }
        let succeeded = run_lines(&mut soak, |line| {
            println!("{line}");
            figures.extend(figure(test, line));
        })?;
        ensure!(succeeded, "{test} failed: nothing was noted");
    }
    let length = if short { "at the length of a test run" } else { "at full length" };
    let report = report(length, &figures, &machine())?;
    if short {
        print!("{report}");
        return Ok(());
    }
    let file = root().join("docs/SOAK.md");
    fs::write(&file, report).with_context(|| format!("cannot write {}", file.display()))
}

/// One test at a time, so that none disturbs the figures of another.
fn soak(test: &str) -> Command {
    cargo(&[
        "test",
        "--package",
        "deadletter",
        "--features",
        "failpoints",
        "--test",
        "integration",
        "--",
        &format!("{test}::"),
        "--nocapture",
        "--test-threads=1",
    ])
}

/// A test prints `figure: {json}` for what is worth to be kept, also behind libtest's `test name ... `.
fn figure(test: &'static str, line: &str) -> Option<(&'static str, Value)> {
    let (_, json) = line.split_once("figure: ")?;
    Some((test, serde_json::from_str(json).ok()?))
}

/// What the figures depend on.
struct Machine {
    commit: String,
    date: String,
    system: String,
    cores: usize,
}

fn machine() -> Machine {
    let said = |program, args: &[&str]| {
        output(&mut command(program, args)).map_or_else(|| "unknown".to_owned(), |said| said.trim().to_owned())
    };
    Machine {
        commit: said("git", &["describe", "--always", "--dirty"]),
        date: said("date", &["--utc", "+%Y-%m-%d"]),
        system: said("uname", &["-srm"]),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
    }
}

fn report(length: &str, figures: &[(&str, Value)], machine: &Machine) -> Result<String> {
    let Machine { commit, date, system, cores } = machine;
    let files = TESTS.map(|test| format!("`tests/{test}.rs`")).join(", ");
    let mut lines = vec![
        "# Soak\n".to_owned(),
        format!("Written by `cargo xtask soak`: {files}, {length} on a real broker, all passed.\n"),
        format!("Commit {commit}, {date}, {system}, {cores} cores, profile `dev` (optimised, with overflow checks)."),
    ];
    for test in TESTS {
        lines.push(format!("\n## {test}\n"));
        for (_, figure) in figures.iter().filter(|(of, _)| *of == test) {
            let figure = figure.as_object().with_context(|| format!("a figure of {test} is no JSON object"))?;
            let members: Vec<_> = figure.iter().map(|(name, value)| format!("{name} {}", shown(value))).collect();
            lines.push(format!("- {}", members.join(" · ")));
        }
    }
    Ok(lines.join("\n") + "\n")
}

fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), |text| format!("`{text}`"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_figure_is_found_in_what_libtest_prints() {
        let found = Some(("crash", json!({ "kills": 20 })));
        assert_eq!(figure("crash", r#"figure: {"kills":20}"#), found);
        assert_eq!(figure("crash", r#"test a_name ... figure: {"kills":20}"#), found);
        assert_eq!(figure("crash", "20 kills"), None);
    }

    #[test]
    fn each_figure_is_a_line_under_its_test() {
        let machine =
            Machine { commit: "abc".into(), date: "2026-01-31".into(), system: "Linux 6 x86_64".into(), cores: 2 };
        let figures = [("memory", json!({ "name": "peak" })), ("crash", json!({ "kills": 200, "lost": 0 }))];
        let report = report("at full length", &figures, &machine).unwrap();
        assert!(report.contains("Commit abc, 2026-01-31, Linux 6 x86_64, 2 cores"), "{report}");
        assert!(
            report.ends_with("## crash\n\n- kills 200 · lost 0\n\n## rebalance\n\n\n## memory\n\n- name `peak`\n"),
            "{report}"
        );
    }
}
