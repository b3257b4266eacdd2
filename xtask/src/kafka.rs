//! The jars of a Kafka broker, fetched once by Maven into the user's cache and linked to `target/kafka`.

use std::{
    env, fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use crate::shell::{command, root, run};

const VERSION: &str = "4.4.0";

/// Makes `target/kafka` a folder with all jars of a broker.
pub(crate) fn jars() -> Result<()> {
    let cache = cache()?.join("deadletter/kafka");
    let jars = cache.join(VERSION);
    if !jars.is_dir() {
        eprintln!("Fetching Kafka {VERSION} into {}", jars.display());
        fetch(&cache, &jars)?;
    }
    let link = root().join("target/kafka");
    if fs::read_link(&link).is_ok_and(|linked| linked == jars) {
        return Ok(());
    }
    fs::create_dir_all(root().join("target"))?;
    if link.is_symlink() {
        fs::remove_file(&link).with_context(|| format!("cannot replace {}", link.display()))?;
    }
    symlink(&jars, &link).with_context(|| format!("cannot link {} to {}", link.display(), jars.display()))
}

/// The folder takes its name only when it is complete, so that an interrupted download is not mistaken for a broker.
fn fetch(cache: &Path, jars: &Path) -> Result<()> {
    let partial = cache.join(format!("{VERSION}.partial-{}", std::process::id()));
    fs::create_dir_all(&partial).with_context(|| format!("cannot create {}", partial.display()))?;
    let pom = partial.join("pom.xml");
    fs::write(&pom, pom_xml()).with_context(|| format!("cannot write {}", pom.display()))?;
    let lib = partial.join("lib");
    let fetched = run(command("mvn", &["--quiet", "--batch-mode", "--no-transfer-progress", "--file"])
        .arg(&pom)
        .arg("org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies")
        .args(["-Dstyle.color=never", "-DincludeScope=runtime"])
        .arg(format!("-DoutputDirectory={}", lib.display())));
    let placed = fetched.and_then(|()| fs::rename(&lib, jars).context("cannot move the jars into place"));
    fs::remove_dir_all(&partial).with_context(|| format!("cannot remove {}", partial.display()))?;
    placed.context("cannot fetch Kafka's jars through Maven")
}

fn pom_xml() -> String {
    format!(
        r#"<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>deadletter</groupId>
  <artifactId>broker</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{VERSION}</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
  </dependencies>
</project>
"#
    )
}

/// The cache folder of the user, by the XDG rules.
fn cache() -> Result<PathBuf> {
    let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute("XDG_CACHE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".cache")))
        .context("neither XDG_CACHE_HOME nor HOME names a folder for the cache")
}
