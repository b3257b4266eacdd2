//! The calls of librdkafka that rdkafka does not wrap, or wraps with a panic. The only unsafe code of the project.
#![allow(unsafe_code, reason = "librdkafka is C; each block says why it is sound")]

mod describe;
mod produce;

pub(super) use describe::{Description, describe};
pub(super) use produce::{Refused, produce, produce_again};
