use std::hint::black_box;

use crate::{bindings::deadletter::processor::types::Verdict, on, rejected};

/// Fails as it is told.
pub(crate) fn fail(how: &str, verdicts: &mut Vec<Verdict>) -> Result<(), String> {
    match how {
        "trap" => panic!("a trap that was asked for"),
        "timeout" => loop {
            black_box(());
        },
        "memory" => {
            let mut hoard = Vec::new();
            loop {
                hoard.push(black_box(vec![1_u8; 1 << 20]));
            }
        }
        "contract" => {
            verdicts.push(on(1_000_000_000, rejected("lie")));
            Ok(())
        }
        why => Err(why.to_owned()),
    }
}

/// Some milliseconds, by work: a guest's clock does not pass while it waits.
pub(crate) fn take_a_while() {
    (0..20_000_000_u64).for_each(|number| _ = black_box(number));
}
