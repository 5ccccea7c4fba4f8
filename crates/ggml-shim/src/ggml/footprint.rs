// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory that a node reads and writes.

use std::ops::Range;

use crate::ggml::tensor_data::NodeOutput;
use crate::ggml::tensor_ref::TensorRef;

/// The addresses that a node reads and writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Footprint {
    /// Addresses of each operand.
    pub(crate) reads: Vec<Range<usize>>,
    pub(crate) writes: Range<usize>,
}

impl Footprint {
    /// Returns the addresses of `node`; `None` if it or an operand has no data.
    pub(crate) fn of(node: TensorRef<'_>) -> Option<Self> {
        let operands = node.operands().flatten();
        Some(Self {
            reads: operands.map(TensorRef::range).collect::<Option<_>>()?,
            writes: node.range()?,
        })
    }

    /// Returns the place of the outputs of `node`: `aside`, or its data. `None` if the data is
    /// missing, or overlaps an operand.
    ///
    /// # Safety
    /// [`Self::of`] returned this for `node`, which is allocated, and during `'a` nobody else
    /// accesses its data unless outputs are set aside.
    pub(crate) unsafe fn output<'a>(
        &self,
        node: TensorRef<'a>,
        aside: Option<Vec<f32>>,
    ) -> Option<NodeOutput<'a>> {
        if self.reads.iter().any(|read| overlap(read, &self.writes)) {
            return None;
        }
        match aside {
            Some(values) => Some(NodeOutput::Aside(values)),
            // SAFETY: by the caller's promise, and it overlaps no slice of an operand.
            None => unsafe { node.output() }.map(NodeOutput::InPlace),
        }
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
