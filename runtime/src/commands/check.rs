//! `deadletter check`.

use std::path::PathBuf;

use clap::Args;

use super::{Failure, block_on, compiler, print, style::GOOD};
use crate::{
    config::{Brokers, Config},
    guest::{Guest, Setup},
    kafka::{Cluster, topics},
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
        block_on(async {
            modules(&config).await?;
            if self.offline { Ok(()) } else { topics(&config).await }
        })?
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

/// Looks at each pipeline's topics as `run` does, and makes none.
async fn topics(config: &Config) -> Result<(), Failure> {
    for (name, kafka) in &config.clusters {
        if kafka.brokers == Brokers::Embedded {
            good("topics", &format!("of {name} left out: the embedded broker is made with them"))?;
            continue;
        }
        let cluster = Cluster::open(config, name)?;
        topics::knock(&cluster).await?;
        for pipeline in config.pipelines.values().filter(|pipeline| pipeline.cluster == *name) {
            for (topic, found) in topics::check(&cluster, pipeline).await?.topics {
                good("topic", &format!("{topic} of {} ({} partitions)", pipeline.name, found.partitions))?;
            }
        }
    }
    Ok(())
}

fn good(what: &str, name: &str) -> Result<(), Failure> {
    print(&format!("{GOOD}ok{GOOD:#} {what} {name}\n"))
}
