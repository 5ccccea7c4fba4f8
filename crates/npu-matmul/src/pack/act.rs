// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packs activations: a block of A into one NC1HWC2 tile.

use npu_kernels::pack::{Encode, pack};

use super::Format;
use crate::dtype::ATOM_BYTES;
use crate::matrix::MatrixView;

/// Fills `tile`, an activation tile of `tile_rows` rows, with a block of A. The tile's length
/// determines its depth. Rows and channels outside the block become zeros.
pub fn pack_activation<F: Format>(
    block: MatrixView<'_, <F as Encode>::Host>,
    tile_rows: usize,
    tile: &mut [u8],
) {
    pack::<ATOM_BYTES, F>(&mut F::default(), block, tile_rows, tile);
}
