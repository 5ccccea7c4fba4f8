// SPDX-License-Identifier: MIT OR Apache-2.0
//! Activations: a block of A -> one NC1HWC2 tile.

use super::Format;
use crate::dtype::ATOM_BYTES;
use crate::matrix::MatrixView;

/// Fills `tile`, an activation tile of `tile_rows` rows, with a block of A.
/// Rows and channels of the tile that the block does not have become zeros.
/// The tile's depth follows from its length.
pub fn pack_activation<F: Format>(
    block: MatrixView<'_, F::Host>,
    tile_rows: usize,
    tile: &mut [u8],
) {
    let c2 = F::PRECISION.atom_elements();
    let (atoms, _) = tile.as_chunks_mut::<ATOM_BYTES>();
    for (surface, atoms) in atoms.chunks_mut(tile_rows.max(1)).enumerate() {
        let first = surface * c2;
        for (m, atom) in atoms.iter_mut().enumerate() {
            let row = block.row(m);
            match row.get(first..first + c2) {
                // The length is known to the compiler here: one 16-byte move.
                Some(whole) => F::store(whole, atom),
                None => F::store(row.get(first..).unwrap_or_default(), atom),
            }
        }
    }
}
