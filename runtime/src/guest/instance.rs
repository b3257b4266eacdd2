//! One instance of a guest, and its calls.

use std::{fmt, future::Future, sync::Arc};

use tokio::time;
use wasmtime::{Store, UpdateDeadline, component};

use super::{
    bindings::{
        deadletter::processor::types::{self, Context},
        exports::deadletter::processor::{handler, lazy_handler, settling},
    },
    contract::Handler,
    engine::TICK,
    failure::{Failure, FailureKind, OverDeadline},
    limits::{CROSSING, HANDLES},
    load::{Guest, Loaded},
    messages,
    state::{Staged, State},
    wasi,
};
use crate::{
    message::{Batch, TopicPartition},
    verdict::Answer,
};

/// What one call is about.
#[derive(Clone, Debug)]
pub struct Call {
    /// The partition.
    pub source: TopicPartition,
    /// The guest's only clock, in milliseconds since the epoch. The same again when a call is repeated.
    pub now: i64,
    /// How many times its deadline the guest may take; 1, unless it has to be sure that it is the message's fault.
    pub deadlines: u32,
}

/// Why `settle` is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occasion {
    /// The interval passed.
    Tick,
    /// The limit on open offsets is reached.
    Pressure,
    /// The instance goes.
    Last,
}

impl fmt::Display for Occasion {
    /// The WIT's word for it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tick => "tick",
            Self::Pressure => "pressure",
            Self::Last => "last",
        })
    }
}

/// One instance of a guest. After a failure, or a call whose future was dropped, every call fails: drop it.
pub struct Instance {
    guest: Arc<Loaded>,
    store: Store<State>,
    handler: Handler<handler::Guest, lazy_handler::Guest>,
    settling: Option<settling::Guest>,
    usable: bool,
}

/// An answer as wasmtime returns it.
type Returned<T> = wasmtime::Result<Result<T, String>>;

impl Guest {
    /// A new instance, which has taken the settings. `now` is what its clock shows meanwhile.
    ///
    /// # Errors
    /// It fails to start, or refuses the settings.
    pub async fn instantiate(&self, now: i64) -> Result<Instance, Failure> {
        let mut store = store(&self.0, now);
        match start(&self.0, &mut store).await {
            Ok(instance) => configured(&self.0, store, &instance).await,
            Err(error) => Err(failure(&store, &error)),
        }
    }
}

fn store(guest: &Arc<Loaded>, now: i64) -> Store<State> {
    let mut store = Store::new(guest.linked.engine(), State::new(Arc::clone(&guest.shared), now));
    store.limiter(|state| &mut state.meter);
    store.set_hostcall_fuel(CROSSING);
    store.set_max_component_handles(HANDLES);
    store.data_mut().most_ticks = ticks(guest, 1);
    // Called at most once for each tick that passes while the guest runs, so that waiting for a thread does not count.
    store.epoch_deadline_callback(|mut store| {
        let state = store.data_mut();
        state.ticks += 1;
        if state.ticks > state.most_ticks {
            return Err(wasmtime::Error::new(OverDeadline));
        }
        Ok(UpdateDeadline::Yield(1))
    });
    store.set_epoch_deadline(1);
    store
}

/// Steps of the engine's clock in a number of deadlines.
fn ticks(guest: &Loaded, deadlines: u32) -> u64 {
    let deadline = guest.shared.limits.deadline.saturating_mul(deadlines);
    u64::try_from(deadline.as_nanos().div_ceil(TICK.as_nanos())).unwrap_or(u64::MAX)
}

async fn start(guest: &Loaded, store: &mut Store<State>) -> wasmtime::Result<component::Instance> {
    in_time(guest, 1, guest.linked.instantiate_async(store)).await
}

async fn configured(
    guest: &Arc<Loaded>,
    mut store: Store<State>,
    instance: &component::Instance,
) -> Result<Instance, Failure> {
    let loaded = |store: &mut Store<State>| {
        let contract = &guest.contract;
        let handler = match &contract.handler {
            Handler::Plain(handler) => Handler::Plain(handler.load(&mut *store, instance)?),
            Handler::Lazy(handler) => Handler::Lazy(handler.load(&mut *store, instance)?),
        };
        let settling = contract.settling.as_ref().map(|settling| settling.load(&mut *store, instance)).transpose()?;
        let lifecycle =
            contract.lifecycle.as_ref().map(|lifecycle| lifecycle.load(&mut *store, instance)).transpose()?;
        Ok((handler, settling, lifecycle))
    };
    let (handler, settling, lifecycle) = loaded(&mut store).map_err(|error| failure(&store, &error))?;
    let mut instance = Instance { guest: Arc::clone(guest), store, handler, settling, usable: true };
    if let Some(lifecycle) = lifecycle {
        let settings: Vec<_> = guest.settings.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        instance.begin()?;
        let returned = in_time(guest, 1, lifecycle.call_configure(&mut instance.store, &settings)).await;
        let returned = returned.map(|answer| answer.map_err(|reason| format!("it refuses the settings: {reason}")));
        instance.end(returned)?;
    }
    Ok(instance)
}

