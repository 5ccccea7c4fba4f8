// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records the bytes that a task really touched. Tests compare them with the
//! extents that were computed from the register values.

use std::collections::BTreeMap;
use std::ops::Range;

use rknpu_chip::{Direction, Master};

/// A range of bytes that one master touched in one direction, in one or many
/// accesses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DmaAccess {
    /// The DMA engine that made the accesses.
    pub master: Master,
    /// Whether the engine read the range or wrote it.
    pub direction: Direction,
    /// NPU addresses, bytes: first to one past the last.
    pub range: Range<u64>,
}

/// Recorder of the accesses of one task, for a [`Bus`](rknpu_chip::Bus).
#[derive(Debug, Default)]
pub struct AccessRecorder {
    /// Start to end of each range, by master and by whether it is written.
    ranges: BTreeMap<(Master, bool), BTreeMap<u64, u64>>,
}

impl AccessRecorder {
    /// Records an access to a range of IOVAs, bytes.
    pub fn note(&mut self, master: Master, direction: Direction, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let set = self
            .ranges
            .entry((master, direction == Direction::Write))
            .or_default();
        let Range { mut start, mut end } = range;
        // Merge all ranges that overlap or adjoin.
        while let Some((&other, &other_end)) = set.range(..=end).next_back() {
            if other_end < start {
                break;
            }
            set.remove(&other);
            start = start.min(other);
            end = end.max(other_end);
        }
        set.insert(start, end);
    }

    /// All ranges, by master. Ranges of one master and direction are disjoint, not
    /// adjacent, and in ascending order.
    #[must_use]
    pub fn finish(self) -> Vec<DmaAccess> {
        self.ranges
            .into_iter()
            .flat_map(|((master, write), set)| {
                let direction = if write {
                    Direction::Write
                } else {
                    Direction::Read
                };
                set.into_iter().map(move |(start, end)| DmaAccess {
                    master,
                    direction,
                    range: start..end,
                })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rknpu_regcmd::DmaEngine;

    proptest! {
        #![proptest_config(test_support::cases(128))]

        #[test]
        fn ranges_are_the_bytes_touched(touched in prop::collection::vec((0u64..60, 0u64..12), 0..20)) {
            let mut recorder = AccessRecorder::default();
            let mut bytes = [false; 80];
            for &(start, len) in &touched {
                recorder.note(DmaEngine::Feature.into(), Direction::Read, start..start + len);
                bytes[start as usize..(start + len) as usize].fill(true);
            }
            let accesses = recorder.finish();
            let mut seen = [false; 80];
            let mut last_end = None;
            for access in accesses {
                prop_assert!(last_end.is_none_or(|end| end < access.range.start));
                last_end = Some(access.range.end);
                seen[access.range.start as usize..access.range.end as usize].fill(true);
            }
            prop_assert_eq!(seen, bytes);
        }
    }
}
