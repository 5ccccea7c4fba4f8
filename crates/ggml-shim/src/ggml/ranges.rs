// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sets of addresses.

use std::ops::Range;

use rangemap::RangeSet;

/// Whether each address of `range` is in the set.
pub(crate) fn covers(set: &RangeSet<usize>, range: &Range<usize>) -> bool {
    set.gaps(range).next().is_none()
}
