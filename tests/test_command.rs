//! `deadletter test`: a guest without Kafka, through the binary. The guests are those of `cargo xtask guests`.

use std::{fs, io::Write, path::Path, process::Stdio};

use crate::support::{binary, guest};
use tempfile::TempDir;

struct Ran {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

/// Runs the plain guest in a mode, or the given arguments instead of one.
fn test(arguments: &[&str], input: &str) -> Ran {
    let mut command = binary(["test"]);
    command.arg(guest("testing-plain")).args(arguments);
    command.env_remove("RUST_LOG").env("DEADLETTER_CACHE", Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache"));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // A child that refuses its arguments closes its end unread.
    drop(child.stdin.take().unwrap().write_all(input.as_bytes()));
    let output = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ran { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

#[test]
fn what_no_verdict_names_is_accepted() {
    let ran = test(&[], "a\nb\nc");
    assert_eq!((ran.code, &*ran.stdout), (Some(0), "0-2 accept\n"), "{}", ran.stderr);
    assert!(ran.stderr.contains("3 messages in 2 calls"), "{}", ran.stderr);
}

#[test]
fn a_message_reaches_the_guest_with_all_that_it_has() {
    let line = r#"{"key":"k","payload":{"base64":"/w=="},"headers":[{"name":"h","value":null}],"timestamp":5}"#;
    let ran = test(&["--input", "json", "--settings", "mode=echo"], line);
    let echoed = r#"0 reject dead-letter echo "0 Some(5) 1 Some([107]) Some([255]) [(\"h\", None)]""#;
    assert_eq!((ran.code, ran.stdout.trim_end()), (Some(0), echoed), "{}", ran.stderr);
}

#[test]
fn deferred_messages_are_judged_at_a_tick_or_at_last() {
    let defer = ["--settings", "mode=defer", "--batch", "2"];
    let ran = test(&defer, "a\nb\nc");
    assert_eq!(ran.stdout, "0-2 reject dead-letter late \"settled\" (tick 1)\n", "{}", ran.stderr);
    let ran = test(&[&defer[..], &["--ticks", "0"]].concat(), "a\nb\nc");
    assert_eq!(ran.stdout, "0-2 reject dead-letter late \"settled\" (last)\n", "{}", ran.stderr);
}

#[test]
fn emitted_records_and_logs_are_shown() {
    let ran = test(&["--settings", "mode=emit", "--output", "out"], "a");
    let emitted = r#"emit out {"headers":[],"key":"0","partition":null,"payload":"xxxx","timestamp":null}"#;
    assert_eq!(ran.stdout, format!("0 accept\n{emitted}\n"), "{}", ran.stderr);
    let ran = test(&["--settings", "mode=log"], "a");
    assert!(ran.stderr.contains("log info stdout said on stdout"), "{}", ran.stderr);
}

#[test]
fn a_failure_is_1_and_says_where() {
    let ran = test(&["--settings", "mode=panic", "--batch", "2"], "a\nb\nc");
    assert_eq!(ran.code, Some(1));
    assert!(ran.stdout.starts_with("0-1 open\nfailure offsets 0-1: the guest trapped: "), "{}", ran.stdout);
}

#[test]
fn what_is_to_be_delivered_again_is_shown_with_its_delay() {
    let ran = test(&["--settings", "mode=retry", "--batch", "2"], "a\nb\nc");
    assert_eq!(ran.stdout, "0-2 retry busy \"the dependency is away\" after 1s 500ms\n", "{}", ran.stderr);
    let ran = test(&["--settings", "mode=hold", "--batch", "2"], "a\nb\nc");
    assert_eq!(ran.stdout, "0-1 hold busy \"the dependency is away\" after 1s 500ms\n", "{}", ran.stderr);
    assert_eq!(ran.code, Some(0));
}

#[test]
fn one_json_document_holds_everything() {
    let ran = test(&["--settings", "mode=log", "--json"], "a\nb");
    let document: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(document["messages"], 2);
    assert_eq!(document["verdicts"][0]["outcome"], "accept");
    assert_eq!(document["verdicts"][0]["last"], 1);
    assert_eq!(document["logs"][1]["message"], "said on stdout");
    assert!(document["peak-memory"].as_u64().unwrap() > 0 && document["time-ms"].as_f64().unwrap() > 0.0);
}

#[test]
fn a_difference_is_1_and_shown() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("expected.txt");
    let expect = |expected: &str| {
        fs::write(&file, expected).unwrap();
        test(&["--expect", file.to_str().unwrap()], "a\nb\nc")
    };
    let ran = expect("0-2 accept\n");
    assert_eq!(ran.code, Some(0), "{}{}", ran.stdout, ran.stderr);
    let ran = expect("0 accept\n1-2 reject dead-letter bad \"why\"\n");
    assert_eq!(ran.code, Some(1));
    let shown = "- expected\n+ got\n- 0 accept\n- 1-2 reject dead-letter bad \"why\"\n+ 0-2 accept\n";
    assert_eq!(ran.stdout, shown);
    assert!(ran.stderr.ends_with("expected.txt: not as expected\n"), "{}", ran.stderr);
}

#[test]
fn what_cannot_be_used_is_64() {
    for (arguments, input, problem) in [
        (&["--input", "json"][..], "{}", "stdin:1: missing field `payload`"),
        (&["no-such-file"], "", "no-such-file: No such file"),
        (&["--deadline", "0s"], "", "--deadline: must not be zero"),
        (&["--memory", "3MiB"], "", "must be free"),
        (&["--settings", "refuse=no thanks"], "", "no thanks"),
        (&["--settings", "mode"], "", "a setting is NAME=VALUE"),
    ] {
        let ran = test(arguments, input);
        assert_eq!(ran.code, Some(64), "{arguments:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(problem), "{arguments:?}: {}", ran.stderr);
    }
}
