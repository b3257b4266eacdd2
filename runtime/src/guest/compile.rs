//! Compiling: in a child process that shares a cache with the host, or in this process.
//!
//! Compiling a large guest takes a gigabyte for a moment and leaves hundreds of megabytes with the allocator, so that the
//! host has it done elsewhere, and a module that is made to exhaust the compiler exhausts a child.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::Context;
use rustix::process::{Resource, Rlimit, nice, setrlimit};
use tokio::{process::Command, task};
use wasmtime::{
    Engine,
    component::{Component, Linker},
};

use super::{
    engine::{self, Host},
    load::{self, LoadError},
    state::State,
};

mod cache;

/// The name of the hidden subcommand that calls [`child_main`].
const SUBCOMMAND: &str = "compile";
const PATIENCE: Duration = Duration::from_mins(5);
const CPU_SECONDS: u64 = 300;
/// Memory that can be written to. Not the address space: allocators reserve much of that and touch little.
const MEMORY: u64 = 2 << 30;

/// How modules are compiled, and the engine that runs them: a process makes one.
#[derive(Clone)]
pub struct Compiler {
    host: Host,
    child: Option<Child>,
}

#[derive(Clone)]
struct Child {
    program: PathBuf,
    cache: PathBuf,
}

impl Compiler {
    /// Compiles in this process, without a cache: for embedding and for tests.
    ///
    /// # Errors
    /// The engine or its clock cannot be started.
    pub fn in_process() -> anyhow::Result<Self> {
        Ok(Self { host: engine::host(None)?, child: None })
    }

    /// Compiles in a child: `program` run with the subcommand `compile` and the module, which calls [`child_main`].
    /// What it compiles is kept in `$DEADLETTER_CACHE`, or else in the user's cache folder. Where that cannot be
    /// written, modules are compiled in this process, with a warning.
    ///
    /// # Errors
    /// The cache folder belongs to someone else or is open to others: its files are run as native code.
    pub fn child(program: PathBuf) -> anyhow::Result<Self> {
        match cache::folder() {
            Some(folder) => Self::child_with_cache(program, &folder),
            None => Self::in_process(),
        }
    }

    /// As [`Compiler::child`], with the cache in a folder of the caller's choice.
    ///
    /// # Errors
    /// As [`Compiler::child`].
    pub fn child_with_cache(program: PathBuf, folder: &Path) -> anyhow::Result<Self> {
        let Some(folder) = cache::usable(folder)? else {
            return Self::in_process();
        };
        let host = engine::host(Some(cache::open(&folder)?))?;
        Ok(Self { host, child: Some(Child { program, cache: folder }) })
    }

    pub(super) fn linker(&self) -> &Linker<State> {
        &self.host.linker
    }

    /// The digest of a module's file, and the component.
    pub(super) async fn compile(&self, file: &Path) -> Result<(String, Component), String> {
        let engine = self.host.engine.clone();
        let path = file.to_owned();
        let (digest, bytes) = blocking(move || {
            let bytes = load::read(&path)?;
            Ok((load::digest(&bytes), load::componentized(&engine, bytes)?))
        })
        .await?;
        if let Some(child) = &self.child {
            child.compile(file).await?;
        }
        let engine = self.host.engine.clone();
        let component = blocking(move || load::component(&engine, &bytes)).await?;
        Ok((digest, component))
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, String> + Send + 'static) -> Result<T, String> {
    task::spawn_blocking(work).await.unwrap_or_else(|error| Err(format!("loading it failed: {error}")))
}

impl Child {
    /// Has the module compiled into the cache.
    async fn compile(&self, file: &Path) -> Result<(), String> {
        let output = Command::new(&self.program)
            .arg(SUBCOMMAND)
            .arg(file)
            .env(cache::VARIABLE, &self.cache)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .output();
        let output = tokio::time::timeout(PATIENCE, output)
            .await
            .map_err(|_| format!("compiling it took more than {} minutes", PATIENCE.as_secs() / 60))?
            .map_err(|error| format!("`{}` cannot be started to compile it: {error}", self.program.display()))?;
        if output.status.success() {
            return Ok(());
        }
        let reason = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        if reason.is_empty() {
            let limits = format!("{CPU_SECONDS} s of processor time and {} GiB of memory", MEMORY >> 30);
            return Err(format!("compiling it failed ({}); it may use {limits}", output.status));
        }
        Err(reason)
    }
}

/// What the child does: compiles a module into the cache that its parent names. Why it cannot goes to stdout, for the
/// parent.
///
/// # Errors
/// The module cannot be loaded, or the cache or the limits cannot be set.
pub fn child_main(module: &Path) -> anyhow::Result<()> {
    restrict()?;
    let folder = cache::folder().context("there is no folder for what is compiled")?;
    let engine = engine::engine(Some(cache::open(&folder)?))?;
    if let Err(problem) = compile(&engine, module) {
        println!("{problem}");
        return Err(LoadError::new(module, &problem).into());
    }
    Ok(())
}

fn compile(engine: &Engine, module: &Path) -> Result<(), String> {
    let bytes = load::componentized(engine, load::read(module)?)?;
    load::component(engine, &bytes).map(drop)
}

/// Lower priority, and limits on time and memory.
fn restrict() -> rustix::io::Result<()> {
    nice(10)?;
    let limit = |most| Rlimit { current: Some(most), maximum: Some(most) };
    setrlimit(Resource::Cpu, limit(CPU_SECONDS))?;
    setrlimit(Resource::Data, limit(MEMORY))
}
