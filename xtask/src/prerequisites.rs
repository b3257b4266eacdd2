//! What must be on the machine: system packages, wasm targets, Kafka's jars, Prometheus' checks.

use std::{os::unix::fs::MetadataExt, path::Path};

use anyhow::{Context, Result, bail, ensure};

use crate::{
    kafka,
    promtool::promtool,
    shell::{command, output, run},
};

/// Something of the system: how to see that it is there, and the Debian package that has it.
struct Part {
    probe: &'static [&'static str],
    package: &'static str,
}

/// What compiling librdkafka and its TLS takes.
const BUILD: &[Part] = &[
    Part { probe: &["gcc", "--version"], package: "gcc" },
    Part { probe: &["g++", "--version"], package: "g++" },
    Part { probe: &["make", "--version"], package: "make" },
    Part { probe: &["pkg-config", "--version"], package: "pkg-config" },
    Part { probe: &["pkg-config", "--exists", "openssl"], package: "libssl-dev" },
    Part { probe: &["pkg-config", "--exists", "zlib"], package: "zlib1g-dev" },
];

/// What fetching and running a Kafka broker takes.
const BROKER: &[Part] = &[
    Part { probe: &["java", "-version"], package: "default-jre-headless" },
    Part { probe: &["mvn", "--version"], package: "maven" },
];

/// The oldest Java that runs the broker.
const JAVA: u32 = 17;

const WASM_TARGETS: [&str; 2] = ["wasm32-wasip2", "wasm32-unknown-unknown"];

/// Everything that any command needs.
pub(crate) fn all() -> Result<()> {
    build()?;
    broker()?;
    promtool()
}

/// What it takes to build the runtime and the guests.
pub(crate) fn build() -> Result<()> {
    install(BUILD)?;
    wasm_targets()
}

/// What it takes to run a real broker.
pub(crate) fn broker() -> Result<()> {
    install(BROKER)?;
    let version = java_version().context("cannot tell the version of `java`")?;
    ensure!(version >= JAVA, "the broker needs Java {JAVA} or later, but `java` is {version}: install a later one");
    kafka::jars()
}

/// The targets that guests are compiled to.
pub(crate) fn wasm_targets() -> Result<()> {
    let missing: Vec<_> = WASM_TARGETS.into_iter().filter(|target| !has_target(target)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    run(command("rustup", &["target", "add"]).args(&missing)).with_context(|| {
        format!("the targets {} are missing; install them with your distribution's Rust", missing.join(" and "))
    })
}

fn has_target(target: &str) -> bool {
    output(&mut command("rustc", &["--print", "target-libdir", "--target", target]))
        .is_some_and(|folder| Path::new(folder.trim()).is_dir())
}

fn install(parts: &[Part]) -> Result<()> {
    let packages: Vec<_> = parts.iter().filter(|part| !is_there(part)).map(|part| part.package).collect();
    if packages.is_empty() {
        return Ok(());
    }
    let packages = packages.join(" ");
    let is_root = Path::new("/proc/self").metadata().is_ok_and(|process| process.uid() == 0);
    if !is_root || output(&mut command("apt-get", &["--version"])).is_none() {
        bail!("missing on this machine: install what Debian calls {packages}");
    }
    run(&mut command("apt-get", &["update", "-q"]))?;
    run(command("apt-get", &["install", "-q", "-y", "--no-install-recommends"])
        .args(packages.split(' '))
        .env("DEBIAN_FRONTEND", "noninteractive"))
}

fn is_there(part: &Part) -> bool {
    part.probe.split_first().is_some_and(|(program, args)| output(&mut command(program, args)).is_some())
}

fn java_version() -> Option<u32> {
    // `java --version` prints `openjdk 17.0.15 2025-04-15` and more lines.
    major(&output(&mut command("java", &["--version"]))?)
}

fn major(version: &str) -> Option<u32> {
    version.split_whitespace().find_map(|word| word.split(['.', '-', '+']).next()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_major_version_of_java_is_found() {
        assert_eq!(major("openjdk 17.0.15 2025-04-15\nOpenJDK Runtime Environment"), Some(17));
        assert_eq!(major("java 21 2023-09-19 LTS"), Some(21));
        assert_eq!(major("openjdk 25-ea 2025-09-16"), Some(25));
        assert_eq!(major("no version here"), None);
    }
}
