//! The listener for operators: metrics, health and status for whoever asks, and changes for whoever has the token.
//!
//! An imperative shell over [`Control`](crate::control::Control) and plain types. It speaks as much of HTTP/1.1 as its
//! few paths need, one request a connection; every size, number and time of a request is bounded.

mod http;
mod metrics;
mod paths;
mod server;

pub use metrics::{METRICS, Metric};
pub use paths::{Change, Done, Failed};
pub use server::Server;
