//! `deadletter run`.

use std::{path::PathBuf, process, sync::Arc};

use anyhow::Context;
use clap::Args;
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::Notify,
};

use super::{Failure, block_on};
use crate::{admin::Server, config::Config, control::Control, pipeline};

/// Runs the pipelines of a configuration.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  deadletter run orders.toml\n\nSIGTERM and SIGINT let it finish what is in hand, flush, commit and leave the group, at most for\n`shutdown` (30s unless configured). A second signal ends it at once."
)]
pub struct Run {
    /// The configuration, a TOML file.
    config: PathBuf,
}

impl Run {
    pub(super) fn execute(self) -> Result<(), Failure> {
        let config = Config::load(&self.config)?;
        block_on(async {
            let control = Control::default();
            // Before anything that takes time: whoever looks after the process wants to see it start.
            let _server = match &config.admin {
                Some(admin) => Some(Server::start(admin, control.clone()).await?),
                None => None,
            };
            let guests = pipeline::load_guests(&config, &super::compiler()?).await?;
            let signalled = shutdown()?;
            let shutdown = async {
                tokio::select! {
                    () = signalled => {}
                    () = control.drained() => {}
                }
            };
            let summary = pipeline::run(config, guests, &control, shutdown).await?;
            let summary = serde_json::to_string(&summary).context("writing the summary")?;
            tracing::info!(summary, "Stopped");
            Ok(())
        })?
    }
}

/// Completes at the first signal; the second ends the process. The signals are taken from here on, not from the first poll.
fn shutdown() -> anyhow::Result<impl Future<Output = ()>> {
    let mut signals = Signals {
        terminate: signal(SignalKind::terminate()).context("listening for SIGTERM")?,
        interrupt: signal(SignalKind::interrupt()).context("listening for SIGINT")?,
    };
    let shutdown = Arc::new(Notify::new());
    let first = Arc::clone(&shutdown);
    tokio::spawn(async move {
        let (name, _) = signals.next().await;
        tracing::info!(signal = name, "Shutting down; a second signal ends the process at once");
        first.notify_one();
        let (name, number) = signals.next().await;
        tracing::error!(signal = name, "Ended by a second signal; what was not committed will be delivered again");
        process::exit(128 + number);
    });
    Ok(async move { shutdown.notified().await })
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// The name and the number of the next one.
    async fn next(&mut self) -> (&'static str, i32) {
        tokio::select! {
            _ = self.terminate.recv() => ("SIGTERM", SignalKind::terminate().as_raw_value()),
            _ = self.interrupt.recv() => ("SIGINT", SignalKind::interrupt().as_raw_value()),
        }
    }
}
