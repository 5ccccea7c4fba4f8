// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packs weights: a block of B into one weight tile.

use npu_kernels::pack::{Encode, pack};

use super::Format;
use crate::dtype::{CHANNEL_GROUP, Dtype};
use crate::matrix::MatrixView;

/// Fills `tile` with a block of B (kernels x channels), in the order (N/G, K/32, G, 32). `k_padded`
/// is the tile's depth, a multiple of 32. The tile's length determines the number of kernels, in
/// whole groups. Kernels and channels outside the block become zeros.
pub fn pack_weight<F: Format>(
    block: MatrixView<'_, <F as Encode>::Host>,
    k_padded: usize,
    tile: &mut [u8],
) {
    /// Bytes of one kernel's channels in a run.
    const fn run(dtype: Dtype) -> usize {
        dtype.input_bytes(CHANNEL_GROUP)
    }
    let group = F::DTYPE.kernel_group();
    let group_bytes = F::DTYPE.input_bytes(group * k_padded).max(1);
    for (index, tile) in tile.chunks_mut(group_bytes).enumerate() {
        let first = index * group;
        let kernels = block.block(first..first + group, 0..block.columns());
        let mut encode = F::default();
        match F::DTYPE {
            Dtype::Int8 => pack::<{ run(Dtype::Int8) }, F>(&mut encode, kernels, group, tile),
            Dtype::Int4 => pack::<{ run(Dtype::Int4) }, F>(&mut encode, kernels, group, tile),
            Dtype::Fp16 => pack::<{ run(Dtype::Fp16) }, F>(&mut encode, kernels, group, tile),
        }
    }
}
