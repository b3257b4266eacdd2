//! What a guest may use.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytesize::ByteSize;
use wasmtime::ResourceLimiter;

/// The most that a guest may hand to the host in one crossing (an answer, or the arguments of an imported function).
pub(super) const CROSSING: usize = 16 << 20;
/// Handles of resources alive in one instance: pollables and streams of WASI.
pub(super) const HANDLES: usize = 1_000;
/// Longest reason, log line and line of output.
pub(super) const TEXT: usize = 1_024;
/// Bytes of stderr that go into a failure.
pub(super) const STDERR_TAIL: usize = 2_048;
/// The longest delay of a retry or a hold; what has to wait for longer belongs on a route.
pub(super) const DELAY: Duration = Duration::from_mins(5);
/// Distinct codes of one guest: they become labels of metrics and groups of reports.
pub(super) const CODES: usize = 1_000;
/// Bytes of all records that one call emits, with a fixed amount for each record and header.
pub(super) const EMITTED_BYTES: usize = 4 << 20;
/// Records that one call emits.
pub(super) const EMITTED_RECORDS: usize = 10_000;
/// Bytes of one emitted record.
pub(super) const EMITTED_RECORD: usize = 1 << 20;

const TABLE_ELEMENTS: usize = 200_000;

/// Limits on one instance.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of its linear memories, summed.
    pub memory: usize,
    /// Time of one call, counted while the guest runs. A call that takes three times as long and a second more by the
    /// wall clock is ended, too.
    pub deadline: Duration,
    /// Bytes of the largest batch it will be handed.
    pub batch_bytes: usize,
}

impl Limits {
    /// The limit by the wall clock, for what the guest's own time does not show.
    pub(super) fn patience(&self, deadlines: u32) -> Duration {
        self.deadline.saturating_mul(3).saturating_mul(deadlines).saturating_add(Duration::from_secs(1))
    }

    /// A batch is in the guest's memory as it arrives, as the guest's own objects, as what it makes of them and as its
    /// answer.
    pub(super) fn headroom(&self, initial: usize) -> Result<(), String> {
        let (left, needed) = (self.memory.saturating_sub(initial), self.batch_bytes.saturating_mul(4));
        if left >= needed {
            return Ok(());
        }
        let [memory, initial_size, left, needed, batch, least] =
            [self.memory, initial, left, needed, self.batch_bytes, initial.saturating_add(needed)]
                .map(|bytes| ByteSize(bytes as u64));
        Err(format!(
            "it starts with {initial_size} of the {memory} of memory it may use, which leaves {left} for batches of \
             {batch}, but 4 × {batch} = {needed} must be free: allow at least {least} (guest.memory), or make batches smaller (batch.bytes)"
        ))
    }
}

/// A limit was reached that the guest cannot be told of without a chance to misread it.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct OutOfMemory(String);

/// Sums what all memories and tables of one store take (wasmtime's own `StoreLimits` looks at each alone).
pub(super) struct Meter {
    limit: usize,
    memory: usize,
    growing: usize,
    elements: usize,
    /// What all instances of the guest take.
    total: Arc<AtomicUsize>,
}

impl Meter {
    pub(super) fn new(limit: usize, total: Arc<AtomicUsize>) -> Self {
        Self { limit, memory: 0, growing: 0, elements: 0, total }
    }

    pub(super) fn memory(&self) -> usize {
        self.memory
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.total.fetch_sub(self.memory, Ordering::Relaxed);
    }
}

impl ResourceLimiter for Meter {
    fn memory_growing(&mut self, current: usize, desired: usize, _maximum: Option<usize>) -> wasmtime::Result<bool> {
        let growing = desired.saturating_sub(current);
        let wanted = self.memory.saturating_add(growing);
        if wanted > self.limit {
            let [wanted, limit] = [wanted, self.limit].map(|bytes| ByteSize(bytes as u64));
            return Err(wasmtime::Error::new(OutOfMemory(format!(
                "it asked for {wanted} of memory and may use {limit}"
            ))));
        }
        (self.memory, self.growing) = (wanted, growing);
        self.total.fetch_add(growing, Ordering::Relaxed);
        Ok(true)
    }

    fn memory_grow_failed(&mut self, _error: wasmtime::Error) -> wasmtime::Result<()> {
        let growing = std::mem::take(&mut self.growing);
        self.memory = self.memory.saturating_sub(growing);
        self.total.fetch_sub(growing, Ordering::Relaxed);
        Ok(())
    }

    fn table_growing(&mut self, current: usize, desired: usize, _maximum: Option<usize>) -> wasmtime::Result<bool> {
        self.elements = self.elements.saturating_add(desired.saturating_sub(current));
        if self.elements > TABLE_ELEMENTS {
            let problem = format!("its tables have {} elements and may have {TABLE_ELEMENTS}", self.elements);
            return Err(wasmtime::Error::new(OutOfMemory(problem)));
        }
        Ok(true)
    }

    fn instances(&self) -> usize {
        1_000
    }

    fn tables(&self) -> usize {
        1_000
    }

    fn memories(&self) -> usize {
        100
    }
}
