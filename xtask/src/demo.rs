//! The demonstration: the earthquakes example on the embedded broker.

use anyhow::Result;

use crate::{
    guests, prerequisites,
    shell::{self, cargo},
};

/// Builds what the example needs and runs it.
pub(crate) fn run(json: bool) -> Result<()> {
    prerequisites::build()?;
    guests::build()?;
    // The tests' features, so that both share one build.
    let mut example =
        cargo(&["run", "--package", "deadletter", "--features", "failpoints", "--example", "earthquakes"]);
    example.args(["--", "examples/earthquakes/earthquakes.toml"]).args(json.then_some("--json"));
    shell::run(&mut example)
}
