//! WASI 0.2 with nothing granted, and with a clock and random numbers that repeat.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use wasmtime::component::{HasSelf, Linker, Resource};
use wasmtime_wasi::{
    HostWallClock, WasiCtx, WasiCtxBuilder, async_trait,
    p2::{
        DynPollable, Pollable,
        bindings::{
            clocks::monotonic_clock,
            random::{insecure, insecure_seed, random},
        },
        subscribe,
    },
};

use super::{console::Console, instance::Call, state::State};
use crate::offset::Offset;

/// Most random bytes in one request.
const RANDOM_BYTES: u64 = 1 << 20;
/// What reading the monotonic clock adds to it, so that a guest that waits by reading does not wait for ever.
const READING: u64 = 1_000;

/// All of WASI, since languages import interfaces that their programs never call; then our own clocks and random.
pub(super) fn add_to_linker(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    wasmtime_wasi::p2::add_to_linker_async(linker)?;
    linker.allow_shadowing(true);
    monotonic_clock::add_to_linker::<State, HasSelf<State>>(linker, |state| state)?;
    random::add_to_linker::<State, HasSelf<State>>(linker, |state| state)?;
    insecure::add_to_linker::<State, HasSelf<State>>(linker, |state| state)?;
    insecure_seed::add_to_linker::<State, HasSelf<State>>(linker, |state| state)?;
    linker.allow_shadowing(false);
    Ok(())
}

/// A context without arguments, environment, files and network.
pub(super) fn context(now: &Now, stdout: Console, stderr: Console) -> WasiCtx {
    WasiCtxBuilder::new()
        .stdout(stdout)
        .stderr(stderr)
        .wall_clock(now.clone())
        .allow_tcp(false)
        .allow_udp(false)
        .allow_ip_name_lookup(false)
        .build()
}

/// The only wall clock of a guest: the `now` of the call, in milliseconds.
#[derive(Clone)]
pub(super) struct Now(Arc<AtomicI64>);

impl Now {
    pub(super) fn new(now: i64) -> Self {
        Self(Arc::new(AtomicI64::new(now)))
    }

    pub(super) fn set(&self, now: i64) {
        self.0.store(now, Ordering::Relaxed);
    }
}

impl HostWallClock for Now {
    fn resolution(&self) -> Duration {
        Duration::from_millis(1)
    }

    fn now(&self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.load(Ordering::Relaxed)).unwrap_or_default())
    }
}

/// The same random numbers for the same call.
pub(super) fn seed(call: &Call, first: Option<Offset>) -> u64 {
    let mut hasher = DefaultHasher::new();
    (&call.source, call.now, first).hash(&mut hasher);
    hasher.finish()
}

/// Time that a guest waits for has passed as soon as it asks.
struct Passed;

#[async_trait]
impl Pollable for Passed {
    async fn ready(&mut self) {}
}

impl State {
    fn wait_until(&mut self, when: u64) -> wasmtime::Result<Resource<DynPollable>> {
        self.monotonic = self.monotonic.max(when);
        let passed = self.table.push(Passed)?;
        subscribe(&mut self.table, passed)
    }

    fn random_bytes(&mut self, length: u64) -> wasmtime::Result<Vec<u8>> {
        if length > RANDOM_BYTES {
            return Err(wasmtime::format_err!(
                "it asked for {length} random bytes at once; {RANDOM_BYTES} are allowed"
            ));
        }
        let mut bytes = vec![0; usize::try_from(length)?];
        self.random.fill(&mut bytes);
        Ok(bytes)
    }
}

impl monotonic_clock::Host for State {
    fn now(&mut self) -> wasmtime::Result<u64> {
        self.monotonic = self.monotonic.saturating_add(READING);
        Ok(self.monotonic)
    }

    fn resolution(&mut self) -> wasmtime::Result<u64> {
        Ok(READING)
    }

    fn subscribe_instant(&mut self, when: u64) -> wasmtime::Result<Resource<DynPollable>> {
        self.wait_until(when)
    }

    fn subscribe_duration(&mut self, duration: u64) -> wasmtime::Result<Resource<DynPollable>> {
        self.wait_until(self.monotonic.saturating_add(duration))
    }
}

impl random::Host for State {
    fn get_random_bytes(&mut self, length: u64) -> wasmtime::Result<Vec<u8>> {
        self.random_bytes(length)
    }

    fn get_random_u64(&mut self) -> wasmtime::Result<u64> {
        Ok(self.random.u64(..))
    }
}

impl insecure::Host for State {
    fn get_insecure_random_bytes(&mut self, length: u64) -> wasmtime::Result<Vec<u8>> {
        self.random_bytes(length)
    }

    fn get_insecure_random_u64(&mut self) -> wasmtime::Result<u64> {
        Ok(self.random.u64(..))
    }
}

impl insecure_seed::Host for State {
    fn insecure_seed(&mut self) -> wasmtime::Result<(u64, u64)> {
        Ok((self.random.u64(..), self.random.u64(..)))
    }
}
