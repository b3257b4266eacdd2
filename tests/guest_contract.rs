//! What passes between the host and a guest, for every shape that a guest may have.

use std::{collections::BTreeSet, time::Duration};

use crate::support::{
    guest,
    guests::{batch, call, instance, judge, load, odd_batch, rejection, setup},
};
use deadletter::{
    guest::{FailureKind, Occasion, Setup},
    verdict::{OffsetRange, Outcome},
};

const ALL: [&str; 3] = ["testing-plain", "testing-lazy", "testing-mixed"];

fn ends(range: &OffsetRange) -> (i64, i64) {
    (range.first.get(), range.last.get())
}

#[tokio::test]
async fn every_contract_shows_the_guest_all_of_a_message() {
    let expected = [
        r#"5 Some(7) 1 Some([107, 101, 121]) Some([112, 97, 121, 108, 111, 97, 100]) [("name", Some([97])), ("name", None), ("x", Some([]))]"#.to_owned(),
        "9 None 1 None None []".to_owned(),
        format!(r#"{} Some(8) 1 Some([]) Some([]) [("{}bytes", Some([0, 255])), ("name", Some([108, 97, 115, 116]))]"#, i64::MAX - 1, '\u{fffd}'),
    ];
    for name in ALL {
        let answer = instance(name, "echo").await.process(&call(), odd_batch()).await.unwrap();
        let seen: Vec<_> = answer.verdicts.iter().map(|verdict| rejection(verdict).reason.clone()).collect();
        assert_eq!(seen, expected, "{name}");
        assert_eq!(ends(&answer.verdicts[2].offsets[0]), (i64::MAX - 1, i64::MAX - 1));
    }
}

#[tokio::test]
async fn every_payload_word_reaches_the_guest() {
    let payloads: Vec<Vec<u8>> = (0..300_usize).map(|n| vec![u8::try_from(n % 251).unwrap(); n * 7]).collect();
    let slices: Vec<_> = payloads.iter().map(Vec::as_slice).collect();
    let sum = payloads.iter().flat_map(|payload| payload.chunks(8)).fold(0_u64, |sum, word| {
        let mut bytes = [0; 8];
        bytes[..word.len()].copy_from_slice(word);
        sum.wrapping_add(u64::from_le_bytes(bytes))
    });
    for name in ALL {
        let answer = instance(name, "checksum").await.process(&call(), batch(100, &slices)).await.unwrap();
        assert_eq!(answer.verdicts.len(), 3);
        assert_eq!(rejection(&answer.verdicts[0]).reason, sum.to_string(), "{name}");
    }
}

#[tokio::test]
async fn each_outcome_arrives_as_it_was_given() {
    let outcome = async |mode| {
        let answer = judge(&mut instance("testing-plain", mode).await).await.unwrap();
        assert_eq!(answer.verdicts.len(), 1);
        assert_eq!(answer.verdicts[0].offsets.iter().map(ends).collect::<Vec<_>>(), [(100, 101)]);
        answer.verdicts[0].outcome.clone()
    };
    assert!(judge(&mut instance("testing-plain", "accept").await).await.unwrap().verdicts.is_empty());
    assert_eq!(outcome("accept-all").await, Outcome::Accept);
    let Outcome::Reject(rejection) = outcome("reject-all").await else { panic!("not a rejection") };
    assert_eq!((rejection.route.as_deref(), rejection.code.as_str()), (Some("other"), "no"));
    let Outcome::Retry(retry) = outcome("retry").await else { panic!("not a retry") };
    assert_eq!((retry.delay, retry.code.as_str()), (Duration::from_millis(1500), "busy"));
    assert!(matches!(outcome("hold").await, Outcome::Hold(hold) if hold.reason == "the dependency is away"));
    assert_eq!(outcome("defer").await, Outcome::Defer);
}

#[tokio::test]
async fn what_was_deferred_is_settled_in_any_order() {
    for name in ["testing-plain", "testing-mixed"] {
        let mut instance = instance(name, "defer").await;
        judge(&mut instance).await.unwrap();
        let answer = instance.settle(&call(), Occasion::Tick).await.unwrap();
        let settled: Vec<_> = answer.verdicts.iter().map(|verdict| ends(&verdict.offsets[0])).collect();
        assert_eq!(settled, [(101, 101), (100, 100)], "{name}");
        assert_eq!(rejection(&answer.verdicts[0]).code, "late");
        assert!(instance.settle(&call(), Occasion::Last).await.unwrap().verdicts.is_empty());
    }
}

#[tokio::test]
async fn only_guests_that_export_settling_may_defer_or_settle() {
    for (name, settles) in [("testing-plain", true), ("testing-mixed", true), ("testing-lazy", false)] {
        assert_eq!(load(setup(name, &[])).await.unwrap().settles(), settles, "{name}");
    }
    let failure = judge(&mut instance("testing-lazy", "defer").await).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::Contract);
    assert!(failure.detail.contains("does not export `settling`"), "{failure}");
    let failure = instance("testing-lazy", "accept").await.settle(&call(), Occasion::Tick).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::Contract);
}

