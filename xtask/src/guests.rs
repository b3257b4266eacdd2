//! Builds the guests of `guests/` into `target/guests/<package>.wasm`.

use std::{collections::BTreeMap, fs};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::{
    prerequisites,
    shell::{cargo, output, root, run},
};

const MANIFEST: [&str; 2] = ["--manifest-path", "guests/Cargo.toml"];
/// Not the runtime's, so that neither build evicts or waits for the other.
pub(crate) const TARGET_DIR: [&str; 2] = ["--target-dir", "target/guests-build"];
const COMPONENTS: &str = "wasm32-wasip2";

/// Builds all guests: components, and core modules for those whose manifest says
/// `[package.metadata.deadletter] target = "wasm32-unknown-unknown"`.
pub(crate) fn build() -> Result<()> {
    prerequisites::wasm_targets()?;
    let metadata = output(cargo(&["metadata", "--no-deps", "--format-version", "1"]).args(MANIFEST))
        .context("cargo cannot read guests/Cargo.toml")?;
    let metadata: Value = serde_json::from_str(&metadata).context("cargo's metadata is not JSON")?;
    let folder = root().join("target/guests");
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    for (target, packages) in by_target(&metadata) {
        let selected = packages.iter().flat_map(|package| ["--package", package]);
        run(cargo(&["build", "--release", "--target", target]).args(MANIFEST).args(TARGET_DIR).args(selected))?;
        for package in packages {
            let built = root().join(format!("target/guests-build/{target}/release/{}.wasm", package.replace('-', "_")));
            fs::copy(&built, folder.join(format!("{package}.wasm")))
                .with_context(|| format!("the guest {package} built no {}", built.display()))?;
        }
    }
    Ok(())
}

/// The guests' own tests run on the machine itself, where their logic is plain Rust.
pub(crate) fn test_command() -> std::process::Command {
    let mut command = cargo(&["test", "--workspace", "--no-fail-fast"]);
    command.args(MANIFEST).args(TARGET_DIR);
    command
}

/// The packages that are guests (a `cdylib`), by the target that each is built for.
fn by_target(metadata: &Value) -> BTreeMap<&str, Vec<&str>> {
    let mut targets = BTreeMap::<_, Vec<_>>::new();
    for package in metadata.pointer("/packages").and_then(Value::as_array).into_iter().flatten() {
        let target = package.pointer("/metadata/deadletter/target").and_then(Value::as_str).unwrap_or(COMPONENTS);
        if let Some(name) = package.pointer("/name").and_then(Value::as_str).filter(|_| is_guest(package)) {
            targets.entry(target).or_default().push(name);
        }
    }
    targets
}

fn is_guest(package: &Value) -> bool {
    let targets = package.pointer("/targets").and_then(Value::as_array);
    let mut kinds = targets.into_iter().flatten().filter_map(|target| target.pointer("/kind")?.as_array()).flatten();
    kinds.any(|kind| kind == "cdylib")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn guests_are_built_for_the_target_they_name_and_libraries_are_not_guests() {
        let metadata = json!({ "packages": [
            { "name": "plain", "metadata": null, "targets": [{ "kind": ["cdylib"] }] },
            { "name": "core", "metadata": { "deadletter": { "target": "wasm32-unknown-unknown" } },
              "targets": [{ "kind": ["cdylib"] }] },
            { "name": "sdk", "metadata": null, "targets": [{ "kind": ["lib"] }] },
        ]});
        let expected = BTreeMap::from([("wasm32-unknown-unknown", vec!["core"]), ("wasm32-wasip2", vec!["plain"])]);
        assert_eq!(by_target(&metadata), expected);
    }
}
