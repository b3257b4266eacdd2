//! The status for people: a table on a terminal, lines with tabs in a pipe.

use std::{
    io::{self, IsTerminal},
    time::Duration,
};

use humantime::format_duration;

use crate::{
    commands::{
        Failure, print,
        style::{BAD, GOOD},
        table::{harmless, table},
    },
    operator::{LaneStatus, PausedBy, Status},
};

const HEADER: [&str; 10] =
    ["pipeline", "partition", "position", "committed", "end", "open", "deferred", "oldest", "unacknowledged", "paused"];

pub(super) fn status(status: &Status) -> Result<(), Failure> {
    let rows = || {
        let lanes =
            status.pipelines.iter().flat_map(|(name, pipeline)| pipeline.lanes.iter().map(move |lane| (name, lane)));
        lanes.map(|(name, lane)| row(name, lane))
    };
    if !io::stdout().is_terminal() {
        let lines = rows().map(|row| row.map(|cell| harmless(&cell)).join("\t") + "\n");
        return print(&([HEADER.join("\t") + "\n"].into_iter().chain(lines).collect::<String>()));
    }
    let unready = status.unready();
    let verdict = if unready.is_empty() {
        format!("{GOOD}ready{GOOD:#}\n")
    } else {
        let lines: Vec<_> = unready.iter().map(|why| format!("{BAD}not ready{BAD:#} {}\n", harmless(why))).collect();
        lines.concat()
    };
    print(&(table(HEADER, rows()) + &verdict))
}

fn row(pipeline: &str, lane: &LaneStatus) -> [String; 10] {
    let none = || "-".to_owned();
    let whole_seconds = |age: f64| {
        Duration::try_from_secs_f64(age.trunc()).map_or_else(|_| none(), |age| format_duration(age).to_string())
    };
    let paused = lane.paused.as_ref().map(|paused| match paused.by {
        PausedBy::Host => format!("host: {}", paused.why),
        PausedBy::Operator => format!("operator: {}", paused.why),
    });
    [
        pipeline.to_owned(),
        format!("{}[{}]", lane.topic, lane.partition),
        lane.position.to_string(),
        lane.committed.to_string(),
        lane.end.map_or_else(none, |end| end.to_string()),
        lane.open.to_string(),
        lane.deferred.to_string(),
        lane.oldest_open_seconds.map_or_else(none, whole_seconds),
        lane.unacknowledged.to_string(),
        paused.unwrap_or_else(none),
    ]
}
