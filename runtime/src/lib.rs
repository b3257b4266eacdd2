//! A host runtime for Kafka consumers whose logic is a sandboxed WebAssembly component.
//!
//! # Layout
//! - [`offset`], [`message`], [`verdict`], [`record`]: plain types, from which everything else is built
//! - [`config`]: TOML as typed, then as usable
//! - [`ledger`]: pure bookkeeping of one partition; says what may be committed
//! - [`lane`], [`pipeline`]: the loops
//! - [`guest`]: the only place that names wasmtime
//! - [`kafka`]: the only place that names rdkafka
//! - [`operator`], [`control`], [`admin`]: what an operator asks of a process, its answers, and the listener for them
//! - [`commands`]: what the binary does
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing,
        clippy::string_slice,
        reason = "what goes wrong is an error with context, not a panic"
    )
)]

/// A place where a crash test makes the process die at once: `FAILPOINTS="name=5*off->return"`, by the feature
/// `failpoints`. Nothing without it.
macro_rules! kill_point {
    ($name:literal) => {
        fail::fail_point!($name, |_| std::process::abort())
    };
}

pub mod admin;
pub mod commands;
pub mod config;
pub mod control;
pub mod guest;
pub mod kafka;
pub mod lane;
pub mod ledger;
pub mod message;
pub mod offset;
pub mod operator;
pub mod pipeline;
pub mod record;
pub mod times;
pub mod verdict;
