//! How much of what is settled may go to each route: a guest that rejects too much is more likely wrong than right. Pure.

use std::collections::{BTreeMap, VecDeque};

use crate::{
    config::{DEAD_LETTER, LimitThen, Route, RouteLimit},
    offset::{NextOffset, Offset, OffsetSet},
};

/// The settled messages that count for the ratio.
const LENGTH: u64 = 1000;

/// A route would pass its limit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("route `{route}` would get more than {most}")]
pub(super) struct Passed {
    /// Its name.
    pub(super) route: String,
    pub(super) most: Most,
    /// What happens instead.
    pub(super) then: LimitThen,
}

/// The most that a route takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Most {
    #[error("{0} of the last {LENGTH} settled messages (limit.ratio)")]
    Of(u64),
    #[error("{0} messages in a row (limit.consecutive)")]
    InARow(u64),
}

/// The routes of a partition that have a limit.
#[derive(Debug)]
pub(super) struct RouteLimits(BTreeMap<String, Window>);

impl RouteLimits {
    /// Nothing is settled yet.
    pub(super) fn new(routes: &BTreeMap<String, Route>) -> Self {
        let limited = routes.iter().filter_map(|(name, route)| Some((name.clone(), Window::new(route.limit?))));
        Self(limited.collect())
    }

    /// Counts what an answer settles: what it accepts, and what it rejects (ascending; `None` is the default route). The
    /// routes see it in the order of the offsets.
    ///
    /// # Errors
    /// A route would pass its limit. Then nothing is counted.
    pub(super) fn admit<'r>(
        &mut self,
        accepted: &OffsetSet,
        rejected: &(impl Iterator<Item = (Offset, Option<&'r str>)> + Clone),
    ) -> Result<(), Passed> {
        if rejected.clone().next().is_none() {
            self.0.values_mut().for_each(|window| window.pass_by(accepted.len()));
            return Ok(());
        }
        let mut windows = BTreeMap::new();
        for (route, window) in &self.0 {
            let mut window = window.clone();
            window.admit(route, accepted, rejected.clone()).map_err(|most| {
                let then = window.limit.then;
                Passed { route: route.clone(), most, then }
            })?;
            windows.insert(route.clone(), window);
        }
        self.0 = windows;
        Ok(())
    }
}

/// The last settled messages of a partition, as one route sees them. It begins as if all had been accepted: a new owner
/// lets through what the ratio allows of a whole window, and judges by that.
#[derive(Clone, Debug)]
struct Window {
    limit: RouteLimit,
    /// Stretches of messages that the route took (`true`) or not, oldest first, no longer than [`LENGTH`] together.
    stretches: VecDeque<(bool, u64)>,
    taken: u64,
    in_a_row: u64,
}

impl Window {
    fn new(limit: RouteLimit) -> Self {
        Self { limit, stretches: VecDeque::from([(false, LENGTH)]), taken: 0, in_a_row: 0 }
    }

    fn admit<'r>(
        &mut self,
        name: &str,
        accepted: &OffsetSet,
        rejected: impl Iterator<Item = (Offset, Option<&'r str>)>,
    ) -> Result<(), Most> {
        let mut position = NextOffset::default();
        for (offset, route) in rejected {
            let before = offset.get().checked_sub(1).and_then(Offset::new);
            let others = before.zip(Offset::new(position.get())).map_or(0, |(to, from)| accepted.count(from..=to));
            self.pass_by(others);
            if route.unwrap_or(DEAD_LETTER) == name {
                self.take()?;
            } else {
                self.pass_by(1);
            }
            position = offset.next();
        }
        let others = Offset::new(position.get()).zip(accepted.last()).map_or(0, |(from, to)| accepted.count(from..=to));
        self.pass_by(others);
        Ok(())
    }

    /// The route takes one more; an error, and no change, if that passes its limit.
    fn take(&mut self) -> Result<(), Most> {
        let RouteLimit { ratio, consecutive, .. } = self.limit;
        if self.in_a_row >= consecutive {
            return Err(Most::InARow(consecutive));
        }
        let oldest_was_taken = self.stretches.front().is_some_and(|(taken, _)| *taken);
        if self.taken + u64::from(!oldest_was_taken) > allowed(ratio) {
            return Err(Most::Of(allowed(ratio)));
        }
        self.in_a_row += 1;
        self.push(true, 1);
        Ok(())
    }

    /// This many were settled otherwise.
    fn pass_by(&mut self, count: u64) {
        if count > 0 {
            self.in_a_row = 0;
            self.push(false, count.min(LENGTH));
        }
    }

