use proptest::{collection::vec, option, prelude::*};

use super::{Batch, Column, Header, Message, NotAPartition, Timestamp, TopicPartition};
use crate::offset::Offset;

type Bytes = Option<Vec<u8>>;

#[derive(Clone, Debug)]
struct Naive {
    /// Offsets missing before it.
    gap: i64,
    timestamp: Option<Timestamp>,
    leader_epoch: Option<i32>,
    key: Bytes,
    payload: Bytes,
    headers: Vec<(Vec<u8>, Bytes)>,
}

fn bytes() -> impl Strategy<Value = Bytes> {
    option::of(vec(any::<u8>(), 0..6))
}

fn message() -> impl Strategy<Value = Naive> {
    let timestamp = prop_oneof![
        Just(None),
        (0..i64::MAX).prop_map(|millis| Some(Timestamp::Create(millis))),
        (0..i64::MAX).prop_map(|millis| Some(Timestamp::Append(millis))),
    ];
    let headers = vec((vec(any::<u8>(), 0..4), bytes()), 0..4);
    (0..3_i64, timestamp, option::of(0..i32::MAX), bytes(), bytes(), headers).prop_map(
        |(gap, timestamp, leader_epoch, key, payload, headers)| Naive {
            gap,
            timestamp,
            leader_epoch,
            key,
            payload,
            headers,
        },
    )
}

fn batch(messages: &[Naive]) -> (Batch, Vec<i64>) {
    let mut batch = Batch::new(TopicPartition::new("orders", 3));
    let mut offsets = Vec::new();
    let mut next = 7;
    for Naive { gap, timestamp, leader_epoch, key, payload, headers } in messages {
        let offset = next + gap;
        next = offset + 1;
        offsets.push(offset);
        let headers = headers.iter().map(|(name, value)| Header { name, value: value.as_deref() });
        let offset = Offset::new(offset).unwrap();
        batch.push(offset, *timestamp, *leader_epoch, key.as_deref(), payload.as_deref(), headers);
    }
    (batch, offsets)
}

fn same(message: &Message<'_>, naive: &Naive) {
    assert_eq!(message.timestamp, naive.timestamp);
    assert_eq!(message.leader_epoch, naive.leader_epoch);
    assert_eq!(message.key, naive.key.as_deref());
    assert_eq!(message.payload, naive.payload.as_deref());
    let headers: Vec<_> =
        message.headers().map(|header| (header.name.to_vec(), header.value.map(<[u8]>::to_vec))).collect();
    assert_eq!(headers, naive.headers);
}

fn column(values: &[Bytes]) -> Column {
    let mut column = Column::default();
    for value in values {
        column.push(value.as_deref());
    }
    column
}

/// As [`Column::chunk`] says it: at least one, then as many as fit.
fn naive_chunk(values: &[Bytes], max_bytes: usize) -> (Vec<i32>, Vec<u8>) {
    let (mut lengths, mut all) = (Vec::new(), Vec::new());
    for value in values {
        let bytes = value.as_deref().unwrap_or_default();
        if !lengths.is_empty() && all.len() + bytes.len() > max_bytes {
            break;
        }
        lengths.push(value.as_ref().map_or(-1, |bytes| i32::try_from(bytes.len()).unwrap()));
        all.extend_from_slice(bytes);
    }
    (lengths, all)
}

