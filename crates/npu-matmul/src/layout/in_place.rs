// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where a caller finds the elements of operands that stay in the buffers of
//! the NPU.

use super::Position;
use crate::dtype::ATOM_BYTES;

/// How the rows of an operand in memory follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Order {
    /// The NPU's own: surfaces of one atom (16 bytes) of each row, so that the
    /// atoms of a row are `16 * rows` bytes apart.
    Native {
        /// Rows of the tile in memory.
        rows: usize,
    },
    /// One whole row behind the other.
    RowMajor {
        /// Bytes from one row to the next.
        pitch: usize,
    },
}

/// Where the elements of a tile of A or C are in their buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TileLayout {
    /// Bits of an element, which is little endian.
    pub bits: usize,
    /// Byte offset of the tile in the buffer.
    pub offset: usize,
    /// How its rows follow each other.
    pub order: Order,
}

impl TileLayout {
    /// Where an element is in the buffer; row and column count from the first of the
    /// tile.
    #[must_use]
    pub const fn position(&self, row: usize, column: usize) -> Position {
        let in_tile = match self.order {
            Order::Native { rows } => {
                let of_atom = ATOM_BYTES * 8 / self.bits;
                ((column / of_atom) * rows + row) * ATOM_BYTES * 8 + column % of_atom * self.bits
            }
            Order::RowMajor { pitch } => row * pitch * 8 + column * self.bits,
        };
        Position {
            byte: self.offset + in_tile / 8,
            bit: (in_tile % 8) as u32,
        }
    }
}

#[cfg(test)]
mod tests {
    use rknpu_regcmd::MatmulType;

    use super::*;
    use crate::dtype::Dtype;
    use crate::layout::{activation, output};

    /// The layouts that tiles are packed in and unpacked from.
    #[test]
    fn a_native_tile_is_what_the_npu_reads_and_writes() {
        for (row, column) in [(0, 0), (3, 33), (7, 95)] {
            let at = |bits| {
                let layout = TileLayout {
                    bits,
                    offset: 256,
                    order: Order::Native { rows: 8 },
                };
                let Position { byte, bit } = layout.position(row, column);
                (byte - 256, bit)
            };
            for dtype in Dtype::ALL {
                let Position { byte, bit } = activation(dtype, 8, row, column);
                assert_eq!(at(dtype.input_bits()), (byte, bit));
            }
            for ty in [MatmulType::Int8ToInt32, MatmulType::Fp16ToFp16] {
                let byte = output(ty, 8, row, column);
                assert_eq!(at(ty.out_bytes() as usize * 8), (byte, 0));
            }
        }
    }

    #[test]
    fn rows_of_a_row_major_tile_are_whole() {
        let layout = TileLayout {
            bits: 16,
            offset: 256,
            order: Order::RowMajor { pitch: 640 },
        };
        let at = layout.position(3, 33);
        assert_eq!((at.byte, at.bit), (256 + 3 * 640 + 66, 0));
    }
}
