//! Which interfaces of the contract a component exports, and whether the host offers what it imports.

use wasmtime::{
    Engine,
    component::{Component, InstancePre, Linker},
};

use super::{
    bindings::exports::deadletter::processor::{handler, lazy_handler, lifecycle, settling},
    state::State,
};

const PACKAGE: &str = "deadletter:processor/";
const TRACK: &str = "0.1";

/// The shape of a guest.
#[derive(Clone)]
pub(super) struct Contract {
    pub(super) handler: Handler<handler::GuestIndices, lazy_handler::GuestIndices>,
    pub(super) lifecycle: Option<lifecycle::GuestIndices>,
    pub(super) settling: Option<settling::GuestIndices>,
}

/// Every guest has one of the two.
#[derive(Clone)]
pub(super) enum Handler<P, L> {
    Plain(P),
    Lazy(L),
}

/// Links a component and looks at what it exports; the error completes a sentence that begins with "it".
pub(super) fn link(component: &Component, linker: &Linker<State>) -> Result<(InstancePre<State>, Contract), String> {
    let engine = linker.engine();
    check_track(component, engine)?;
    let pre = linker.instantiate_pre(component).map_err(|error| unlinkable(component, engine, &error))?;
    let shape = shape(&pre)?;
    Ok((pre, shape))
}

fn shape(linked: &InstancePre<State>) -> Result<Contract, String> {
    let exports = |interface: &str| {
        let name = format!("{PACKAGE}{interface}@{TRACK}.0");
        linked.component().get_export_index(None, &name).is_some()
    };
    let handler = match (exports("handler"), exports("lazy-handler")) {
        (true, false) => Handler::Plain(typed("handler", handler::GuestIndices::new(linked))?),
        (false, true) => Handler::Lazy(typed("lazy-handler", lazy_handler::GuestIndices::new(linked))?),
        (true, true) => return Err("it exports both `handler` and `lazy-handler`: one of them must go".to_owned()),
        (false, false) => {
            return Err(format!("it exports neither `handler` nor `lazy-handler` of {PACKAGE}…@{TRACK}.0"));
        }
    };
    let lifecycle = exports("lifecycle").then(|| typed("lifecycle", lifecycle::GuestIndices::new(linked)));
    let settling = exports("settling").then(|| typed("settling", settling::GuestIndices::new(linked)));
    Ok(Contract { handler, lifecycle: lifecycle.transpose()?, settling: settling.transpose()? })
}

fn typed<T>(interface: &str, indices: wasmtime::Result<T>) -> Result<T, String> {
    indices.map_err(|error| {
        let cause = error.root_cause();
        format!("it exports `{interface}`, but not as the contract {TRACK} has it: {cause}")
    })
}

/// A guest of another track would otherwise be told that it exports nothing that is known.
fn check_track(component: &Component, engine: &Engine) -> Result<(), String> {
    let ty = component.component_type();
    let names = ty.exports(engine).map(|(name, _)| name).chain(ty.imports(engine).map(|(name, _)| name));
    for name in names.filter(|name| name.starts_with(PACKAGE)) {
        let version = name.split_once('@').map_or("none", |(_, version)| version);
        if version != TRACK && !version.starts_with("0.1.") {
            return Err(format!("it is made for version {version} of {PACKAGE}…, and this host speaks {TRACK}"));
        }
    }
    Ok(())
}

fn unlinkable(component: &Component, engine: &Engine, error: &wasmtime::Error) -> String {
    let message = error.to_string();
    let ty = component.component_type();
    let import = ty.imports(engine).map(|(name, _)| name).find(|name| message.contains(&format!("`{name}`")));
    let Some(import) = import else {
        return format!("it cannot be linked: {error:#}");
    };
    let cause = error.root_cause().to_string();
    // wasmtime's words, here and below: it has no types for these errors.
    if !cause.ends_with("implementation is missing") {
        return format!("it imports `{import}`, but not as the host has it: {cause}");
    }
    let item = error.chain().find_map(|error| {
        let text = error.to_string();
        Some(text.strip_prefix("instance export `")?.split_once('`')?.0.to_owned())
    });
    let item = item.map(|item| format!("`{item}` of ")).unwrap_or_default();
    format!("it imports {item}`{import}`, which the host does not offer")
}
