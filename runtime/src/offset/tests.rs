use std::collections::BTreeSet;

use proptest::{collection::vec, prelude::*};

use super::{NextOffset, Offset, OffsetSet};

fn offset(raw: i64) -> Offset {
    Offset::new(raw).unwrap()
}

fn raw(set: &OffsetSet) -> Vec<i64> {
    set.iter().map(Offset::get).collect()
}

#[test]
fn no_message_has_a_negative_offset_or_the_highest_number() {
    assert_eq!(Offset::new(-1), None);
    assert_eq!(Offset::new(i64::MAX), None);
    assert_eq!(offset(i64::MAX - 1).next(), NextOffset::new(i64::MAX).unwrap());
    assert_eq!(NextOffset::new(-1001), None);
}

#[test]
fn the_position_at_a_message_is_not_the_one_behind_it() {
    assert_eq!(NextOffset::from(offset(41)).get(), 41);
    assert_eq!(offset(41).next().get(), 42);
}

#[test]
fn a_set_that_was_filled_with_a_range_stays_small_when_every_second_goes() {
    let mut set = OffsetSet::new();
    set.insert_range(offset(0)..=offset(999_999));
    for even in (0..1_000_000).step_by(2) {
        set.remove(offset(even));
    }
    assert_eq!(set.len(), 500_000);
    assert!(set.serialized_size() < 140_000, "{} bytes", set.serialized_size());
}

/// Some runs and some holes, across the borders of roaring's containers.
fn some() -> impl Strategy<Value = BTreeSet<i64>> {
    vec((prop_oneof![0..300_i64, 65_300..65_800_i64, 1 << 33..(1 << 33) + 300_i64], 1..60_i64), 0..8)
        .prop_map(|runs| runs.into_iter().flat_map(|(first, count)| first..first + count).collect())
}

fn set(naive: &BTreeSet<i64>) -> OffsetSet {
    let mut set = OffsetSet::new();
    set.insert_column(&naive.iter().copied().collect::<Vec<_>>());
    set
}

proptest! {
    #[test]
    fn a_set_does_what_a_btree_set_does(
        one in some(), other in some(), at in any::<prop::sample::Index>(), width in 0..70_000_i64,
    ) {
        let all: Vec<i64> = one.union(&other).copied().collect();
        prop_assume!(!all.is_empty());
        let first = *at.get(&all);
        let range = offset(first)..=offset(first + width);
        let within = |raw: &i64| (first..=first + width).contains(raw);

        let full = set(&one);
        prop_assert_eq!(raw(&full), one.iter().copied().collect::<Vec<_>>());
        prop_assert_eq!(&full, &one.iter().copied().map(offset).collect::<OffsetSet>());
        prop_assert_eq!(full.first().map(Offset::get), one.first().copied());
        prop_assert_eq!(full.last().map(Offset::get), one.last().copied());
        prop_assert_eq!(full.len(), one.len() as u64);
        prop_assert_eq!(full.is_empty(), one.is_empty());
        prop_assert_eq!(full.contains(offset(first)), one.contains(&first));
        let index = at.index(all.len());
        prop_assert_eq!(full.select(index as u64).map(Offset::get), one.iter().nth(index).copied());

        let inside: Vec<i64> = one.iter().copied().filter(within).collect();
        prop_assert_eq!(full.range(range.clone()).map(Offset::get).collect::<Vec<_>>(), &inside[..]);
        prop_assert_eq!(full.count(range.clone()), inside.len() as u64);
        prop_assert_eq!(full.last_within(range.clone()).map(Offset::get), inside.last().copied());

        let mut changed = set(&other);
        changed.extend_within(&full, range.clone());
        prop_assert_eq!(raw(&changed), other.union(&inside.iter().copied().collect()).copied().collect::<Vec<_>>());

        let mut changed = full.clone();
        prop_assert_eq!(changed.remove_range(range.clone()), inside.len() as u64);
        prop_assert_eq!(raw(&changed), one.iter().copied().filter(|raw| !within(raw)).collect::<Vec<_>>());

        let mut changed = full.clone();
        changed.insert_range(range);
        prop_assert_eq!(changed.len(), one.len() as u64 + width.cast_unsigned() + 1 - inside.len() as u64);

        let mut changed = full.clone();
        changed.truncate(offset(first));
        prop_assert_eq!(raw(&changed), one.iter().copied().filter(|raw| *raw < first).collect::<Vec<_>>());

        let mut changed = full.clone();
        prop_assert_eq!(changed.pop_first().map(Offset::get), one.first().copied());
        prop_assert_eq!(raw(&changed), one.iter().copied().skip(1).collect::<Vec<_>>());

        let mut changed = full.clone();
        changed.extend(&set(&other));
        prop_assert_eq!(raw(&changed), all);
        changed.subtract(&set(&other));
        prop_assert_eq!(raw(&changed), one.difference(&other).copied().collect::<Vec<_>>());
        let mut changed = full.clone();
        prop_assert_eq!(raw(&changed.take(&set(&other))), one.intersection(&other).copied().collect::<Vec<_>>());
        prop_assert_eq!(raw(&changed), one.difference(&other).copied().collect::<Vec<_>>());
        let mut changed = full.clone();
        let behind = changed.split_off(offset(first));
        prop_assert_eq!(raw(&changed), one.iter().copied().filter(|raw| *raw < first).collect::<Vec<_>>());
        prop_assert_eq!(raw(&behind), one.iter().copied().filter(|raw| *raw >= first).collect::<Vec<_>>());
        let mut changed = full;
        changed.intersect(&set(&other));
        prop_assert_eq!(raw(&changed), one.intersection(&other).copied().collect::<Vec<_>>());
    }
}
