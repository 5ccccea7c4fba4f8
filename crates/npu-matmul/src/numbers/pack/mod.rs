// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packs host matrices into the layouts of [`crate::layout`].
//!
//! [`npu_kernels::pack`] does the work; this module selects encoding and run lengths for each
//! precision. Padding is written as zeros: buffers are reused, and a zero adds nothing to a sum.

#[cfg(test)]
mod tests;

use npu_kernels::pack::{Bytes, Encode, Halves, LowNibbles, pack};

use crate::matrix::MatrixView;
use crate::numbers::dtype::{ATOM_BYTES, CHANNEL_GROUP, Dtype};

/// An encoding of operands.
pub trait Format: Encode + 'static {
    /// Precision of this encoding.
    const DTYPE: Dtype;
}

/// [`Dtype::Int8`]: one byte for each element.
pub type Int8 = Bytes;

/// [`Dtype::Fp16`]: two bytes for each element, little endian.
pub type Fp16 = Halves;

/// [`Dtype::Int4`]: two elements in a byte, the even index in the low nibble. The host type is
/// `i8`. Only the low four bits are kept; check the range before
/// ([`npu_kernels::nibble::first_outside`]).
pub type Int4 = LowNibbles;

impl Format for Int8 {
    const DTYPE: Dtype = Dtype::Int8;
}

impl Format for Fp16 {
    const DTYPE: Dtype = Dtype::Fp16;
}

impl Format for Int4 {
    const DTYPE: Dtype = Dtype::Int4;
}

/// Fills `tile`, an activation tile of `tile_rows` rows, with a block of A. The tile's length
/// determines its depth. Rows and channels outside the block become zeros.
pub fn pack_activation<F: Format>(
    block: MatrixView<'_, F::Host>,
    tile_rows: usize,
    tile: &mut [u8],
) {
    pack::<ATOM_BYTES, F>(block, tile_rows, tile);
}

/// Fills `tile` with a block of B (kernels x channels), in the order (N/G, K/32, G, 32). `k_padded`
/// is the tile's depth, a multiple of 32. The tile's length determines the number of kernels, in
/// whole groups. Kernels and channels outside the block become zeros.
pub fn pack_weight<F: Format>(block: MatrixView<'_, F::Host>, k_padded: usize, tile: &mut [u8]) {
    /// Bytes of one kernel's channels in a run.
    const fn run(dtype: Dtype) -> usize {
        dtype.input_bytes(CHANNEL_GROUP)
    }
    let group = F::DTYPE.kernel_group();
    let group_bytes = F::DTYPE.input_bytes(group * k_padded).max(1);
    for (index, tile) in tile.chunks_mut(group_bytes).enumerate() {
        let first = index * group;
        let kernels = block.block(first..first + group, 0..block.columns());
        match F::DTYPE {
            Dtype::Int8 => pack::<{ run(Dtype::Int8) }, F>(kernels, group, tile),
            Dtype::Int4 => pack::<{ run(Dtype::Int4) }, F>(kernels, group, tile),
            Dtype::Fp16 => pack::<{ run(Dtype::Fp16) }, F>(kernels, group, tile),
        }
    }
}
