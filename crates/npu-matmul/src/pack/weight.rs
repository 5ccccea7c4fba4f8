// SPDX-License-Identifier: MIT OR Apache-2.0
//! Weights: a block of B -> one weight tile.

use super::Format;
use crate::dtype::CHANNEL_GROUP;
use crate::matrix::MatrixView;

/// Fills `tile` with a block of B (kernels x channels), in the order
/// (N/G, K/32, G, 32). `k_padded` is the tile's depth, a multiple of 32; the
/// number of kernels, whole groups, follows from the tile's length. Kernels
/// and channels that the block does not have become zeros.
pub fn pack_weight<F: Format>(block: MatrixView<'_, F::Host>, k_padded: usize, tile: &mut [u8]) {
    let group = F::PRECISION.kernel_group();
    let run_bytes = F::PRECISION.input_bytes(CHANNEL_GROUP);
    let group_bytes = F::PRECISION.input_bytes(group * k_padded).max(1);
    for (outer_n, tile) in tile.chunks_mut(group_bytes).enumerate() {
        for (outer_k, tile) in tile.chunks_mut(group * run_bytes).enumerate() {
            let first = outer_k * CHANNEL_GROUP;
            for (inner_n, run) in tile.chunks_mut(run_bytes).enumerate() {
                let kernel = block.row(outer_n * group + inner_n);
                let end = kernel.len().min(first + CHANNEL_GROUP);
                F::store(kernel.get(first..end).unwrap_or_default(), run);
            }
        }
    }
}
