//! The guests of the tests, called without a broker.

use std::{
    collections::BTreeSet,
    sync::{Arc, OnceLock},
    time::Duration,
};

use deadletter::{
    guest::{Call, Compiler, Failure, Guest, Instance, Limits, LoadError, Setup},
    message::{Batch, Header, Timestamp, TopicPartition},
    offset::Offset,
    verdict::{Answer, Outcome, Rejection, Verdict},
};

/// When every call of these tests takes place.
pub(crate) const NOW: i64 = 1_750_000_000_123;

/// One engine for all tests of a process.
pub(crate) fn compiler() -> &'static Compiler {
    static COMPILER: OnceLock<Compiler> = OnceLock::new();
    COMPILER.get_or_init(|| Compiler::in_process().expect("an engine"))
}

/// A guest of the tests with some settings, the limits of the defaults, and the output `out`.
pub(crate) fn setup(name: &str, settings: &[(&str, &str)]) -> Setup {
    Setup {
        module: super::guest(name),
        limits: Limits { memory: 64 << 20, deadline: Duration::from_secs(10), batch_bytes: 1 << 20 },
        settings: settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        outputs: BTreeSet::from(["out".to_owned()]),
    }
}

/// Loads it.
pub(crate) async fn load(setup: Setup) -> Result<Guest, LoadError> {
    Guest::load(setup, compiler()).await
}

/// An instance of a guest with the setting `mode`.
pub(crate) async fn instance(name: &str, mode: &str) -> Instance {
    let guest = load(setup(name, &[("mode", mode)])).await.expect("a guest that loads");
    guest.instantiate(NOW).await.expect("an instance")
}

/// The partition that all batches are of.
pub(crate) fn source() -> TopicPartition {
    TopicPartition::new("orders", 3)
}

/// A call about it.
pub(crate) fn call() -> Call {
    Call { source: source(), now: NOW, deadlines: 1 }
}

/// Messages from `first` on, one for each payload.
pub(crate) fn batch(first: i64, payloads: &[&[u8]]) -> Arc<Batch> {
    let mut batch = Batch::new(source());
    for (offset, payload) in (first..).zip(payloads) {
        batch.push(Offset::new(offset).unwrap(), Some(Timestamp::Create(NOW)), None, None, Some(payload), []);
    }
    Arc::new(batch)
}

/// Hands a batch of two messages to an instance.
pub(crate) async fn judge(instance: &mut Instance) -> Result<Answer, Failure> {
    instance.process(&call(), batch(100, &[b"one", b"two"])).await
}

/// The rejection of a verdict.
pub(crate) fn rejection(verdict: &Verdict) -> &Rejection {
    match &verdict.outcome {
        Outcome::Reject(rejection) => rejection,
        other => panic!("not a rejection: {other}"),
    }
}

/// A batch that has everything which is special: tombstone, empty values, duplicate, null and binary headers.
pub(crate) fn odd_batch() -> Arc<Batch> {
    let mut batch = Batch::new(source());
    let header = |name, value| Header { name, value };
    let at = |offset| Offset::new(offset).unwrap();
    let repeated = [header(b"name", Some(b"a")), header(b"name", None), header(b"x", Some(b""))];
    batch.push(at(5), Some(Timestamp::Append(7)), Some(1), Some(b"key"), Some(b"payload"), repeated);
    batch.push(at(9), None, None, None, None, []);
    let binary = [header(b"\xffbytes", Some(b"\x00\xff")), header(b"name", Some(b"last"))];
    batch.push(at(i64::MAX - 1), Some(Timestamp::Create(8)), None, Some(b""), Some(b""), binary);
    Arc::new(batch)
}
