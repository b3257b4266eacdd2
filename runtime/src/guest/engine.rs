//! The engine, its clock, and what is linked to every guest.

use std::{io, thread, time::Duration};

use wasmtime::{
    Cache, Config, Engine,
    component::{HasSelf, Linker},
};

use super::{bindings, state::State, wasi};

/// One step of the clock that interrupts guests. A deadline is a number of these.
pub(super) const TICK: Duration = Duration::from_millis(10);

/// An engine and what it offers to guests.
#[derive(Clone)]
pub(super) struct Host {
    pub(super) engine: Engine,
    pub(super) linker: Linker<State>,
}

/// An engine with its ticking clock; the thread ends with the engine.
pub(super) fn host(cache: Option<Cache>) -> wasmtime::Result<Host> {
    let engine = engine(cache)?;
    tick(&engine)?;
    let mut linker = Linker::new(&engine);
    wasi::add_to_linker(&mut linker)?;
    let contract = bindings::EveryGuest::add_to_linker::<State, HasSelf<State>>;
    contract(&mut linker, |state| state)?;
    Ok(Host { engine, linker })
}

/// The child that compiles needs the same engine as the host: the settings are part of the cache's key.
pub(super) fn engine(cache: Option<Cache>) -> wasmtime::Result<Engine> {
    let mut config = Config::new();
    config
        .epoch_interruption(true)
        .concurrency_support(false)
        .wasm_memory64(false)
        .cranelift_nan_canonicalization(true)
        .relaxed_simd_deterministic(true)
        .cache(cache);
    Engine::new(&config)
}

fn tick(engine: &Engine) -> io::Result<()> {
    let engine = engine.weak();
    thread::Builder::new().name("guest-clock".to_owned()).spawn(move || {
        while let Some(engine) = engine.upgrade() {
            engine.increment_epoch();
            drop(engine);
            thread::sleep(TICK);
        }
    })?;
    Ok(())
}
