//! What the integration tests share: a real broker, its topics, and deadletter as a process.
#![allow(dead_code, unused_imports, reason = "each test binary uses a part of it")]

pub(crate) mod acls;
pub(crate) mod bare;
mod broker;
pub(crate) mod guests;
mod kafka;
pub(crate) mod operator;
mod oracle;
mod process;
mod records;
mod scene;
pub(crate) mod security;
mod topics;

use std::{
    path::{Path, PathBuf},
    sync::LazyLock,
    thread,
    time::{Duration, Instant},
};

pub(crate) use broker::{Broker, Extras, free_port};
pub(crate) use kafka::kafka;
pub(crate) use operator::Operated;
pub(crate) use oracle::Oracle;
pub(crate) use process::{Process, binary};
pub(crate) use records::{Position, Record, Transaction};
pub(crate) use scene::{Running, Scene, counts};
pub(crate) use topics::{Headers, Stored};

/// For what is expected to happen soon; generous, since the machine may be busy.
pub(crate) const SOON: Duration = Duration::from_mins(1);

/// The broker that the tests of one binary share; started on first use, gone with the process.
pub(crate) fn broker() -> &'static Broker {
    static BROKER: LazyLock<Broker> = LazyLock::new(|| Broker::start(&[]));
    &BROKER
}

/// How often something is repeated: `short` in a test, `full` where `cargo xtask soak` asks for it.
pub(crate) fn runs(short: u64, full: u64) -> u64 {
    if std::env::var_os("DEADLETTER_SOAK").is_some() { full } else { short }
}

/// The module of a package of `guests/`.
pub(crate) fn guest(package: &str) -> PathBuf {
    built("guests").join(package).with_extension("wasm")
}

/// Waits until `condition` returns something; panics with `what` at the deadline.
pub(crate) fn eventually<T>(deadline: Duration, what: &str, condition: impl FnMut() -> Option<T>) -> T {
    poll(deadline, condition).unwrap_or_else(|| panic!("not within {deadline:?}: {what}"))
}

/// Asks `condition` until it returns something; `None` at the deadline.
pub(crate) fn poll<T>(deadline: Duration, mut condition: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + deadline;
    loop {
        let value = condition();
        if value.is_some() || Instant::now() > end {
            return value;
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// Prometheus' own checks.
pub(crate) fn promtool() -> PathBuf {
    built("promtool").join("promtool")
}

/// Something that `cargo xtask` prepares.
fn built(name: &str) -> PathBuf {
    let path = repository().join("target").join(name);
    assert!(path.exists(), "{} is missing: run `cargo xtask test`", path.display());
    path
}

/// The root of the repository.
pub(crate) fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}