    fn push(&mut self, taken: bool, count: u64) {
        let mut surplus = count;
        while surplus > 0
            && let Some((was_taken, length)) = self.stretches.front_mut()
        {
            let gone = surplus.min(*length);
            surplus -= gone;
            *length -= gone;
            if *was_taken {
                self.taken -= gone;
            }
            if *length == 0 {
                self.stretches.pop_front();
            }
        }
        if taken {
            self.taken += count;
        }
        match self.stretches.back_mut() {
            Some((same, length)) if *same == taken => *length += count,
            _ => self.stretches.push_back((taken, count)),
        }
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "0 to 1000")]
fn allowed(ratio: f64) -> u64 {
    (ratio * LENGTH as f64).floor() as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn limit(ratio: f64, consecutive: u64) -> RouteLimit {
        RouteLimit { ratio, consecutive, then: LimitThen::Pause }
    }

    /// Every message by itself.
    struct Naive {
        limit: RouteLimit,
        settled: Vec<bool>,
    }

    impl Naive {
        fn take(&mut self) -> Result<(), Most> {
            let mut settled = self.settled.clone();
            settled.push(true);
            if settled.iter().rev().take_while(|taken| **taken).count() as u64 > self.limit.consecutive {
                return Err(Most::InARow(self.limit.consecutive));
            }
            let taken = settled.iter().rev().take(1000).filter(|taken| **taken).count() as u64;
            if taken > allowed(self.limit.ratio) {
                return Err(Most::Of(allowed(self.limit.ratio)));
            }
            self.settled = settled;
            Ok(())
        }
    }

    proptest! {
        #[test]
        fn agrees_with_counting_each_message(
            ratio in 0.0f64..=1.0, consecutive in 1u64..200,
            steps in prop::collection::vec((1u64..120, 0u64..400), 1..40),
        ) {
            let mut window = Window::new(limit(ratio, consecutive));
            let mut naive = Naive { limit: limit(ratio, consecutive), settled: Vec::new() };
            for (takes, others) in steps {
                for _ in 0..takes {
                    prop_assert_eq!(window.take(), naive.take());
                }
                window.pass_by(others);
                naive.settled.extend((0..others).map(|_| false));
                prop_assert_eq!(window.stretches.iter().map(|(_, length)| length).sum::<u64>(), LENGTH);
            }
        }
    }

    #[test]
    fn a_guest_that_rejects_everything_gets_what_the_ratio_allows_of_a_window() {
        let mut window = Window::new(limit(0.05, 1000));
        assert_eq!((0..100).take_while(|_| window.take().is_ok()).count(), 50);
        assert_eq!(window.take(), Err(Most::Of(50)));
        let mut window = Window::new(limit(1.0, 7));
        assert_eq!((0..100).take_while(|_| window.take().is_ok()).count(), 7);
        window.pass_by(1);
        assert_eq!(window.take(), Ok(()));
    }

    fn at(raw: i64) -> Offset {
        Offset::new(raw).unwrap()
    }

    proptest! {
        #[test]
        fn an_answer_counts_in_the_order_of_its_offsets_or_not_at_all(
            messages in prop::collection::vec(0u8..4, 1..300), ratio in 0.0f64..=0.2, consecutive in 1u64..20,
        ) {
            // 0 and 1 are accepted, 2 goes to the route, 3 to another one.
            let offsets = || (0i64..).zip(&messages);
            let accepted: OffsetSet = offsets().filter(|(_, kind)| **kind < 2).map(|(offset, _)| at(offset)).collect();
            let route = |kind| (kind == 3).then_some("backlog");
            let rejected: Vec<_> =
                offsets().filter(|(_, kind)| **kind >= 2).map(|(offset, kind)| (at(offset), route(*kind))).collect();
            let mut naive = Naive { limit: limit(ratio, consecutive), settled: Vec::new() };
            let expected = messages.iter().try_for_each(|kind| {
                if *kind == 2 {
                    return naive.take();
                }
                naive.settled.push(false);
                Ok(())
            });
            let mut limits = RouteLimits([(DEAD_LETTER.to_owned(), Window::new(limit(ratio, consecutive)))].into());
            let admitted = limits.admit(&accepted, &rejected.iter().copied());
            prop_assert_eq!(admitted.map_err(|passed| passed.most), expected);
            let counted = limits.0.values().map(|window| window.taken).sum::<u64>();
            let taken = rejected.iter().filter(|(_, route)| route.is_none()).count() as u64;
            prop_assert_eq!(counted, if expected.is_ok() { taken } else { 0 });
        }
    }
}
