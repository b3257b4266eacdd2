//! STUB, replaced by the founder's: only the signature that `commands::run` calls.

use crate::config::Config;

/// Runs all pipelines until `shutdown` completes.
pub async fn run(config: Config, shutdown: impl Future<Output = ()>) -> anyhow::Result<()> {
    drop(config);
    shutdown.await;
    Ok(())
}
