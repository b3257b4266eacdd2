//! What is not a guest is refused with one sentence.

use std::{fs, path::Path};

use crate::support::{
    guest,
    guests::{compiler, load, setup},
};
use deadletter::guest::{Guest, Setup};

/// An empty component that exports interfaces of these names, and imports others.
fn component(imports: &[&str], exports: &[&str]) -> Vec<u8> {
    let imports: Vec<_> =
        imports.iter().map(|name| format!("(import \"{name}\" (instance (export \"run\" (func))))")).collect();
    let exports: Vec<_> = exports.iter().map(|name| format!("(export \"{name}\" (instance $empty))")).collect();
    let text = format!("(component {} (instance $empty) {})", imports.concat(), exports.concat());
    wat::parse_str(text).unwrap()
}

/// The sentence about a file with these bytes, without what all of them begin with.
async fn refused(bytes: &[u8]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("orders.wasm");
    fs::write(&file, bytes).unwrap();
    refused_file(&file).await
}

async fn refused_file(file: &Path) -> String {
    let setup = Setup { module: file.to_owned(), ..setup("testing-core", &[]) };
    let error = load(setup).await.err().expect("it is not a guest").to_string();
    assert!(!error.contains('\n'), "{error}");
    let start = format!("cannot load the guest `{}`: ", file.display());
    error.strip_prefix(&start).expect("the sentence names the file").to_owned()
}

#[tokio::test]
async fn what_is_not_a_module_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(refused_file(&folder.path().join("no.wasm")).await, "there is no such file");
    assert_eq!(refused_file(folder.path()).await, "it is a directory, not a module");
    assert_eq!(refused(b"").await, "it is empty");
    assert_eq!(refused(b"#!/bin/sh").await, r"it is not WebAssembly in binary form: it does not begin with `\0asm`");
    assert!(refused(b"\0as").await.starts_with("it is cut short"));
}

#[tokio::test]
async fn a_module_that_is_too_large_is_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large.wasm");
    let file = fs::File::create(&path).unwrap();
    file.set_len((256 << 20) + 1).unwrap();
    assert_eq!(refused_file(&path).await, "it is larger than 256 MiB");
}

#[tokio::test]
async fn every_prefix_of_a_guest_is_refused() {
    let core = fs::read(guest("testing-core")).unwrap();
    let whole = component(&[], &["deadletter:processor/handler@0.1.0"]);
    for bytes in [&whole, &core] {
        let step = if bytes.len() < 4_096 { 1 } else { 97 };
        for end in (0..bytes.len()).step_by(step) {
            refused(&bytes[..end]).await;
        }
    }
}

#[tokio::test]
async fn a_guest_has_one_handler_of_this_track() {
    let of = |interface: &str, version: &str| format!("deadletter:processor/{interface}@{version}");
    let (plain, lazy) = (of("handler", "0.1.0"), of("lazy-handler", "0.1.0"));
    assert!(refused(&component(&[], &[])).await.starts_with("it exports neither `handler` nor `lazy-handler`"));
    assert!(refused(&component(&[], &[&plain, &lazy])).await.starts_with("it exports both"));
    let other = refused(&component(&[], &[&of("handler", "0.2.0")])).await;
    assert_eq!(other, "it is made for version 0.2.0 of deadletter:processor/…, and this host speaks 0.1");
    let odd = refused(&component(&[], &[&plain])).await;
    assert!(odd.starts_with("it exports `handler`, but not as the contract 0.1 has it"), "{odd}");
    // A later version of the same track is served.
    let later = refused(&component(&[], &[&of("handler", "0.1.7")])).await;
    assert!(later.starts_with("it exports `handler`, but not as"), "{later}");
}

#[tokio::test]
async fn an_import_that_the_host_does_not_offer_is_named() {
    let unknown = refused(&component(&["wasi:http/outgoing-handler@0.2.0"], &[])).await;
    assert_eq!(unknown, "it imports `run` of `wasi:http/outgoing-handler@0.2.0`, which the host does not offer");
    // A function that a later version of an interface may have.
    let newer = refused(&component(&["deadletter:processor/logging@0.1.9"], &[])).await;
    assert_eq!(newer, "it imports `run` of `deadletter:processor/logging@0.1.9`, which the host does not offer");
    let odd = r#"(component (import "deadletter:processor/logging@0.1.0" (instance (export "log" (func)))))"#;
    let odd = refused(&wat::parse_str(odd).unwrap()).await;
    assert!(odd.starts_with("it imports `deadletter:processor/logging@0.1.0`, but not as the host has it"), "{odd}");
}

#[tokio::test]
async fn a_core_module_needs_a_description() {
    let sentence = refused(&wat::parse_str("(module)").unwrap()).await;
    assert!(sentence.starts_with("it is a core module without a description"), "{sentence}");
    let broken = refused(&wat::parse_str("(module (func (result i32)))").unwrap_or_default()).await;
    assert!(broken.starts_with("it is damaged"), "{broken}");
}

#[tokio::test]
async fn too_little_memory_for_the_batches_is_refused_with_the_arithmetic() {
    let mut small = setup("testing-plain", &[]);
    small.limits.memory = 4 << 20;
    let error = load(small).await.err().unwrap().to_string();
    assert!(error.contains("but 4 × 1.0 MiB = 4.0 MiB must be free: allow at least 5."), "{error}");
}

#[tokio::test]
async fn the_digest_is_of_the_file() {
    let guest = load(setup("testing-core", &[])).await.unwrap();
    let digest = guest.digest();
    assert!(digest.starts_with("sha256:") && digest.len() == 71, "{digest}");
    assert_eq!(digest, Guest::load(setup("testing-core", &[]), compiler()).await.unwrap().digest());
}
