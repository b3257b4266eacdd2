//! Kafka: the only place that names rdkafka.

pub mod client;
mod embedded;
mod producer;
mod raw;
pub mod topics;

pub use embedded::Embedded;
pub use producer::{DeliveryError, Producer};
