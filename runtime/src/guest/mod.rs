//! Guests: loads a module, makes instances of it, calls them. The only place that names wasmtime.
//!
//! A guest is not trusted. Its time, memory, output and the size of its answers are limited; it has no file, socket or
//! environment; its clock stands still and its random numbers repeat. Any failure of a call ends the instance.

mod bindings;
mod compile;
mod console;
mod contract;
mod engine;
mod failure;
mod imports;
mod instance;
mod lift;
mod limits;
mod load;
mod messages;
mod state;
mod text;
mod wasi;

pub use self::{
    compile::{Compiler, child_main},
    failure::{Failure, FailureKind},
    instance::{Call, Instance, Occasion},
    limits::Limits,
    load::{Guest, LoadError, Setup},
};
