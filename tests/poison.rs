//! Messages at which the guest fails: each one dead letter, and nothing else.

use crate::support::{Running, SOON, Scene, Stored, broker, counts, eventually};

/// Ways to fail, what each is called, the code of the message, and a part of the reason.
const WAYS: &[(&str, &str, &str, &str)] = &[
    ("trap", "the guest trapped", "guest-trap", "a trap that was asked for"),
    ("timeout", "the guest ran out of time", "guest-timeout", "its deadline passed"),
    ("memory", "the guest ran out of memory", "guest-memory", "and may use 24.0 MiB"),
    ("no luck", "the guest answered with an error", "guest-error", "no luck"),
    ("contract", "the guest broke the contract", "guest-contract", "was not delivered yet"),
];

const LARGE: &str = r#"
    batch = { messages = 1000, wait = "500ms" }
    guest.deadline = "300ms"
    guest.memory = "24MiB"
"#;

const SMALL: &str = r#"
    batch = { messages = 4, wait = "5ms" }
    settle = "100ms"
"#;

/// A thousand messages that are emitted again, but for some.
fn fill(scene: &Scene<'_>, others: &[(usize, &str)]) {
    let mut payloads: Vec<_> = (0..1000).map(|number| format!("E{number}")).collect();
    for (number, payload) in others {
        (*payload).clone_into(&mut payloads[*number]);
    }
    scene.produce(0, &payloads.iter().map(String::as_str).collect::<Vec<_>>());
}

/// The numbers of what was emitted, ascending.
fn emitted(scene: &Scene<'_>) -> Vec<usize> {
    let number = |copy: Stored| String::from_utf8(copy.payload.unwrap()).unwrap().split_off(1).parse().unwrap();
    let mut numbers: Vec<_> = scene.broker.read(&scene.copies()).into_iter().map(number).collect();
    numbers.sort_unstable();
    numbers
}

fn all_but(others: &[usize]) -> Vec<usize> {
    (0..1000).filter(|number| !others.contains(number)).collect()
}

