//! Kafka: the only place that names rdkafka.

pub mod client;
mod producer;
mod raw;

pub use producer::{DeliveryError, Producer};
