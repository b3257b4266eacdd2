//! A client that is not allowed what it needs: told at the start with what is missing; later, nothing is lost.

use std::sync::LazyLock;

use crate::support::{
    Broker, Oracle, Process, SOON,
    acls::{AUTHORIZER, Operation, Resource},
    eventually,
};

fn broker() -> &'static Broker {
    static BROKER: LazyLock<Broker> = LazyLock::new(|| Broker::start(AUTHORIZER));
    &BROKER
}

/// What a process says last, when it ends with 1.
fn last_words(process: &mut Process) -> String {
    assert_eq!(process.wait(SOON).code(), Some(1), "{}", process.stderr());
    process.stderr().lines().last().unwrap_or_default().to_owned()
}

/// What a process says that starts while something is denied.
fn refused(topic: &str, resource: Resource<'_>, operation: Operation) -> String {
    let oracle = Oracle::new(broker(), topic, 1);
    broker().deny(resource, operation);
    last_words(&mut Process::start(&oracle.config("", "")))
}

#[test]
fn whoever_may_not_read_the_source_does_not_start() {
    assert_eq!(
        refused("start-source", Resource::Topic("start-source"), Operation::Read),
        "error: pipeline oracle: topic \"start-source\" of pipeline \"oracle\" may not be read by this client: grant it \
         READ on the topic, or correct pipelines.oracle.topics"
    );
}

#[test]
fn whoever_may_not_know_the_source_does_not_start() {
    assert_eq!(
        refused("start-hidden", Resource::Topic("start-hidden"), Operation::Describe),
        "error: pipeline oracle: topic \"start-hidden\" of pipeline \"oracle\" cannot be described: \
         TopicAuthorizationFailed (Broker: Topic authorization failed); check its ACLs, or pipelines.oracle.topics"
    );
}

#[test]
fn whoever_may_not_write_dead_letters_does_not_start() {
    assert_eq!(
        refused("start-route", Resource::Topic("start-route.dlq"), Operation::Write),
        "error: pipeline oracle: topic \"start-route.dlq\" of route \"dead-letter\" of pipeline \"oracle\" may not be \
         written by this client: grant it WRITE on the topic, or correct pipelines.oracle.routes.dead-letter.topic"
    );
}

#[test]
fn whoever_may_not_join_the_group_is_told_so() {
    let said = refused("start-group", Resource::Group("start-group"), Operation::Read);
    assert!(said.starts_with("error: pipeline oracle stopped: not authorised"), "{said}");
    assert!(said.contains("group start-group needs READ on the group and on the topics [\"start-group\"]"), "{said}");
}

/// A process that has judged something, and is then denied something.
fn denied(topic: &str, resource: Resource<'_>, operation: Operation) -> (Oracle<'static>, Process) {
    let mut oracle = Oracle::new(broker(), topic, 2);
    oracle.produce(500, 1);
    let process = oracle.start(&oracle.config("", ""), &[]);
    oracle.await_committed(SOON);
    broker().deny(resource, operation);
    oracle.produce(500, 2);
    (oracle, process)
}

/// Another process, once it is allowed again.
fn go_on(mut oracle: Oracle<'_>, resource: Resource<'_>, operation: Operation) {
    oracle.check();
    broker().allow(resource, operation);
    let _next = oracle.start(&oracle.config("", ""), &[]);
    oracle.check_end(SOON);
}

#[test]
fn a_source_that_may_not_be_read_any_more_ends_the_process() {
    let source = Resource::Topic("later-source");
    let (oracle, mut process) = denied("later-source", source, Operation::Read);
    let said = last_words(&mut process);
    assert!(said.contains("needs READ on the group and on the topics [\"later-source\"]"), "{said}");
    go_on(oracle, source, Operation::Read);
}

#[test]
fn a_group_that_may_not_be_joined_any_more_ends_the_process() {
    let group = Resource::Group("later-group");
    let (oracle, mut process) = denied("later-group", group, Operation::Read);
    let said = last_words(&mut process);
    assert!(said.contains("group later-group needs READ on the group"), "{said}");
    go_on(oracle, group, Operation::Read);
}

#[test]
fn dead_letters_that_may_not_be_written_any_more_wait_until_they_may() {
    let dead_letters = Resource::Topic("later-route.dlq");
    let (mut oracle, mut process) = denied("later-route", dead_letters, Operation::Write);
    eventually(SOON, "it says so", || {
        process.stderr().contains("A record was not delivered, and is tried again; the commit waits: ").then_some(())
    });
    oracle.check();
    assert!(process.stderr().contains("Topic authorization failed"), "{}", process.stderr());
    broker().allow(dead_letters, Operation::Write);
    oracle.check_end(SOON);
    assert!(process.is_running(), "{}", process.stderr());
}
