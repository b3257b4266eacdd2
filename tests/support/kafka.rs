//! The usable configuration of a cluster, for tests of the parts that talk to one.

use deadletter::config::{Brokers, Kafka, Properties, SeekThreshold, Shadow};

use super::SOON;

/// A cluster at these addresses, with one shadow reader and no properties.
pub(crate) fn kafka(servers: &str) -> Kafka {
    let [common, consumer, producer] = [Properties::default(), Properties::default(), Properties::default()];
    let (readers, seek_threshold) = (1, SeekThreshold::Auto);
    let shadow = Shadow { readers, seek_threshold, deadline: SOON, group_id: "deadletter-shadow".into() };
    Kafka {
        brokers: Brokers::Servers(servers.to_owned()),
        common,
        consumer,
        producer,
        shadow,
        unacknowledged: 32 << 20,
    }
}
