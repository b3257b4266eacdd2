//! `deadletter check`.

use std::path::PathBuf;

use anyhow::anyhow;
use clap::Args;

use super::{Failure, print, style::GOOD};
use crate::config::Config;

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
        for pipeline in config.pipelines.values() {
            let module = &pipeline.guest.module;
            if !module.is_file() {
                return Err(Failure::Input(anyhow!("{}: no such file", module.display())));
            }
        }
        Ok(())
    }
}

fn good(what: &str, name: &str) -> Result<(), Failure> {
    print(&format!("{GOOD}ok{GOOD:#} {what} {name}\n"))
}