#[test]
fn one_message_among_a_thousand_is_rejected_however_it_fails_and_every_other_is_judged_once() {
    for (index, (way, kind, code, reason)) in WAYS.iter().enumerate() {
        let scene = Scene::new(broker(), &format!("poison-one-{index}"), 1, &[]);
        fill(&scene, &[(617, "X")]);
        let running = Running::start(&scene.config(&format!(r#"fail = "{way}""#), LARGE));
        scene.await_committed(0, 1000);
        let tally = running.stop().tally;
        assert_eq!(scene.rejected(0, code), [617], "{way}");
        assert_eq!(emitted(&scene), all_but(&[617]), "{way}");
        let letter = &scene.letters()[0];
        assert_eq!(letter.payload.as_deref(), Some(&b"X"[..]), "{way}");
        assert!(letter.header("deadletter.reason").unwrap().contains(reason), "{way}: {letter:?}");
        assert_eq!(letter.header("deadletter.attempts"), Some("1"), "{way}");
        scene.await_log(&["ERROR", "Rejected: the guest fails at this message", "offset=617", code]);
        assert_eq!(tally.rejected, counts(&[(code, 1)]), "{way}");
        assert!((2..=25).contains(&tally.failures[*kind]), "{way}: {tally:?}");
        assert_eq!((tally.isolations, tally.halted.len()), (1, 0), "{way}: {tally:?}");
    }
}

#[test]
fn the_first_and_the_last_of_a_batch_and_two_in_one_are_rejected_and_no_other() {
    let scene = Scene::new(broker(), "poison-ends", 1, &[]);
    let culprits = [0, 417, 418, 999];
    fill(&scene, &culprits.map(|number| (number, "X")));
    let running = Running::start(&scene.config(r#"fail = "trap""#, LARGE));
    scene.await_committed(0, 1000);
    assert_eq!(running.stop().tally.rejected, counts(&[("guest-trap", 4)]));
    assert_eq!(scene.rejected(0, "guest-trap"), [0, 417, 418, 999]);
    assert_eq!(emitted(&scene), all_but(&culprits));
}

#[test]
fn messages_that_fail_only_together_are_not_rejected() {
    let scene = Scene::new(broker(), "poison-pair", 1, &[]);
    fill(&scene, &[(3, "P"), (777, "P")]);
    let running = Running::start(&scene.config(r#"fail = "trap""#, LARGE));
    scene.await_committed(0, 1000);
    let tally = running.stop().tally;
    assert_eq!((tally.rejected, tally.halted.len()), (counts(&[]), 0));
    assert_eq!(tally.failures, counts(&[("the guest trapped", 2)]), "the batch, twice, in one piece");
    assert_eq!(emitted(&scene), all_but(&[3, 777]));
}

#[test]
fn a_guest_that_fails_at_every_fiftieth_batch_loses_no_message() {
    let scene = Scene::new(broker(), "poison-leak", 1, &[]);
    fill(&scene, &[]);
    let running = Running::start(&scene.config(r#"fail = "trap", fail-at = 50"#, SMALL));
    scene.await_committed(0, 1000);
    let tally = running.stop().tally;
    assert!(tally.failures["the guest trapped"] >= 4, "{tally:?}");
    assert_eq!((tally.rejected, tally.halted.len()), (counts(&[]), 0));
    assert_eq!(emitted(&scene), all_but(&[]));
}

#[test]
fn what_was_deferred_is_judged_though_instances_are_lost_after_it() {
    let scene = Scene::new(broker(), "poison-deferred", 1, &[]);
    scene.produce(0, &["D", "H", "D", "R", "D", "X", "R", "H", "D", "A"]);
    let running = Running::start(&scene.config(r#"fail = "trap", settle = "last""#, SMALL));
    eventually(SOON, "the culprit is rejected", || (!scene.rejected(0, "guest-trap").is_empty()).then_some(()));
    eventually(SOON, "what is behind it is judged", || (scene.rejected(0, "now").len() == 2).then_some(()));
    let tally = running.stop().tally;
    assert!(tally.redelivered >= 3, "{tally:?}");
    assert_eq!(tally.rejected, counts(&[("guest-trap", 1), ("late", 4), ("now", 2)]));
    assert_eq!((scene.rejected(0, "guest-trap"), scene.rejected(0, "late")), (vec![5], vec![0, 2, 4, 8]));
    assert_eq!(scene.committed(0), Some(10));
}

#[test]
fn a_deferred_message_at_which_the_guest_fails_when_it_comes_again_is_found() {
    let scene = Scene::new(broker(), "poison-redelivered", 1, &[]);
    // Two of these fail together: the second batch loses the instance, and then what it had open fails, too, unless it
    // comes in pieces.
    scene.produce(0, &["P", "D", "D", "D", "A", "X", "A", "D"]);
    let running = Running::start(&scene.config(r#"fail = "trap", settle = "last""#, SMALL));
    eventually(SOON, "the culprit is rejected", || (!scene.rejected(0, "guest-trap").is_empty()).then_some(()));
    let tally = running.stop().tally;
    assert_eq!(tally.rejected, counts(&[("guest-trap", 1), ("late", 4)]));
    assert_eq!(scene.committed(0), Some(8));
}

#[test]
fn a_guest_that_fails_at_everything_pauses_its_partition_alone_and_rejects_nothing() {
    for (index, (way, kind, ..)) in WAYS.iter().enumerate() {
        let scene = Scene::new(broker(), &format!("poison-all-{index}"), 2, &[]);
        scene.produce(0, &["A", "R", "A", "A", "X", "X", "X", "X", "A"]);
        scene.produce(1, &["A", "R"]);
        let small = r#"
            guest.deadline = "100ms"
            guest.memory = "24MiB"
        "#;
        let running = Running::start(&scene.config(&format!(r#"fail = "{way}""#), &format!("{SMALL}{small}")));
        let source = format!("{}[0]", scene.topic);
        scene.await_log(&["ERROR", "Paused", &source, "offsets 4 to 7", "the fault is the guest's"]);
        scene.await_committed(1, 2);
        scene.produce(1, &["R"]);
        scene.await_committed(1, 3);
        let tally = running.stop().tally;
        assert_eq!(scene.committed(0), Some(4), "{way}: what was settled is committed, and no more");
        assert_eq!(tally.rejected, counts(&[("now", 3)]), "{way}");
        assert!(tally.failures[*kind] > 8, "{way}: {tally:?}");
        assert_eq!(tally.halted.len(), 1, "{way}: {tally:?}");
    }
}

#[test]
fn a_message_that_comes_alone_is_rejected_once_the_guest_has_judged_another_one() {
    let one_by_one = r#"
        batch = { messages = 1, wait = "5ms" }
    "#;
    let scene = Scene::new(broker(), "poison-alone", 1, &[]);
    scene.produce(0, &["X"]);
    let running = Running::start(&scene.config(r#"fail = "trap""#, one_by_one));
    scene.await_log(&["WARN", "offset=0", "it is rejected once another one is"]);
    assert!(scene.letters().is_empty());
    scene.produce(0, &["A", "X"]);
    scene.await_committed(0, 3);
    assert_eq!(scene.rejected(0, "guest-trap"), [0, 2]);
    // A second one in a row says nothing against the guest yet; but a third one does.
    scene.produce(0, &["X", "X"]);
    scene.await_log(&["ERROR", "Paused", "every message that it was handed"]);
    assert_eq!(running.stop().tally.halted.len(), 1);
    assert_eq!(scene.rejected(0, "guest-trap"), [0, 2]);
    assert_eq!(scene.committed(0), Some(3));
}

#[test]
fn batches_that_take_too_long_become_smaller_and_nothing_is_rejected() {
    let scene = Scene::new(broker(), "poison-slow", 1, &[]);
    scene.produce(0, &["S"; 64]);
    let slow = r#"
        batch = { messages = 64, wait = "500ms" }
        guest.deadline = "100ms"
    "#;
    let running = Running::start(&scene.config("", slow));
    scene.await_committed(0, 64);
    let tally = running.stop().tally;
    assert_eq!((tally.rejected, tally.halted.len(), tally.accepted), (counts(&[]), 0, 64));
    scene.await_log(&["WARN", "this partition gets smaller ones from now on"]);
}

#[test]
fn what_is_not_found_within_the_budget_pauses_the_partition() {
    let scene = Scene::new(broker(), "poison-budget", 1, &[]);
    let others: Vec<_> = (0..20).map(|number| (50 * number, "X")).collect();
    fill(&scene, &others);
    let config = LARGE.replace("300ms", "100ms");
    let running = Running::start(&scene.config(r#"fail = "timeout""#, &config));
    scene.await_log(&["ERROR", "Paused", "60 times its deadline"]);
    let tally = running.stop().tally;
    assert_eq!(tally.halted.len(), 1);
    let rejected = scene.rejected(0, "guest-timeout");
    assert!(!rejected.is_empty() && rejected.iter().all(|offset| offset % 50 == 0), "{rejected:?}");
}
