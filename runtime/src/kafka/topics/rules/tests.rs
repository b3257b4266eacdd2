use super::*;
use crate::config::{Dialect, PartitionChoice};

const HOUR: Duration = Duration::from_hours(1);

fn route() -> Route {
    Route {
        limit: None,
        topic: "dlq".into(),
        partition: PartitionChoice::Same,
        timestamp: TimestampChoice::Original,
        key: KeyChoice::Original,
        create: None,
        dialects: vec![Dialect::Deadletter],
    }
}

fn known(max_message_bytes: u64, retention: Option<Duration>) -> Configuration {
    Configuration { max_message_bytes, compacts: false, retention }
}

fn topic(may_read: Option<bool>, may_write: Option<bool>) -> Found {
    Found::Topic { partitions: 1, may_read, may_write, configuration: None }
}

fn wanted(role: Role<'_>) -> Wanted<'_> {
    Wanted { topic: "t", pipeline: "p", role }
}

#[test]
fn a_permission_that_lacks_is_an_error_and_one_that_is_unknown_is_not() {
    let route = route();
    let refused = |role, found| usable(&wanted(role), Some(&found)).map_err(|error| error.to_string());
    assert_eq!(
        refused(Role::Source, topic(Some(false), Some(true))).unwrap_err(),
        "topic \"t\" of pipeline \"p\" may not be read by this client: grant it READ on the topic, or correct \
         pipelines.p.topics"
    );
    assert_eq!(
        refused(Role::Output("o"), topic(Some(true), Some(false))).unwrap_err(),
        "topic \"t\" of output \"o\" of pipeline \"p\" may not be written by this client: grant it WRITE on the \
         topic, or correct pipelines.p.outputs.o.topic"
    );
    assert_eq!(
        refused(Role::Route("r", &route), Found::Refused("TopicAuthorizationFailed (…)".into())).unwrap_err(),
        "topic \"t\" of route \"r\" of pipeline \"p\" cannot be described: TopicAuthorizationFailed (…); check its \
         ACLs, or pipelines.p.routes.r.topic"
    );
    for role in [Role::Source, Role::Output("o"), Role::Route("r", &route)] {
        assert_eq!(refused(role, topic(None, None)), Ok(()));
    }
    assert_eq!(refused(Role::Source, topic(Some(true), Some(false))), Ok(()), "a source is not written");
    assert_eq!(refused(Role::Route("r", &route), topic(Some(false), Some(true))), Ok(()), "a route is not read");
}

#[test]
fn a_route_that_takes_less_than_its_source_gives_is_a_warning_with_both_numbers() {
    let route = route();
    let wanted = wanted(Role::Route("r", &route));
    let warning = takes_large_messages(&wanted, &known(1000, None), Some(2000)).unwrap();
    assert!(warning.contains("up to 1000 bytes (max.message.bytes), its source up to 2000:"), "{warning}");
    assert_eq!(takes_large_messages(&wanted, &known(2000, None), Some(2000)), None);
    assert_eq!(takes_large_messages(&wanted, &known(1000, None), None), None);
}

#[test]
fn a_source_that_keeps_messages_no_longer_than_they_may_be_open_is_a_warning() {
    let wanted = wanted(Role::Source);
    let warning = kept_long_enough(&wanted, &known(0, Some(HOUR)), HOUR).unwrap();
    assert!(warning.contains("for 1h (retention.ms), and open.age lets them be open for 1h:"), "{warning}");
    assert_eq!(kept_long_enough(&wanted, &known(0, Some(2 * HOUR)), HOUR), None);
    assert_eq!(kept_long_enough(&wanted, &known(0, None), HOUR), None);
}

#[test]
fn original_timestamps_need_a_route_that_keeps_records_as_long_as_its_source() {
    let route = route();
    let wanted = wanted(Role::Route("r", &route));
    assert!(takes_old_messages(&wanted, &known(0, Some(HOUR)), Some(Duration::MAX)).is_some());
    assert_eq!(takes_old_messages(&wanted, &known(0, Some(HOUR)), Some(HOUR)), None);
    assert_eq!(takes_old_messages(&wanted, &known(0, None), Some(Duration::MAX)), None);
}
