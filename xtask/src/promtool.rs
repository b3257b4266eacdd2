//! Prometheus' `promtool`, by which the tests check alerts and dashboard: the one that is installed, or that of Debian's
//! package, unpacked and not installed, since installing it would start a server.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};

use crate::shell::{command, output, root, run};

/// Makes `target/promtool` a folder with `promtool` in it.
pub(crate) fn promtool() -> Result<()> {
    let folder = root().join("target/promtool");
    let tool = folder.join("promtool");
    if is_one(&tool) {
        return Ok(());
    }
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let installed = output(&mut command("which", &["promtool"])).map(|path| PathBuf::from(path.trim()));
    let found = match installed {
        Some(installed) => installed,
        None => unpacked(&folder)?,
    };
    // What is there is no promtool, or there is nothing.
    fs::remove_file(&tool).ok();
    symlink(&found, &tool).with_context(|| format!("cannot link {} to {}", tool.display(), found.display()))
}

fn is_one(tool: &Path) -> bool {
    output(command(&tool.display().to_string(), &["--version"]).env_clear()).is_some()
}

fn unpacked(folder: &Path) -> Result<PathBuf> {
    if output(&mut command("apt-get", &["--version"])).is_none() {
        bail!("promtool is missing on this machine: it comes with Prometheus");
    }
    let download = || run(command("apt-get", &["download", "-q", "prometheus"]).current_dir(folder));
    if download().is_err() {
        // The lists of packages may be missing, or old.
        run(&mut command("apt-get", &["update", "-q"]))?;
        download()?;
    }
    let is_package = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "deb");
    let package = fs::read_dir(folder)?.filter_map(|entry| Some(entry.ok()?.path())).find(is_package);
    let package = package.context("apt-get has left no package")?;
    let contents = folder.join("contents");
    run(command("dpkg-deb", &["--extract"]).arg(&package).arg(&contents))?;
    fs::remove_file(&package).with_context(|| format!("cannot remove {}", package.display()))?;
    Ok(contents.join("usr/bin/promtool"))
}
