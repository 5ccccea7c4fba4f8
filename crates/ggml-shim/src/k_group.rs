// SPDX-License-Identifier: MIT OR Apache-2.0
//! Groups of K that share a scale.

/// Channels of K that share a scale where weights have four bits: a K tile
/// each, so that smaller groups are nearer to the weights and cost more sums.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KGroup(usize);

impl KGroup {
    /// Sizes of groups are multiples of this: the depth that the NPU takes at a time in
    /// INT4.
    pub(crate) const STEP: usize = npu_matmul::Dtype::Int4.k_multiple();
    /// The deepest K tile in INT4.
    pub(crate) const MAX: usize = npu_matmul::plan::INT4_K_TILE_MAX;

    /// So many channels; `None` if that is no legal K tile.
    pub(crate) fn new(channels: usize) -> Option<Self> {
        let is_legal = channels > 0 && channels <= Self::MAX && channels.is_multiple_of(Self::STEP);
        is_legal.then_some(Self(channels))
    }

    /// The number of channels.
    pub(crate) fn channels(self) -> usize {
        self.0
    }
}

impl Default for KGroup {
    /// Half the sums of the smallest group; what each loses is in docs/llama.md.
    fn default() -> Self {
        Self(64)
    }
}
