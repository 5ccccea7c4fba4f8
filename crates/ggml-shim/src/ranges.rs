// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sets of addresses, as ranges that do not touch each other.

use std::collections::BTreeMap;
use std::ops::Range;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RangeSet {
    /// Ends of ranges by their starts. No two ranges touch, and none is empty.
    ranges: BTreeMap<usize, usize>,
}

impl RangeSet {
    pub(crate) fn add(&mut self, range: &Range<usize>) {
        if range.is_empty() {
            return;
        }
        let (mut start, mut end) = (range.start, range.end);
        // From the last range that begins at or before the end, down to the first that touches.
        while let Some((&had, &had_end)) = self.ranges.range(..=end).next_back()
            && had_end >= start
        {
            self.ranges.remove(&had);
            start = start.min(had);
            end = end.max(had_end);
        }
        self.ranges.insert(start, end);
    }

    pub(crate) fn remove(&mut self, range: &Range<usize>) {
        if range.is_empty() {
            return;
        }
        while let Some((&had, &had_end)) = self.ranges.range(..range.end).next_back()
            && had_end > range.start
        {
            self.ranges.remove(&had);
            if had_end > range.end {
                self.ranges.insert(range.end, had_end);
            }
            if had < range.start {
                self.ranges.insert(had, range.start);
            }
        }
    }

    /// Whether each address of `range` is in the set.
    pub(crate) fn covers(&self, range: &Range<usize>) -> bool {
        let before = self.ranges.range(..=range.start).next_back();
        range.is_empty() || before.is_some_and(|(_, end)| *end >= range.end)
    }

    /// Whether any address of `range` is in the set.
    pub(crate) fn overlaps(&self, range: &Range<usize>) -> bool {
        let before = self.ranges.range(..range.end).next_back();
        !range.is_empty() && before.is_some_and(|(_, end)| *end > range.start)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Number of addresses in the test.
    const ADDRESSES: usize = 24;

    fn range() -> impl Strategy<Value = Range<usize>> {
        (0..ADDRESSES, 0..8_usize).prop_map(|(start, len)| start..(start + len).min(ADDRESSES))
    }

    proptest! {
        #[test]
        fn a_set_holds_what_one_flag_for_each_address_holds(
            changes in prop::collection::vec((any::<bool>(), range()), 0..24),
            asked in range(),
        ) {
            let mut set = RangeSet::default();
            let mut flags = [false; ADDRESSES];
            for (adds, range) in changes {
                if adds {
                    set.add(&range);
                } else {
                    set.remove(&range);
                }
                flags[range].fill(adds);
            }
            let asked_flags = &flags[asked.clone()];
            prop_assert_eq!(set.covers(&asked), asked_flags.iter().all(|flag| *flag));
            prop_assert_eq!(set.overlaps(&asked), asked_flags.iter().any(|flag| *flag));
            let mut ends: Vec<_> = set.ranges.iter().flat_map(|(start, end)| [*start, *end]).collect();
            let sorted = ends.clone();
            ends.sort_unstable();
            ends.dedup();
            prop_assert_eq!(ends, sorted, "ranges that touch, overlap or are empty");
        }
    }
}
