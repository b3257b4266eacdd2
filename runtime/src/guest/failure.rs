//! How a call fails.

use std::fmt;

use wasmtime::Trap;
use wasmtime_wasi::I32Exit;

use super::{
    limits::{CROSSING, OutOfMemory, TEXT},
    text,
};

/// What kind of failure it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FailureKind {
    /// The guest panicked, or did what no program may do.
    Trap,
    /// It did not answer in time.
    Timeout,
    /// It wanted more memory than it may use.
    OutOfMemory,
    /// It answered `err`.
    Error,
    /// Its answer breaks the contract.
    Contract,
}

impl FailureKind {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Trap, Self::Timeout, Self::OutOfMemory, Self::Error, Self::Contract];

    /// One word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Trap => "trap",
            Self::Timeout => "timeout",
            Self::OutOfMemory => "out-of-memory",
            Self::Error => "error",
            Self::Contract => "contract",
        }
    }

    /// The code of a message at which the guest fails in this way.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Trap => "guest-trap",
            Self::Timeout => "guest-timeout",
            Self::OutOfMemory => "guest-memory",
            Self::Error => "guest-error",
            Self::Contract => "guest-contract",
        }
    }
}

impl fmt::Display for FailureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Trap => "the guest trapped",
            Self::Timeout => "the guest ran out of time",
            Self::OutOfMemory => "the guest ran out of memory",
            Self::Error => "the guest answered with an error",
            Self::Contract => "the guest broke the contract",
        })
    }
}

/// A failed call. Its instance is of no more use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind}: {detail}")]
pub struct Failure {
    /// What kind.
    pub kind: FailureKind,
    /// One line for people, at most as long as a reason: the cause, then the end of what the call wrote to stderr. Control
    /// characters are escaped.
    pub detail: String,
}

/// The guest's own time is up.
#[derive(Debug, thiserror::Error)]
#[error("its deadline passed")]
pub(super) struct OverDeadline;

impl Failure {
    /// An answer that the ledger refuses.
    pub fn contract(violation: &str) -> Self {
        Self::new(FailureKind::Contract, violation, "")
    }

    pub(super) fn new(kind: FailureKind, cause: &str, stderr: &str) -> Self {
        let mut detail = text::cut(text::escaped(cause.trim()), TEXT);
        if !stderr.is_empty() {
            detail += "; stderr: ";
            let room = TEXT.saturating_sub(detail.len());
            detail += text::end(&text::escaped(stderr), room);
        }
        Self { kind, detail: text::cut(detail, TEXT) }
    }

    /// From wasmtime's error: the root cause, without the addresses around it.
    pub(super) fn from_error(error: &wasmtime::Error, stderr: &str) -> Self {
        let root = error.root_cause().to_string();
        if error.is::<OverDeadline>() {
            return Self::new(FailureKind::Timeout, &root, stderr);
        }
        if error.is::<OutOfMemory>() {
            return Self::new(FailureKind::OutOfMemory, &root, stderr);
        }
        if let Some(exit) = error.downcast_ref::<I32Exit>() {
            return Self::new(FailureKind::Trap, &format!("it exited with status {}", exit.0), stderr);
        }
        // wasmtime keeps the type of this error to itself.
        if !error.is::<Trap>() && root.contains("fuel allocated for hostcalls") {
            let cause = format!("it handed over more than {} MiB at once", CROSSING >> 20);
            return Self::new(FailureKind::Contract, &cause, stderr);
        }
        Self::new(FailureKind::Trap, &root, stderr)
    }
}
