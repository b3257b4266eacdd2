//! What a guest can do to the host: nothing, in bounded time and memory.

use std::{fs, sync::Arc, time::Duration};

use crate::support::guests::{NOW, batch, call, instance, judge, load, rejection, setup};
use deadletter::guest::{Failure, FailureKind, Instance, Setup};

/// A guest that may use 20 MiB and 200 ms.
fn narrow(name: &str, mode: &str) -> Setup {
    let mut setup = setup(name, &[("mode", mode)]);
    setup.limits.memory = 20 << 20;
    setup.limits.deadline = Duration::from_millis(200);
    setup
}

async fn failure(name: &str, mode: &str) -> Failure {
    let guest = load(narrow(name, mode)).await.unwrap();
    let mut instance = guest.instantiate(NOW).await.unwrap();
    let failure = judge(&mut instance).await.unwrap_err();
    let again = judge(&mut instance).await.unwrap_err();
    assert!(again.detail.contains("has failed before"), "{again}");
    failure
}

#[tokio::test]
async fn each_misbehaviour_is_a_failure_of_its_kind() {
    for name in ["testing-plain", "testing-lazy"] {
        for (mode, kind) in [
            ("loop", FailureKind::Timeout),
            ("sleep-for-ever", FailureKind::Timeout),
            ("alloc", FailureKind::OutOfMemory),
            ("panic", FailureKind::Trap),
            ("recurse", FailureKind::Trap),
            ("err", FailureKind::Error),
        ] {
            assert_eq!(failure(name, mode).await.kind, kind, "{name} {mode}");
        }
    }
}

#[tokio::test]
async fn a_failure_is_one_line_that_says_what_the_guest_said_last() {
    let panic = failure("testing-plain", "panic").await.to_string();
    assert!(panic.starts_with("the guest trapped: wasm trap: wasm `unreachable` instruction executed"), "{panic}");
    assert!(panic.contains("no idea what to do with offset 100"), "{panic}");
    assert!(!panic.contains('\n'));
    let error = failure("testing-plain", "err").await.to_string();
    assert_eq!(error, "the guest answered with an error: out of\\nluck");
    let memory = failure("testing-plain", "alloc").await.to_string();
    assert!(memory.contains("of memory and may use 20.0 MiB"), "{memory}");
}

#[tokio::test]
async fn an_answer_too_large_to_copy_breaks_the_contract() {
    let mut instance = instance("testing-plain", "huge").await;
    let failure = judge(&mut instance).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::Contract, "{failure}");
}

#[tokio::test]
async fn a_long_reason_is_cut() {
    let answer = judge(&mut instance("testing-plain", "reason").await).await.unwrap();
    assert_eq!(rejection(&answer.verdicts[0]).reason, "é".repeat(512));
}

/// What one call in this mode leaves in the log.
async fn logged(mode: &str) -> String {
    let file = tempfile::NamedTempFile::new().unwrap();
    let writer = Arc::new(file.reopen().unwrap());
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(writer).finish();
    let mut instance = instance("testing-plain", mode).await;
    {
        let _logging = tracing::subscriber::set_default(subscriber);
        assert!(judge(&mut instance).await.unwrap().verdicts.is_empty());
    }
    assert!(judge(&mut instance).await.is_ok());
    fs::read_to_string(file.path()).unwrap()
}

#[tokio::test]
async fn what_a_guest_logs_or_prints_is_logged_as_one_line_each() {
    let log = logged("log").await;
    let lines: Vec<_> = log.lines().map(|line| line.split_once("Z ").unwrap().1.trim_start()).collect();
    let expected = [
        r#"WARN guest: a line\nwith \u{1b}[31mcolour from="log""#,
        r#"INFO guest: said on stdout from="stdout""#,
        r#"INFO guest: and without an end from="stdout""#,
    ];
    assert_eq!(lines, expected);
}

#[tokio::test]
async fn a_guest_that_floods_its_output_goes_on_and_most_of_it_is_dropped() {
    let log = logged("flood").await;
    let lines = log.lines().count();
    assert!((100..20_000).contains(&lines), "{lines}");
    assert!(!log.contains('\u{1b}'));
}

#[tokio::test]
async fn a_guest_sees_nothing_of_its_surroundings_and_the_same_in_every_run() {
    let mut seen = Vec::new();
    for name in ["testing-plain", "testing-plain", "testing-mixed"] {
        let answer = judge(&mut instance(name, "probe").await).await.unwrap();
        seen.push(rejection(&answer.verdicts[0]).reason.clone());
    }
    assert_eq!(seen[0], seen[1]);
    for reason in &seen {
        let expected = format!("wall=Ok({NOW})");
        assert!(reason.contains("environment=0 file=false"), "{reason}");
        assert!(reason.contains("slept=2 socket=false"), "{reason}");
        assert!(reason.contains(&expected), "{reason}");
    }
}

#[tokio::test]
async fn a_long_sleep_is_over_at_once() {
    let mut instance = instance("testing-plain", "sleep").await;
    assert!(judge(&mut instance).await.unwrap().verdicts.is_empty());
}

#[tokio::test]
async fn a_call_can_be_dropped_at_any_moment() {
    let guest = load(setup("testing-lazy", &[("mode", "loop")])).await.unwrap();
    for polls in 1..4 {
        let mut instance = guest.instantiate(NOW).await.unwrap();
        let mut running = Box::pin(judge(&mut instance));
        for _ in 0..polls {
            assert!(polled_once(&mut running).await.is_none());
        }
        drop(running);
        assert!(judge(&mut instance).await.is_err());
    }
}

/// Polls once.
async fn polled_once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    std::future::poll_fn(|context| {
        std::task::Poll::Ready(match std::pin::Pin::new(&mut *future).poll(context) {
            std::task::Poll::Ready(output) => Some(output),
            std::task::Poll::Pending => None,
        })
    })
    .await
}

#[tokio::test]
async fn a_call_leaves_room_for_others_on_the_same_thread() {
    let guest = load(narrow("testing-plain", "loop")).await.unwrap();
    let mut instance = guest.instantiate(NOW).await.unwrap();
    let mut turns = 0_u32;
    let other = async {
        loop {
            turns += 1;
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        failure = judge(&mut instance) => assert_eq!(failure.unwrap_err().kind, FailureKind::Timeout),
        () = other => unreachable!(),
    }
    assert!(turns > 2);
}

#[tokio::test]
async fn memory_is_reported_and_stays_within_the_limit() {
    let mut instance = instance("testing-plain", "accept").await;
    let before = instance.memory();
    assert!(before > 0);
    let payload = vec![0; 1 << 20];
    instance.process(&call(), batch(0, &[&payload])).await.unwrap();
    assert!(instance.memory() >= before + payload.len());
    assert!(instance.memory() <= 64 << 20);
}

#[tokio::test]
async fn an_instance_and_its_calls_can_move_between_threads() {
    fn sent<T: Send>(value: T) -> T {
        value
    }
    let mut instance: Instance = sent(instance("testing-plain", "accept").await);
    assert!(sent(instance.process(&call(), batch(0, &[b""]))).await.is_ok());
}
