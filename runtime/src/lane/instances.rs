//! Instances of the guest: one of its own for each lane of a guest that settles, a pool for any other.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::Semaphore;
use tracing::debug;

use super::work::Request;
use crate::{
    guest::{Failure, Guest, Instance},
    times::{Times, TimesCounted},
    verdict::Answer,
};

/// Above this share of its memory limit an instance is replaced, once nothing is open with it: a guest's memory never
/// shrinks, and one that leaks is better replaced at a batch boundary than trapped in the middle of a batch.
const HIGH_WATER: f64 = 0.75;

/// The guest and its pool; shared by the lanes of a pipeline.
pub struct Instances {
    guest: Guest,
    memory: usize,
    pooled: usize,
    idle: Mutex<Vec<Instance>>,
    seats: Semaphore,
    calls: Times,
}

/// What came of a call.
pub(super) struct Called {
    pub(super) result: Result<Answer, Failure>,
    /// If it lives.
    pub(super) instance: Option<Instance>,
    /// Without what it waited for an instance of the pool.
    pub(super) took: Duration,
}

impl Instances {
    /// No instance is made before the first call. `memory` is the limit of each in bytes.
    pub fn new(guest: Guest, memory: usize, pooled: usize) -> Self {
        Self { guest, memory, pooled, idle: Mutex::default(), seats: Semaphore::new(pooled), calls: Times::default() }
    }

    /// How long calls took that came to an end, without what they waited for an instance.
    pub fn call_times(&self) -> TimesCounted {
        self.calls.counted()
    }

    /// Bytes of linear memory that all instances take now.
    pub fn guest_memory(&self) -> usize {
        self.guest.memory()
    }

    /// Whether each lane has an instance of its own.
    pub(super) fn are_owned(&self) -> bool {
        self.guest.settles()
    }

    /// Calls the lane's own instance, one of the pool, or a new one, which it gives back. Dropping the future drops the
    /// instance with it.
    pub(super) async fn call(self: Arc<Self>, own: Option<Instance>, request: Request) -> Called {
        if self.are_owned() {
            return self.call_on(own, request).await;
        }
        // Closed never: the semaphore lives as long as we do.
        let _seat = self.seats.acquire().await;
        let pooled = if request.needs_fresh() { None } else { self.idle().pop() };
        self.call_on(pooled, request).await
    }

    /// Returns an instance to the pool, once its answer is found to keep the contract.
    pub(super) fn give_back(&self, instance: Option<Instance>) {
        let Some(instance) = instance.filter(|instance| !self.is_worn(instance)) else { return };
        let mut idle = self.idle();
        if idle.len() < self.pooled {
            idle.push(instance);
        }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Instance>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether an instance should be replaced when nothing is open with it.
    pub(super) fn is_worn(&self, instance: &Instance) -> bool {
        #[allow(clippy::cast_precision_loss, reason = "a share of a memory limit")]
        let worn = instance.memory() as f64 > self.memory as f64 * HIGH_WATER;
        if worn {
            debug!(memory = instance.memory(), limit = self.memory, "Instance at its high-water mark: replaced");
        }
        worn
    }

    async fn call_on(&self, instance: Option<Instance>, request: Request) -> Called {
        let begun = Instant::now();
        let (instance, result) = match self.make(instance, &request).await {
            Ok(mut instance) => {
                let called = Instant::now();
                let result = request.run(&mut instance).await;
                self.calls.add(called.elapsed());
                (result.is_ok().then_some(instance), result)
            }
            Err(failure) => (None, Err(failure)),
        };
        Called { result, instance, took: begun.elapsed() }
    }

    async fn make(&self, instance: Option<Instance>, request: &Request) -> Result<Instance, Failure> {
        match instance {
            Some(instance) => Ok(instance),
            None => self.guest.instantiate(request.call.now).await,
        }
    }
}
