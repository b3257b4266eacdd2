//! What a message costs between the host and a guest that reads every word of every payload: 1 KiB payloads, batches of
//! 1,000, every hundredth rejected, verdicts checked. One line of JSON for each row; the native row is the same loop
//! without a guest.

#[path = "../support/mod.rs"]
mod support;

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
use serde_json::json;
use support::guests::{NOW, call, instance, source};

const MESSAGES: i64 = 1_000;
const PAYLOAD: usize = 1_024;
/// A row is the best of its rounds, since others use the machine, too.
const ROUNDS: usize = 40;
const ROUND: Duration = Duration::from_millis(50);

fn batch(key: Option<&[u8]>, headers: &[Header<'_>]) -> Arc<Batch> {
    let mut batch = Batch::new(source());
    for offset in 0..MESSAGES {
        let byte = u8::try_from(offset % 251).unwrap_or_default();
        let at = Offset::new(offset).unwrap();
        batch.push(at, Some(Timestamp::Create(NOW)), None, key, Some(&[byte; PAYLOAD]), headers.iter().copied());
    }
    Arc::new(batch)
}

/// Nanoseconds a message of one round.
async fn round(mut once: impl AsyncFnMut()) -> f64 {
    let (start, mut messages) = (Instant::now(), 0_u32);
    while start.elapsed() < ROUND {
        once().await;
        messages += u32::try_from(MESSAGES).unwrap();
    }
    start.elapsed().as_secs_f64() * 1e9 / f64::from(messages)
}

async fn judged(instance: &mut Instance, batch: &Arc<Batch>) -> f64 {
    round(async || {
        let answer = instance.process(&call(), Arc::clone(batch)).await.unwrap();
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
    let mut plain = instance("testing-plain", "checksum").await;
    let mut lazy = instance("testing-lazy", "checksum").await;
    let mut best = [f64::INFINITY; 5];
    for _ in 0..ROUNDS {
        // One after the other, so that a busy moment of the machine is not all one row's.
        let round = [
            round(async || _ = black_box(sum(black_box(&bare)))).await,
            judged(&mut lazy, &bare).await,
            judged(&mut lazy, &full).await,
            judged(&mut plain, &bare).await,
            judged(&mut plain, &full).await,
        ];
        best = std::array::from_fn(|row| best[row].min(round[row]));
    }
    // What a message may cost, in nanoseconds.
    let rows = [
        ("native loop", None),
        ("lazy guest", Some(180)),
        ("lazy guest, key and two headers", None),
        ("plain guest", Some(450)),
        ("plain guest, key and two headers", Some(900)),
    ];
    for ((name, most), nanoseconds) in rows.into_iter().zip(best) {
        let mut figure = json!({
            "name": format!("boundary: {name}"),
            "value": (nanoseconds * 10.0).round() / 10.0,
            "unit": "ns/message",
            "times-native": (nanoseconds / best[0] * 100.0).round() / 100.0,
        });
        if let Some(most) = most {
            figure["at-most"] = json!(most);
        }
        println!("{figure}");
    }
}
