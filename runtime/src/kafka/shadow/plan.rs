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

/// Where the two clients stand in the partition, if they do.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Positions {
    pub(super) lean: Option<NextOffset>,
    pub(super) wide: Option<NextOffset>,
}

/// The largest gaps that are read through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reach {
    /// The seek threshold, in offsets.
    pub(super) threshold: u64,
    /// Offsets that one fetch of the lean client brings: what lies further is read through by the wide one only.
    pub(super) lean: u64,
}

/// How a run is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The client goes on from where it stands.
    Continue(Width),
    /// The client is positioned at the run's first offset.
    Position(Width),
}

/// Chooses the client: whichever is near enough goes on; else the lean one for what one fetch of it covers, and the wide
/// one, which reads ahead, for anything longer.
pub(super) fn step(run: Run, at: Positions, reach: Reach) -> Step {
    let near = |position: Option<NextOffset>, limit: u64| {
        position.and_then(|position| gap(position, run.first)).filter(|gap| *gap <= limit)
    };
    let short = run.span() <= reach.lean;
    let lean = near(at.lean, reach.lean.min(reach.threshold)).filter(|_| short);
    match (lean, near(at.wide, reach.threshold)) {
        (Some(lean), Some(wide)) if lean < wide => Step::Continue(Width::Lean),
        (_, Some(_)) => Step::Continue(Width::Wide),
        (Some(_), None) => Step::Continue(Width::Lean),
        (None, None) if short => Step::Position(Width::Lean),
        (None, None) => Step::Position(Width::Wide),
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
    fn follow(wanted: &[Offset], mut positions: Positions, reach: Reach) -> (Vec<Offset>, Vec<u64>) {
        let (mut read, mut gaps, mut rest) = (Vec::new(), Vec::new(), wanted);
        while let Some(run) = Run::at_front(rest, reach.threshold) {
            let step = step(run, positions, reach);
            let (Step::Continue(width) | Step::Position(width)) = step;
            let position = match width {
                Width::Lean => &mut positions.lean,
                Width::Wide => &mut positions.wide,
            };
            if matches!(step, Step::Position(_)) {
                *position = Some(run.first.into());
            }
            let count = rest.iter().take_while(|offset| **offset <= run.last).count();
            for &offset in &rest[..count] {
                gaps.push(gap(position.unwrap(), offset).expect("never positioned behind what is wanted"));
                read.push(offset);
                *position = Some(offset.next());
            }
            rest = &rest[count..];
        }
        (read, gaps)
    }

    proptest! {
        #[test]
        fn each_wanted_offset_is_read_once_in_order_and_no_gap_above_the_threshold_is_read_through(
            wanted in prop::collection::btree_set(0i64..5_000, 1..200),
            lean in prop::option::of(0i64..5_000),
            wide in prop::option::of(0i64..5_000),
            threshold in 0u64..200,
            lean_reach in 0u64..200,
        ) {
            let wanted: Vec<_> = wanted.into_iter().map(at).collect();
            let positions = Positions { lean: lean.and_then(NextOffset::new), wide: wide.and_then(NextOffset::new) };
            let (read, gaps) = follow(&wanted, positions, Reach { threshold, lean: lean_reach });
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
        assert_eq!(step(run(10, 10), Positions::default(), reach), Step::Position(Width::Lean));
        assert_eq!(step(run(10, 73), Positions::default(), reach), Step::Position(Width::Lean));
        assert_eq!(step(run(10, 74), Positions::default(), reach), Step::Position(Width::Wide));
    }

    #[test]
    fn the_client_that_is_nearer_goes_on() {
        let reach = Reach { threshold: 400, lean: 64 };
        let run = Run { first: at(500), last: at(510) };
        let stand = |lean, wide| Positions { lean: NextOffset::new(lean), wide: NextOffset::new(wide) };
        assert_eq!(step(run, stand(490, 450), reach), Step::Continue(Width::Lean));
        assert_eq!(step(run, stand(450, 490), reach), Step::Continue(Width::Wide));
        assert_eq!(step(run, stand(501, 100), reach), Step::Continue(Width::Wide), "400 is not above the threshold");
        assert_eq!(step(run, stand(501, 99), reach), Step::Position(Width::Lean));
        assert_eq!(step(run, stand(400, 501), reach), Step::Position(Width::Lean), "beyond one lean fetch");
        let long = Run { first: at(500), last: at(900) };
        assert_eq!(
            step(long, stand(500, 501), reach),
            Step::Position(Width::Wide),
            "the lean one is slow for long runs"
        );
    }
}
