//! Compiling in a child. This program is its own child, so it has a `main` instead of the usual harness.

mod support;

use std::{
    env, fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use deadletter::guest::{Compiler, Guest, child_main};
use support::guests::{judge, setup};

fn main() {
    let arguments: Vec<_> = env::args().skip(1).collect();
    if let [command, module] = arguments.as_slice()
        && command == "compile"
    {
        std::process::exit(i32::from(child_main(Path::new(module)).is_err()));
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        the_host_loads_what_the_child_compiled().await;
        the_reason_of_the_child_is_handed_on().await;
        a_child_that_dies_is_not_the_end_of_the_host().await;
        without_a_folder_the_host_compiles_itself().await;
    });
    a_folder_that_others_may_write_to_is_refused();
}

fn entries(folder: &Path) -> usize {
    let of = |path: PathBuf| fs::read_dir(path).into_iter().flatten().map(|entry| entry.unwrap().path());
    let files = of(folder.join("modules")).flat_map(of);
    files.filter(|path| path.extension().is_none()).count()
}

async fn the_host_loads_what_the_child_compiled() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("cache");
    let compiler = Compiler::child_with_cache(env::current_exe().unwrap(), &cache).unwrap();
    for _ in 0..2 {
        let guest = Guest::load(setup("testing-plain", &[]), &compiler).await.unwrap();
        judge(&mut guest.instantiate(0).await.unwrap()).await.unwrap();
        // Another entry would be the host's own.
        assert_eq!(entries(&cache), 1);
    }
}

/// A script in place of the program.
fn script(folder: &Path, text: &str) -> Compiler {
    let program = folder.join("program");
    fs::write(&program, format!("#!/bin/sh\n[ \"$1\" = compile ] || exit 9\n{text}\n")).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).unwrap();
    Compiler::child_with_cache(program, &folder.join("cache")).unwrap()
}

async fn refused(text: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let compiler = script(folder.path(), text);
    Guest::load(setup("testing-plain", &[]), &compiler).await.err().unwrap().to_string()
}

async fn the_reason_of_the_child_is_handed_on() {
    let error = refused("echo 'it is odd'; exit 1").await;
    assert!(error.ends_with("testing-plain.wasm`: it is odd"), "{error}");
}

async fn a_child_that_dies_is_not_the_end_of_the_host() {
    let error = refused("kill -9 $$").await;
    assert!(error.contains("compiling it failed (signal: 9 (SIGKILL))"), "{error}");
}

async fn without_a_folder_the_host_compiles_itself() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let compiler = Compiler::child_with_cache("/nonexistent".into(), &file.path().join("cache")).unwrap();
    Guest::load(setup("testing-core", &[]), &compiler).await.unwrap();
}

fn a_folder_that_others_may_write_to_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o770)).unwrap();
    let error = Compiler::child_with_cache("/nonexistent".into(), folder.path()).err().unwrap();
    assert!(error.to_string().contains("has the mode 770"), "{error}");
}