/// The outer limit, by the wall clock. Dropping the future leaves the store of no use.
async fn in_time<T>(
    guest: &Loaded,
    deadlines: u32,
    call: impl Future<Output = wasmtime::Result<T>>,
) -> wasmtime::Result<T> {
    time::timeout(guest.shared.limits.patience(deadlines), call)
        .await
        .unwrap_or_else(|_| Err(wasmtime::Error::new(OverDeadline)))
}

fn failure(store: &Store<State>, error: &wasmtime::Error) -> Failure {
    Failure::from_error(error, &store.data().printed())
}

impl Instance {
    /// Hands the guest a batch, whatever its contract.
    ///
    /// # Errors
    /// The call failed, or its answer breaks the contract; nothing of it counts.
    pub async fn process(&mut self, call: &Call, batch: Arc<Batch>) -> Result<Answer, Failure> {
        self.begin()?;
        self.set(call, wasi::seed(call, batch.first()));
        let returned = match &self.handler {
            Handler::Plain(handler) => plain(&self.guest, &mut self.store, handler, call, &batch).await,
            Handler::Lazy(handler) => {
                self.store.data_mut().batch = Some(batch);
                let returned = handler.call_process(&mut self.store, context(call));
                let returned = in_time(&self.guest, call.deadlines, returned).await;
                self.store.data_mut().batch = None;
                returned
            }
        };
        self.answer(returned)
    }

    /// Asks for verdicts on open offsets.
    ///
    /// # Errors
    /// As [`Instance::process`]; and if the guest does not export `settling`.
    pub async fn settle(&mut self, call: &Call, occasion: Occasion) -> Result<Answer, Failure> {
        let Some(settling) = &self.settling else {
            return Err(Failure::new(FailureKind::Contract, "it does not export `settling`", ""));
        };
        let settling = settling.clone();
        self.begin()?;
        self.set(call, wasi::seed(call, None));
        let occasion = match occasion {
            Occasion::Tick => settling::Occasion::Tick,
            Occasion::Pressure => settling::Occasion::Pressure,
            Occasion::Last => settling::Occasion::Last,
        };
        let returned = settling.call_settle(&mut self.store, context(call), occasion);
        let returned = in_time(&self.guest, call.deadlines, returned).await;
        self.answer(returned)
    }

    /// Bytes of its linear memories. They never shrink.
    pub fn memory(&self) -> usize {
        self.store.data().meter.memory()
    }

    fn set(&mut self, call: &Call, seed: u64) {
        let most_ticks = ticks(&self.guest, call.deadlines);
        let state = self.store.data_mut();
        state.most_ticks = most_ticks;
        state.now.set(call.now);
        state.random = fastrand::Rng::with_seed(seed);
    }

    /// Marks the instance as not usable until the call has ended well.
    fn begin(&mut self) -> Result<(), Failure> {
        if !std::mem::take(&mut self.usable) {
            return Err(Failure::new(FailureKind::Trap, "this instance has failed before", ""));
        }
        let state = self.store.data_mut();
        state.ticks = 0;
        state.staged = Staged::default();
        self.store.set_epoch_deadline(1);
        Ok(())
    }

    fn end<T>(&mut self, returned: Returned<T>) -> Result<T, Failure> {
        match returned {
            Ok(Ok(value)) => {
                self.store.data().printed();
                self.usable = true;
                Ok(value)
            }
            Ok(Err(reason)) => Err(Failure::new(FailureKind::Error, &reason, &self.store.data().printed())),
            Err(error) => Err(failure(&self.store, &error)),
        }
    }

    fn answer(&mut self, returned: Returned<Vec<types::Verdict>>) -> Result<Answer, Failure> {
        let verdicts = self.end(returned)?;
        let emits = std::mem::take(&mut self.store.data_mut().staged).emits;
        match self.guest.rules.lift(verdicts) {
            Ok(verdicts) => Ok(Answer { verdicts, emits }),
            Err(problem) => {
                self.usable = false;
                Err(Failure::new(FailureKind::Contract, &problem, ""))
            }
        }
    }
}

async fn plain(
    guest: &Loaded,
    store: &mut Store<State>,
    handler: &handler::Guest,
    call: &Call,
    batch: &Batch,
) -> Returned<Vec<types::Verdict>> {
    let names = messages::header_names(batch);
    let (headers, spans) = messages::headers(batch, &names);
    let messages = messages::messages(batch, &headers, &spans);
    in_time(guest, call.deadlines, handler.call_process(store, context(call), &messages)).await
}

fn context(call: &Call) -> Context<'_> {
    Context { topic: &call.source.topic, partition: call.source.partition, now: call.now }
}
