//! The answers to a want, turn by turn, each checked against the topic's id.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{
    sync::{OwnedSemaphorePermit, mpsc},
    time,
};

use super::{
    Missing, ReadError, Reading, ShadowReaders, Want,
    reader::{Job, Request, Served},
};
use crate::{kafka::topic_ids::Existence, message::Batch, offset::Offset};

/// Turns that are asked for ahead, if there may be that many: one is read while the other is checked and used.
const AHEAD: usize = 2;
/// When to wonder whether a silent topic is still there, and how long to wait before believing that it is not: a broker
/// whose metadata lag may say so of a topic that exists.
const SILENCE: Duration = Duration::from_secs(1);
/// How long to wait after a question about a topic could not be answered.
const AGAIN: Duration = Duration::from_millis(100);

/// The answers to a want. Dropping it gives up on the rest.
#[derive(Debug)]
pub struct Readings {
    readers: ShadowReaders,
    job: Arc<Job>,
    sender: mpsc::UnboundedSender<Served>,
    served: mpsc::UnboundedReceiver<Served>,
    /// What is read and not checked yet: kept here, so that `next` may be dropped at any time.
    unchecked: Option<Served>,
    asked: usize,
    /// The place of the turn that is asked for next.
    place: Option<OwnedSemaphorePermit>,
    through: Option<Offset>,
}

impl Readings {
    pub(super) fn new(readers: ShadowReaders, want: Want) -> Self {
        let (sender, served) = mpsc::unbounded_channel();
        let job = Arc::new(Job::new(want));
        Self { readers, job, sender, served, unchecked: None, asked: 0, place: None, through: None }
    }

    /// The answers of the next turn; `None` once every wanted offset is answered. A call waits while there are as many turns
    /// as there may be. From then on it has the configured deadline; after it, as after dropping the call, the next one goes
    /// on. At most two turns are read ahead of what was taken.
    pub async fn next(&mut self) -> Result<Option<Reading>, ReadError> {
        if self.is_complete() {
            return Ok(None);
        }
        if self.asked == 0 && self.unchecked.is_none() && self.place.is_none() {
            self.place = Arc::clone(&self.readers.0.turns).acquire_owned().await.ok();
        }
        let deadline = self.readers.0.kafka.shadow.deadline;
        let asked = Instant::now();
        let Ok(reading) = time::timeout(deadline, self.turn()).await else {
            self.readers.0.counters.deadline.add(1);
            return Err(ReadError::Deadline);
        };
        let reading = reading?;
        self.through = Some(reading.through);
        self.readers.0.counters.answered(&reading);
        self.readers.0.counters.turns.add(asked.elapsed());
        Ok(Some(reading))
    }

    fn is_complete(&self) -> bool {
        self.through == Some(self.job.want.last)
    }

    async fn turn(&mut self) -> Result<Reading, ReadError> {
        let last = self.job.want.last;
        let served = match self.unchecked.take() {
            Some(served) => served,
            None => match self.receive().await? {
                Some(served) => served,
                None => return Ok(self.replaced(last)),
            },
        };
        let (reading, broker) = self.unchecked.insert(served);
        let (through, broker) = (reading.through, *broker);
        if through != last {
            self.ask().await?;
        }
        // Asked after the read: an id never comes back, so if it is the same now, this topic is what was read.
        let want = &self.job.want;
        let another = want.identity.topic_id.is_some() && is_another(&self.readers, want, broker).await;
        match self.unchecked.take() {
            Some((reading, _)) if !another => Ok(reading),
            _ => Ok(self.replaced(through)),
        }
    }

    /// What the reader answers next; `None` if it answers nothing because the topic is gone.
    async fn receive(&mut self) -> Result<Option<Served>, ReadError> {
        self.ask().await?;
        let served = tokio::select! {
            served = self.served.recv() => served.ok_or(ReadError::Closed)?,
            () = gone(&self.readers, &self.job.want) => return Ok(None),
        };
        self.asked -= 1;
        Ok(Some(served))
    }

    /// Asks for turns ahead, as far as there is a place for them.
    async fn ask(&mut self) -> Result<(), ReadError> {
        while self.asked < AHEAD.min(self.job.want.offsets.len()) {
            let free = || Arc::clone(&self.readers.0.turns).try_acquire_owned().ok();
            let Some(place) = self.place.take().or_else(free) else { break };
            let request = Request::new(Arc::clone(&self.job), self.sender.clone(), place);
            let reader = self.readers.reader(&self.job.want.source).ok_or(ReadError::Closed)?;
            reader.send(request).await.map_err(|_| ReadError::Closed)?;
            self.asked += 1;
        }
        Ok(())
    }

    /// All offsets up to one are of another topic.
    fn replaced(&self, through: Offset) -> Reading {
        let want = &self.job.want;
        let rest = want.offsets.iter().copied().skip_while(|offset| Some(*offset) <= self.through);
        let missing = rest.take_while(|offset| *offset <= through).map(|offset| (offset, Missing::Replaced)).collect();
        Reading { found: Batch::new(want.source.clone()), missing, through, share: None }
    }
}

/// Returns once the topic that the messages were delivered from is no more.
async fn gone(readers: &ShadowReaders, want: &Want) {
    loop {
        time::sleep(SILENCE).await;
        if is_another(readers, want, None).await {
            return;
        }
    }
}

/// Whether the topic is no longer the one that the messages were delivered from. Asked twice before it is believed.
async fn is_another(readers: &ShadowReaders, want: &Want, broker: Option<i32>) -> bool {
    seems_another(readers, want, broker).await && {
        time::sleep(SILENCE).await;
        seems_another(readers, want, broker).await
    }
}

async fn seems_another(readers: &ShadowReaders, want: &Want, broker: Option<i32>) -> bool {
    loop {
        match readers.0.topic_ids.get(&want.source.topic, broker).await {
            Ok(Existence::Is(id)) => return want.identity.topic_id.is_some_and(|delivered| delivered != id),
            Ok(Existence::Unidentified) => return false,
            Ok(Existence::Gone) => return true,
            Err(error) => {
                tracing::debug!("{error}");
                time::sleep(AGAIN).await;
            }
        }
    }
}
