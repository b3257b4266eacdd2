//! Kafka: the only place that names rdkafka.

pub mod client;
mod raw;