proptest! {
    #[test]
    fn a_batch_gives_back_what_was_pushed(messages in vec(message(), 0..20)) {
        let (batch, offsets) = batch(&messages);
        prop_assert_eq!(batch.len(), messages.len());
        prop_assert_eq!(batch.is_empty(), messages.is_empty());
        prop_assert_eq!(batch.offsets(), &offsets);
        prop_assert_eq!(batch.first().map(Offset::get), offsets.first().copied());
        prop_assert_eq!(batch.next().map(|next| next.get() - 1), offsets.last().copied());
        let read: Vec<_> = batch.iter().collect();
        prop_assert_eq!(read.iter().map(|message| message.offset.get()).collect::<Vec<_>>(), offsets);
        for (message, naive) in read.iter().zip(&messages) {
            same(message, naive);
        }
        prop_assert!(batch.get(messages.len()).is_none());
    }

    #[test]
    fn a_part_has_some_of_the_messages_with_their_attempts(
        (messages, some) in vec(message(), 1..20).prop_flat_map(|messages| {
            let indices = (0..messages.len()).collect::<Vec<_>>();
            let count = indices.len();
            (Just(messages), prop::sample::subsequence(indices, 0..=count))
        }),
        retried in option::of(0..4_u32),
    ) {
        let (batch, offsets) = batch(&messages);
        let attempt = |offset: Offset| retried.map_or(1, |retried| retried + u32::from(offset.get() % 2 == 0));
        let batch = batch.at_attempts(attempt);
        let part = batch.part(some.iter().copied());
        prop_assert_eq!(part.offsets(), some.iter().map(|index| offsets[*index]).collect::<Vec<_>>());
        for (message, index) in part.iter().zip(&some) {
            same(&message, &messages[*index]);
            prop_assert_eq!(message.attempt, attempt(message.offset));
        }
    }

    #[test]
    fn what_is_within_limits_is_as_much_as_fits_and_at_least_one(
        messages in vec(message(), 0..20), start in 0..20_usize, most in 1..20_usize, bytes in 0..2_000_usize,
    ) {
        let (batch, _) = batch(&messages);
        let count = batch.within(start, most, bytes);
        let part = |count: usize| batch.part(start..start + count);
        prop_assert_eq!(count == 0, start >= batch.len());
        prop_assert!(count <= 1 || count <= most && part(count).bytes() <= bytes);
        let more = start + count < batch.len() && count < most;
        prop_assert!(!more || part(count + 1).bytes() > bytes);
    }

    #[test]
    fn a_message_is_found_by_its_offset_and_a_gap_is_not(messages in vec(message(), 0..20)) {
        let (batch, offsets) = batch(&messages);
        for offset in 0..offsets.last().map_or(10, |last| last + 3) {
            let found = batch.find(Offset::new(offset).unwrap());
            match offsets.iter().position(|present| *present == offset) {
                Some(index) => same(&found.unwrap(), &messages[index]),
                None => prop_assert!(found.is_none()),
            }
        }
    }

    #[test]
    fn a_batch_counts_at_least_the_bytes_that_it_copied(messages in vec(message(), 0..20)) {
        let length = |bytes: &Bytes| bytes.as_ref().map_or(0, Vec::len);
        let copied = |naive: &Naive| {
            let headers = naive.headers.iter().map(|(name, value)| name.len() + length(value)).sum::<usize>();
            length(&naive.key) + length(&naive.payload) + headers
        };
        prop_assert!(batch(&messages).0.bytes() >= messages.iter().map(copied).sum());
    }

    #[test]
    fn a_chunk_is_at_least_one_value_and_then_as_many_as_fit(
        values in vec(bytes(), 0..20), start in 0..25_usize, max_bytes in 0..40_usize,
    ) {
        let column = column(&values);
        let (lengths, bytes) = column.chunk(start, max_bytes);
        let naive = naive_chunk(values.get(start..).unwrap_or_default(), max_bytes);
        prop_assert_eq!((lengths.to_vec(), bytes.to_vec()), naive);
        prop_assert_eq!(column.get(start), values.get(start).and_then(|value| value.as_deref()));
    }

    #[test]
    fn chunks_one_after_the_other_are_the_whole_column(values in vec(bytes(), 0..20), max_bytes in 0..20_usize) {
        let column = column(&values);
        let (mut lengths, mut all) = (Vec::new(), Vec::new());
        while lengths.len() < values.len() {
            let chunk = column.chunk(lengths.len(), max_bytes);
            prop_assert!(!chunk.0.is_empty());
            lengths.extend_from_slice(chunk.0);
            all.extend_from_slice(chunk.1);
        }
        prop_assert_eq!(&lengths, column.lengths());
        prop_assert_eq!((lengths, all), naive_chunk(&values, usize::MAX));
    }
}

#[test]
fn a_partition_is_read_as_it_is_written_and_as_a_shell_likes_it() {
    let orders = TopicPartition::new("or.d_e-rs", 3);
    assert_eq!(orders.to_string().parse(), Ok(orders.clone()));
    assert_eq!("or.d_e-rs/3".parse(), Ok(orders));
    for bad in [
        "",
        "orders",
        "orders/",
        "/3",
        "[3]",
        "orders/-1",
        "orders[3",
        "orders3]",
        "a/b/3",
        "orders/2147483648",
        "orders/3/17",
    ] {
        assert_eq!(bad.parse::<TopicPartition>(), Err(NotAPartition), "{bad}");
    }
}
