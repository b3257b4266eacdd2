//! What a benchmark compares with: a bare loop of rdkafka that reads each payload word by word.

use std::time::Instant;

use rdkafka::{
    Message as _,
    consumer::{BaseConsumer, Consumer as _},
};

use super::SOON;

/// What a loop over a topic came to.
pub(crate) struct Summed {
    /// Messages a second, from the first one on.
    pub(crate) rate: f64,
    /// Of all words.
    pub(crate) sum: u64,
}

/// Reads so many messages of what the consumer is assigned.
pub(crate) fn sum_messages(consumer: &BaseConsumer, messages: u32) -> Summed {
    let (mut count, mut sum, mut since) = (0, 0_u64, Instant::now());
    while count < messages {
        let Some(message) = consumer.poll(SOON) else { continue };
        if count == 0 {
            since = Instant::now();
        }
        sum = sum.wrapping_add(sum_words(message.unwrap().payload().unwrap()));
        count += 1;
    }
    Summed { rate: f64::from(messages) / since.elapsed().as_secs_f64(), sum }
}

/// The sum of a payload's words of eight bytes.
pub(crate) fn sum_words(payload: &[u8]) -> u64 {
    let (words, _) = payload.as_chunks();
    words.iter().fold(0, |sum, word| sum.wrapping_add(u64::from_le_bytes(*word)))
}

/// The middle one of some figures.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