#[tokio::test]
async fn there_is_no_batch_outside_of_process() {
    let guest = load(setup("testing-mixed", &[("mode", "checksum"), ("settle", "batch")])).await.unwrap();
    let mut instance = guest.instantiate(0).await.unwrap();
    judge(&mut instance).await.unwrap();
    let failure = instance.settle(&call(), Occasion::Tick).await.unwrap_err();
    assert_eq!((failure.kind, failure.detail.as_str()), (FailureKind::Error, "0 offsets, checksum 0"));
}

#[tokio::test]
async fn emitted_records_come_with_the_answer_of_their_call_only() {
    for name in ALL {
        let mut instance = instance(name, "emit").await;
        for _ in 0..2 {
            let answer = judge(&mut instance).await.unwrap();
            assert_eq!(answer.emits.len(), 2, "{name}");
            assert_eq!(answer.emits[1].output, "out");
            assert_eq!(answer.emits[1].key.as_deref(), Some(b"101".as_slice()));
            assert_eq!(answer.emits[1].payload.as_deref(), Some(b"xxxx".as_slice()));
        }
    }
    let failure = judge(&mut instance("testing-plain", "emit-and-trap").await).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::Trap);
}

#[tokio::test]
async fn an_emit_beyond_what_is_allowed_is_refused_to_the_guest() {
    let refused = async |settings: &[(&str, &str)]| {
        let guest = load(setup("testing-plain", settings)).await.unwrap();
        judge(&mut guest.instantiate(0).await.unwrap()).await.unwrap_err().detail
    };
    let unknown = refused(&[("mode", "emit-to"), ("output", "elsewhere")]).await;
    assert_eq!(unknown, "there is no output `elsewhere`");
    let large = refused(&[("mode", "emit"), ("size", "1048577")]).await;
    assert!(large.contains("is too large"), "{large}");

    let guest = load(setup("testing-plain", &[("mode", "emit"), ("size", "1000000")])).await.unwrap();
    let payloads = [b"".as_slice(); 5];
    let all = guest.instantiate(0).await.unwrap().process(&call(), batch(0, &payloads)).await.unwrap_err();
    assert!(all.detail.contains("a call may emit"), "{all}");
}

#[tokio::test]
async fn settings_reach_every_instance_and_may_be_refused() {
    let error = load(setup("testing-plain", &[("refuse", "what is\nthis?")])).await.err().unwrap();
    let error = error.to_string();
    assert!(error.ends_with("it refuses the settings: what is\\nthis?"), "{error}");
}

#[tokio::test]
async fn a_core_module_is_made_a_component() {
    let guest = load(setup("testing-core", &[])).await.unwrap();
    assert!(!guest.settles());
    let mut instance = guest.instantiate(0).await.unwrap();
    let answer = instance.process(&call(), batch(7, &[b"accept", b"reject", b""])).await.unwrap();
    assert_eq!(answer.verdicts.len(), 1);
    assert_eq!(ends(&answer.verdicts[0].offsets[0]), (8, 8));
    assert_eq!(rejection(&answer.verdicts[0]).reason, "it says r");
    let failure = instance.process(&call(), batch(7, &[b"defer"])).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::Contract);
}

