//! Bad configurations, each beside the message that it gets: `config/*.toml` and `*.err`. With `UPDATE_GOLDEN=1` the
//! messages are written anew instead of compared.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Output,
};

use crate::support::{binary, guest, repository};
use tempfile::TempDir;

fn folder() -> PathBuf {
    repository().join("tests/config")
}

fn check(file: &str) -> Output {
    let mut command = binary(["check", "--offline", file]);
    command.current_dir(folder());
    command
        .env_remove("RUST_LOG")
        .env_remove("DEADLETTER_TEST_UNSET")
        .env("KAFKA_PASSWORD", "secret")
        .env("DEADLETTER_ADMIN_TOKEN", "0123456789abcdef")
        .env("DEADLETTER_CACHE", Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache"))
        .output()
        .unwrap()
}

/// Every `*.toml` but those whose modules would have to be there, and one that is not there itself.
fn cases() -> Vec<String> {
    let files = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let files = files.filter(|name| Path::new(name).extension().is_some_and(|extension| extension == "toml"));
    let bad = files.filter(|name| !["good.toml", "minimal.toml"].contains(&name.as_str()));
    let mut cases: Vec<_> = bad.chain(["no-such-file.toml".to_owned()]).collect();
    cases.sort();
    cases
}

#[test]
fn every_bad_configuration_gets_its_message() {
    let mut wrong = Vec::new();
    let cases = cases();
    assert!(cases.len() > 50, "the cases are there: {cases:?}");
    for case in cases {
        let output = check(&case);
        let message = String::from_utf8(output.stderr).unwrap();
        let golden = folder().join(case.replace(".toml", ".err"));
        if env::var_os("UPDATE_GOLDEN").is_some() {
            fs::write(&golden, &message).unwrap();
        }
        let expected = fs::read_to_string(&golden).unwrap_or_default();
        if message != expected || output.status.code() != Some(64) {
            wrong.push(format!("{case}: {}\n  expected: {expected}\n  got:      {message}", output.status));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_good_configuration_is_checked_line_by_line() {
    let temporary = TempDir::new().unwrap();
    fs::copy(guest("testing-plain"), temporary.path().join("guest.wasm")).unwrap();
    fs::copy(folder().join("good.toml"), temporary.path().join("good.toml")).unwrap();
    let output = check(&temporary.path().join("good.toml").display().to_string());
    let lines = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<_> = lines.lines().collect();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert!(lines[0].starts_with("ok configuration ") && lines[0].ends_with("good.toml"), "{lines:?}");
    assert!(lines[1].contains("guest.wasm of letters (sha256:") && lines[1].ends_with(", settles)"), "{lines:?}");
    assert!(lines[2].contains("guest.wasm of orders (sha256:"), "{lines:?}");
}

#[test]
fn the_configuration_in_the_readme_is_a_good_one() {
    let readme = fs::read_to_string(repository().join("README.md")).unwrap();
    let toml = readme.split_once("```toml\n").unwrap().1.split_once("```").unwrap().0;
    let temporary = TempDir::new().unwrap();
    fs::write(temporary.path().join("orders.toml"), toml).unwrap();
    fs::copy(guest("testing-plain"), temporary.path().join("orders.wasm")).unwrap();
    let output = check(&temporary.path().join("orders.toml").display().to_string());
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_usage_error_is_64_and_help_is_0() {
    let run = |arguments: &[&str]| {
        let output = binary(arguments).output().unwrap();
        (output.status.code(), !output.stdout.is_empty(), !output.stderr.is_empty())
    };
    assert_eq!(run(&["--help"]), (Some(0), true, false));
    assert_eq!(run(&["check", "--help"]), (Some(0), true, false));
    assert_eq!(run(&["completions", "bash"]), (Some(0), true, false));
    assert_eq!(run(&[]), (Some(64), false, true));
    assert_eq!(run(&["walk"]), (Some(64), false, true));
    assert_eq!(run(&["check"]), (Some(64), false, true));
}
