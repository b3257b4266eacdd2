//! What a message costs between the host and a guest that reads every word of every payload: 1 KiB payloads, batches of
//! 1,000, every hundredth rejected, verdicts checked. One line of JSON for each row; the native row is the same loop
//! without a guest.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    reason = "a test fails by panicking"
)]

#[path = "../support/guests.rs"]
#[allow(dead_code, reason = "tests use the rest of it")]
mod guests;

use std::{
    hint::black_box,
    sync::Arc,
    time::{Duration, Instant},
};

use deadletter::{
    guest::Instance,
    message::{Batch, Header, Timestamp},
    offset::Offset,
};
use guests::{NOW, call, instance, source};

const MESSAGES: i64 = 1_000;
const PAYLOAD: usize = 1_024;
/// A row is the best of its rounds, since others use the machine, too.
const ROUNDS: usize = 20;
const ROUND: Duration = Duration::from_millis(100);

fn batch(key: Option<&[u8]>, headers: &[Header<'_>]) -> Arc<Batch> {
    let mut batch = Batch::new(source());
    for offset in 0..MESSAGES {
        let byte = u8::try_from(offset % 251).unwrap_or_default();
        let at = Offset::new(offset).expect("an offset");
        batch.push(at, Some(Timestamp::Create(NOW)), None, key, Some(&[byte; PAYLOAD]), headers.iter().copied());
    }
    Arc::new(batch)
}

/// The least nanoseconds a message of several rounds.
async fn measured(mut once: impl AsyncFnMut()) -> f64 {
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        let (start, mut messages) = (Instant::now(), 0_u32);
        while start.elapsed() < ROUND {
            once().await;
            messages += u32::try_from(MESSAGES).expect("a small number");
        }
        best = best.min(start.elapsed().as_secs_f64() * 1e9 / f64::from(messages));
    }
    best
}

async fn guest(instance: &mut Instance, batch: &Arc<Batch>) -> f64 {
    measured(async || {
        let answer = instance.process(&call(), Arc::clone(batch)).await.expect("an answer");
        assert_eq!(answer.verdicts.len(), 10);
    })
    .await
}

fn sum(batch: &Batch) -> u64 {
    let words = |payload: &[u8]| {
        let (words, _) = payload.as_chunks::<8>();
        words.iter().fold(0_u64, |sum, word| sum.wrapping_add(u64::from_le_bytes(*word)))
    };
    batch.iter().filter_map(|message| message.payload).map(words).fold(0, u64::wrapping_add)
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let bare = batch(None, &[]);
    let header = |name, value| Header { name, value: Some(value) };
    let full =
        batch(Some(b"sixteen byte key"), &[header(b"trace-id", b"0123456789abcdef"), header(b"schema", b"orders-v2")]);
    let native = measured(async || {
        black_box(sum(black_box(&bare)));
    })
    .await;
    let mut plain = instance("testing-plain", "checksum").await;
    let mut lazy = instance("testing-lazy", "checksum").await;
    let rows = [
        ("native", native),
        ("lazy", guest(&mut lazy, &bare).await),
        ("lazy, key and two headers", guest(&mut lazy, &full).await),
        ("plain", guest(&mut plain, &bare).await),
        ("plain, key and two headers", guest(&mut plain, &full).await),
    ];
    for (name, nanoseconds) in rows {
        println!(r#"{{"name":"{name}","ns_per_message":{nanoseconds:.1},"times_native":{:.2}}}"#, nanoseconds / native);
    }
}
