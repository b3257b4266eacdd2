//! `deadletter check`.

use std::path::PathBuf;

use anyhow::anyhow;
use clap::Args;

use super::{Failure, block_on, compiler, print, style::GOOD};
use crate::{
    config::Config,
    guest::{Guest, Setup},
};

/// Checks a configuration.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  deadletter check orders.toml\n  deadletter check --offline orders.toml")]
pub struct Check {
    /// The configuration, a TOML file.
    config: PathBuf,
    /// Leave out what needs the network: the topics.
    #[arg(long)]
    offline: bool,
}

impl Check {
    pub(super) fn execute(self) -> Result<(), Failure> {
        let config = Config::load(&self.config)?;
        good("configuration", &self.config.display().to_string())?;
        block_on(modules(&config))??;
        if self.offline { Ok(()) } else { topics(&config) }
    }
}

/// Loads each pipeline's module as `run` does: an instance is made, and takes the settings.
async fn modules(config: &Config) -> Result<(), Failure> {
    let compiler = compiler()?;
    for pipeline in config.pipelines.values() {
        let guest = Guest::load(Setup::from(pipeline), &compiler).await?;
        let settles = if guest.settles() { ", settles" } else { "" };
        let module = pipeline.guest.module.display();
        good("module", &format!("{module} of {} ({}{settles})", pipeline.name, guest.digest()))?;
    }
    Ok(())
}

/// STUB: to call `kafka::topics` once that is merged, and say `ok topic …` for each.
fn topics(_config: &Config) -> Result<(), Failure> {
    Err(Failure::Work(anyhow!("topics cannot be checked yet: use --offline")))
}

fn good(what: &str, name: &str) -> Result<(), Failure> {
    print(&format!("{GOOD}ok{GOOD:#} {what} {name}\n"))
}
