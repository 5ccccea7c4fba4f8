// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory that a node reads and writes.

use std::ops::Range;

use crate::host_tensor::HostTensor;

/// The addresses that a node reads and writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Footprint {
    /// Addresses of each operand.
    pub(super) reads: Vec<Range<usize>>,
    pub(super) writes: Range<usize>,
}

impl Footprint {
    /// Returns the addresses of `node`; `None` if it or an operand has no data.
    pub(crate) fn of(node: HostTensor<'_>) -> Option<Self> {
        let operands = node.operands().flatten();
        Some(Self {
            reads: operands.map(HostTensor::range).collect::<Option<_>>()?,
            writes: node.range()?,
        })
    }

    /// Whether it reads what it writes.
    pub(super) fn is_in_place(&self) -> bool {
        self.reads.iter().any(|read| overlap(read, &self.writes))
    }

    /// Whether it reads what `earlier` writes.
    pub(crate) fn needs(&self, earlier: &Self) -> bool {
        self.reads.iter().any(|read| overlap(read, &earlier.writes))
    }

    /// Whether it writes what `earlier` reads or writes.
    pub(crate) fn overwrites(&self, earlier: &Self) -> bool {
        let mut others = earlier.reads.iter().chain([&earlier.writes]);
        others.any(|other| overlap(&self.writes, other))
    }
}

/// Whether two ranges of addresses overlap.
pub(crate) fn overlap(one: &Range<usize>, other: &Range<usize>) -> bool {
    one.start < other.end && other.start < one.end
}
