// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where a caller finds the elements of operands that stay in the buffers of
//! the NPU.

use rknpu_regcmd::MatmulType;

use super::{Position, activation, output};
use crate::dtype::Dtype;

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

/// Where the activations of a tile are in their buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ActivationLayout {
    /// Type of the elements.
    pub dtype: Dtype,
    /// Byte offset of the tile in the buffer.
    pub offset: usize,
    /// How its rows follow each other.
    pub order: Order,
}

impl ActivationLayout {
    /// Where an element is in the buffer; row and channel count from the first
    /// of the tile.
    #[must_use]
    pub const fn position(&self, row: usize, channel: usize) -> Position {
        let Position { byte, bit } = match self.order {
            Order::Native { rows } => activation(self.dtype, rows, row, channel),
            Order::RowMajor { pitch } => {
                let in_row = Position::of_index(self.dtype, channel);
                Position {
                    byte: row * pitch + in_row.byte,
                    ..in_row
                }
            }
        };
        Position {
            byte: self.offset + byte,
            bit,
        }
    }
}

/// Where the results of a tile are in their buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ResultLayout {
    /// Type of the product that wrote them.
    pub ty: MatmulType,
    /// Byte offset of the tile in the buffer.
    pub offset: usize,
    /// How its rows follow each other.
    pub order: Order,
}

impl ResultLayout {
    /// The byte of the buffer at which an element begins, little endian; row and
    /// channel count from the first of the tile.
    #[must_use]
    pub const fn offset(&self, row: usize, channel: usize) -> usize {
        let in_tile = match self.order {
            Order::Native { rows } => output(self.ty, rows, row, channel),
            Order::RowMajor { pitch } => row * pitch + channel * self.ty.out_bytes() as usize,
        };
        self.offset + in_tile
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tile_begins_where_it_says() {
        let order = Order::Native { rows: 8 };
        let layout = ActivationLayout {
            dtype: Dtype::Int4,
            offset: 256,
            order,
        };
        // The second surface of 32 channels is behind eight atoms.
        let at = layout.position(3, 33);
        assert_eq!((at.byte, at.bit), (256 + (8 + 3) * 16, 4));
        let layout = ResultLayout {
            ty: MatmulType::Int8ToInt32,
            offset: 512,
            order,
        };
        assert_eq!(layout.offset(3, 5), 512 + (8 + 3) * 16 + 4);
        let order = Order::RowMajor { pitch: 640 };
        let halves = ResultLayout {
            ty: MatmulType::Fp16ToFp16,
            order,
            ..layout
        };
        assert_eq!(halves.offset(3, 5), 512 + 3 * 640 + 10);
        let layout = ActivationLayout {
            dtype: Dtype::Fp16,
            offset: 256,
            order,
        };
        let at = layout.position(3, 33);
        assert_eq!((at.byte, at.bit), (256 + 3 * 640 + 66, 0));
    }
}
