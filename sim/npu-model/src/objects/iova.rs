// SPDX-License-Identifier: MIT OR Apache-2.0
//! Range allocation as the kernel's `drm_mm` does it in best-fit mode.
//!
//! Clients can see the addresses and some depend on them (the first BO of a
//! file is at IOVA 0), so the order of choice is part of the behaviour:
//!
//! * The smallest hole that fits is taken, and of equal holes the youngest
//!   (Linux, drivers/gpu/drm/drm_mm.c: the tree of holes is sorted by falling
//!   size, equal ones behind each other).
//! * The start is aligned, the length is not: 100 bytes at 0x1000 leave the
//!   hole 0x1064.., whose next aligned start is 0x2000. Observed on Linux 7.2:
//!   4096@0, 100@0x1000, 1@0x2000, 4097@0x3000, 8192@0x5000.
//!
//! The same allocator serves IOVAs (bytes, one per file) and mmap offsets
//! (one per device).

use std::collections::BTreeMap;
use std::ops::Range;

/// An allocator of ranges within a fixed span.
#[derive(Debug)]
pub(crate) struct RangeAllocator {
    alignment: u64,
    nodes: BTreeMap<u64, u64>,
    /// Holes by start.
    holes: BTreeMap<u64, Hole>,
    /// Starts of the holes by length, younger holes first. The first that fits
    /// is taken.
    by_size: BTreeMap<SizeKey, u64>,
    /// Counts down, so that younger holes sort first.
    next_age: u64,
}

/// Length, then age (smaller is younger).
type SizeKey = (u64, u64);

#[derive(Clone, Copy, Debug)]
struct Hole {
    end: u64,
    age: u64,
}

impl RangeAllocator {
    /// An allocator over `span`; every start is a multiple of `alignment`,
    /// a power of two.
    pub(crate) fn new(span: Range<u64>, alignment: u64) -> Self {
        debug_assert!(alignment.is_power_of_two());
        let mut allocator = Self {
            alignment,
            nodes: BTreeMap::new(),
            holes: BTreeMap::new(),
            by_size: BTreeMap::new(),
            next_age: u64::MAX,
        };
        allocator.add_hole(span.start, span.end);
        allocator
    }

    /// Allocates `len` bytes and returns their start; `None` if no hole fits,
    /// and for length 0, which `drm_mm` refuses too.
    pub(crate) fn allocate(&mut self, len: u64) -> Option<u64> {
        if len == 0 {
            return None;
        }
        let (hole_start, hole_end, start) =
            self.by_size
                .range((len, 0)..)
                .find_map(|(&(hole_len, _), &hole_start)| {
                    let start = hole_start.checked_next_multiple_of(self.alignment)?;
                    let hole_end = hole_start.checked_add(hole_len)?;
                    let fits = start.checked_add(len)? <= hole_end;
                    fits.then_some((hole_start, hole_end, start))
                })?;
        self.remove_hole(hole_start);
        // The order decides the ages: the rest before the node becomes a hole
        // first, the rest behind it second.
        self.add_hole(hole_start, start);
        self.add_hole(start + len, hole_end);
        self.nodes.insert(start, start + len);
        Some(start)
    }

    /// Frees the range that starts at `start`. Ignores unknown starts.
    pub(crate) fn free(&mut self, start: u64) {
        let Some(end) = self.nodes.remove(&start) else {
            return;
        };
        let mut merged = start..end;
        if let Some((&before, hole)) = self.holes.range(..start).next_back()
            && hole.end == start
        {
            merged.start = before;
            self.remove_hole(before);
        }
        if let Some(next_end) = self.remove_hole(end) {
            merged.end = next_end;
        }
        self.add_hole(merged.start, merged.end);
    }

    fn add_hole(&mut self, start: u64, end: u64) {
        if start < end {
            let age = self.next_age;
            self.next_age -= 1;
            self.holes.insert(start, Hole { end, age });
            self.by_size.insert((end - start, age), start);
        }
    }

    fn remove_hole(&mut self, start: u64) -> Option<u64> {
        let hole = self.holes.remove(&start)?;
        self.by_size.remove(&(hole.end - start, hole.age));
        Some(hole.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PAGE: u64 = 4096;

    fn space() -> RangeAllocator {
        RangeAllocator::new(0..1 << 32, PAGE)
    }

    #[test]
    fn a_freed_hole_is_taken_again_by_what_fits_exactly() {
        let mut mm = space();
        let starts: Vec<_> = (0..5).map(|_| mm.allocate(8192).unwrap()).collect();
        mm.free(starts[1]);
        mm.free(starts[3]);
        assert_eq!(mm.allocate(8192), Some(starts[3]), "the youngest hole");
        assert_eq!(mm.allocate(4096), Some(starts[1]));
        assert_eq!(mm.allocate(4096), Some(starts[1] + 4096));
    }

    #[test]
    fn nothing_fits_beyond_the_span() {
        let mut mm = space();
        assert_eq!(mm.allocate(0), None);
        assert_eq!(mm.allocate((1 << 32) + 1), None);
        assert_eq!(mm.allocate(1 << 32), Some(0));
        assert_eq!(mm.allocate(1), None);
        mm.free(0);
        assert_eq!(mm.allocate(1), Some(0));
        mm.free(77);
    }

    proptest! {
        #![proptest_config(test_support::cases(64))]

        /// Allocated ranges are aligned and never overlap. When all are freed,
        /// all space is free.
        #[test]
        fn ranges_are_disjoint_and_come_back(
            steps in prop::collection::vec((any::<bool>(), 1u64..40_000, any::<prop::sample::Index>()), 1..60),
        ) {
            let mut mm = RangeAllocator::new(0..1 << 20, PAGE);
            let mut live: Vec<Range<u64>> = Vec::new();
            for (take, len, which) in steps {
                if take || live.is_empty() {
                    if let Some(start) = mm.allocate(len) {
                        let new = start..start + len;
                        prop_assert_eq!(start % PAGE, 0);
                        prop_assert!(new.end <= 1 << 20);
                        for other in &live {
                            prop_assert!(new.end <= other.start || other.end <= new.start);
                        }
                        live.push(new);
                    }
                } else {
                    mm.free(live.swap_remove(which.index(live.len())).start);
                }
            }
            for range in live {
                mm.free(range.start);
            }
            prop_assert_eq!(mm.allocate(1 << 20), Some(0));
        }
    }
}
