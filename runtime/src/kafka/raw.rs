//! The calls of librdkafka that rdkafka does not wrap, or wraps with a panic. The only unsafe code of the project.
#![allow(unsafe_code, reason = "librdkafka is C; each block says why it is sound")]

mod read;

pub(super) use read::{Described, describe_topics, headers, leader_epoch, serving_broker};
