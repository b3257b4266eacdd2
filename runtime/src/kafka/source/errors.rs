//! Errors that the client tells while it is polled.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use rdkafka::{
    consumer::Consumer,
    error::{KafkaError, RDKafkaErrorCode},
};
use tracing::{error, warn};

use super::thread::{ASK, Thread};
use crate::{config::OnOutOfRange, offset::NextOffset};

/// The same news is not logged again within this time (an outage brings twenty a second).
const REPEAT_NEWS: Duration = Duration::from_secs(30);

impl Thread {
    /// Errors of the client: most are news (the client tries again by itself), some end the pipeline.
    pub(super) fn heard(&mut self, error: KafkaError) -> Result<()> {
        use RDKafkaErrorCode as Code;
        self.may_go_on(&error)?;
        match error {
            KafkaError::MessageConsumption(Code::AutoOffsetReset | Code::OffsetOutOfRange) => self.out_of_range(),
            error => {
                self.news.retain(|(_, at)| at.elapsed() < REPEAT_NEWS);
                if self.news.iter().all(|(known, _)| *known != error) {
                    warn!(%error, pipeline = %self.pipeline.name, "News from Kafka");
                    self.news.push((error, Instant::now()));
                }
                Ok(())
            }
        }
    }

    /// Unless an error is one that does not pass.
    pub(super) fn may_go_on(&self, error: &KafkaError) -> Result<()> {
        use RDKafkaErrorCode as Code;
        let group = &self.pipeline.group;
        match error.rdkafka_error_code() {
            Some(code @ (Code::GroupAuthorizationFailed | Code::TopicAuthorizationFailed)) => bail!(
                "not authorised ({code}): group {group} needs READ on the group and on the topics {:?}",
                self.pipeline.topics
            ),
            Some(Code::FencedInstanceId) => bail!(
                "another process has joined group {group} with the same group.instance.id and has its partitions now: \
                 give each process an id of its own"
            ),
            Some(Code::UnreleasedInstanceId) => bail!(
                "group {group} has a member with the same group.instance.id: give each process an id of its own; if it \
                 is that of a process that died, start again when its session has ended \
                 (group.consumer.session.timeout.ms of the brokers)"
            ),
            Some(code) if matches!(error, KafkaError::MessageConsumptionFatal(_)) => {
                bail!("the main consumer of group {group} failed for good: {code}")
            }
            _ => Ok(()),
        }
    }

    /// Some partition's position is outside of its log; the client does not say which.
    fn out_of_range(&mut self) -> Result<()> {
        for source in self.everything() {
            let Some(slot) = self.slots.iter().find(|slot| slot.source == source) else { continue };
            let (position, topic, partition) = (slot.next, &*source.topic, source.partition);
            let (low, high) = match self.consumer.fetch_watermarks(topic, partition, ASK) {
                Ok((low, high)) => (low, high),
                Err(error) => {
                    warn!(%error, partition = %source, "Cannot read the watermarks");
                    continue;
                }
            };
            if (low..=high).contains(&position.get()) {
                continue;
            }
            let to = match self.pipeline.on_out_of_range {
                OnOutOfRange::Stop => {
                    error!(partition = %source, %position, low, high, "Stopped: the position is outside of the log. Set the group's offset, or `on-out-of-range`");
                    continue;
                }
                OnOutOfRange::Earliest => low,
                OnOutOfRange::Latest => high,
            };
            warn!(partition = %source, %position, low, high, to, "The position was outside of the log; messages may be lost");
            self.move_to(&source, NextOffset::new(to).unwrap_or(position))?;
        }
        Ok(())
    }
}
