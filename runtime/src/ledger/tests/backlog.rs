use std::{collections::BTreeMap, sync::Arc};

use proptest::{collection::vec, prelude::*};

use super::model::offset;
use crate::{
    ledger::Rejected,
    offset::{Offset, OffsetSet},
    verdict::Rejection,
};

#[derive(Clone, Debug)]
enum Step {
    /// Every `stride`-th offset from `first` on.
    Add { first: i64, count: usize, stride: usize, code: u8 },
    /// Some come back: those whose index has this remainder.
    Take { max: usize, back: usize },
}

fn rejection(code: u8) -> Arc<Rejection> {
    Arc::new(Rejection { route: None, code: format!("code-{code}"), reason: String::new() })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..300_i64, 1..20_usize, 1..4_usize, 0..4_u8).prop_map(|(first, count, stride, code)| Step::Add {
            first,
            count,
            stride,
            code
        }),
        (1..30_usize, 2..6_usize).prop_map(|(max, back)| Step::Take { max, back }),
    ]
}

proptest! {
    #[test]
    fn the_lowest_offsets_come_first_with_their_own_rejection(steps in vec(step(), 1..40)) {
        let mut backlog = Rejected::default();
        let mut naive: BTreeMap<Offset, Arc<Rejection>> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Add { first, count, stride, code } => {
                    let offsets = (first..).step_by(stride).take(count).map(offset);
                    let new: OffsetSet = offsets.filter(|offset| !naive.contains_key(offset)).collect();
                    naive.extend(new.iter().map(|offset| (offset, rejection(code))));
                    backlog.add(new, rejection(code));
                }
                Step::Take { max, back } => {
                    let taken = backlog.take(max);
                    let lowest: Vec<_> = naive.iter().take(max).map(|(offset, why)| (*offset, why.clone())).collect();
                    prop_assert_eq!(&taken, &lowest);
                    for (index, (offset, why)) in taken.into_iter().enumerate() {
                        if index % back == 0 {
                            backlog.put_back(offset, why);
                        } else {
                            naive.remove(&offset);
                        }
                    }
                }
            }
            prop_assert_eq!(backlog.len(), naive.len() as u64);
            prop_assert_eq!(backlog.is_empty(), naive.is_empty());
        }
        prop_assert_eq!(backlog.take(usize::MAX), naive.into_iter().collect::<Vec<_>>());
    }
}
