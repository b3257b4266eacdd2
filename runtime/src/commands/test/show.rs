//! The report for people: tables on a terminal, lines in a pipe.

use std::io::{self, IsTerminal};

use similar::{ChangeTag, TextDiff};

use super::report::Report;
use crate::commands::{
    Failure, print,
    style::{BAD, GOOD},
    table::table,
};

/// Lines of agreement around a difference.
const CONTEXT: usize = 2;

/// Prints a report.
pub(super) fn report(report: &Report) -> Result<(), Failure> {
    if io::stdout().is_terminal() {
        return print(&tables(report));
    }
    print(&report.lines())?;
    for log in &report.logs {
        anstream::eprintln!("log {} {} {}", log.level, log.from, log.message);
    }
    anstream::eprintln!("{}", report.summary());
    Ok(())
}

fn tables(report: &Report) -> String {
    let verdicts = report.rows().into_iter().map(|row| {
        let offsets = row.offsets();
        let words = [row.route, row.code, row.reason, row.delay].map(Option::unwrap_or_default);
        let [route, code, reason, delay] = words;
        [offsets, row.outcome.to_owned(), route, code, reason, delay, row.when.to_string()]
    });
    let mut text = table(["offsets", "verdict", "route", "code", "reason", "delay", "when"], verdicts);
    let emits = report.emits.iter().map(|emit| [emit.output.clone(), emit.text()]);
    text += &table(["output", "record"], emits);
    let logs = report.logs.iter().map(|log| [log.level.clone(), log.from.clone(), log.message.clone()]);
    text += &table(["level", "from", "log"], logs);
    let failure = report.failure.as_ref().map(|failure| format!("{BAD}failure{BAD:#} {failure}\n"));
    text + &failure.unwrap_or_default() + &report.summary() + "\n"
}

/// Prints where two texts differ, line by line.
pub(super) fn difference(expected: &str, got: &str) -> Result<(), Failure> {
    let difference = TextDiff::from_lines(expected, got);
    let groups = difference.grouped_ops(CONTEXT);
    let changes = groups.iter().flatten().flat_map(|operation| difference.iter_changes(operation));
    let lines = changes.map(|change| {
        let line = change.value().trim_end_matches('\n');
        match change.tag() {
            ChangeTag::Equal => format!("  {line}\n"),
            ChangeTag::Delete => format!("{BAD}- {line}{BAD:#}\n"),
            ChangeTag::Insert => format!("{GOOD}+ {line}{GOOD:#}\n"),
        }
    });
    let lines: String = lines.collect();
    print(&format!("{BAD}- expected{BAD:#}\n{GOOD}+ got{GOOD:#}\n{lines}"))
}
