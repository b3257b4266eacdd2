use testing_shared::Batch;

use crate::bindings::deadletter::processor::batch::{self, Chunk};

const CHUNK: u32 = 256 * 1024;

/// The batch in hand, read by column.
pub(crate) struct Columns;

/// Calls `each` with every value of a column.
fn read(fetch: impl Fn(u32, u32) -> Chunk, mut each: impl FnMut(Option<&[u8]>)) {
    let mut start = 0;
    loop {
        let chunk = fetch(start, CHUNK);
        if chunk.lengths.is_empty() {
            return;
        }
        let mut rest = chunk.bytes.as_slice();
        for length in &chunk.lengths {
            let Ok(length) = usize::try_from(*length) else {
                each(None);
                continue;
            };
            let (value, behind) = rest.split_at(length);
            each(Some(value));
            rest = behind;
        }
        start += chunk.lengths.len() as u32;
    }
}

fn column(fetch: impl Fn(u32, u32) -> Chunk) -> Vec<Option<Vec<u8>>> {
    let mut values = Vec::new();
    read(fetch, |value| values.push(value.map(<[u8]>::to_vec)));
    values
}

impl Batch for Columns {
    fn offsets(&self) -> Vec<i64> {
        batch::offsets()
    }

    fn checksum(&self) -> u64 {
        let mut sum = 0_u64;
        read(batch::payloads, |value| sum = sum.wrapping_add(value.map_or(0, testing_shared::sum)));
        sum
    }

    fn describe(&self) -> Vec<String> {
        // Chunks of a byte, too: a chunk has at least one value.
        let payloads = column(|start, _| batch::payloads(start, 1));
        assert_eq!(payloads, column(batch::payloads));
        let (keys, last) = (column(batch::keys), column(|start, max| batch::header_values("name", start, max)));
        let (timestamps, attempts) = (batch::timestamps(), batch::attempts());
        let lengths = batch::payload_lengths();
        assert!(batch::headers(lengths.len() as u32).is_empty());
        let line = |(index, offset): (usize, i64)| {
            let headers: Vec<_> =
                batch::headers(index as u32).into_iter().map(|header| (header.name, header.value)).collect();
            let named = headers.iter().rev().find(|(name, _)| name == "name").and_then(|(_, value)| value.clone());
            assert_eq!(last[index], named);
            assert_eq!(lengths[index], payloads[index].as_ref().map_or(-1, |payload| payload.len() as i32));
            let timestamp = Some(timestamps[index]).filter(|millis| *millis != -1);
            let (key, payload, attempt) = (&keys[index], &payloads[index], attempts[index]);
            format!("{offset} {timestamp:?} {attempt} {key:?} {payload:?} {headers:?}")
        };
        batch::offsets().into_iter().enumerate().map(line).collect()
    }
}
