//! Kafka: the only place that names rdkafka.

pub mod client;
mod cluster;
mod context;
mod copy;
mod embedded;
mod inbox;
mod list;
pub mod pattern;
mod producer;
mod raw;
pub mod shadow;
pub mod source;
pub mod topic_ids;
pub mod topics;
mod watermarks;

pub use cluster::{Cluster, Clusters};
pub use embedded::Embedded;
pub use producer::{DeliveryError, Producer};
pub use raw::share_memory_between_threads;
pub use shadow::ShadowReaders;
pub use topic_ids::TopicIds;
pub use watermarks::Watermarks;

use rdkafka::message::BorrowedMessage;

use crate::message::Header;

/// The headers of a message in order, with any bytes as names. rdkafka's own accessor panics on a name that is not UTF-8.
pub fn headers<'m>(message: &'m BorrowedMessage<'_>) -> impl Iterator<Item = Header<'m>> + use<'m> {
    raw::headers(message)
}
