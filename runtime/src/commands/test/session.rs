//! A guest at work without Kafka: batches in, checked answers out.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    input::{Message, Messages},
    report::{Judged, Report, When},
};
use crate::{
    guest::{Call, Failure, Guest, Instance, Occasion},
    ledger::Ledger,
    message::{Batch, Header, Timestamp, TopicPartition},
    offset::{NextOffset, Offset, OffsetSet},
    verdict::Answer,
};

/// What a session is given.
pub(super) struct Plan {
    /// Whose messages they are said to be.
    pub(super) source: TopicPartition,
    /// The most messages of a batch.
    pub(super) messages: usize,
    /// Bytes at which a batch is closed.
    pub(super) bytes: usize,
    /// Ticks after the last batch.
    pub(super) ticks: u32,
}

/// By how much the guest's clock moves on at a tick: the default of `settle`.
const TICK_MILLIS: i64 = 1_000;

/// The default of `retry`.
const ATTEMPTS: u32 = 5;

/// Why a session ends early.
pub(super) enum Stop {
    /// The input cannot be read.
    Input(anyhow::Error),
    /// The guest failed.
    Guest(String),
}

/// One guest, one partition.
pub(super) struct Session {
    instance: Instance,
    ledger: Ledger,
    plan: Plan,
    /// The guest's clock: the latest timestamp so far, so that a run can be repeated.
    now: i64,
    /// Held: nothing is handed out any more.
    held: OffsetSet,
    report: Report,
}

impl Session {
    /// Runs everything. What was found before an error of the input is lost with it.
    pub(super) async fn run(guest: &Guest, messages: &mut Messages, plan: Plan) -> anyhow::Result<Report> {
        let instance = match guest.instantiate(0).await {
            Ok(instance) => instance,
            Err(failure) => return Ok(Report { failure: Some(failure.to_string()), ..Report::default() }),
        };
        let ledger = Ledger::new(NextOffset::START, ATTEMPTS);
        let mut session = Self { instance, ledger, plan, now: 0, held: OffsetSet::new(), report: Report::default() };
        match session.everything(guest.settles(), messages).await {
            Ok(()) => {}
            Err(Stop::Input(error)) => return Err(error),
            Err(Stop::Guest(failure)) => session.report.failure = Some(failure),
        }
        Ok(session.end())
    }

    async fn everything(&mut self, settles: bool, messages: &mut Messages) -> Result<(), Stop> {
        while self.held.is_empty()
            && let Some(batch) = self.next_batch(messages).map_err(Stop::Input)?
        {
            self.process(Arc::new(batch)).await?;
        }
        if settles {
            for tick in 1..=self.plan.ticks {
                self.now = self.now.saturating_add(TICK_MILLIS);
                self.settle(Occasion::Tick, When::Tick(tick)).await?;
            }
            self.settle(Occasion::Last, When::Last).await?;
        }
        Ok(())
    }

    fn next_batch(&mut self, messages: &mut Messages) -> anyhow::Result<Option<Batch>> {
        let mut batch = Batch::new(self.plan.source.clone());
        let mut next = self.ledger.position().get();
        while batch.len() < self.plan.messages
            && batch.bytes() < self.plan.bytes
            && let Some(offset) = Offset::new(next)
            && let Some(message) = messages.next()?
        {
            self.now = self.now.max(message.timestamp.unwrap_or_default());
            push(&mut batch, offset, &message);
            next += 1;
        }
        Ok(Some(batch).filter(|batch| !batch.is_empty()))
    }

    async fn process(&mut self, batch: Arc<Batch>) -> Result<(), Stop> {
        self.ledger.deliver(batch.offsets(), batch.leader_epochs(), Duration::ZERO);
        let call = self.call();
        let started = Instant::now();
        let answer = self.instance.process(&call, Arc::clone(&batch)).await;
        self.count(started);
        self.report.messages += u64::try_from(batch.len()).unwrap_or(u64::MAX);
        let what = || match (batch.offsets().first(), batch.offsets().last()) {
            (Some(first), Some(last)) => format!("offsets {first}-{last}"),
            _ => String::new(),
        };
        self.judge(answer, Some(batch.offsets()), When::Process)
            .map_err(|problem| Stop::Guest(format!("{}: {problem}", what())))
    }

    /// As in production, only while offsets are open; but the last call always comes.
    async fn settle(&mut self, occasion: Occasion, when: When) -> Result<(), Stop> {
        if self.ledger.open_count() == 0 && when != When::Last {
            return Ok(());
        }
        let call = self.call();
        let started = Instant::now();
        let answer = self.instance.settle(&call, occasion).await;
        self.count(started);
        self.judge(answer, None, when).map_err(|problem| Stop::Guest(format!("settle, {when}: {problem}")))
    }

    fn call(&self) -> Call {
        Call { source: self.plan.source.clone(), now: self.now, deadlines: 1 }
    }

    fn count(&mut self, started: Instant) {
        self.report.calls += 1;
        self.report.time += started.elapsed();
        self.report.memory = self.report.memory.max(self.instance.memory());
    }

    fn judge(&mut self, answer: Result<Answer, Failure>, batch: Option<&[i64]>, when: When) -> Result<(), String> {
        let Answer { verdicts, emits } = answer.map_err(|failure| failure.to_string())?;
        let checked = self.ledger.check(&verdicts, batch).map_err(|violation| violation.to_string())?;
        let (accepted, retried) = (checked.accepted().clone(), checked.retried().to_vec());
        let applied = self.ledger.apply(checked, emits.len(), Duration::ZERO);
        self.note(Judged::Accept, when, &accepted);
        for (offsets, backoff) in retried {
            self.note(Judged::Retry(backoff), when, &offsets);
        }
        if let Some(hold) = applied.hold {
            self.held = self.ledger.lost().clone();
            self.note(Judged::Hold(hold.backoff), when, &self.held.clone());
        }
        for (offsets, rejection) in applied.rejected {
            self.note(Judged::Reject(rejection), when, &offsets);
            for offset in offsets.iter() {
                self.ledger.letter_acked(offset);
            }
        }
        if let Some(call) = applied.call {
            for _ in &emits {
                self.ledger.emit_acked(call);
            }
        }
        self.report.emits.extend(emits.into_iter().map(Into::into));
        Ok(())
    }

    fn note(&mut self, judged: Judged, when: When, offsets: &OffsetSet) {
        if !offsets.is_empty() {
            self.report.verdicts.entry((judged, when)).or_default().extend(offsets);
        }
    }

    fn end(mut self) -> Report {
        self.ledger.lose_instance();
        let mut open = self.ledger.lost().clone();
        open.subtract(&self.held);
        self.note(Judged::Open, When::Process, &open);
        self.report
    }
}

fn push(batch: &mut Batch, offset: Offset, message: &Message) {
    let headers = message.headers.iter();
    let headers = headers.map(|header| Header { name: header.name.as_bytes(), value: header.value.as_deref() });
    let timestamp = message.timestamp.map(Timestamp::Create);
    batch.push(offset, timestamp, None, message.key.as_deref(), message.payload.as_deref(), headers);
}