/// The custom sections of a module that describe its interfaces, as they are.
fn descriptions(module: &[u8]) -> Vec<u8> {
    let leb = |at: &mut usize| {
        let (mut value, mut shift) = (0, 0);
        loop {
            let byte = module[*at];
            *at += 1;
            value |= usize::from(byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 {
                return value;
            }
        }
    };
    let (mut found, mut at) = (Vec::new(), 8);
    while at < module.len() {
        let (start, id) = (at, module[at]);
        at += 1;
        let end = leb(&mut at) + at;
        let length = leb(&mut at);
        if id == 0 && module[at..at + length].starts_with(b"component-type") {
            found.extend_from_slice(&module[start..end]);
        }
        at = end;
    }
    found
}

#[tokio::test]
async fn a_core_module_of_wasi_preview_1_gets_the_adapter() {
    // It traps unless the clock of preview 1 shows the `now` of its context.
    let text = r#"(module
        (import "wasi_snapshot_preview1" "clock_time_get" (func $clock (param i32 i64 i32) (result i32)))
        (memory (export "memory") 32)
        (global $next (mut i32) (i32.const 65536))
        (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
            (local $at i32)
            (local.set $at (i32.and (i32.add (global.get $next) (i32.const 15)) (i32.const -16)))
            (global.set $next (i32.add (local.get $at) (local.get 3)))
            (local.get $at))
        (func (export "deadletter:processor/handler@0.1.0#process") (param i32 i32 i32 i64 i32 i32) (result i32)
            (if (call $clock (i32.const 0) (i64.const 1) (i32.const 16)) (then unreachable))
            (if (i64.ne (i64.load (i32.const 16)) (i64.mul (local.get 3) (i64.const 1000000))) (then unreachable))
            (i32.const 1024)))"#;
    let mut bytes = wat::parse_str(text).unwrap();
    bytes.extend(descriptions(&std::fs::read(guest("testing-core")).unwrap()));
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, bytes).unwrap();
    let setup = Setup { module: file.path().to_owned(), ..setup("testing-core", &[]) };
    let mut instance = load(setup).await.unwrap().instantiate(0).await.unwrap();
    assert!(judge(&mut instance).await.unwrap().verdicts.is_empty());
}

#[tokio::test]
async fn verdicts_that_break_the_contract_are_refused_and_say_why() {
    let refused = async |settings: &[(&str, &str)]| {
        let guest = load(setup("testing-lazy", settings)).await.unwrap();
        let failure = judge(&mut guest.instantiate(0).await.unwrap()).await.unwrap_err();
        assert_eq!(failure.kind, FailureKind::Contract);
        failure.detail
    };
    for (range, problem) in
        [("-1..4", "-1 is not an offset"), ("5..4", "ends before it begins"), ("none", "it has no range of offsets")]
    {
        let detail = refused(&[("mode", "range"), ("range", range)]).await;
        assert!(detail.contains(problem), "{range}: {detail}");
    }
    assert!(refused(&[("mode", "code"), ("code", "Bad Code\n")]).await.contains("`Bad Code\\n`"));
}

#[tokio::test]
async fn a_range_within_bounds_is_handed_on_unchecked() {
    // Whether the offset is open is the ledger's to say.
    let answer = judge(&mut instance("testing-plain", "lie").await).await.unwrap();
    assert_eq!(ends(&answer.verdicts[0].offsets[0]), (1_000_100, 1_000_100));
}

#[tokio::test]
async fn a_guest_may_use_a_thousand_codes_across_its_instances() {
    let guest = load(setup("testing-plain", &[("mode", "codes")])).await.unwrap();
    let payloads = [b"".as_slice(); 600];
    let process = async |first| guest.instantiate(0).await.unwrap().process(&call(), batch(first, &payloads)).await;
    assert_eq!(process(0).await.unwrap().verdicts.len(), 600);
    assert_eq!(process(0).await.unwrap().verdicts.len(), 600);
    assert!(process(600).await.unwrap_err().detail.contains("one more than the 1000"));
    let codes: BTreeSet<_> = process(400).await.unwrap().verdicts.iter().map(|v| rejection(v).code.clone()).collect();
    assert_eq!(codes.len(), 600);
}
