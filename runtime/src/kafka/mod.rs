//! Kafka: the only place that names rdkafka.

pub mod client;
mod context;
mod inbox;
mod raw;
pub mod shadow;
pub mod topic_ids;

pub use shadow::ShadowReaders;
pub use topic_ids::TopicIds;
