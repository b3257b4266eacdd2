//! Rejected offsets whose messages must be read again before their dead letters can be produced.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use crate::{
    offset::{Offset, OffsetSet},
    verdict::Rejection,
};

/// Offsets by rejection, equal ones together: about a bit an offset where many share one, and a rejection of its own
/// costs no bitmap.
#[derive(Debug, Default)]
pub struct Rejected {
    /// By the lowest offset of each group; the set has the others.
    groups: BTreeMap<Offset, (Arc<Rejection>, OffsetSet)>,
    lowest: HashMap<Arc<Rejection>, Offset>,
    len: u64,
}

impl Rejected {
    /// Adds offsets that are not in it.
    pub fn add(&mut self, mut offsets: OffsetSet, rejection: Arc<Rejection>) {
        self.len += offsets.len();
        let present = self.lowest.get(&rejection).and_then(|lowest| self.groups.remove_entry(lowest));
        let Some((lowest, (rejection, rest))) = present else { return self.put(offsets, rejection) };
        offsets.extend(&rest);
        offsets.insert(lowest);
        self.put(offsets, rejection);
    }

    /// Takes out up to `max` of the lowest offsets, ascending.
    pub fn take(&mut self, max: usize) -> Vec<(Offset, Arc<Rejection>)> {
        let mut taken = Vec::new();
        while taken.len() < max
            && let Some((lowest, (rejection, mut rest))) = self.groups.pop_first()
        {
            taken.push((lowest, Arc::clone(&rejection)));
            // Until it is another group's turn.
            let end = self.groups.first_key_value().map(|(lowest, _)| *lowest);
            let mut last = None;
            let turn = rest.iter().take_while(|offset| end.is_none_or(|end| *offset < end));
            for offset in turn.take(max - taken.len()) {
                taken.push((offset, Arc::clone(&rejection)));
                last = Some(offset);
            }
            if let Some(last) = last {
                rest.remove_range(lowest..=last);
            }
            self.lowest.remove(&rejection);
            self.put(rest, rejection);
        }
        self.len -= taken.len() as u64;
        taken
    }

    /// What [`Rejected::take`] gave, for another attempt.
    pub fn put_back(&mut self, offset: Offset, rejection: Arc<Rejection>) {
        self.add(OffsetSet::from_iter([offset]), rejection);
    }

    /// How many offsets.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn put(&mut self, mut offsets: OffsetSet, rejection: Arc<Rejection>) {
        if let Some(lowest) = offsets.pop_first() {
            self.lowest.insert(Arc::clone(&rejection), lowest);
            self.groups.insert(lowest, (rejection, offsets));
        }
    }
}
