use std::collections::BTreeMap;

use super::*;
use crate::config::{Brokers, SeekThreshold, Shadow};

fn properties(of: &[(&str, &str)]) -> Properties {
    Properties(of.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect::<BTreeMap<_, _>>())
}

fn kafka(common: &[(&str, &str)], consumer: &[(&str, &str)]) -> Kafka {
    let shadow = Shadow {
        readers: 1,
        seek_threshold: SeekThreshold::Auto,
        deadline: std::time::Duration::from_secs(1),
        group_id: "shadow".into(),
    };
    let brokers = Brokers::Servers("localhost:1".into());
    Kafka {
        brokers,
        common: properties(common),
        consumer: properties(consumer),
        producer: properties(&[]),
        shadow,
        unacknowledged: 32 << 20,
    }
}

#[test]
fn no_client_but_the_main_consumers_has_what_is_of_members() {
    let members: Vec<_> = GROUP_ONLY.iter().map(|name| (*name, "1")).collect();
    for kafka in [kafka(&members, &[]), kafka(&[], &members), kafka(&members, &members)] {
        let (lean, wide) = (shadow(&kafka, "", Width::Lean), shadow(&kafka, "", Width::Wide));
        for client in [admin(&kafka, ""), lean, wide, producer(&kafka, "")] {
            for name in GROUP_ONLY {
                assert_eq!(client.get(name), None, "{name}");
            }
        }
    }
}

#[test]
fn the_consumer_table_decides_on_the_protocol() {
    let (consumer, classic) = (("group.protocol", "Consumer"), ("group.protocol", "classic"));
    assert!(uses_consumer_protocol(&kafka(&[consumer], &[])));
    assert!(uses_consumer_protocol(&kafka(&[classic], &[consumer])));
    assert!(!uses_consumer_protocol(&kafka(&[consumer], &[classic])));
    assert!(!uses_consumer_protocol(&kafka(&[], &[])));
}
