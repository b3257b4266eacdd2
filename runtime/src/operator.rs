//! What an operator asks of a running process, and what it says of itself: plain types, which also travel as JSON.

use std::{collections::BTreeMap, fmt, time::Duration};

use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use crate::offset::{NextOffset, Offset};

/// What is asked of a lane. It answers through the sender; one that is gone does not.
#[derive(Debug)]
pub enum Ask {
    /// How it stands.
    Report(oneshot::Sender<LaneReport>),
    /// Ask nothing more of the guest.
    Pause(Reason, Answer),
    /// Go on.
    Resume(Reason, Answer),
    /// Settle an open message with a stub.
    Skip(Offset, Reason, Answer),
}

/// How a lane answers what changes something.
pub type Answer = oneshot::Sender<Result<(), Refusal>>;

/// Who asks, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Reason {
    /// A name.
    pub by: String,
    /// A sentence; may be empty.
    #[serde(default)]
    pub why: String,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.why.is_empty() { f.write_str(&self.by) } else { write!(f, "{}: {}", self.by, self.why) }
    }
}

/// Why nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No pipeline of this process has the partition now.
    #[error("this process does not have {0} now: `deadletter status` shows what it has")]
    NotHere(String),
    /// Which pipeline is meant?
    #[error("{partition} is read by several pipelines: add --pipeline with one of {}", pipelines.join(", "))]
    Ambiguous {
        /// As the log writes it.
        partition: String,
        /// Their names.
        pipelines: Vec<String>,
    },
    /// It is paused already.
    #[error("it is paused already: {0}")]
    Paused(String),
    /// It would have to be paused.
    #[error("it is not paused")]
    NotPaused,
    /// A message can be skipped only while nobody judges it.
    #[error("a message can be skipped only while its partition is paused: pause it first")]
    Judging,
    /// There is nothing to skip.
    #[error(
        "offset {offset} is not open: it is settled already, awaits its dead letter, or was not delivered yet (committable up to {committable}, delivered up to {position})"
    )]
    NotOpen {
        /// What was to be skipped.
        offset: Offset,
        /// Everything below is settled.
        committable: NextOffset,
        /// Behind the last message delivered.
        position: NextOffset,
    },
    /// The partition is on its way to somebody else.
    #[error("the partition is being given up")]
    Ending,
    /// Going on would not help.
    #[error(
        "a record of it is too large for its topic, and the commit waits for that record: raise the topic's max.message.bytes and start the process anew"
    )]
    Undeliverable,
    /// The lane ended meanwhile, or is stuck.
    #[error("the partition does not answer: it may be changing hands")]
    Silent,
}

/// What a lane says of itself.
#[derive(Clone, Debug)]
pub struct LaneReport {
    /// Behind the last message delivered to the guest.
    pub position: NextOffset,
    /// Offsets that no verdict settled yet.
    pub open: u64,
    /// Those of them that are not in the hands of a running call.
    pub deferred: u64,
    /// For how long the oldest of them is open.
    pub oldest_open: Option<Duration>,
    /// Rejected messages whose dead letters are not acknowledged.
    pub unacknowledged: u64,
    /// Whether and why it is paused.
    pub paused: Option<Paused>,
}

/// Why a partition is paused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Paused {
    /// Who paused it.
    pub by: PausedBy,
    /// One line.
    pub why: String,
}

/// Who paused a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PausedBy {
    /// The host, since it cannot go on.
    Host,
    /// An operator.
    Operator,
}

/// How a process stands.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Status {
    /// Of this program.
    pub version: String,
    /// Whether it is on its way out.
    pub draining: bool,
    /// By name; empty until they run.
    pub pipelines: BTreeMap<String, PipelineStatus>,
}

/// How a pipeline stands.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct PipelineStatus {
    /// Its consumer group.
    pub group: String,
    /// The digest of its guest's module.
    pub guest: String,
    /// Whether the group has assigned partitions to it yet, be it none.
    pub assigned: bool,
    /// By topic and partition.
    pub lanes: Vec<LaneStatus>,
}

/// How an assigned partition stands. Positions are offsets of the next message.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct LaneStatus {
    /// The topic's name.
    pub topic: String,
    /// Which partition of it.
    pub partition: i32,
    /// Behind the last message delivered to the guest.
    pub position: i64,
    /// Where whoever is next would begin.
    pub committed: i64,
    /// Where the log ends; missing while no broker says so.
    pub end: Option<i64>,
    /// Messages that no verdict settled yet.
    pub open: u64,
    /// Those of them that the guest was given before.
    pub deferred: u64,
    /// For how long the oldest of them is open.
    pub oldest_open_seconds: Option<f64>,
    /// Rejected messages whose dead letters are not acknowledged.
    pub unacknowledged: u64,
    /// Whether and why it is paused.
    pub paused: Option<Paused>,
}

impl Status {
    /// Why the process cannot be called ready, one sentence each; what an operator paused is no reason.
    pub fn unready(&self) -> Vec<String> {
        let mut why = Vec::new();
        if self.draining {
            why.push("the process is draining".to_owned());
        }
        if self.pipelines.is_empty() {
            why.push("the pipelines do not run yet".to_owned());
        }
        for (name, pipeline) in &self.pipelines {
            if !pipeline.assigned {
                why.push(format!("pipeline {name} has no partitions assigned yet"));
            }
            for lane in &pipeline.lanes {
                let by_host = lane.paused.as_ref().filter(|paused| paused.by == PausedBy::Host);
                why.extend(
                    by_host.map(|paused| format!("{}[{}] is paused: {}", lane.topic, lane.partition, paused.why)),
                );
            }
        }
        why
    }
}
