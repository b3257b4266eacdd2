//! Who may do what on a broker with an authorizer. rdkafka does not do this, so it is asked for byte by byte.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
};

use super::{Broker, SOON, poll};

/// What the broker is started with: everybody may do everything but what is denied by name.
pub(crate) const AUTHORIZER: &[(&str, &str)] = &[
    ("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
    ("allow.everyone.if.no.acl.found", "true"),
];

/// Something that may be denied, by Kafka's number and its name.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Resource<'n> {
    Topic(&'n str),
    Group(&'n str),
}

/// Kafka's numbers of operations.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Operation {
    Read = 3,
    Write = 4,
    Describe = 8,
}

const CREATE_ACLS: i16 = 30;
const DELETE_ACLS: i16 = 31;
const LITERAL: u8 = 3;
const ALL: u8 = 2;
const DENY: u8 = 2;
const ALLOW: u8 = 3;

impl Broker {
    /// Nobody may do this any more, from when this returns; whatever else there is to do, everybody may.
    pub(crate) fn deny(&self, resource: Resource<'_>, operation: Operation) {
        // Once there is a rule of a resource, only what a rule allows is allowed.
        let rules = [rule(resource, ALL, ALLOW), rule(resource, operation as u8, DENY)];
        self.change(CREATE_ACLS, &rules);
    }

    /// Everybody may do it again.
    pub(crate) fn allow(&self, resource: Resource<'_>, operation: Operation) {
        self.change(DELETE_ACLS, &[rule(resource, operation as u8, DENY)]);
    }

    /// The broker hands it to its controller, which is not there at once.
    fn change(&self, request: i16, rules: &[Vec<u8>]) {
        let body = [&count(rules.len())[..], &rules.concat()].concat();
        let answer = poll(SOON, || {
            // The time that it waited, and how many answers follow.
            let answer = ask(&self.servers, request, &body)[8..].to_vec();
            (answer[..2] == [0, 0]).then_some(answer)
        });
        assert!(answer.is_some(), "the broker did not take the rules");
    }
}

/// One rule for all users on all hosts; as a filter, it finds itself.
fn rule(resource: Resource<'_>, operation: u8, permission: u8) -> Vec<u8> {
    let (kind, name) = match resource {
        Resource::Topic(name) => (2, name),
        Resource::Group(name) => (3, name),
    };
    [&[kind][..], &text(name), &[LITERAL], &text("User:*"), &text("*"), &[operation, permission]].concat()
}

/// Sends a request in version 1 and returns what its answer says behind the header.
fn ask(server: &str, request: i16, body: &[u8]) -> Vec<u8> {
    let header = [&request.to_be_bytes()[..], &1_i16.to_be_bytes(), &7_i32.to_be_bytes(), &text("test")].concat();
    let mut broker = TcpStream::connect(server).unwrap();
    broker.set_read_timeout(Some(SOON)).unwrap();
    broker.write_all(&[&count(header.len() + body.len())[..], &header, body].concat()).unwrap();
    let mut length = [0; 4];
    broker.read_exact(&mut length).unwrap();
    let mut answer = vec![0; usize::try_from(i32::from_be_bytes(length)).unwrap()];
    broker.read_exact(&mut answer).unwrap();
    answer.split_off(4)
}

fn count(of: usize) -> [u8; 4] {
    i32::try_from(of).unwrap().to_be_bytes()
}

fn text(text: &str) -> Vec<u8> {
    [&i16::try_from(text.len()).unwrap().to_be_bytes()[..], text.as_bytes()].concat()
}
