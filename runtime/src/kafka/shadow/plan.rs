//! Plans a turn: which wanted offsets one positioning serves, and through which client. Pure.

use crate::{
    kafka::client::Width,
    offset::{NextOffset, Offset},
};

/// Ascending offsets that are read in one go, through the gaps between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) first: Offset,
    pub(super) last: Offset,
}

impl Run {
    /// The longest run at the front of some wanted offsets: no gap in it is above `threshold`. `None` without offsets.
    pub(super) fn at_front(wanted: &[Offset], threshold: u64) -> Option<Self> {
        let (&first, rest) = wanted.split_first()?;
        let mut last = first;
        for &next in rest {
            if gap(last.next(), next).is_none_or(|gap| gap > threshold) {
                break;
            }
            last = next;
        }
        Some(Self { first, last })
    }

    /// Offsets from the first to the last.
    fn span(self) -> u64 {
        self.first.get().abs_diff(self.last.get()) + 1
    }
}

/// Unwanted offsets between a position and an offset at or behind it.
fn gap(position: NextOffset, offset: Offset) -> Option<u64> {
    u64::try_from(offset.get().checked_sub(position.get())?).ok()
}

/// The largest gaps and runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reach {
    /// The seek threshold: the largest gap that is read through, in offsets.
    pub(super) threshold: u64,
    /// The longest run that the lean client reads, in offsets.
    pub(super) lean: u64,
}

/// How a run is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The wide client goes on from where it stands.
    Continue,
    /// A client is positioned at the run's first offset.
    Position(Width),
}

/// Chooses the client: the wide one if it stands near enough; else the lean one for what one or two fetches of it cover,
/// and the wide one, which reads ahead, for anything longer. (The lean one stands nowhere: it is let go after each turn.)
pub(super) fn step(run: Run, wide: Option<NextOffset>, reach: Reach) -> Step {
    match wide.and_then(|position| gap(position, run.first)) {
        Some(gap) if gap <= reach.threshold => Step::Continue,
        _ if run.span() <= reach.lean => Step::Position(Width::Lean),
        _ => Step::Position(Width::Wide),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn at(raw: i64) -> Offset {
        Offset::new(raw).unwrap()
    }

    /// Follows the plan to its end on a log without holes: what was read, and the gaps that were read through.
    fn follow(wanted: &[Offset], mut wide: Option<NextOffset>, reach: Reach) -> (Vec<Offset>, Vec<u64>) {
        let (mut read, mut gaps, mut rest) = (Vec::new(), Vec::new(), wanted);
        while let Some(run) = Run::at_front(rest, reach.threshold) {
            let step = step(run, wide, reach);
            let mut position = match step {
                Step::Continue => wide.unwrap(),
                Step::Position(_) => run.first.into(),
            };
            let count = rest.iter().take_while(|offset| **offset <= run.last).count();
            for &offset in &rest[..count] {
                gaps.push(gap(position, offset).expect("never positioned behind what is wanted"));
                read.push(offset);
                position = offset.next();
            }
            if step != Step::Position(Width::Lean) {
                wide = Some(position);
            }
            rest = &rest[count..];
        }
        (read, gaps)
    }

    proptest! {
        #[test]
        fn each_wanted_offset_is_read_once_in_order_and_no_gap_above_the_threshold_is_read_through(
            wanted in prop::collection::btree_set(0i64..5_000, 1..200),
            wide in prop::option::of(0i64..5_000),
            threshold in 0u64..200,
            lean_reach in 0u64..200,
        ) {
            let wanted: Vec<_> = wanted.into_iter().map(at).collect();
            let wide = wide.and_then(NextOffset::new);
            let (read, gaps) = follow(&wanted, wide, Reach { threshold, lean: lean_reach });
            prop_assert_eq!(read, wanted);
            prop_assert!(gaps.iter().all(|gap| *gap <= threshold), "{:?}", gaps);
        }

        #[test]
        fn a_run_ends_only_where_the_next_gap_is_above_the_threshold(
            wanted in prop::collection::btree_set(0i64..5_000, 1..200), threshold in 0u64..200,
        ) {
            let wanted: BTreeSet<_> = wanted.into_iter().map(at).collect();
            let list: Vec<_> = wanted.iter().copied().collect();
            let run = Run::at_front(&list, threshold).unwrap();
            prop_assert_eq!(run.first, list[0]);
            if let Some(next) = list.iter().find(|offset| **offset > run.last) {
                prop_assert!(gap(run.last.next(), *next).unwrap() > threshold);
            }
        }
    }

    #[test]
    fn short_runs_are_lean_and_long_ones_wide() {
        let reach = Reach { threshold: 400, lean: 64 };
        let run = |first, last| Run { first: at(first), last: at(last) };
        assert_eq!(step(run(10, 10), None, reach), Step::Position(Width::Lean));
        assert_eq!(step(run(10, 73), None, reach), Step::Position(Width::Lean));
        assert_eq!(step(run(10, 74), None, reach), Step::Position(Width::Wide));
    }

    #[test]
    fn the_wide_client_goes_on_up_to_the_threshold() {
        let reach = Reach { threshold: 400, lean: 64 };
        let run = Run { first: at(500), last: at(510) };
        assert_eq!(step(run, NextOffset::new(500), reach), Step::Continue);
        assert_eq!(step(run, NextOffset::new(100), reach), Step::Continue);
        assert_eq!(step(run, NextOffset::new(99), reach), Step::Position(Width::Lean));
        assert_eq!(step(run, NextOffset::new(501), reach), Step::Position(Width::Lean), "it never goes back");
    }
}
