//! From a file to a guest that can be instantiated.

use std::{
    collections::BTreeSet,
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
    sync::{Arc, atomic::Ordering},
};

use sha2::{Digest, Sha256};
use wasi_preview1_component_adapter_provider::{
    WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME, WASI_SNAPSHOT_PREVIEW1_REACTOR_ADAPTER,
};
use wasmtime::{
    Engine, Module,
    component::{Component, InstancePre},
};
use wit_component::ComponentEncoder;

use super::{
    compile::Compiler,
    console::Log,
    contract::{self, Contract},
    lift::Rules,
    limits::Limits,
    state::{Shared, State},
    text,
};
use crate::config::{self, Pipeline};

const LARGEST: u64 = 256 << 20;
/// Bytes of what is wrong: names within a module can be long.
const LONGEST_PROBLEM: usize = 4_096;
const MAGIC: &[u8] = b"\0asm";
/// What follows the magic in a core module; a component has another number there.
const CORE: &[u8] = &[1, 0, 0, 0];

/// What a guest is made of.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The file of a component, or of a core module with the contract's metadata in it.
    pub module: PathBuf,
    /// Limits on each instance.
    pub limits: Limits,
    /// Given to `configure` on each new instance.
    pub settings: Vec<(String, String)>,
    /// The names that the guest may emit to.
    pub outputs: BTreeSet<String>,
}

impl From<&Pipeline> for Setup {
    fn from(pipeline: &Pipeline) -> Self {
        let config::Guest { module, memory, deadline, settings } = pipeline.guest.clone();
        Self {
            module,
            limits: Limits { memory, deadline, batch_bytes: pipeline.batch.bytes },
            settings,
            outputs: pipeline.outputs.keys().cloned().collect(),
        }
    }
}

/// Why a guest cannot be loaded: one sentence that names the file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot load the guest `{}`: {problem}", file.display())]
pub struct LoadError {
    file: PathBuf,
    problem: String,
}

impl LoadError {
    pub(super) fn new(file: &Path, problem: &str) -> Self {
        Self { file: file.to_owned(), problem: text::cut(text::escaped(problem), LONGEST_PROBLEM) }
    }
}

/// A guest: compiled, linked and tried. Cheap to clone.
#[derive(Clone)]
pub struct Guest(pub(super) Arc<Loaded>);

pub(super) struct Loaded {
    pub(super) linked: InstancePre<State>,
    pub(super) contract: Contract,
    pub(super) rules: Rules,
    pub(super) settings: Vec<(String, String)>,
    pub(super) shared: Arc<Shared>,
    digest: String,
}

impl Guest {
    /// Loads a module and tries it: one instance is made, and takes the settings.
    ///
    /// # Errors
    /// The file is not a guest of this contract, it does not start, it refuses the settings, or the limits leave it too
    /// little memory.
    pub async fn load(setup: Setup, compiler: &Compiler) -> Result<Self, LoadError> {
        let file = setup.module.clone();
        let guest = Self::compiled(setup, compiler).await.map_err(|problem| LoadError::new(&file, &problem))?;
        let tried = guest.instantiate(0).await.map_err(|failure| LoadError::new(&file, &failure.to_string()))?;
        guest.0.shared.limits.headroom(tried.memory()).map_err(|problem| LoadError::new(&file, &problem))?;
        Ok(guest)
    }

    async fn compiled(setup: Setup, compiler: &Compiler) -> Result<Self, String> {
        let (digest, component) = compiler.compile(&setup.module).await?;
        let (linked, contract) = contract::link(&component, compiler.linker())?;
        let rules = Rules::new(contract.settling.is_some());
        let Setup { limits, outputs, settings, .. } = setup;
        let shared = Arc::new(Shared { limits, outputs, log: Arc::new(Log::new()), memory: Arc::default() });
        Ok(Self(Arc::new(Loaded { linked, contract, rules, settings, shared, digest })))
    }

    /// `sha256:` and the hexadecimal digest of the module's file.
    pub fn digest(&self) -> &str {
        &self.0.digest
    }

    /// Bytes of linear memory that all of its instances take now.
    pub fn memory(&self) -> usize {
        self.0.shared.memory.load(Ordering::Relaxed)
    }

    /// Whether it exports `settling`, and so may defer.
    pub fn settles(&self) -> bool {
        self.0.rules.settles()
    }
}

/// A module's bytes, read once.
pub(super) fn read(file: &Path) -> Result<Vec<u8>, String> {
    let unreadable = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => "there is no such file".to_owned(),
        _ => format!("it cannot be read: {error}"),
    };
    let opened = File::open(file).map_err(unreadable)?;
    let metadata = opened.metadata().map_err(unreadable)?;
    if metadata.is_dir() {
        return Err("it is a directory, not a module".to_owned());
    }
    let mut bytes = Vec::new();
    opened.take(LARGEST + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > LARGEST {
        return Err(format!("it is larger than {} MiB", LARGEST >> 20));
    }
    if bytes.is_empty() {
        return Err("it is empty".to_owned());
    }
    if !bytes.starts_with(MAGIC) && !MAGIC.starts_with(&bytes) {
        return Err("it is not WebAssembly in binary form: it does not begin with `\\0asm`".to_owned());
    }
    Ok(bytes)
}

pub(super) fn digest(bytes: &[u8]) -> String {
    format!("sha256:{:x}", Sha256::digest(bytes))
}

/// A component as it is; a core module made into one.
pub(super) fn componentized(engine: &Engine, bytes: Vec<u8>) -> Result<Vec<u8>, String> {
    if bytes.get(MAGIC.len()..MAGIC.len() + CORE.len()) != Some(CORE) {
        return Ok(bytes);
    }
    Module::validate(engine, &bytes).map_err(|error| invalid(&error))?;
    let described = wit_component::metadata::decode(&bytes).map_err(|error| {
        format!("it is a core module whose description of its interfaces cannot be read: {}", error.root_cause())
    })?;
    if described.0.is_none() {
        return Err(
            "it is a core module without a description of its interfaces, which `wasm-tools component embed` or \
                    a bindings generator puts in"
                .to_owned(),
        );
    }
    encode(&bytes).map_err(|error| format!("it is a core module that cannot be made a component: {error:#}"))
}

fn encode(module: &[u8]) -> anyhow::Result<Vec<u8>> {
    ComponentEncoder::default()
        .module(module)?
        .adapter(WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME, WASI_SNAPSHOT_PREVIEW1_REACTOR_ADAPTER)?
        .encode()
}

/// Compiles, or finds in the cache.
pub(super) fn component(engine: &Engine, bytes: &[u8]) -> Result<Component, String> {
    Component::from_binary(engine, bytes).map_err(|error| invalid(&error))
}

fn invalid(error: &wasmtime::Error) -> String {
    let cause = error.root_cause().to_string();
    if cause.contains("unexpected end") {
        return format!("it is cut short: {cause}");
    }
    format!("it is damaged, or uses what the host does not support: {cause}")
}
