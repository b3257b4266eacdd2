//! The folder of compiled modules.

use std::{
    env,
    fs::{self, DirBuilder},
    os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

use anyhow::{Context, anyhow, bail, ensure};
use rustix::process::geteuid;
use wasmtime::{Cache, CacheConfig};

/// Names the folder.
pub(super) const VARIABLE: &str = "DEADLETTER_CACHE";

/// The folder that the environment names.
pub(super) fn folder() -> Option<PathBuf> {
    let folder = chosen(|name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from));
    if folder.is_none() {
        tracing::warn!("no folder for compiled modules: set {VARIABLE} or HOME; compiling in this process");
    }
    folder
}

/// A folder as an absolute path, made if need be; `None`, with a warning, where that cannot be.
pub(super) fn usable(folder: &Path) -> anyhow::Result<Option<PathBuf>> {
    let made = std::path::absolute(folder).and_then(|folder| create(&folder).map(|()| folder));
    match made {
        Ok(folder) => check(&folder).map(|()| Some(folder)),
        Err(error) => {
            let folder = folder.display();
            tracing::warn!(
                "the folder for compiled modules {folder} cannot be used ({error}); compiling in this process"
            );
            Ok(None)
        }
    }
}

fn chosen(variable: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    if let Some(folder) = variable(VARIABLE) {
        return Some(folder);
    }
    let caches = variable("XDG_CACHE_HOME").filter(|folder| folder.is_absolute());
    let caches = caches.or_else(|| variable("HOME").map(|home| home.join(".cache")))?;
    Some(caches.join("deadletter/modules"))
}

fn create(folder: &Path) -> std::io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    // Only to see whether it can be written.
    let probe = folder.join(format!(".{}", std::process::id()));
    fs::write(&probe, [])?;
    fs::remove_file(probe)
}

/// Whoever can write to it can run code as us.
fn check(folder: &Path) -> anyhow::Result<()> {
    let metadata = fs::metadata(folder).with_context(|| format!("cannot look at {}", folder.display()))?;
    let (mode, owner, we) = (metadata.permissions().mode() & 0o777, metadata.uid(), geteuid().as_raw());
    let folder = folder.display();
    if mode != 0o700 {
        bail!(
            "the folder for compiled modules {folder} has the mode {mode:o}: it must be 700, for what is in it is run"
        );
    }
    ensure!(
        owner == we,
        "the folder for compiled modules {folder} belongs to user {owner}, not to {we}, who runs this"
    );
    Ok(())
}

/// wasmtime's cache in a folder.
pub(super) fn open(folder: &Path) -> anyhow::Result<Cache> {
    let mut config = CacheConfig::new();
    config.with_directory(folder);
    Cache::new(config).map_err(|error| anyhow!("cannot use {} as a cache: {error}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(variables: &[(&str, &str)]) -> Option<PathBuf> {
        let found = |name: &str| variables.iter().find(|(known, _)| *known == name);
        chosen(|name| found(name).map(|(_, value)| PathBuf::from(value)))
    }

    #[test]
    fn the_folder_is_the_one_named_or_else_in_the_cache_of_the_user() {
        assert_eq!(with(&[("HOME", "/home/a")]), Some("/home/a/.cache/deadletter/modules".into()));
        let xdg = [("HOME", "/home/a"), ("XDG_CACHE_HOME", "/c")];
        assert_eq!(with(&xdg), Some("/c/deadletter/modules".into()));
        assert_eq!(with(&[("HOME", "/home/a"), (VARIABLE, "/d")]), Some("/d".into()));
        assert_eq!(with(&[]), None);
    }

    #[test]
    fn a_folder_that_others_can_use_is_refused() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("a/b");
        create(&folder).unwrap();
        check(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o770)).unwrap();
        assert!(check(&folder).unwrap_err().to_string().contains("has the mode 770"));
    }
}
