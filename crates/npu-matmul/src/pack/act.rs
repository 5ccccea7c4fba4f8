// SPDX-License-Identifier: MIT OR Apache-2.0
//! Activations: a block of A -> one NC1HWC2 tile.

use npu_kernels::pack::{Encode, pack};

use super::Format;
use crate::dtype::ATOM_BYTES;
use crate::matrix::MatrixView;

/// Fills `tile`, an activation tile of `tile_rows` rows, with a block of A.
/// Rows and channels of the tile that the block does not have become zeros.
/// The tile's depth follows from its length.
pub fn pack_activation<F: Format>(
    block: MatrixView<'_, <F as Encode>::Host>,
    tile_rows: usize,
    tile: &mut [u8],
) {
    pack::<ATOM_BYTES, F>(&mut F::default(), block, tile_rows, tile);
}
