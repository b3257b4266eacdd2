//! What the host keeps for one instance.

use std::{
    collections::BTreeSet,
    sync::{Arc, atomic::AtomicUsize},
};

use tracing::Level;
use wasmtime::component::ResourceTable;
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};

use super::{
    console::{Console, Log},
    limits::{HANDLES, Limits, Meter},
    wasi::{self, Now},
};
use crate::{message::Batch, verdict::Emit};

/// What all instances of a guest share.
pub(super) struct Shared {
    pub(super) limits: Limits,
    pub(super) outputs: BTreeSet<String>,
    pub(super) log: Arc<Log>,
    /// Bytes of linear memory that its instances take.
    pub(super) memory: Arc<AtomicUsize>,
}

/// The data of one store.
pub(super) struct State {
    pub(super) shared: Arc<Shared>,
    pub(super) meter: Meter,
    /// The batch in hand, while `lazy-handler.process` runs.
    pub(super) batch: Option<Arc<Batch>>,
    pub(super) staged: Staged,
    /// Steps of the engine's clock that this call ran through, and how many it may.
    pub(super) ticks: u64,
    pub(super) most_ticks: u64,
    /// Nanoseconds since the instance was made, as the guest sees it.
    pub(super) monotonic: u64,
    pub(super) now: Now,
    pub(super) random: fastrand::Rng,
    pub(super) stdout: Console,
    pub(super) stderr: Console,
    pub(super) table: ResourceTable,
    wasi: WasiCtx,
}

/// Records emitted by the call that runs.
#[derive(Default)]
pub(super) struct Staged {
    pub(super) emits: Vec<Emit>,
    pub(super) bytes: usize,
}

impl State {
    pub(super) fn new(shared: Arc<Shared>, now: i64) -> Self {
        let now = Now::new(now);
        let stdout = Console::new(Arc::clone(&shared.log), Level::INFO, "stdout");
        let stderr = Console::new(Arc::clone(&shared.log), Level::WARN, "stderr");
        let mut table = ResourceTable::new();
        table.set_max_capacity(HANDLES);
        Self {
            meter: Meter::new(shared.limits.memory, Arc::clone(&shared.memory)),
            shared,
            batch: None,
            staged: Staged::default(),
            ticks: 0,
            most_ticks: 0,
            monotonic: 0,
            wasi: wasi::context(&now, stdout.clone(), stderr.clone()),
            now,
            // The numbers that a program draws as it starts are the same for every instance.
            random: fastrand::Rng::with_seed(0),
            stdout,
            stderr,
            table,
        }
    }

    /// At the end of a call: all that it printed goes to the log, and the end of what it wrote to stderr is handed back.
    pub(super) fn printed(&self) -> String {
        self.stdout.take_tail();
        self.stderr.take_tail()
    }
}

impl WasiView for State {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.wasi, table: &mut self.table }
    }
}
